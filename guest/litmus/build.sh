#!/bin/sh
# Builds the litmus guest, an arm64 Image, as the file that is named.
# Usage: build.sh OUT   (AARCH64_CC: the compiler, aarch64-linux-gnu-gcc)
set -eu

here=$(cd "$(dirname "$0")" && pwd)
out=${1:?expected the name of the Image to write}
cc=${AARCH64_CC:-aarch64-linux-gnu-gcc}

command -v "$cc" >/dev/null || {
	echo "guest/litmus/build.sh: $cc is missing: install gcc-aarch64-linux-gnu" >&2
	exit 2
}
"$cc" -std=gnu11 -O2 -Wall -Wextra -Werror -march=armv8.4-a -mgeneral-regs-only -ffreestanding -fno-pic -fno-stack-protector \
	-fno-omit-frame-pointer -mcmodel=large -nostdlib -static -Wl,--build-id=none,--no-warn-rwx-segments -T "$here/link.ld" -o "$out.elf" \
	"$here/start.S" "$here/litmus.c"
"${cc%gcc}objcopy" -O binary "$out.elf" "$out"
