#!/bin/sh
# Runs the tests: sh tests/run.sh [--all] [arguments of `cargo test`]
#
# Without --all: the tests that need only a Vulkan adapter, in minutes, and the quick tests of the
# Python package if Python has NumPy, SciPy, matplotlib, pytest and tqdm.
#
# With --all, also: slow tests, ranks under mpirun, translation to CUDA, validation of SPIR-V, and
# all tests of the Python package.
#
# Missing requirements are installed if possible. They are then required, so that no test is skipped
# silently. Skipped tests are listed and counted at the end.
set -eu
cd "$(dirname "$0")/.."

say() { printf '%s\n' "$*" >&2; }

all=''
if [ "${1:-}" = --all ]; then
    all=yes
    shift
fi

# True if the loader finds a Vulkan driver.
has_driver() {
    [ -n "${VK_DRIVER_FILES:-${VK_ICD_FILENAMES:-}}" ] && return 0
    for file in /usr/share/vulkan/icd.d/*.json /usr/local/share/vulkan/icd.d/*.json /etc/vulkan/icd.d/*.json; do
        [ -e "$file" ] && return 0
    done
    return 1
}

# Excludes libclang-cpp, which is installed with compilers.
has_libclang() {
    [ -n "${LIBCLANG_PATH:-}" ] && return 0
    ls /usr/lib*/llvm*/lib/libclang.so* /usr/lib*/llvm*/lib/libclang-[0-9]* /usr/lib/*/libclang.so* /usr/lib/*/libclang-[0-9]* \
        /usr/lib*/libclang.so* 2>/dev/null | grep -q .
}

has() { command -v "$1" >/dev/null 2>&1; }

required=''
features=''
packages=''
python=''
case "$(uname -s)" in
Darwin | MINGW* | MSYS* | CYGWIN*)
    # Metal and DX12 are part of the system, but a machine in a data centre may have no adapter.
    [ -z "$all" ] || features=cuda,sprs
    ;;
*)
    required=cpu,wgpu:0
    missing=''
    has_driver || missing='mesa-vulkan-drivers libvulkan1'
    if [ -n "$all" ]; then
        required=$required,mpi,spirv-val
        # For tests/web.sh, which .ci/run starts later.
        for browser in chromium google-chrome; do
            [ -n "${KOLMO_CHROMIUM:-}" ] || KOLMO_CHROMIUM=$(command -v "$browser" || true)
        done
        [ -n "$KOLMO_CHROMIUM" ] || missing="$missing chromium"
        export KOLMO_CHROMIUM="${KOLMO_CHROMIUM:-chromium}"
        features=cuda,mpi,sprs
        # Includes the Python package, so that shared crates are compiled once.
        packages=--workspace
        export PYO3_BUILD_EXTENSION_MODULE=1
        python3 -m venv --help >/dev/null 2>&1 || missing="$missing python3-venv"
        has spirv-val || missing="$missing spirv-tools"
        has mpirun || missing="$missing openmpi-bin"
        has mpicc || missing="$missing libopenmpi-dev"
        has_libclang || missing="$missing libclang-dev"
    elif [ $# -eq 0 ] && python3 -c 'import matplotlib, numpy, pytest, scipy, tqdm' 2>/dev/null; then
        python=yes
        packages=--workspace
        export PYO3_BUILD_EXTENSION_MODULE=1
    fi
    if [ -n "$missing" ]; then
        remedy="install them (packages of Debian; on Fedora and Arch the driver is in mesa-vulkan-drivers and vulkan-swrast), or run \
\`cargo test\`, which tests the devices that are there"
        as_root=''
        if [ "$(id -u)" -ne 0 ]; then
            as_root=sudo
            has sudo || { say "missing: $missing, and no sudo: $remedy"; exit 1; }
        fi
        has apt-get || { say "missing: $missing: $remedy"; exit 1; }
        say "installing $missing"
        $as_root apt-get update
        # shellcheck disable=SC2086 # several packages
        DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y $missing
    fi
    ;;
esac
if [ -n "$all" ]; then
    # NVIDIA's run-time compiler compiles the CUDA kernels without a GPU.
    if [ -z "${KOLMO_NVRTC_DIR:-}" ] && [ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] && python3 -m pip --version >/dev/null 2>&1; then
        KOLMO_NVRTC_DIR=$(sh tests/nvrtc.sh)
    fi
    if [ -n "${KOLMO_NVRTC_DIR:-}" ]; then
        export KOLMO_NVRTC_DIR
        required=${required:+$required,}nvrtc
    else
        say 'no Python with pip: the kernels are not compiled for CUDA'
    fi
    # Arguments after `--` are for the test programs.
    separator=--
    for argument; do
        [ "$argument" != -- ] || separator=''
    done
    set -- "$@" $separator --include-ignored
fi
KOLMO_REQUIRE_DEVICES=${KOLMO_REQUIRE_DEVICES:-$required}
KOLMO_SKIPPED=$(mktemp)
trap 'rm -f "$KOLMO_SKIPPED"' EXIT
# Without a display, Mesa's device selection layer prints a warning in every process.
export KOLMO_REQUIRE_DEVICES KOLMO_SKIPPED NODEVICE_SELECT=1
# Tests also wait for devices and processes. With one test more than there are cores, those of the
# library take a seventh less time.
export RUST_TEST_THREADS="${RUST_TEST_THREADS:-$(($(getconf _NPROCESSORS_ONLN) + 1))}"

say "required: ${KOLMO_REQUIRE_DEVICES:-nothing}"
status=0
cargo test --no-fail-fast $packages ${features:+--features "$features"} "$@" || status=$?
if [ -n "$all" ]; then
    cargo test --release --manifest-path tests/loom/Cargo.toml --target-dir "${CARGO_TARGET_DIR:-target}/loom" || status=$?
    # Vector instructions of other processors, as far as this one has them, and both ways to read
    # elements of a vector. The tests above ran at the best level.
    ways='avx2 gathers:avx2 loads:portable loads'
    ! grep -qsw avx512vl /proc/cpuinfo || ways="avx512 gathers:avx512 loads:$ways"
    IFS=:
    for way in $ways; do
        unset IFS
        say "CPU implementations: $way"
        KOLMO_LEVEL=${way% *} KOLMO_GATHER=${way#* } cargo test --locked $packages ${features:+--features "$features"} \
            --test library -- formats:: several_lanes::cpu_formats || status=$?
    done
fi
if [ -n "$python" ]; then
    built=${CARGO_TARGET_DIR:-target}/debug
    KOLMO=$(realpath "$built/kolmo") KOLMO_MODULE=$built/deps/lib_kolmo.so sh python/test.sh --quick || status=$?
fi
printf '\nleft out:\n'
sort -u "$KOLMO_SKIPPED" | awk -F '\t' '
    !($1 in why) { why[$1] = $3 }
    !(($1, $2) in listed) { listed[$1, $2]; tests[$1] = tests[$1] "\n    " $2; number[$1]++ }
    !($2 in seen) { seen[$2]; total++ }
    END {
        for (what in number) printf "  for lack of %s (%s): %d%s\n", what, why[what], number[what], tests[what]
        printf "%d tests for lack of what they need\n", total
    }'
[ -n "$all$python" ] || echo 'the Python package, for lack of NumPy, SciPy, matplotlib, pytest or tqdm, or since only some tests were asked for'
[ -n "$all" ] || echo 'the slow tests: sh tests/run.sh --all runs them, too'
exit "$status"
