#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Makes an initramfs with Debian's stress-ng for arm64 in it, in the cache, and prints its path. Nothing is installed.
# A kernel that is booted with it and `rdinit=/stress` runs stress-ng's memory stressors until it is ended; with
# `SWAP=BYTES` it also swaps to zram of that size, all the time; with `SECONDS_LEFT=N` it powers off after that time.
# Usage: stress.sh
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/arm64_apt.sh"

arm64_plan stress-ng
agent=$(realpath "$OUT/folioscope-agent")
key=$({ arm64_versions && cat "$0" "$ROOT/vmm/setup/arm64_apt.sh" "$ROOT"/rootfs/{pack.sh,newc.py} && sha256sum <"$agent"; } | sha256sum | cut -c1-20)

# The first line of a stressor that fails is on the console. Their descriptions: stress-ng(1).
script() {
    cat <<'SH'
#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /tmp /run
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t tmpfs tmp /tmp
/bin/busybox mkdir -p /dev/shm
/bin/busybox mount -t tmpfs shm /dev/shm
for size in /sys/kernel/mm/transparent_hugepage/hugepages-*kB; do
    echo always >"$size/enabled" 2>/dev/null
done
echo always >/sys/kernel/mm/transparent_hugepage/enabled
# 128 MiB: with large pages the kernel would give as many as it has memory for.
while read -r name size _; do
    [ "$name" != Hugepagesize: ] || echo $((131072 / size)) >/proc/sys/vm/nr_hugepages
done </proc/meminfo
echo 1 >/sys/kernel/mm/ksm/run
for file in /tmp/a /tmp/b; do /bin/busybox dd if=/dev/zero of=$file bs=1M count=8 2>/dev/null; done
export PATH=/usr/bin:/bin LD_LIBRARY_PATH=/usr/lib/aarch64-linux-gnu:/lib/aarch64-linux-gnu
stress() { stress-ng --seed 7 --temp-path /tmp --shm-bytes 8M --memfd-bytes 16M --oomable "$@"; }
all='vm mmap fork mremap madvise memfd shm munmap mprotect vm-splice mlock brk stack vfork clone userfaultfd fault tmpfs
    pageswap mincore malloc'
if [ -n "${SWAP:-}" ]; then
    echo "$SWAP" >/sys/block/zram0/disksize && /bin/busybox mkswap /dev/zram0 && swapon /dev/zram0 || echo 'stress: cannot swap'
    # About as much as the memory, always, so that all other work has to be swapped.
    all='fork madvise mmap memfd mremap shm munmap malloc'
    while :; do stress --pageswap 1 --vm 1 --vm-bytes 288M --vm-keep --timeout 60; done >/tmp/background 2>&1 &
fi
echo 'stress: begins'
[ -z "${SECONDS_LEFT:-}" ] || { /bin/busybox sleep "$SECONDS_LEFT" && echo 'stress: ends' && /bin/busybox poweroff -f; } &
# In turn, each for a second or two, and all over again.
while :; do
    for one in $all; do
        stress --$one 2 --timeout 2 --vm-bytes 64M --mmap-bytes 64M >/tmp/log 2>&1
        status=$?
        [ "$status" = 0 ] || /bin/busybox head -n 3 /tmp/log
        echo "stress: $one $status"
    done
done
SH
}

make_initramfs() {
    arm64_unpack "$state/root" || return 1
    rm -rf "$state"/root/usr/share "$state"/root/etc "$state"/root/var
    script >"$state/root/stress"
    chmod 755 "$state/root/stress"
    # A library may be looked for under either name.
    (cd "$state/root" && find . -type l -lname '/*' -delete)
    "$ROOT/rootfs/pack.sh" --agent "$agent" --extra "$state/root" --out "$1/initramfs.cpio"
}
make_stress() {
    mkdir "$state/root"
    step stress-download "Debian's stress-ng for arm64" arm64_download
    step stress-pack 'an initramfs with it' make_initramfs "$1"
}
built stress "$key" make_stress
echo "$built/initramfs.cpio"
