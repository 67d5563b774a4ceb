#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Makes the guest's initramfs and links it as out/initramfs.cpio: packed here, or built by the Buildroot of BUILDROOT=. With
# its downloads in BR2_DL_DIR nothing is fetched: Debian's compiler takes the place of Buildroot's toolchain.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"

child "$ROOT/vmm/setup/build.sh"
if [ -n "${BUILDROOT:-}" ]; then
    built=$CACHE/buildroot/initramfs.cpio
    mkdir -p "$CACHE/buildroot"
    # Buildroot must not see make's own variables, and ours that have a meaning for it too.
    clean=(env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u MAKEOVERRIDES -u KERNEL -u VMLINUX -u GRANULE -u MACHINE -u CPU -u CROSS_COMPILE)
    words=(--buildroot "$BUILDROOT" --agent "$OUT/folioscope-agent")
    if [ -n "${BR2_DL_DIR:-}" ]; then
        built=$CACHE/buildroot-offline/initramfs.cpio
        step buildroot "Buildroot's initramfs, without the network" "${clean[@]}" "$ROOT/tests/buildroot/build.sh" \
            "${words[@]}" --downloads "$BR2_DL_DIR" --work "${built%/*}"
    else
        step buildroot "Buildroot's initramfs" "${clean[@]}" "$ROOT/rootfs/buildroot.sh" "${words[@]}" --out "$built"
    fi
    link "$built" initramfs.cpio
fi
echo "$OUT/initramfs.cpio"
