#!/bin/sh
# Builds the page, a single file that works from a folder and without a network:
# sh web/build.sh [PAGE.html] [Cargo profile]
#
# The page is web/page.html around the command kolmo, compiled to WebAssembly. Needs cargo, gzip,
# base64 and the target wasm32-wasip1, which rustup adds if necessary.
set -eu
cd "$(dirname "$0")/.."
page=${1:-target/kolmo.html}
profile=${2:-release}
if [ ! -d "$(rustc --print sysroot)/lib/rustlib/wasm32-wasip1" ] && command -v rustup >/dev/null; then
    rustup target add wasm32-wasip1
fi
# Stack size of 4 MiB, since the linker's default is 1 MiB.
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
