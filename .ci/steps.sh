# The parts that `run` and `nightly` share. They source this file.
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null

export CARGO_INCREMENTAL=0      # nothing is built twice here
export CARGO_TERM_QUIET=true    # warnings and errors, not every crate's name

current=
trap '[[ -z $current ]] || echo "== $current: FAILED after $((SECONDS - started)) s"' EXIT

# Not `"$@" || …`: behind `||`, bash continues after a failure inside a function.
step() {
    current=$1 started=$SECONDS
    shift
    echo "== $current"
    "$@"
    echo "== $current: $((SECONDS - started)) s"
    current=
}

# Usage: component NAME COMMAND: installs a part of the toolchain unless its command is there.
component() {
    cargo "$2" --version >/dev/null 2>&1 || rustup component add "$1"
}

tools() {
    component rustfmt fmt
    component clippy clippy
}

# Says which command it was when it fails.
or_say_which() {
    "$@" || {
        printf 'failed: %s\n' "$*" >&2
        return 1
    }
}
