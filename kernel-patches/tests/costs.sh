#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Boots an Image with the guest of run.sh under -icount, where a nanosecond is an instruction, and prints what a page and a fault
# cost under each policy that the kernel has.
# Usage: costs.sh IMAGE [CPU]
set -euo pipefail

if [ $# -lt 1 ] || [ ! -f "$1" ]; then
	echo "usage: costs.sh IMAGE [CPU]" >&2
	exit 2
fi
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=guest.sh
. "$here/guest.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
initrd "$work"
timeout 120 setpriv --pdeathsig KILL qemu-system-aarch64 -M virt,gic-version=3 -cpu "${2-max}" -icount shift=0 -m 1G -nic none \
	-nographic -kernel "$1" -initrd "$work/initrd" -append 'console=ttyAMA0 quiet costs panic=-1' -no-reboot </dev/null |
	tr -d '\r' | grep ' per page, ' || {
	echo "costs.sh: the guest of $1 ended without a word of what a page costs" >&2
	exit 1
}
