#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Validates a user's variables before anything is installed or built. An error is one sentence, and status 2.
# Usage: inputs.sh run|cross|build|boot|test|series|bench|lab|dist|rootfs   (reads GRANULE, MACHINE, KERNEL, BASE, VMLINUX, BUILDROOT, DEBUG)
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/toolchain.sh"
. "$(dirname "$0")/host.sh"

goal=$1

# one_of NAME VALUE CHOICE...
one_of() {
    local name=$1 value=$2 choice
    shift 2
    for choice in "$@"; do [ "$value" != "$choice" ] || return 0; done
    die "expected $name to be one of $* and found '$value'"
}
one_of GRANULE "${GRANULE:-4k}" 4k 16k 64k
one_of MACHINE "${MACHINE:-auto}" auto tcg kvm kvm-in-tcg

# Checks this host for a guest on KVM: by the command's own words, and before anything is installed for it.
machine=$(uname -m)
kvm_lacks() {
    if [ "$machine" != aarch64 ]; then
        echo "it needs an arm64 host and this one is $machine; use MACHINE=kvm-in-tcg (slow) or tcg"
    elif [ ! -e /dev/kvm ]; then
        echo "there is no /dev/kvm: expected a kernel with CONFIG_KVM that was started at EL2 (a virtual machine needs nested" \
            'virtualization); use MACHINE=kvm-in-tcg or tcg on this host'
    elif [ ! -r /dev/kvm ] || [ ! -w /dev/kvm ]; then
        local group
        group=$(stat -c %G /dev/kvm)
        echo "/dev/kvm may not be opened by this user: it belongs to group $group; join it (as root: usermod -aG $group USER," \
            'and log in again), or use MACHINE=tcg'
    fi
}
case $goal,${MACHINE:-auto} in
run,kvm | cross,kvm | boot,kvm)
    lacks=$(kvm_lacks)
    [ -z "$lacks" ] || die "MACHINE=kvm: $lacks"
    ;;
run,auto | cross,auto | boot,auto | test,* | bench,*)
    # A user who has the device and may not use it is mistaken, or would have named another machine.
    if [ "$machine" = aarch64 ] && [ -e /dev/kvm ]; then
        lacks=$(kvm_lacks)
        [ -z "$lacks" ] || say "$lacks; going on with QEMU's emulation, which is slower"
    fi
    ;;
esac

if [ "$goal" = lab ]; then
    [ "${GRANULE:-4k}" = 4k ] ||
        die "the laboratory's loads, sizes and others' figures are of pages and blocks of 4K kernels, and GRANULE is $GRANULE; leave it out"
    case ${MACHINE:-auto} in
    auto | tcg) ;;
    *) die "the laboratory counts instructions under QEMU's emulation and MACHINE is $MACHINE; leave it out, or say MACHINE=tcg" ;;
    esac
fi

# The plugins for QEMU are built last. packages.sh brings Debian's newer Rust where this machine has Debian's.
if needs_plugin "$goal" && ! host_rust_ok "$PLUGIN_RUST" && ! rust_is_apts; then
    die "make $goal${RECORD:+ RECORD=$RECORD} needs a plugin for QEMU, that needs Rust 1.$PLUGIN_RUST or later, and this machine's is $(rust_found); $(rust_remedy)"
fi

# bytes FILE OFFSET COUNT: prints bytes in hexadecimal.
bytes() { od -An -v -tx1 -j "$2" -N "$3" -- "$1" 2>/dev/null | tr -d ' \n'; }

# Checks whether a file begins as an arm64 Image does, bare or packed. The command itself reads the contents.
kernel_image() {
    [ "$(bytes "$1" 56 4)" != 41524d64 ] || return 0
    [ "$(bytes "$1" 0 2)$(bytes "$1" 4 4)" != 4d5a7a696d67 ] || return 0
    case $(bytes "$1" 0 6) in
    1f8b08* | 28b52ffd* | fd377a585a00 | 5d0000* | 02214c18* | 04224d18* | 425a68* | 894c5a4f*) return 0 ;;
    esac
    return 1
}

if [ -n "${KERNEL:-}" ]; then
    what='give a source tree, an Image or a distribution vmlinuz by KERNEL='
    # The shell leaves a ~ if the whole word is quoted.
    [[ $KERNEL != \~* ]] || die "KERNEL='$KERNEL' begins with a ~ that no shell has replaced; $what, as KERNEL=\$HOME/..."
    [ -e "$KERNEL" ] || die "expected a kernel at $KERNEL and found nothing there; $what"
    if [ -d "$KERNEL" ]; then
        "$ROOT/kernel-patches/build.sh" --check-source "$KERNEL"
    else
        if [ ! -f "$KERNEL" ] || [ ! -r "$KERNEL" ]; then die "expected a kernel at $KERNEL and found no file that can be read; $what"; fi
        [ "$(bytes "$KERNEL" 0 4)" != 7f454c46 ] ||
            die "$KERNEL is an ELF file, perhaps a vmlinux: give the Image of the same build by KERNEL=, and this one by VMLINUX="
        kernel_image "$KERNEL" || die "$KERNEL is no kernel for arm64: it begins neither as an Image nor as a packed one; $what"
    fi
    case $goal in
    test)
        [ -d "$KERNEL" ] || die "make test tests the rig on kernels that it configures itself, so it takes a source tree by KERNEL= and" \
            "no image; see what an image does by make run KERNEL=$KERNEL, or by tests of your own: pytest --folioscope-kernel $KERNEL"
        say "testing on kernels built from $KERNEL; tests of what its patches bring fail where it does not have them"
        ;;
    dist) die "make dist packs the pinned kernels, and KERNEL is $KERNEL; leave it out" ;;
    series) say 'make series builds the pinned source: KERNEL= is not used' ;;
    rootfs) say 'make rootfs needs no kernel: KERNEL= is not used' ;;
    esac
fi
if [ "${BASE:-6.12}" != 6.12 ]; then
    one_of BASE "$BASE" 6.12 7.x
    [ -z "${KERNEL:-}" ] || die "BASE=$BASE is a source with our patches and KERNEL=$KERNEL is a kernel as it stands; give one of them"
    case $goal in
    run | cross | boot | build) ;;
    *) say "make $goal is of the pinned base: BASE=$BASE is not used" ;;
    esac
fi
# Other programs use a variable of this name too, for other purposes.
case ${DEBUG:-} in
'' | 0) ;;
1)
    [ "$goal" != dist ] || die 'make dist packs kernels without checks of their own, and DEBUG is 1; leave it out'
    [ ! -f "${KERNEL:-}" ] || die "DEBUG=1 is for kernels that are built, and $KERNEL is built already; give a source tree by KERNEL=, or none"
    ;;
*) say "DEBUG=$DEBUG is not 1: kernels are built without their own checks" ;;
esac
if [ -n "${VMLINUX:-}" ]; then
    [ -f "$VMLINUX" ] || die "expected the kernel's vmlinux at $VMLINUX and found no file there; check VMLINUX="
    [ "$(bytes "$VMLINUX" 0 4)" = 7f454c46 ] || die "$VMLINUX is no ELF file, so no vmlinux: it lies beside .config where the kernel was built"
    [ "$goal" != test ] || say 'make test takes the vmlinux that is built with each kernel: VMLINUX= is not used'
fi
if [ "$goal" = rootfs ] && [ -n "${BUILDROOT:-}" ]; then
    [ -f "$BUILDROOT/support/scripts/br2-external" ] ||
        die "expected an unpacked Buildroot (2016.11 or later) at $BUILDROOT and found no support/scripts/br2-external there; check BUILDROOT="
fi
