#!/bin/sh
# Builds the wheel, installs it in a fresh virtual environment, and runs its tests: sh python/test.sh [arguments of pytest]
#
# KOLMO names the command whose answers are to be the same; without it target/debug/kolmo is built.
set -eu
cd "$(dirname "$0")/.."

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/env"
pip() { "$place/env/bin/python" -m pip --quiet --disable-pip-version-check "$@"; }
pip install 'maturin>=1.9,<2'
# As for other tests, the library is compiled with optimisation.
"$place/env/bin/maturin" build --locked --profile dev --manifest-path python/Cargo.toml --out "$place" --interpreter "$place/env/bin/python"
pip install "$(ls "$place"/kolmo_solvers-*.whl)[test]"
if [ -z "${KOLMO:-}" ]; then
    cargo build --locked -p kolmo-cli --features cuda
    KOLMO=${CARGO_TARGET_DIR:-target}/debug/kolmo
fi
KOLMO=$(realpath "$KOLMO")
export KOLMO
"$place/env/bin/python" -m pytest -q python "$@"
