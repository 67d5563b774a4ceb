#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Makes an initramfs with the laboratory's loads in it (tests/loads, static arm64), in the cache, and prints its path. Nothing is
# installed.
# Usage: loads.sh
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/toolchain.sh"

command -v "$ARM64_CC" >/dev/null || die "$ARM64_CC is missing, and the laboratory's loads cannot be made; 'make lab' installs it"
agent=$(realpath "$OUT/folioscope-agent")
[ -e "$agent" ] || die "expected the guest's agent at $OUT/folioscope-agent and found none; build it with: make build"

compile() {
    # No more optimisation than this: the code between two markers must stay as written.
    "$ARM64_CC" -static -O2 -Wall -Wextra -Werror "$ROOT"/tests/loads/*.c -o "$1/load"
}
make_initramfs() {
    local root
    root=$(mktemp -d "$CACHE/loads.XXXXXX")
    TEMPORARY+=("$root")
    mkdir "$root/lab"
    step loads "the laboratory's loads" compile "$root/lab"
    step loads-pack 'an initramfs with them' "$ROOT/rootfs/pack.sh" --agent "$agent" --extra "$root" --out "$1/initramfs.cpio"
    mv "$root/lab/load" "$1/load"
    rm -rf "$root"
}
key=$({
    content tests/loads rootfs/pack.sh rootfs/newc.py rootfs/applets
    "$ARM64_CC" --version | head -n 1
    declare -f compile make_initramfs
    sha256sum <"$agent"
} | sha256sum | cut -c1-20)
built loads "$key" make_initramfs
echo "$built/initramfs.cpio"
