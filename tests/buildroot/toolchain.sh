#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Makes a toolchain that Buildroot accepts out of Debian's cross compiler. Nothing is downloaded.
#
#   toolchain.sh DIR
#
# Debian configures the compiler with --with-sysroot=/, which Buildroot refuses (check_unusable_toolchain). DIR/sysroot
# is a copy of its C library and headers. DIR/bin has a script for each program: compilers get that sysroot, and -v
# names it. DIR/config has the lines of Buildroot's configuration that choose this toolchain.
set -eu

fail() {
	echo "tests/buildroot/toolchain.sh: $*" >&2
	exit 2
}

[ $# -eq 1 ] || fail 'expected one argument, the directory to make it in'
prefix=aarch64-linux-gnu
cc=$(command -v $prefix-gcc) || fail "there is no $prefix-gcc: install gcc-$prefix"
from=/usr/$prefix
[ -f "$from/lib/libc.so.6" ] || fail "there is no $from/lib/libc.so.6: install libc6-dev-arm64-cross"
mkdir -p "$1"
dir=$(cd "$1" && pwd)
rm -rf "${dir:?}/bin" "${dir:?}/sysroot"
mkdir -p "$dir/bin" "$dir/sysroot/usr"

cp -R "$from/include" "$dir/sysroot/usr/"
cp -R "$from/lib" "$dir/sysroot/"
ln -s ../lib "$dir/sysroot/usr/lib"
# Scripts of the linker name files by their places: by their names they are found in any sysroot.
grep -lI "$from" "$dir"/sysroot/lib/*.so | while read -r script; do
	sed -i "s|$from/lib/||g" "$script"
done

for program in "$(dirname "$cc")/$prefix"-*; do
	name=${program##*/}
	case $name in
	*-gcc | *-cpp | *-g++)
		cat >"$dir/bin/$name" <<-EOF
			#!/bin/sh
			sysroot=$dir/sysroot
			if [ "\$*" = -v ]; then
				$program -v 2>&1 | sed "s|--with-sysroot=/ |--with-sysroot=\$sysroot |" >&2
			else
				exec $program --sysroot="\$sysroot" -B"\$sysroot/lib/" "\$@"
			fi
		EOF
		;;
	*) printf '#!/bin/sh\nexec %s "$@"\n' "$program" >"$dir/bin/$name" ;;
	esac
	chmod +x "$dir/bin/$name"
done

version=$($cc -dumpversion)
code=$(sed -n 's/^#define LINUX_VERSION_CODE //p' "$from/include/linux/version.h")
cat >"$dir/config" <<EOF
# BR2_STATIC_LIBS is not set
BR2_SHARED_LIBS=y
# BR2_TOOLCHAIN_BUILDROOT_MUSL is not set
BR2_TOOLCHAIN_EXTERNAL=y
BR2_TOOLCHAIN_EXTERNAL_CUSTOM=y
BR2_TOOLCHAIN_EXTERNAL_PATH="$dir"
BR2_TOOLCHAIN_EXTERNAL_CUSTOM_PREFIX="$prefix"
BR2_TOOLCHAIN_EXTERNAL_CUSTOM_GLIBC=y
BR2_TOOLCHAIN_EXTERNAL_OPENMP=y
BR2_TOOLCHAIN_EXTERNAL_GCC_${version%%.*}=y
BR2_TOOLCHAIN_EXTERNAL_HEADERS_$((code >> 16))_$((code >> 8 & 255))=y
# BR2_TOOLCHAIN_EXTERNAL_INET_RPC is not set
EOF
