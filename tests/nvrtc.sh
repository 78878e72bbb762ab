#!/bin/sh
# Downloads NVRTC, NVIDIA's run-time compiler, from PyPI once, and prints the folder of
# libnvrtc.so.*
#
# It compiles the CUDA kernels on machines without CUDA.
#
#   KOLMO_NVRTC_DIR=$(tests/nvrtc.sh) cargo test --features cuda --test library cuda_text::
#   tests/nvrtc.sh 12        NVRTC of CUDA 12 instead of 13
set -eu

major=${1:-13}
case $major in
    12) package='nvidia-cuda-nvrtc-cu12' ;;
    13) package='nvidia-cuda-nvrtc>=13,<14' ;;
    *) echo "usage: $0 [12|13]" >&2; exit 2 ;;
esac
target=${CARGO_TARGET_DIR:-$(dirname "$0")/../target}
mkdir -p "$target"
folder=$(cd "$target" && pwd)/nvrtc/cu$major

library() { find "$folder" -name "libnvrtc.so.$major" 2>/dev/null | head -n 1; }

if [ -z "$(library)" ]; then
    # Unpacked elsewhere and moved, so that an interrupted download leaves no complete-looking
    # folder.
    fresh=$folder.$$
    trap 'rm -rf "$fresh"' EXIT
    mkdir -p "$fresh/wheel"
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
        -d "$fresh/wheel" "$package" >&2
    python3 -m zipfile -e "$fresh"/wheel/*.whl "$fresh/files" >&2
    rm -rf "$folder"
    mv "$fresh/files" "$folder"
fi
found=$(library)
if [ -z "$found" ]; then
    echo "$0: the wheel of $package holds no libnvrtc.so.$major" >&2
    exit 1
fi
dirname "$found"
