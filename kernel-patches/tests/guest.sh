# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# What run.sh and costs.sh share: the guest of one process.

# initrd WORK: makes WORK/initrd, whose init is init.c. Needs $here.
initrd() {
	mkdir -p "$1"/root/{dev,proc,sys}
	"${CROSS_COMPILE-aarch64-linux-gnu-}gcc" -static -O1 -Wall -Wextra -pthread "${here:?}/init.c" -o "$1/root/init"
	(cd "$1/root" && find . | cpio -o -H newc --quiet | gzip -1) >"$1/initrd"
}
