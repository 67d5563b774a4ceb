#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Runs every test: pytest on real guests, and lint and the compilation of the Rust tests beside it; then the Rust tests.
# Arguments go to pytest.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/toolchain.sh"
cd "$ROOT"

# The machines' own tests boot guests: with the pinned kernel and the rig's initramfs, and none may be skipped.
export FOLIOSCOPE_TEST_IMAGE=$OUT/kernel-4k/Image FOLIOSCOPE_TEST_INITRD=$OUT/initramfs.cpio FOLIOSCOPE_TEST_REQUIRE_GUEST=1
features=machine/guest-tests,structures/guest-tests
if [ "$(uname -m)" = aarch64 ]; then
    carried=''
    [ ! -w /dev/kvm ] || features+=,kvm/guest-tests
else
    carried=yes
    features+=,carrier/carrier-tests
    export FOLIOSCOPE_TEST_CARRIER=$OUT/carrier.cpio
fi
rust_tests() { CARGO_TARGET_DIR=$CACHE/cargo/host with_us cargo test --locked --workspace --features "$features" "$@"; }
kvm_tests() { arm64_cargo test --locked -p kvm --features guest-tests "$@"; }
compile() {
    rust_tests --no-run
    # Its other tests have been compiled for this host.
    [ -z "$carried" ] || kvm_tests --no-run --lib --test kvm
}

# beside LOG COMMAND...: runs it while guests are under test, which have priority if the CPUs are few.
names=() pids=()
beside() {
    begin in_background "$@" >"$LOGS/$1.log" 2>&1
    names+=("$1") pids+=("$begun")
}
in_background() {
    renice -n 10 "$BASHPID" >/dev/null
    "$@"
}
# Waits for all of them; rc is 1 if one has failed.
finish_beside() {
    local i status
    for i in "${!names[@]}"; do
        status=0
        finish "${pids[i]}" || status=$?
        if ((status != 0)); then
            rc=1
            tail -n 20 "$LOGS/${names[i]}.log" >&2
            say "${names[i]} failed with status $status; the whole output is in $LOGS/${names[i]}.log"
        fi
    done
    names=() pids=()
}
lint() { vmm/setup/lint.sh; }
say "lint and the compilation of the Rust tests run beside pytest; their output goes to $LOGS"
child vmm/setup/python.sh >/dev/null
beside lint
beside compile

# One carrier of each kind for the whole run. It ends with its standard input, which is ours: however we end.
sockets=$(mktemp -d "${TMPDIR:-/tmp}/folioscope-XXXXXX")
TEMPORARY+=("$sockets")
serve() {
    local ready=$LOGS/carrier-$1.ready hold
    : >"$ready"
    exec {hold}> >(exec "$OUT/folioscope" carrier serve --socket "$sockets/$1" --kernel "$OUT/carrier-kernel/Image" \
        --initrd "$OUT/carrier.cpio" --out "$LOGS" "${@:2}" >"$ready" 2>"$LOGS/carrier-$1.log")
    # Boots while others do.
    holds+=("$hold")
}
holds=()
came_up() {
    local start=$SECONDS
    while [ ! -s "$LOGS/carrier-$1.ready" ]; do
        ((SECONDS - start < 120)) || die "the carrier $1 did not come up; its words are in $LOGS/carrier-$1.log"
        sleep 0.2
    done
}
if [ -n "$carried" ]; then
    serve vhe
    # Hosts without VHE mostly have a GICv2.
    serve nvhe --nvhe --gic 2
    came_up vhe
    came_up nvhe
    # In the form that the plugin uses: tests/plugin/folioscope/machines.py.
    export FOLIOSCOPE_CARRIER_VHE=$sockets/vhe FOLIOSCOPE_CARRIER_NVHE=$sockets/nvhe
fi

rc=0
child vmm/setup/pytest.sh "$@" || rc=$?
((rc == 0)) || say "pytest ended with status $rc; going on with lint and the Rust tests"

finish_beside
tail -n 1 "$LOGS/lint.log" >&2
((rc == 0)) || die 'there were failures, see above'

# The monitor's tests on KVM: if this host has none, in a carrier that has, at EL2 itself (VHE) and not (nVHE).
# Beside the others: they mostly wait for their carrier, which has one CPU of this host.
kvm-test-vhe() { FOLIOSCOPE_TEST_GIC=3 FOLIOSCOPE_CARRIER=$sockets/vhe kvm_tests --lib --test kvm; }
kvm-test-nvhe() {
    # All tests of entering and leaving the guest in another way there; those left out do not depend on it.
    FOLIOSCOPE_TEST_GIC=2 FOLIOSCOPE_CARRIER=$sockets/nvhe kvm_tests --test kvm -- \
        --skip huge_pages --skip large_memory --skip without_the_right --skip another_place --skip second_uart \
        --skip typing --skip left_behind --skip that_ends_is_told --skip write_from_outside --skip two_guests
}
logs=(cargo-test)
if [ -n "$carried" ]; then
    beside kvm-test-vhe
    beside kvm-test-nvhe
    logs+=("${names[@]}")
fi
step cargo-test 'Rust tests' rust_tests
if [ "$(rust_minor rustc)" -ge $PLUGIN_RUST ]; then
    plugin_tests() {
        CARGO_TARGET_DIR=$CACHE/cargo/plugin with_us cargo test --locked --manifest-path vmm/recorder-plugin/Cargo.toml -p counter-plugin
    }
    step plugin-test "the counter's own tests" plugin_tests
    logs+=(plugin-test)
fi
finish_beside
((rc == 0)) || die 'there were failures, see above'
passed=0
for log in "${logs[@]}"; do
    count=$(awk '/^test result: ok/ {passed += $4} END {print passed + 0}' "$LOGS/$log.log")
    [ "$count" -gt 0 ] || die "no test ran where some should have; the whole output is in $LOGS/$log.log"
    passed=$((passed + count))
done
say "pytest and $passed Rust tests passed"
