#!/bin/sh
# Runs every test, with a Vulkan adapter: sh tests/run.sh [arguments of `cargo test`]
#
# A machine without one gets Mesa's software driver where that can be installed; the adapter is then required, so
# that no test of a device is passed over in silence.
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

remedy='install a Vulkan loader and driver (Mesa: packages mesa-vulkan-drivers and libvulkan1, on Fedora
mesa-vulkan-drivers and vulkan-loader, on Arch vulkan-swrast and vulkan-icd-loader), or run `cargo test`, which
tests the devices that are there'

case "$(uname -s)" in
Darwin | MINGW* | MSYS* | CYGWIN*)
    # Metal and DX12 come with the system.
    : "${KOLMO_REQUIRE_DEVICES:=cpu}"
    ;;
*)
    if ! has_driver; then
        as_root=''
        if [ "$(id -u)" -ne 0 ]; then
            as_root=sudo
            command -v sudo >/dev/null 2>&1 || { say "no Vulkan driver, and no sudo to install one: $remedy"; exit 1; }
        fi
        command -v apt-get >/dev/null 2>&1 || { say "no Vulkan driver: $remedy"; exit 1; }
        say 'no Vulkan driver: installing Mesa'
        $as_root apt-get update
        DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y mesa-vulkan-drivers libvulkan1 spirv-tools
    fi
    : "${KOLMO_REQUIRE_DEVICES:=cpu,wgpu:0}"
    ;;
esac
export KOLMO_REQUIRE_DEVICES
# Mesa's layer that picks a device by the display complains in every process that has none.
export NODEVICE_SELECT=1

say "devices required: $KOLMO_REQUIRE_DEVICES"
exec cargo test "$@"
