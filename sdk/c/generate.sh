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
wit-bindgen c ../../wit/0.1.0 --world listener --out-dir generated "$@"
