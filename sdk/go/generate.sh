#!/bin/sh
# Makes the files in internal/bindings/ again, from the contract in wit/.
#
# Needed only when the contract changes. It takes Go's own gofmt, and wit-bindgen in exactly this version, since another one writes
# other code:
#     cargo install --locked wit-bindgen-cli@0.63.0
set -eu
cd "$(dirname "$0")"

wit-bindgen --version | grep -qx 'wit-bindgen-cli 0.63.0' || {
    echo "generate.sh needs wit-bindgen-cli 0.63.0, but found: $(wit-bindgen --version)" >&2
    exit 1
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The contract's world has no look at the settings; that is an export which a plugin may have.
cp -R ../../wit/0.1.0 "$work/wit"
cat > "$work/wit/sdk.wit" <<'WIT'
package outbox:listener@0.1.0;

world sdk-listener {
  include listener;
  export settings-check;
}

/// An export of its own: only a plugin that imports package outbox/batch has it.
world sdk-batches {
  export batch-handler;
}
WIT

# The folder of the exports also holds the files that the bindings call, which are ours: export_outbox_listener_*.
rm -rf internal/bindings/imports internal/bindings/exports/wit_exports internal/bindings/exports/wit_batch_exports
wit-bindgen go "$work/wit" --world sdk-listener --pkg-name outbox/internal/bindings --format=false --out-dir internal/bindings
# Of the second world, the export alone: its types are those of the first.
wit-bindgen go "$work/wit" --world sdk-batches --pkg-name outbox/internal/bindings --format=false --out-dir "$work/batches"
mkdir internal/bindings/exports/wit_batch_exports
sed 's/^package wit_exports$/package wit_batch_exports/' "$work/batches/exports/wit_exports/wit_exports.go" \
    > internal/bindings/exports/wit_batch_exports/wit_exports.go

# Only a native build would need these.
find internal/bindings -name empty.s -delete

# The module that wit-bindgen's output imports is kept in internal/wit, so nothing is fetched. And the bindings are for WebAssembly
# alone: a native build, such as a test, must not see them.
find internal/bindings/imports internal/bindings/exports/wit_exports internal/bindings/exports/wit_batch_exports -name '*.go' | while read -r file; do
    {
        echo '//go:build wasip1'
        echo
        sed 's|"[^"]*/pkg/wit/\([a-z]*\)"|"outbox/internal/wit/\1"|' "$file"
    } > "$file.new"
    mv "$file.new" "$file"
done
"$(go env GOROOT)/bin/gofmt" -w internal/bindings
