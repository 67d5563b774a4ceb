#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Builds the guest's initramfs and the laboratory's loads by a Buildroot tree, without the network.
#
#   build.sh --buildroot DIR --downloads DIR --agent PATH --work DIR
#
#   --buildroot DIR  an unpacked Buildroot
#   --downloads DIR  has busybox/busybox-VERSION.tar.bz2 of the version that the tree names
#   --agent PATH     the static arm64 program that guest/build.sh makes
#   --work DIR       where it builds; DIR/initramfs.cpio is the result
#
# The packages are those of rootfs/ and of this directory. The toolchain is toolchain.sh's. Buildroot fills the target
# directory; rootfs/newc.py packs it, which needs neither root nor Buildroot's fakeroot and its autotools.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)

fail() {
	echo "tests/buildroot/build.sh: $*" >&2
	exit 2
}

buildroot='' downloads='' agent='' work=''
while [ $# -ge 2 ]; do
	case $1 in
	--buildroot) buildroot=$2 ;;
	--downloads) downloads=$2 ;;
	--agent) agent=$2 ;;
	--work) work=$2 ;;
	*) fail "expected an option of the four and found $1" ;;
	esac
	shift 2
done
for given in "$buildroot" "$downloads" "$agent" "$work"; do
	[ -n "$given" ] || fail 'expected --buildroot DIR --downloads DIR --agent PATH --work DIR'
done
[ -f "$buildroot/support/scripts/br2-external" ] || fail "$buildroot is no Buildroot"
busybox=$(sed -n 's/^BUSYBOX_VERSION = //p' "$buildroot/package/busybox/busybox.mk")
[ -f "$downloads/busybox/busybox-$busybox.tar.bz2" ] ||
	fail "there is no $downloads/busybox/busybox-$busybox.tar.bz2, the archive that Buildroot names"
[ -f "$agent" ] || fail "there is no $agent: build it with guest/build.sh"

mkdir -p "$work/agent" "$work/host" "$work/patchelf"
work=$(cd "$work" && pwd)
downloads=$(cd "$downloads" && pwd)
cp -L "$agent" "$work/agent/folioscope-agent"
"$here/toolchain.sh" "$work/toolchain"

# Buildroot wants tar 1.35 for archives that it makes of version control. This build makes none.
cat >"$work/host/tar" <<'EOF'
#!/bin/sh
[ "$*" = --version ] && exec echo 'tar (GNU tar) 1.35'
exec /usr/bin/tar "$@"
EOF
# Buildroot's own patchelf changes RPATHs. No program here has one, and this one fails if one has.
cat >"$work/patchelf/patchelf" <<'EOF'
#!/bin/sh
case $1 in
--version) exec echo 'patchelf 0' ;;
--print-rpath) LC_ALL=C readelf -d "$2" 2>/dev/null | sed -n 's/.*(R\(UN\)\?PATH).*\[\(.*\)\]/\2/p' | grep . ;;
*)
	echo "patchelf: a program has an RPATH: $*" >&2
	exit 1
	;;
esac
EOF
cat >"$work/patchelf/configure" <<'EOF'
#!/bin/sh
for word; do
	case $word in --prefix=*) echo "prefix := ${word#*=}" >config.mk ;; esac
done
EOF
cat >"$work/patchelf/Makefile" <<'EOF'
include config.mk
all:
install: ; install -D -m 755 patchelf $(prefix)/bin/patchelf
EOF
chmod +x "$work/host/tar" "$work/patchelf/patchelf" "$work/patchelf/configure"
echo "PATCHELF_OVERRIDE_SRCDIR = $work/patchelf" >"$work/local.mk"
{
	cat "$root/rootfs/configs/folioscope_defconfig" "$work/toolchain/config"
	cat <<EOF
# BR2_TARGET_ROOTFS_CPIO is not set
# BR2_PACKAGE_IFUPDOWN_SCRIPTS is not set
BR2_PACKAGE_FOLIOSCOPE_LOADS=y
BR2_PACKAGE_OVERRIDE_FILE="$work/local.mk"
BR2_WGET="false"
EOF
} >"$work/defconfig"

in_buildroot() {
	env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u MAKEOVERRIDES -u KERNEL -u VMLINUX -u GRANULE -u MACHINE -u CPU -u CROSS_COMPILE \
		BR2_DL_DIR="$downloads" make -C "$buildroot" O="$work/output" BR2_EXTERNAL="$root/rootfs:$here" TAR="$work/host/tar" \
		FOLIOSCOPE_AGENT_PROGRAM="$work/agent" FOLIOSCOPE_LOADS_SOURCE="$root/tests/loads" "$@"
}

in_buildroot BR2_DEFCONFIG="$work/defconfig" defconfig
# Buildroot would keep those of an earlier run.
[ ! -d "$work/output/build" ] || in_buildroot folioscope-agent-dirclean folioscope-loads-dirclean
in_buildroot
printf 'node\tdev/console\t600\tc\t5\t1\ntree\t%s\n' "$work/output/target" |
	python3 "$root/rootfs/newc.py" >"$work/initramfs.cpio.part"
mv -f "$work/initramfs.cpio.part" "$work/initramfs.cpio"
