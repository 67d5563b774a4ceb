#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Builds missing parts and links them into out/: the command, the guest's initramfs, the kernels.
# Usage: build.sh [--carrier] [--mutants] [--debug] [--net] [--packed] [--base 7.x] [GRANULE...]   (4k, 16k, 64k; none: no kernel)
# --carrier: the further needs of --machine kvm-in-tcg: the arm64 build of the command, the carrier's initramfs and
# kernel.
# --mutants: the pinned kernel with wrong edits, of which one is chosen at boot (tests/mutants).
# --debug: the pinned kernel with its own checks, beside the others. DEBUG=1 in the environment: those of the granules have them.
# --net: the pinned kernel, or that of KERNEL, with TCP beside the others, for the laboratory.
# --packed: the command is of this commit, also if another one with the same sources was built before.
# --base 7.x: kernels of Debian's newest 7.x, with the patches for it.
# The cache keeps everything by content, so that a second checkout or a `git clean` costs nothing.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/toolchain.sh"

in_root() { cd "$ROOT" && "$@"; }
build_command() {
    step command 'folioscope, the command' in_root host_command_cargo build --release --locked -p folioscope
    cp "$CACHE/cargo/command/$(uname -m)-unknown-linux-gnu/release/folioscope" "$1/"
}
build_agent() {
    AARCH64_CC=$ARM64_CC RUSTC=$(guest_rustc) CARGO_TARGET_DIR=$CACHE/cargo/guest step agent 'the guest agent' "$ROOT/guest/build.sh" --locked
    cp "$CACHE/cargo/guest/$GUEST_TARGET/release/folioscope-agent" "$1/"
}
# The command itself for an arm64 host and for a carrier: static, so it is the same program in both.
build_arm64_command() {
    step arm64-command 'folioscope for arm64' in_root arm64_cargo build --release --locked -p folioscope
    cp "$CACHE/cargo/arm64/$GUEST_TARGET/release/folioscope" "$1/"
}
build_carrier() {
    AARCH64_CC=$ARM64_CC RUSTC=$(guest_rustc) CARGO_TARGET_DIR=$CACHE/cargo/guest step carrier "the carrier's init" "$ROOT/guest/build.sh" --carrier --locked
    step carrier-initramfs "the carrier's initramfs" "$ROOT/rootfs/pack.sh" \
        --agent "$CACHE/cargo/guest/$GUEST_TARGET/release/folioscope-carrier" --out "$1/carrier.cpio"
}
build_initramfs() {
    step initramfs 'the initramfs' "$ROOT/rootfs/pack.sh" --agent "$agent/folioscope-agent" --out "$1/initramfs.cpio"
}

carrier='' mutants='' debug='' net='' packed='' base=6.12 newer=''
while :; do
    case ${1:-} in
    --carrier) carrier=yes ;;
    --mutants) mutants=yes ;;
    --debug) debug=yes ;;
    --net) net=yes ;;
    --packed) packed=yes ;;
    --base)
        base=$2
        shift
        ;;
    *) break ;;
    esac
    shift
done

guest_rust=$(rust_key "$(guest_rustc)")
sources=(Cargo.toml Cargo.lock guest/protocol)
# All sources that the command depends on: every crate of vmm/.
crates=("$ROOT"/vmm/*/Cargo.toml)
crates=("${crates[@]%/Cargo.toml}")
command_sources=("${sources[@]}" "${crates[@]#"$ROOT/"}")
command_content=$(content "${command_sources[@]}")
# Shown with the version: the last commit that changed these sources, so that another commit builds nothing. It is not in
# the key, which has their content.
FOLIOSCOPE_COMMIT=$(cd "$ROOT" && git log -1 --format=%H -- "${command_sources[@]}" 2>/dev/null | cut -c1-12) || FOLIOSCOPE_COMMIT=''
[ -z "$FOLIOSCOPE_COMMIT" ] || [ -z "$(cd "$ROOT" && git status --porcelain -- "${command_sources[@]}" 2>/dev/null)" ] || FOLIOSCOPE_COMMIT+=-modified
export FOLIOSCOPE_COMMIT
[ -z "$packed" ] || command_content+=-$FOLIOSCOPE_COMMIT

# kernel_begins LINK ARGUMENT...: begins to build a kernel, or to look for it in the cache.
kernel_begins() {
    kernel_link=$1 kernel_said=$LOGS/$1.path.$$
    begin with_us "$ROOT/kernel-patches/build.sh" "${@:2}" >"$kernel_said"
    kernel_pid=$begun BESIDE=$begun
}
# kernel_ends: waits for it, and links it.
kernel_ends() {
    finish "$kernel_pid"
    link "$(tail -n 1 "$kernel_said")" "$kernel_link"
    rm -f "$kernel_said"
    kernel_pid='' BESIDE=''
}
kernel() {
    kernel_begins "$@"
    kernel_ends
}
# kernel_of GRANULE: begins to build the kernel of a granule.
kernel_of() {
    local arguments=(--granule "$1")
    [ -z "${KERNEL:-}" ] || arguments+=(--source "$KERNEL")
    [ "${DEBUG:-}" != 1 ] || arguments+=(--debug)
    if [ -n "$newer" ]; then
        FOLIOSCOPE_KERNEL_TARBALL=$newer kernel_begins "kernel-$1" "${arguments[@]}" --base "$base"
    else
        kernel_begins "kernel-$1" "${arguments[@]}"
    fi
}
kernel_pid=''
[ "$base" = 6.12 ] || newer=$("$ROOT/vmm/setup/source.sh" "${base%.x}")
# Beside the programs: neither keeps all CPUs busy all the time.
[ $# = 0 ] || kernel_of "$1"

arm64_command() { built arm64-command "$command_content-$guest_rust" build_arm64_command; }
if [ "$(uname -m)" = aarch64 ]; then
    arm64_command
else
    built command "$command_content-$(rust_key rustc)$(static_suffix)" build_command
fi
command=$built
built agent "$(content "${sources[@]}" guest/build.sh guest/agent)-$guest_rust" build_agent
agent=$built
built initramfs "$(content rootfs)-$(sha256sum "$agent/folioscope-agent" | cut -c1-20)" build_initramfs
link "$command/folioscope" folioscope
link "$agent/folioscope-agent" folioscope-agent
link "$built/initramfs.cpio" initramfs.cpio

for granule in "$@"; do
    [ -n "$kernel_pid" ] || kernel_of "$granule"
    kernel_ends
done

[ -z "$debug" ] || kernel kernel-debug --granule 4k --debug
[ -z "$net" ] || kernel kernel-net --granule 4k --net ${KERNEL:+--source "$KERNEL"}
[ -z "$mutants" ] || kernel kernel-mutants --granule 4k --with "$ROOT/tests/mutants"

if [ -n "$carrier" ]; then
    # The carrier's kernel is ours, whatever the guest's.
    kernel carrier-kernel --granule 4k
    built carrier "$(content "${sources[@]}" guest/build.sh guest/carrier rootfs)-$guest_rust" build_carrier
    link "$built/carrier.cpio" carrier.cpio
    arm64_command
    link "$built/folioscope" folioscope-arm64
fi
