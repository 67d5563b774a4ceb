#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Runs the fuzz targets one after the other, and stops at the first that fails.
# SETUP=check only looks whether it has what it runs; nothing is ever installed.
# Usage: fuzz.sh [SECONDS for each]
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"

lacks=()
command -v cargo-fuzz >/dev/null || lacks+=('cargo-fuzz (install it with: cargo install cargo-fuzz)')
cargo +nightly --version >/dev/null 2>&1 || lacks+=('a nightly Rust beside the stable one (rustup toolchain install nightly)')
report_lacks fuzz ${lacks[@]+"${lacks[@]}"}
cd "$ROOT/vmm"
for target in walk devices channel core trace kallsyms btf maple session qmp gdbstub; do
    # New inputs go into the first directory; seeds are part of the tree, if there are any.
    seeds=(fuzz/seeds/"$target")
    [ -d "${seeds[0]}" ] || seeds=()
    mkdir -p "fuzz/corpus/$target"
    cargo +nightly fuzz run --fuzz-dir fuzz "$target" "fuzz/corpus/$target" "${seeds[@]}" -- \
        -max_total_time="${1:-60}" -timeout=10 -rss_limit_mb=2048
done
