#!/usr/bin/env bash
# Runs the walker's fuzz target. Usage: fuzz.sh [SECONDS]
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
command -v cargo-fuzz >/dev/null || die 'cargo-fuzz is missing; install it with: cargo install cargo-fuzz'
cargo +nightly --version >/dev/null 2>&1 || die 'fuzzing needs a nightly Rust beside the stable one (rustup toolchain nightly)'
cd "$ROOT/vmm"
exec cargo +nightly fuzz run --fuzz-dir fuzz walk -- -max_total_time="${1:-60}"
