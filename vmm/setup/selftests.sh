#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Makes an initramfs with the pinned kernel's own mm selftests, as static arm64 programs, in the cache, and prints its
# path. Nothing is installed. A kernel that is booted with it and `rdinit=/selftests` runs the programs named on its
# second serial port. With `selftests=PROGRAM+ARGUMENTS:MIB,...` it runs these with MIB of hugetlb,
# prints how each has ended, and powers off.
# Usage: selftests.sh
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/toolchain.sh"
. "$(dirname "$0")/arm64_apt.sh"
# shellcheck source=../../kernel-patches/lib.sh
. "$ROOT/kernel-patches/lib.sh"

# Libraries that some of them are linked with.
LIBRARIES=(libcap-dev libnuma-dev liburing-dev)

for tool in "$ARM64_CC" make xz; do
    command -v "$tool" >/dev/null || die "$tool is missing, and the kernel's selftests cannot be made; 'make test' installs it"
done
[ -r "$tarball" ] || die "the pinned source $tarball is missing: install Debian's linux-source-6.12, or set FOLIOSCOPE_KERNEL_TARBALL"
arm64_plan "${LIBRARIES[@]}"
# PID 1. It runs one program at a time, from the same knobs, again and again for a given time while it passes or ends as
# expected. It reports how that ended, and the output of the last run: `FOR EXPECTED DEADLINE MIB PROGRAM ARGUMENTS` in,
# seconds for new runs and for all, MIB of hugetlb; `output BYTES`, the bytes, and `ended STATUS RUNS` out.
script() {
    cat <<'SH'
#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /tmp
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t debugfs debug /sys/kernel/debug
/bin/busybox mount -t tmpfs tmp /tmp
/bin/busybox mkdir -p /dev/shm
/bin/busybox mount -t tmpfs shm /dev/shm
export PATH=/bin
ulimit -c 0
thp=/sys/kernel/mm/transparent_hugepage
hpage=$(awk '/^Hugepagesize:/ {print $2}' /proc/meminfo)
knob() { [ ! -e "$2" ] || echo "$1" >"$2"; }
# Every size of folio, since mappings of them are the subject; a block of a PMD if the program asks for it.
knobs() {
    knob madvise $thp/enabled
    for size in $thp/hugepages-*kB; do
        knob always "$size/enabled"
        knob inherit "$size/shmem_enabled"
    done
    knob inherit "$thp/hugepages-$(($(cat $thp/hpage_pmd_size) / 1024))kB/enabled"
    knob advise $thp/shmem_enabled
    # The behaviour of Folioscope's patches at writes to zero pages and shared folios, if `write_faults=1` is on the
    # command line.
    for name in zero_page reuse copy; do knob "${write_faults:-0}" "$thp/anon_order/$name"; done
    knob 0 /sys/kernel/mm/ksm/run
    knob 2 /sys/kernel/mm/ksm/run
    knob 0 /sys/kernel/mm/ksm/run
    knob 0 /sys/kernel/mm/ksm/use_zero_pages
    knob 1 /sys/kernel/mm/ksm/merge_across_nodes
    knob 1 /proc/sys/vm/overcommit_memory
    for size in /sys/kernel/mm/hugepages/hugepages-*kB; do knob 0 "$size/nr_hugepages"; done
    echo 3 >/proc/sys/vm/drop_caches
    knob 1 /proc/sys/vm/compact_memory
    echo "$1" >/proc/sys/vm/nr_hugepages
}
# It prints a message each time otherwise.
echo 4 >/proc/sys/vm/drop_caches
cd /mm
if [ -n "${selftests:-}" ]; then
    for one in $(echo "$selftests" | tr , ' '); do
        words=$(echo "${one%:*}" | tr + ' ')
        knobs $((${one##*:} * 1024 / hpage))
        echo "selftest: begins: $words"
        # shellcheck disable=SC2086
        timeout -s KILL "${selftest_seconds:-120}" /mm/$words >/tmp/log 2>&1 </dev/null
        echo "selftest: $words: $?" >>/tmp/ended
        killall -q -KILL "${words%% *}"
        rm -rf /tmp/log
    done
    cat /tmp/ended
    /bin/busybox poweroff -f
fi
stty -F /dev/ttyAMA1 raw -echo
exec 3<>/dev/ttyAMA1
echo "ready $hpage" >&3
# An observer should see the program alone, so that nothing else is started for each run.
seconds() {
    read -r up idle </proc/uptime
    now=${up%.*}
}
while read -r long expected deadline mib program arguments <&3; do
    status=127 runs=0
    echo "no program $program" >/tmp/log
    knobs $((mib * 1024 / hpage))
    (sleep "$deadline" && killall -q -KILL "$program") 3>&- &
    seconds
    end=$((now + long))
    while [ -x "/mm/$program" ]; do
        # shellcheck disable=SC2086
        "/mm/$program" $arguments >/tmp/log 2>&1 </dev/null 3>&-
        status=$?
        runs=$((runs + 1))
        seconds
        [ "$now" -lt "$end" ] || break
        [ "$status" = 0 ] || [ "$status" = "$expected" ] || break
    done
    # The processes it left behind, and the one that counted its time.
    killall -q -KILL "$program" sleep
    tail -c 65536 /tmp/log >/tmp/end
    rm -rf /tmp/log
    echo "output $(wc -c </tmp/end)" >&3
    cat /tmp/end >&3
    echo "ended $status $runs" >&3
done
SH
}

unpack_source() {
    # Only the sources of the programs: a fiftieth of the tree.
    tar -C "$1" --strip-components=1 --no-wildcards-match-slash --wildcards -xf "$tarball" \
        '*/Makefile' '*/scripts' '*/include' '*/arch/arm64' '*/usr' '*/tools' '*/mm/gup_test.h' '*/lib/test_hmm_uapi.h'
    # The additions of our series; programs for it leave themselves out on other kernels.
    local patch
    for patch in $(own_tests); do patch -s -p1 -d "$1" <"$patch"; done
}
own_tests() { grep -l '^+++ b/tools/testing/selftests/' "$ROOT"/kernel-patches/0*.patch; }
# Without the C library, which they depend on: the compiler has its own.
libraries() {
    local package name
    arm64_download || return 1
    for package in "$state"/archives/*.deb; do
        name=${package##*/}
        [[ " ${LIBRARIES[*]} " = *" ${name%%_*} "* ]] || rm "$package"
    done
    arm64_unpack "$1"
}
# Their Makefile takes the compiler as one word in places, so it is a program with the libraries known.
compiler() {
    printf '#!/bin/sh\nexec %s -isystem %q -L%q "$@"\n' "$ARM64_CC" "$1/usr/include" "$1/usr/lib/aarch64-linux-gnu"
}
# khugepaged.c of 6.12.117 uses kselftest.h without naming it. A program that cannot be built is absent, and a test that
# needs it reports so.
compile() {
    local source=$1/source cross=${ARM64_CC%gcc}
    make -s -C "$source" ARCH=arm64 "O=$1/headers" "CROSS_COMPILE=$cross" headers
    mkdir -p "$1/mm"
    make -k -j"$(nproc)" -C "$source/tools/testing/selftests/mm" ARCH=arm64 "CC=$1/cc" "OUTPUT=$1/mm" \
        "KHDR_INCLUDES=-isystem $1/headers/usr/include" 'USERLDFLAGS=-static -s' 'USERCFLAGS=-w -include ../kselftest.h' || true
    [ -n "$(find "$1/mm" -type f -print -quit)" ]
}

make_programs() {
    local work
    work=$(mktemp -d "$CACHE/selftests.XXXXXX")
    TEMPORARY+=("$work")
    mkdir -p "$work"/{source,headers,libraries}
    step selftests-source 'the source of the selftests' unpack_source "$work/source"
    step selftests-libraries "Debian's libraries for them" libraries "$work/libraries"
    compiler "$work/libraries" >"$work/cc"
    chmod 755 "$work/cc"
    step selftests "the kernel's mm selftests" compile "$work"
    mv "$work/mm" "$1/mm"
    rm -rf "$work"
}
make_initramfs() {
    local root
    root=$(mktemp -d "$CACHE/selftests.XXXXXX")
    TEMPORARY+=("$root")
    cp -r "$programs/mm" "$root/mm"
    script >"$root/selftests"
    chmod 755 "$root/selftests"
    step selftests-pack 'an initramfs with them' "$ROOT/rootfs/pack.sh" --agent "$agent" --extra "$root" --out "$1/initramfs.cpio"
    rm -rf "$root"
}
unset MAKEFLAGS MFLAGS MAKELEVEL KBUILD_OUTPUT CROSS_COMPILE CFLAGS LDFLAGS O OUTPUT V

key=$({
    tarball_hash
    arm64_versions
    "$ARM64_CC" --version | head -n 1
    declare -f arm64_unpack unpack_source libraries compiler compile make_programs
    own_tests | xargs cat
} | sha256sum | cut -c1-20)
built selftests "$key" make_programs
programs=$built
agent=$(realpath "$OUT/folioscope-agent")
key=$({
    script
    cat "$ROOT"/rootfs/{pack.sh,newc.py,applets}
    sha256sum <"$agent"
} | sha256sum | cut -c1-20)
built selftests-initramfs "${programs##*/}-$key" make_initramfs
echo "$built/initramfs.cpio"
