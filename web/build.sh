#!/bin/sh
# Makes the page, one file that works from a folder and without a network: sh web/build.sh [PAGE.html] [PROFILE of Cargo]
#
# It is the command kolmo itself, compiled to WebAssembly, with web/page.html around it. Needs cargo, gzip and base64, and the
# target wasm32-wasip1, which it has rustup add.
set -eu
cd "$(dirname "$0")/.."
page=${1:-target/kolmo.html}
profile=${2:-release}
if [ ! -d "$(rustc --print sysroot)/lib/rustlib/wasm32-wasip1" ] && command -v rustup >/dev/null; then
    rustup target add wasm32-wasip1
fi
# The stack, of which a linker leaves 1 MiB.
export CARGO_TARGET_WASM32_WASIP1_RUSTFLAGS='-C link-arg=-zstack-size=4194304 -C strip=symbols'
cargo build --profile "$profile" --target wasm32-wasip1 -p kolmo-cli --no-default-features
wasm=${CARGO_TARGET_DIR:-target}/wasm32-wasip1/$profile/kolmo.wasm
while IFS= read -r line; do
    case $line in
        '<!-- '*' -->')
            part=${line#<!-- }
            case ${part% -->} in
                wasm) gzip -9nc "$wasm" | base64 ;;
                *) cat "web/${part% -->}" ;;
            esac
            ;;
        *) printf '%s\n' "$line" ;;
    esac
done <web/page.html >"$page"
echo "$page: $(wc -c <"$page") bytes"
