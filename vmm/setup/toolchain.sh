# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# Chooses the Rust for the host side and for the guest side. Sourced after lib.sh.
#
# Both are the machine's own if possible; the guest side needs the standard library of
# aarch64-unknown-linux-gnu, which Debian packages as libstd-rust*-dev:arm64 for its own rustc.

GUEST_TARGET=aarch64-unknown-linux-gnu
MINIMUM_RUST=85 # 1.85: Debian 13's
# The minimum of crate qemu-plugin, so of the recorder's plugin alone (1.x).
# shellcheck disable=SC2034 # plugin.sh and lint.sh have it
PLUGIN_RUST=88

# The linker for arm64: on an arm64 host the compiler itself, whatever its name there.
ARM64_CC=aarch64-linux-gnu-gcc
[ "$(uname -m)" != aarch64 ] || ARM64_CC=gcc

export RUSTC_WORKSPACE_WRAPPER=$ROOT/vmm/setup/rustc.sh
# The same for clippy, which is such a wrapper itself: it checks again if its arguments are others.
# shellcheck disable=SC2034 # lint.sh has it
CLIPPY_OPTIONS=(-D warnings --cfg "checkout=\"$ROOT\"")
# forget_libraries DIRECTORY NAME...: a cdylib's name does not identify its checkout, and cargo takes any for its own.
forget_libraries() {
    local name
    for name in "${@:2}"; do rm -f "$1/deps/lib$name.so"; done
}

rust_minor() { "$1" --version 2>/dev/null | sed -n 's/^rustc 1\.\([0-9]*\)\..*/\1/p'; }

# host_rust_ok [MINIMUM]: whether cargo is there, and its compiler is 1.MINIMUM or later.
host_rust_ok() {
    local minor
    command -v cargo >/dev/null && command -v rustc >/dev/null || return 1
    minor=$(rust_minor rustc)
    [ "${minor:-0}" -ge "${1:-$MINIMUM_RUST}" ]
}

# rust_found: prints this machine's compiler for a message.
rust_found() {
    local minor
    minor=$(rust_minor rustc || true)
    echo "${minor:+1.}${minor:-missing}"
}

# guest_rustc: prints the compiler that has the guest's standard library, or nothing.
guest_rustc() {
    local rustc minor
    for rustc in rustc /usr/bin/rustc; do
        command -v "$rustc" >/dev/null || continue
        minor=$(rust_minor "$rustc")
        [ "${minor:-0}" -ge $MINIMUM_RUST ] || continue
        if compgen -G "$("$rustc" --print target-libdir --target $GUEST_TARGET 2>/dev/null)/libstd-*.rlib" >/dev/null; then
            command -v "$rustc"
            return 0
        fi
    done
    return 1
}
guest_rust_ok() { guest_rustc >/dev/null; }

# needs_plugin TARGET: whether make TARGET cannot do without a plugin for QEMU, by RECORD.
needs_plugin() {
    case $1 in
    lab) ;;
    run | cross) [ "${RECORD:-0}" != 0 ] ;;
    *) return 1 ;;
    esac
}

# rust_key RUSTC: prints the compiler's version, for keys of the cache. The machine it runs on does not affect its
# output for arm64, so it is named as on x86-64: a program is the same entry, wherever it was built.
rust_key() { "$1" -vV | sed 's/^host: aarch64-.*/host: x86_64-unknown-linux-gnu/' | sha256sum | cut -c1-8; }

# libc_is_static: whether the host's C library can be linked statically. Debian's always can, Fedora's by glibc-static.
libc_is_static() { [ -e "$(cc -print-file-name=libc.a 2>/dev/null)" ]; }
static_suffix() { ! libc_is_static || echo -static; }

# host_command_cargo ARGUMENT...: runs cargo for the command itself: a static program where the host can link one, so
# that it runs in another release or distribution too. The target is named, or macros would be static as well.
host_command_cargo() {
    local target flags=''
    target=$(uname -m)-unknown-linux-gnu
    ! libc_is_static || flags='-C target-feature=+crt-static'
    CARGO_TARGET_DIR=$CACHE/cargo/command CARGO_BUILD_TARGET=$target RUSTFLAGS="${RUSTFLAGS:-} $flags" with_us cargo "$@"
}

# arm64_cargo ARGUMENT...: runs cargo for arm64, with static programs that need no file of the system where they run.
# Programs that it runs itself run in a carrier unless this host is arm64.
arm64_cargo() {
    local rustc runner=''
    rustc=$(guest_rustc)
    [ "$(uname -m)" = aarch64 ] ||
        runner="$OUT/folioscope carrier exec --kernel $OUT/carrier-kernel/Image --initrd $OUT/carrier.cpio --out $LOGS ${CARRIER_OPTIONS:-} --"
    RUSTC=$rustc RUSTDOC=$(dirname "$rustc")/rustdoc CARGO_TARGET_DIR=$CACHE/cargo/arm64 CARGO_BUILD_TARGET=$GUEST_TARGET \
        CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=$ARM64_CC \
        CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS='-C target-feature=+crt-static' RUSTDOCFLAGS='-C target-feature=+crt-static' \
        with_us ${runner:+env "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=$runner"} cargo "$@"
}

# guest_clippy ARGUMENT...: runs clippy of the compiler that builds the guest side, for crates that exist on arm64
# alone.
guest_clippy() {
    local rustc
    rustc=$(guest_rustc)
    RUSTC=$rustc with_us "$(dirname "$rustc")/cargo-clippy" clippy --target $GUEST_TARGET "$@"
}
guest_clippy_ok() {
    local rustc
    rustc=$(guest_rustc) && [ -x "$(dirname "$rustc")/cargo-clippy" ]
}
