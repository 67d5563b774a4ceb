#!/usr/bin/env bash
# Builds what is missing and links it into out/: the command, the guest's initramfs, the kernels.
# Usage: build.sh [--carrier] [GRANULE...]   (4k, 16k, 64k; none: no kernel)
# --carrier: what --machine kvm-in-tcg needs besides: the arm64 build of the command, the carrier's initramfs and kernel.
# Everything is kept by content in the cache, so that a second checkout or a `git clean` costs nothing.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/toolchain.sh"

# built KIND KEY BUILDER: the cache directory of KIND/KEY, made by BUILDER DIR if it is not there.
built() {
    local directory=$CACHE/$1/$2
    if [ ! -e "$directory/complete" ]; then
        mkdir -p "$CACHE/$1"
        exec 9>"$CACHE/$1/lock"
        flock 9
        if [ ! -e "$directory/complete" ]; then
            rm -rf "$directory"
            mkdir -p "$directory"
            "$3" "$directory" >&2
            touch "$directory/complete"
        fi
        exec 9>&-
    fi
    echo "$directory"
}

host_cargo() { cd "$ROOT" && CARGO_TARGET_DIR=$CACHE/cargo/host cargo "$@"; }
build_command() {
    step command 'folioscope, the command' host_cargo build --release --locked -p folioscope
    cp "$CACHE/cargo/host/release/folioscope" "$1/"
}
build_agent() {
    local linker=aarch64-linux-gnu-gcc
    [ "$(uname -m)" != aarch64 ] || linker=gcc
    AARCH64_CC=$linker RUSTC=$(guest_rustc) CARGO_TARGET_DIR=$CACHE/cargo/guest step agent 'the guest agent' "$ROOT/guest/build.sh" --locked
    cp "$CACHE/cargo/guest/$GUEST_TARGET/release/folioscope-agent" "$1/"
}
# The command itself for a carrier.
build_arm64_command() {
    (cd "$ROOT" && step arm64-command 'folioscope for arm64' arm64_cargo build --release --locked -p folioscope)
    cp "$CACHE/cargo/arm64/$GUEST_TARGET/release/folioscope" "$1/"
}
build_carrier() {
    local linker=aarch64-linux-gnu-gcc
    [ "$(uname -m)" != aarch64 ] || linker=gcc
    AARCH64_CC=$linker RUSTC=$(guest_rustc) CARGO_TARGET_DIR=$CACHE/cargo/guest step carrier "the carrier's init" "$ROOT/guest/build.sh" --carrier --locked
    step carrier-initramfs "the carrier's initramfs" "$ROOT/rootfs/pack.sh" \
        --agent "$CACHE/cargo/guest/$GUEST_TARGET/release/folioscope-carrier" --out "$1/carrier.cpio"
}
build_initramfs() {
    step initramfs 'the initramfs' "$ROOT/rootfs/pack.sh" --agent "$agent/folioscope-agent" --out "$1/initramfs.cpio"
}

link() { ln -sfn "$1" "$OUT/$2"; }

carrier=''
if [ "${1:-}" = --carrier ]; then
    carrier=yes
    shift
fi

rust=$(rustc -vV | sha256sum | cut -c1-8)
guest_rust=$("$(guest_rustc)" -vV | sha256sum | cut -c1-8)
sources=(Cargo.toml Cargo.lock guest/protocol)
# All that the command depends on.
command_sources=("${sources[@]}" vmm/carrier vmm/folioscope vmm/join vmm/kvm vmm/linux vmm/machine vmm/snapshot vmm/stage1 vmm/verdict)
command=$(built command "$(content "${command_sources[@]}")-$rust" build_command)
agent=$(built agent "$(content "${sources[@]}" guest/build.sh guest/agent)-$guest_rust" build_agent)
initramfs=$(built initramfs "$(content rootfs)-$(sha256sum "$agent/folioscope-agent" | cut -c1-20)" build_initramfs)
link "$command/folioscope" folioscope
link "$initramfs/initramfs.cpio" initramfs.cpio

for granule in "$@"; do
    arguments=(--granule "$granule")
    [ -z "${KERNEL:-}" ] || arguments+=(--source "$KERNEL")
    kernel=$("$ROOT/kernel-patches/build.sh" "${arguments[@]}" | tail -n 1)
    link "$kernel" "kernel-$granule"
done

if [ -n "$carrier" ]; then
    # The carrier is ours, whatever kernel the guest has.
    link "$("$ROOT/kernel-patches/build.sh" --granule 4k | tail -n 1)" carrier-kernel
    carrier=$(built carrier "$(content "${sources[@]}" guest/build.sh guest/carrier rootfs)-$guest_rust" build_carrier)
    link "$carrier/carrier.cpio" carrier.cpio
    if [ "$(uname -m)" = aarch64 ]; then
        link "$command/folioscope" folioscope-arm64
    else
        arm64=$(built arm64-command "$(content "${command_sources[@]}")-$guest_rust" build_arm64_command)
        link "$arm64/folioscope" folioscope-arm64
    fi
fi
