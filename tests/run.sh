#!/bin/sh
# Runs every test, with a Vulkan adapter: sh tests/run.sh [arguments of `cargo test`]
#
# A machine without one gets Mesa's software driver where that can be installed; the adapter is then required, so
# that no test of a device is passed over in silence. The same goes for an MPI library, mpirun, and the libclang that
# the binding of the former needs.
set -eu
cd "$(dirname "$0")/.."

say() { printf '%s\n' "$*" >&2; }

# Whether a Vulkan driver is known to the loader.
has_driver() {
    [ -n "${VK_DRIVER_FILES:-${VK_ICD_FILENAMES:-}}" ] && return 0
    for file in /usr/share/vulkan/icd.d/*.json /usr/local/share/vulkan/icd.d/*.json /etc/vulkan/icd.d/*.json; do
        [ -e "$file" ] && return 0
    done
    return 1
}

remedy='install an MPI library with mpirun, libclang, a Vulkan loader and driver (Mesa: packages mesa-vulkan-drivers and libvulkan1, on Fedora
mesa-vulkan-drivers and vulkan-loader, on Arch vulkan-swrast and vulkan-icd-loader) and
spirv-tools, or run `cargo test`, which tests the devices that are there'

features=cuda
case "$(uname -s)" in
Darwin | MINGW* | MSYS* | CYGWIN*)
    # Metal and DX12 come with the system; a machine in a data centre may have no adapter for them.
    ;;
*)
    missing=''
    has_driver || missing='mesa-vulkan-drivers libvulkan1'
    # The kernels' SPIR-V is validated by Khronos' tool.
    command -v spirv-val >/dev/null 2>&1 || missing="$missing spirv-tools"
    command -v mpirun >/dev/null 2>&1 || missing="$missing openmpi-bin"
    command -v mpicc >/dev/null 2>&1 || missing="$missing libopenmpi-dev"
    # Not libclang-cpp, which compilers bring.
    ls /usr/lib*/llvm*/lib/libclang.so* /usr/lib*/llvm*/lib/libclang-[0-9]* /usr/lib/*/libclang.so* /usr/lib/*/libclang-[0-9]* \
        /usr/lib*/libclang.so* 2>/dev/null | grep -q . || [ -n "${LIBCLANG_PATH:-}" ] || missing="$missing libclang-dev"
    if [ -n "$missing" ]; then
        as_root=''
        if [ "$(id -u)" -ne 0 ]; then
            as_root=sudo
            command -v sudo >/dev/null 2>&1 || { say "missing: $missing, and no sudo to install it: $remedy"; exit 1; }
        fi
        command -v apt-get >/dev/null 2>&1 || { say "missing: $missing: $remedy"; exit 1; }
        say "installing $missing"
        $as_root apt-get update
        # shellcheck disable=SC2086 # several packages
        DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y $missing
    fi
    : "${KOLMO_REQUIRE_DEVICES:=cpu,wgpu:0,mpi}"
    export KOLMO_REQUIRE_DEVICES
    features=cuda,mpi
    ;;
esac
# NVIDIA's run-time compiler, which needs no GPU to compile the kernels for CUDA.
if [ -z "${KOLMO_NVRTC_DIR:-}" ] && [ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] && python3 -m pip --version >/dev/null 2>&1; then
    KOLMO_NVRTC_DIR=$(sh tests/nvrtc.sh)
fi
if [ -n "${KOLMO_NVRTC_DIR:-}" ]; then
    export KOLMO_NVRTC_DIR KOLMO_REQUIRE_DEVICES="${KOLMO_REQUIRE_DEVICES:+$KOLMO_REQUIRE_DEVICES,}nvrtc"
else
    say 'no Python with pip: the kernels are not compiled for CUDA'
fi
# Mesa's layer that picks a device by the display complains in every process that has none.
export NODEVICE_SELECT=1

say "devices required: ${KOLMO_REQUIRE_DEVICES:-none}"
exec cargo test --features "$features" "$@"
