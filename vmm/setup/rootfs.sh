#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Makes the guest's initramfs and links it as out/initramfs.cpio: packed here, or built by the Buildroot of BUILDROOT=.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"

child "$ROOT/vmm/setup/build.sh"
if [ -n "${BUILDROOT:-}" ]; then
    built=$CACHE/buildroot/initramfs.cpio
    mkdir -p "$CACHE/buildroot"
    # Buildroot must not see make's own variables, and ours that have a meaning for it too.
    clean=(env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u MAKEOVERRIDES -u KERNEL -u VMLINUX -u GRANULE -u MACHINE -u CPU -u CROSS_COMPILE)
    step buildroot "Buildroot's initramfs" "${clean[@]}" "$ROOT/rootfs/buildroot.sh" --buildroot "$BUILDROOT" \
        --agent "$OUT/folioscope-agent" --out "$built"
    link "$built" initramfs.cpio
fi
echo "$OUT/initramfs.cpio"
