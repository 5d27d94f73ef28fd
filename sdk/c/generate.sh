#!/bin/sh
# Makes the files in generated/ again, from the contract in wit/.
#
# Needed only when the contract changes. It takes wit-bindgen, in exactly this version, since another one writes other code:
#     cargo install --locked wit-bindgen-cli@0.63.0
# `sh generate.sh --check` writes nothing, and fails when the files are not what the contract makes.
set -eu
cd "$(dirname "$0")"

wit-bindgen --version | grep -qx 'wit-bindgen-cli 0.63.0' || {
    echo "generate.sh needs wit-bindgen-cli 0.63.0, but found: $(wit-bindgen --version)" >&2
    exit 1
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The contract's world has no look at the settings and takes one event at a time; these are exports which a plugin may have.
cp -R ../../wit/0.1.0 "$work/wit"
cat > "$work/wit/sdk.wit" <<'WIT'
package outbox:listener@0.1.0;

world sdk-listener {
  include listener;
  export settings-check;
  export batch-handler;
}
WIT
wit-bindgen c "$work/wit" --world sdk-listener --rename-world listener --out-dir "$work/generated" > "$work/log" 2>&1 || {
    cat "$work/log" >&2
    exit 1
}
# The world is put into the module by `outbox plugin componentize`, so no object file has to carry it, nor to be linked; and
# outbox.c, which includes this file, has a cabi_realloc of its own. What takes many events is exported by OUTBOX_BATCHES, in
# the plugins that have it.
rm "$work/generated/listener_component_type.o"
sed '/export_name__(".*batch-handler/d; /export_name__("cabi_realloc")/,/^}/d; /^\/\/ Ensure that the/,$d' "$work/generated/listener.c" > "$work/listener.c"
mv "$work/listener.c" "$work/generated/listener.c"

if [ "${1-}" = --check ]; then
    diff -r "$work/generated" generated
else
    rm -rf generated
    mv "$work/generated" generated
fi
