#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Fetches firmware for QEMU's machine virt from Debian, unpacks it in the cache and prints its path. Nothing is installed.
# Usage: firmware.sh edk2|u-boot
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"

case ${1:-} in
edk2) wanted=qemu-efi-aarch64 file=QEMU_EFI.fd ;;
u-boot) wanted=u-boot-qemu file=qemu_arm64/u-boot.bin ;;
*) die "expected edk2 or u-boot and found ${1:-nothing}" ;;
esac
. "$(dirname "$0")/debian.sh"

known() {
    apt-cache "${options[@]}" pkgnames "$wanted" | grep -Fx -- "$wanted" || true
}
find_package known "$wanted"
locate all
[ -e "$directory/complete" ] || step "firmware-$1" "Debian's $package" fetch all "$file" firmware >&2
echo "$directory/firmware"
