#!/bin/sh
# Builds a program of the guest's as one static arm64 executable and prints its path.
#
#   guest/build.sh [--carrier] [further arguments for cargo]
#
#   --carrier  the init of a carrier host (guest/carrier), not the guest's agent (guest/agent)
#
# Environment: CARGO_TARGET_DIR, RUSTC (the compiler; one that has the arm64 standard library is
# looked for when it is not set), AARCH64_CC (the linker, aarch64-linux-gnu-gcc).
set -eu

here=$(cd "$(dirname "$0")" && pwd)
target=aarch64-unknown-linux-gnu
linker=${AARCH64_CC:-aarch64-linux-gnu-gcc}

crate=agent
if [ "${1:-}" = --carrier ]; then
	crate=carrier
	shift
fi

fail() {
	echo "guest/build.sh: $*" >&2
	exit 2
}

has_target() {
	[ -d "$("$1" --print sysroot 2>/dev/null)/lib/rustlib/$target/lib" ]
}

command -v cargo >/dev/null || fail "cargo is missing: install Debian's cargo (13) or cargo-web (12), or rustup"
command -v "$linker" >/dev/null || fail "$linker is missing: install gcc-aarch64-linux-gnu and libc6-dev-arm64-cross"

if [ -z "${RUSTC:-}" ]; then
	for candidate in rustc /usr/bin/rustc; do
		if has_target "$candidate"; then
			RUSTC=$(command -v "$candidate")
			break
		fi
	done
fi
[ -n "${RUSTC:-}" ] || fail "no rustc here has the standard library of $target: install libstd-rust-web-dev:arm64" \
	"(Debian 12), libstd-rust-dev:arm64 (Debian 13) or 'rustup target add $target'"
export RUSTC

# Not position independent: the program lies at its link address, below everything that is under
# test, and its checkpoints wait at an address that is the same in every run.
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER="$linker"
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS="-C target-feature=+crt-static -C relocation-model=static -C strip=symbols"
# Small before quick: the kernel unpacks the program at every boot.
export CARGO_PROFILE_RELEASE_LTO=fat CARGO_PROFILE_RELEASE_CODEGEN_UNITS=1 CARGO_PROFILE_RELEASE_OPT_LEVEL=s
unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS

# Ends with this script, also if that is killed by SIGKILL.
set -- cargo build --quiet --manifest-path "$here/$crate/Cargo.toml" --release --target "$target" "$@"
! setpriv --pdeathsig TERM true 2>/dev/null || set -- setpriv --pdeathsig TERM "$@"
"$@" >&2
echo "${CARGO_TARGET_DIR:-$here/../target}/$target/release/folioscope-$crate"
