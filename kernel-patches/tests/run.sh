#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Boots a kernel that build.sh made and checks what the patches promise, from inside (init.c) and outside (ring.py).
# Usage: run.sh DIRECTORY [CPU...]     (DIRECTORY as printed by build.sh; CPUs: max, cortex-a72, neoverse-n1)
set -euo pipefail

if [ $# -lt 1 ] || [ ! -f "$1/Image" ] || [ ! -f "$1/vmlinux" ]; then
	echo "usage: run.sh DIRECTORY [CPU...], with Image and vmlinux in DIRECTORY" >&2
	exit 2
fi
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=guest.sh
. "$here/guest.sh"
kernel=$1
shift
[ $# -gt 0 ] || set -- max

work=$(mktemp -d)
guest=''
# shellcheck disable=SC2317 # called by the trap
cleanup() {
	[ -z "$guest" ] || kill "$guest" 2>/dev/null || true
	rm -rf "$work"
}
trap cleanup EXIT

initrd "$work"

status=0
for cpu in "$@"; do
	out=$work/$cpu.log
	setpriv --pdeathsig KILL qemu-system-aarch64 -M virt,gic-version=3 -cpu "$cpu" -smp 2 -m 1G -nic none -nographic \
		-gdb "unix:$work/gdb,server=on,wait=off" -kernel "$kernel/Image" -initrd "$work/initrd" \
		-append 'console=ttyAMA0 quiet stay panic=-1' -no-reboot </dev/null >"$out" 2>&1 &
	guest=$!
	: >>"$out"
	for ((i = 0; i < 1200; i++)); do
		if grep -q '^# staying' "$out" || ! kill -0 "$guest" 2>/dev/null; then break; fi
		sleep 0.1
	done
	tr -d '\r' <"$out"
	# A guest that died, hung or skipped a test has not passed.
	if ! grep -q '^# 0 failed' "$out" || grep -qE '^not ok|WARNING:|BUG:|Oops|Kernel panic' "$out"; then
		printf '# %s: failed\n' "$cpu"
		status=1
	elif ! python3 "$here/ring.py" "$kernel/vmlinux" "$work/gdb"; then
		status=1
	fi
	kill "$guest" 2>/dev/null || true
	wait "$guest" 2>/dev/null || true
	guest=''
	rm -f "$work/gdb"
done
exit "$status"
