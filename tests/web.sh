#!/bin/sh
# Makes the page of web/ and computes chains in it with headless Chromium: sh tests/web.sh [KOLMO] [FOLDER for pictures]
#
# Needs what tests/page.sh needs, and the target wasm32-wasip1. Where something is missing the check is left out and says so.
set -eu
cd "$(dirname "$0")/.."
kolmo=${1:-${CARGO_TARGET_DIR:-target}/debug/kolmo}
chromium=${KOLMO_CHROMIUM:-$(command -v chromium || true)}
if [ -z "$chromium" ] || ! command -v npm >/dev/null 2>&1; then
    echo 'no Chromium or no npm: the page is not tried in a browser (packages chromium, npm)' >&2
    exit 0
fi
if [ ! -d "$(rustc --print sysroot)/lib/rustlib/wasm32-wasip1" ]; then
    echo 'no target wasm32-wasip1: the page is not tried in a browser (rustup target add wasm32-wasip1)' >&2
    exit 0
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
sh web/build.sh "$folder/kolmo.html"
npm install --silent --no-audit --no-fund --prefix "$folder" playwright-core >/dev/null
KOLMO_CHROMIUM=$chromium KOLMO_PLAYWRIGHT="$folder" node tests/web.mjs "$folder/kolmo.html" "$kolmo" ${2:+"$2"}
