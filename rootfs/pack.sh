#!/bin/sh
# Packs the guest's initramfs: the agent as /init, busybox, and whatever a user adds.
#
#   rootfs/pack.sh --agent PATH --out FILE [--busybox PATH] [--extra DIR]... [--gzip]
#
#   --agent PATH    the static arm64 program that guest/build.sh makes
#   --out FILE      the initramfs
#   --busybox PATH  a static arm64 busybox; else Debian's, fetched once into the cache
#   --extra DIR     everything under DIR goes to the root of the initramfs (may be repeated)
#   --gzip          compress it; smaller, but an emulated guest starts later
#
# The same input gives the same bytes. No need to be root, and nothing is installed.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cache=${FOLIOSCOPE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/folioscope}
tab=$(printf '\t')

fail() {
	echo "rootfs/pack.sh: $*" >&2
	exit 2
}

usage() {
	sed -n '4p' "$0" | sed 's/^# *//' >&2
	exit 2
}

# Prints the path of a busybox, fetching it first where there is none.
fetch_busybox() {
	home=$cache/busybox-static-arm64
	if [ ! -x "$home/busybox" ]; then
		if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
			fail "there is no busybox in $home and no apt-get to fetch one: give a static arm64 busybox by --busybox"
		fi
		{ dpkg --print-architecture && dpkg --print-foreign-architectures; } | grep -qx arm64 ||
			fail "apt does not know arm64 packages: run 'dpkg --add-architecture arm64 && apt-get update' as root," \
				"or give a static arm64 busybox by --busybox"
		mkdir -p "$cache"
		work=$(mktemp -d "$cache/busybox.XXXXXX")
		if ! (cd "$work" && apt-get -q -o APT::Sandbox::User=root download busybox-static:arm64) >"$work/log" 2>&1; then
			sed 's/^/    /' "$work/log" >&2
			rm -rf "$work"
			fail "apt-get could not fetch busybox-static:arm64: run 'apt-get update' as root, or give one by --busybox"
		fi
		dpkg-deb -x "$work"/busybox-static_*_arm64.deb "$work/tree"
		mkdir -p "$home"
		for place in bin/busybox usr/bin/busybox; do
			[ -f "$work/tree/$place" ] && mv -f "$work/tree/$place" "$home/busybox"
		done
		rm -rf "$work"
		[ -x "$home/busybox" ] || fail "Debian's busybox-static:arm64 holds no bin/busybox any more: give one by --busybox"
	fi
	echo "$home/busybox"
}

# A static arm64 ELF file is 64-bit, little endian, for machine 183, and names no interpreter.
check_program() {
	[ -f "$1" ] || fail "there is no $1"
	[ "$(od -An -tx1 -N6 "$1" | tr -d ' ')" = 7f454c460201 ] || fail "$1 is no 64-bit program"
	[ "$(od -An -tu2 -j18 -N2 "$1" | tr -d ' ')" = 183 ] || fail "$1 is no arm64 program"
	! head -c 4096 "$1" | grep -q 'ld-linux-aarch64' || fail "$1 is not static: the initramfs has no shared libraries"
}

agent='' out='' busybox='' extras='' compress=cat
while [ $# -gt 0 ]; do
	case $1 in
	--agent | --out | --busybox | --extra)
		[ $# -ge 2 ] || usage
		case $1 in
		--agent) agent=$2 ;;
		--out) out=$2 ;;
		--busybox) busybox=$2 ;;
		--extra)
			[ -d "$2" ] || fail "--extra $2: there is no such directory"
			extras="${extras}tree$tab$2
"
			;;
		esac
		shift 2
		;;
	--gzip)
		compress='gzip -n9'
		shift
		;;
	*) usage ;;
	esac
done
[ -n "$agent" ] || usage
[ -n "$out" ] || usage
command -v python3 >/dev/null || fail "python3 is missing"
[ -n "$busybox" ] || busybox=$(fetch_busybox)
check_program "$agent"
check_program "$busybox"

list() {
	for dir in dev proc run sys bin sbin usr/bin usr/sbin etc mnt; do
		printf 'dir\t%s\t755\n' "$dir"
	done
	printf 'dir\troot\t700\ndir\ttmp\t1777\n'
	# For kernels without devtmpfs, and for the moment before it is mounted.
	printf 'node\tdev/%s\t600\tc\t%s\t%s\n' console 5 1 kmsg 1 11 ttyAMA0 204 64 ttyAMA1 204 65 ttyS0 4 64 ttyS1 4 65 mem 1 1
	printf 'node\tdev/%s\t666\tc\t%s\t%s\n' null 1 3 zero 1 5
	printf 'file\tinit\t755\t%s\n' "$agent"
	printf 'file\tbin/busybox\t755\t%s\n' "$busybox"
	tr -s '[:space:]' '\n' <"$here/applets" | while read -r applet; do
		printf 'link\tbin/%s\tbusybox\n' "$applet"
	done
	printf '%s' "$extras"
}

mkdir -p "$(dirname "$out")"
trap 'rm -f "$out.part.cpio" "$out.part"' EXIT
list | python3 "$here/newc.py" >"$out.part.cpio" || fail "the initramfs could not be packed"
$compress <"$out.part.cpio" >"$out.part"
mv -f "$out.part" "$out"
