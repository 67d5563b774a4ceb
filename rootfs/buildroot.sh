#!/bin/sh
# Builds the guest's initramfs with Buildroot.
#
#   rootfs/buildroot.sh --buildroot DIR --agent PATH --out FILE [--work DIR]
#
#   --buildroot DIR  an unpacked Buildroot
#   --agent PATH     the static arm64 program that guest/build.sh makes
#   --out FILE       the initramfs
#   --work DIR       where Buildroot builds; else a directory in the cache, which a second run uses
#                    again
#
# See rootfs/README.md for what it takes and why it is not the default.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cache=${FOLIOSCOPE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/folioscope}

fail() {
	echo "rootfs/buildroot.sh: $*" >&2
	exit 2
}

usage() {
	sed -n '4p' "$0" | sed 's/^# *//' >&2
	exit 2
}

buildroot='' agent='' out='' work=''
while [ $# -gt 0 ]; do
	[ $# -ge 2 ] || usage
	case $1 in
	--buildroot) buildroot=$2 ;;
	--agent) agent=$2 ;;
	--out) out=$2 ;;
	--work) work=$2 ;;
	*) usage ;;
	esac
	shift 2
done
if [ -z "$buildroot" ] || [ -z "$agent" ] || [ -z "$out" ]; then
	usage
fi
[ -f "$buildroot/support/scripts/br2-external" ] ||
	fail "$buildroot is no Buildroot: support/scripts/br2-external is missing (2016.11 or later is needed)"
[ -f "$agent" ] || fail "there is no $agent: build it with guest/build.sh"

# Buildroot takes directories: the program gets one of its own.
work=${work:-$cache/buildroot}
mkdir -p "$work/agent" "$work/output" "$(dirname "$out")"
work=$(cd "$work" && pwd)
cp "$agent" "$work/agent/folioscope-agent"

in_buildroot() {
	make -C "$buildroot" O="$work/output" BR2_EXTERNAL="$here" FOLIOSCOPE_AGENT_PROGRAM="$work/agent" "$@"
}

in_buildroot folioscope_defconfig
# Buildroot would keep the agent of an earlier run.
[ ! -d "$work/output/build" ] || in_buildroot folioscope-agent-dirclean
in_buildroot
cp "$work/output/images/rootfs.cpio" "$out.part"
mv -f "$out.part" "$out"
