#!/bin/sh
# Checks the page of `kolmo bench compare` in headless Chromium: sh tests/page.sh [KOLMO]
#
# Needs Chromium (KOLMO_CHROMIUM, or chromium on the path) and npm, which downloads playwright-core
# into a temporary folder. Without them, the check is skipped with a message;
# tests/command/compare_page.rs tests the page without a browser.
set -eu
cd "$(dirname "$0")/.."
kolmo=${1:-${CARGO_TARGET_DIR:-target}/debug/kolmo}
chromium=${KOLMO_CHROMIUM:-$(command -v chromium || true)}
if [ -z "$chromium" ] || ! command -v npm >/dev/null 2>&1; then
    echo 'no Chromium or no npm: the page is not looked at in a browser (packages chromium, npm)' >&2
    exit 0
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$kolmo" bench compare --size tiny --device "${KOLMO_PAGE_DEVICES:-cpu}" --html "$folder/page.html" --quiet >"$folder/table.txt"
npm install --silent --no-audit --no-fund --prefix "$folder" playwright-core >/dev/null
KOLMO_CHROMIUM=$chromium KOLMO_PLAYWRIGHT="$folder" node tests/page.mjs "$folder/page.html"
