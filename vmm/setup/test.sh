#!/usr/bin/env bash
# Runs every test: lint, Rust, then pytest on real guests. Arguments go to pytest.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

vmm/setup/lint.sh
python=$(vmm/setup/python.sh)
# The machine's own tests boot guests: with the pinned kernel and the rig's initramfs, and none may be left out.
rust_tests() {
    FOLIOSCOPE_TEST_IMAGE=$OUT/kernel-4k/Image FOLIOSCOPE_TEST_INITRD=$OUT/initramfs.cpio FOLIOSCOPE_TEST_REQUIRE_GUEST=1 \
        CARGO_TARGET_DIR=$CACHE/cargo/host cargo test --locked --workspace --features machine/guest-tests
}
step cargo-test 'Rust tests' rust_tests
passed=$(awk '/^test result: ok/ {passed += $4} END {print passed + 0}' "$LOGS/cargo-test.log")
[ "$passed" -gt 0 ] || die "no Rust test ran; the whole output is in $LOGS/cargo-test.log"
say "$passed Rust tests passed; now pytest on real guests"
exec "$python" -m pytest tests "$@"
