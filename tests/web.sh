#!/bin/sh
# Builds the page of web/ and computes chains in it: sh tests/web.sh [KOLMO] [FOLDER for pictures]
#
# Needs Chromium (KOLMO_CHROMIUM, or chromium on the path), npm, and the target wasm32-wasip1, which
# rustup installs. A missing requirement is an error.
set -eu
cd "$(dirname "$0")/.."
kolmo=${1:-${CARGO_TARGET_DIR:-target}/debug/kolmo}
chromium=${KOLMO_CHROMIUM:-$(command -v chromium || true)}
if [ -z "$chromium" ] || ! command -v npm >/dev/null 2>&1; then
    echo 'no Chromium or no npm to try the page with: install the packages chromium and npm' >&2
    exit 1
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
sh web/build.sh "$folder/kolmo.html" quick
npm install --silent --no-audit --no-fund --prefix "$folder" playwright-core >/dev/null
KOLMO_CHROMIUM=$chromium KOLMO_PLAYWRIGHT="$folder" node tests/web.mjs "$folder/kolmo.html" "$kolmo" ${2:+"$2"}
