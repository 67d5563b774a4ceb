#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Runs every style check: rustfmt, clippy, ruff, mypy, typos, reuse, shellcheck, checkpatch. Fails on the first fault.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/toolchain.sh"
cd "$ROOT"

cargo fmt --all --check
CARGO_TARGET_DIR=$CACHE/cargo/host with_us cargo clippy --quiet --locked --workspace --all-targets --all-features -- "${CLIPPY_OPTIONS[@]}"
# Crates that exist on arm64 alone: the monitor, and the programs of a guest.
if [ "$(uname -m)" != aarch64 ]; then
    CARGO_TARGET_DIR=$CACHE/cargo/lint-arm64 guest_clippy --quiet --locked -p kvm -p folioscope-agent -p folioscope-carrier --all-targets --all-features -- "${CLIPPY_OPTIONS[@]}"
fi
# A workspace of its own, as it needs a newer Rust.
cargo fmt --manifest-path vmm/recorder-plugin/Cargo.toml --all --check
if [ "$(rust_minor rustc)" -ge $PLUGIN_RUST ]; then
    CARGO_TARGET_DIR=$CACHE/cargo/plugin with_us cargo clippy --quiet --locked --manifest-path vmm/recorder-plugin/Cargo.toml --workspace --all-targets -- "${CLIPPY_OPTIONS[@]}"
fi
python=$("$ROOT/vmm/setup/python.sh")
"$python" -m ruff check --quiet tests
"$python" -m ruff format --quiet --check tests
# Strict, by its pyproject.toml, as users' type checkers see it.
(cd tests/plugin && "$python" -m mypy --no-error-summary --cache-dir "$CACHE/mypy")
mapfile -d '' -t files < <(sources '*')
# Spelling. It prints each fault, with its correction.
"$(dirname "$python")/typos" --config tests/typos.toml --format brief --force-exclude "${files[@]}"
# Each file names its licence, and each licence is there and in use.
reuse=$(dirname "$python")/reuse
if is_git_checkout; then
    "$reuse" lint --quiet || "$reuse" lint --lines
else
    # It asks git what is ignored, and takes a user's files for ours without it.
    "$reuse" lint-file --lines "${files[@]}"
fi
mapfile -d '' -t scripts < <(sources '*.sh' '.ci/*')
[ ${#scripts[@]} -gt 0 ] || die 'lint found no script to check'
shellcheck -x "${scripts[@]}"
kernel-patches/check.sh
vmm/setup/audit.sh
say "lint: rustfmt, clippy, ruff, mypy, typos, reuse, shellcheck (${#scripts[@]} scripts) and checkpatch are content"
