#!/usr/bin/env bash
# Runs every test: lint, Rust, then pytest on real guests. Arguments go to pytest.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/toolchain.sh"
cd "$ROOT"

child vmm/setup/lint.sh
# The machines' own tests boot guests: with the pinned kernel and the rig's initramfs, and none may be left out.
export FOLIOSCOPE_TEST_IMAGE=$OUT/kernel-4k/Image FOLIOSCOPE_TEST_INITRD=$OUT/initramfs.cpio FOLIOSCOPE_TEST_REQUIRE_GUEST=1
features=machine/guest-tests
if [ "$(uname -m)" = aarch64 ]; then
    [ ! -w /dev/kvm ] || features+=,kvm/guest-tests
else
    features+=,carrier/carrier-tests
    export FOLIOSCOPE_TEST_CARRIER=$OUT/carrier.cpio
fi
rust_tests() { CARGO_TARGET_DIR=$CACHE/cargo/host cargo test --locked --workspace --features "$features"; }
step cargo-test 'Rust tests' rust_tests
logs=(cargo-test)

# The monitor's tests on KVM: where this host has none, in a carrier that has, at EL2 itself (VHE) and not (nVHE).
carried_tests() { CARRIER_OPTIONS=$1 arm64_cargo test --locked -p kvm --features guest-tests "${@:2}"; }
if [ "$(uname -m)" != aarch64 ]; then
    step kvm-test-vhe "the monitor's tests on KVM with VHE" carried_tests '' --lib --test kvm
    # All that enters and leaves the guest in another way there; what is left out does not.
    step kvm-test-nvhe "the monitor's tests on KVM without VHE" carried_tests --nvhe --test kvm -- \
        --skip huge_pages --skip large_memory --skip without_the_right --skip another_place --skip second_uart \
        --skip typing --skip left_behind --skip that_ends_is_told --skip write_from_outside --skip two_guests
    logs+=(kvm-test-vhe kvm-test-nvhe)
fi
passed=0
for log in "${logs[@]}"; do
    count=$(awk '/^test result: ok/ {passed += $4} END {print passed + 0}' "$LOGS/$log.log")
    [ "$count" -gt 0 ] || die "no test ran where some should have; the whole output is in $LOGS/$log.log"
    passed=$((passed + count))
done
say "$passed Rust tests passed; now pytest on real guests"
exec vmm/setup/pytest.sh "$@"
