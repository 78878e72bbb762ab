#!/bin/sh
# Builds the wheel, installs it in a fresh virtual environment, and runs its tests:
# sh python/test.sh [arguments of pytest]
#
# With --quick as the first argument no environment or wheel is made. The current interpreter runs
# the tests that are not slow. It needs NumPy, SciPy, matplotlib, pytest and tqdm.
#
# KOLMO names the command that has to give the same answers; by default target/debug/kolmo is built.
# KOLMO_MODULE names a module that is already built, to make the wheel from.
set -eu
cd "$(dirname "$0")/.."

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
if [ "${1:-}" = --quick ]; then
    shift
    cp -r python/python/kolmo "$place/"
    cp "$KOLMO_MODULE" "$place/kolmo/_kolmo.abi3.so"
    PYTHONPATH=$place python3 -m pytest -q -p no:cacheprovider -m 'not slow' python "$@"
    exit
fi
python3 -m venv "$place/env"
python=$place/env/bin/python
# Installs packages with uv, in a third of the time of pip; with pip if uv fails.
install() {
    "$place/env/bin/uv" pip install --quiet --compile-bytecode --python "$python" "$@" ||
        "$python" -m pip install --quiet --disable-pip-version-check "$@"
}
"$python" -m pip install --quiet --disable-pip-version-check uv || true
install 'maturin>=1.9,<2' wheel
if [ -n "${KOLMO_MODULE:-}" ]; then
    (cd python && "$place/env/bin/maturin" pep517 write-dist-info --metadata-directory "$place/wheel" --interpreter "$python" >"$place/log")
    cp -r python/python/kolmo "$place/wheel/"
    cp "$KOLMO_MODULE" "$place/wheel/kolmo/_kolmo.abi3.so"
    "$python" -m wheel pack "$place/wheel" --dest-dir "$place" >"$place/log"
else
    # The library is compiled with optimisation, as for all tests.
    "$place/env/bin/maturin" build --locked --profile dev --manifest-path python/Cargo.toml --out "$place" --interpreter "$python"
fi
install "$(ls "$place"/kolmo_solvers-*.whl)[test]"
if [ -z "${KOLMO:-}" ]; then
    cargo build --locked -p kolmo-cli --features cuda
    KOLMO=${CARGO_TARGET_DIR:-target}/debug/kolmo
fi
KOLMO=$(realpath "$KOLMO")
export KOLMO
"$python" -m pytest -q -n auto python "$@"
