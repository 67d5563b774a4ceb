#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Makes an initramfs with the laboratory's loads, and Debian's C compiler and JavaScript engine for arm64 with what these have to
# do: it compiles the device tree library of the pinned kernel, and runs a program of ours. In the cache; prints its path. Nothing
# is installed.
# Usage: programs.sh
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/toolchain.sh"
. "$(dirname "$0")/arm64_apt.sh"
# shellcheck source=../../kernel-patches/lib.sh
. "$ROOT/kernel-patches/lib.sh"

# The compiler proper is the preprocessor's package's.
PACKAGES=(cpp nodejs)
LIBRARY=scripts/dtc/libfdt
# As the kernel's own files are compiled; nothing of another machine's headers is asked for.
OPTIONS=(-O2 -std=gnu11 -fno-strict-aliasing -fno-PIE)

for tool in "$ARM64_CC" xz; do
    command -v "$tool" >/dev/null || die "$tool is missing, and the laboratory's programs cannot be made; 'make lab' installs it"
done
[ -r "$tarball" ] || die "the pinned source $tarball is missing: install Debian's linux-source-6.12, or set FOLIOSCOPE_KERNEL_TARBALL"
arm64_plan "${PACKAGES[@]}"
child "$ROOT/vmm/setup/loads.sh" >"$LOGS/loads.path"
loads=$(cat "$LOGS/loads.path")
agent=$(realpath "$OUT/folioscope-agent")

# preprocessed DIRECTORY: the library's files, each with its headers in it, and a command for each.
preprocessed() {
    local file name top compiler
    top=$(basename "$tarball")
    compiler=$(find "$1" -name cc1 -printf '/%P\n' -quit)
    [ -n "$compiler" ] || die "Debian's ${PACKAGES[0]} for arm64 has no cc1 any more"
    mkdir "$state/source" "$1/lab/c"
    tar -C "$state/source" --strip-components=1 -xf "$tarball" "${top%.tar.*}/$LIBRARY" || return 1
    for file in "$state/source/$LIBRARY"/fdt*.c; do
        name=$(basename "$file" .c)
        "$ARM64_CC" -E -P "${OPTIONS[@]}" -I "$state/source/$LIBRARY" "$file" -o "$1/lab/c/$name.i" || return 1
        echo "$compiler -quiet -fpreprocessed ${OPTIONS[*]} /lab/c/$name.i -o /dev/null" >>"$1/lab/compile"
    done
    # The smallest, for many at once.
    find "$1/lab/c" -name '*.i' -printf '%s %f\n' | sort -n | head -n 3 | while read -r _ name; do
        grep -F " /lab/c/$name " "$1/lab/compile" || return 1
    done >"$1/lab/compile_small"
}
make_root() {
    local length
    arm64_unpack "$1" || return 1
    rm -rf "$1"/usr/share/{doc,man,lintian,locale} "${1:?}"/{etc,var}
    # A library may be looked for under either name.
    (cd "$1" && find . -type l -lname '/*' -delete)
    mkdir "$1/lab"
    cp "$(dirname "$loads")/load" "$1/lab/load"
    cp "$ROOT/tests/loads/todo.js" "$1/lab/todo.js"
    # One thread, and the same order of events in each run.
    for length in 1 3; do
        echo "/usr/bin/node --single-threaded --predictable --random-seed=1 --hash-seed=1 /lab/todo.js $length" >"$1/lab/script_$length"
    done
    preprocessed "$1"
}
make_initramfs() {
    mkdir "$state/root"
    step programs-download "Debian's compiler and JavaScript engine for arm64" arm64_download
    step programs "what they have to do" make_root "$state/root"
    step programs-pack 'an initramfs with them' "$ROOT/rootfs/pack.sh" --agent "$agent" --extra "$state/root" --out "$1/initramfs.cpio"
}
key=$({
    arm64_versions
    tarball_hash
    echo "$loads"
    content vmm/setup/programs.sh tests/loads/todo.js
    "$ARM64_CC" --version | head -n 1
} | sha256sum | cut -c1-20)
built programs "$key" make_initramfs
echo "$built/initramfs.cpio"
