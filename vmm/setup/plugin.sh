#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Builds our plugins for QEMU, and the litmus guest that tests the recorder's judge, and links them into out/: the
# recorder's plugin, which `folioscope record` needs, and the counter of instructions, which `make lab` needs. Nothing
# else needs them.
# Usage: plugin.sh [--where-possible] (with it, a Rust that is too old gives a message, and no failure)
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/toolchain.sh"
. "$(dirname "$0")/host.sh"

if ! host_rust_ok "$PLUGIN_RUST"; then
    lacks="a plugin for QEMU needs Rust 1.$PLUGIN_RUST or later and this machine's is $(rust_found);"
    remedy=$(rust_remedy)
    [ "${1:-}" = --where-possible ] || die "$lacks $remedy"
    say "$lacks all but folioscope record and make lab works without it ($remedy)"
    exit 0
fi

sources=(vmm/recorder-plugin vmm/recorder vmm/stage1)
plugin_cargo() {
    forget_libraries "$CACHE/cargo/plugin/release" recorder_plugin counter_plugin
    cd "$ROOT" && CARGO_TARGET_DIR=$CACHE/cargo/plugin with_us cargo build --release --locked --workspace --manifest-path vmm/recorder-plugin/Cargo.toml
}
build_plugin() {
    step plugin "the plugins for QEMU" plugin_cargo
    cp "$CACHE"/cargo/plugin/release/lib{recorder,counter}_plugin.so "$1/"
}
built plugin "$(content Cargo.toml "${sources[@]}")-$(rust_key rustc)" build_plugin
for name in recorder counter; do link "$built/lib${name}_plugin.so" "lib${name}_plugin.so"; done

build_litmus() { AARCH64_CC=$ARM64_CC step litmus 'the litmus guest' "$ROOT/guest/litmus/build.sh" "$1/litmus"; }
built litmus "$(content guest/litmus)-$("$ARM64_CC" -dumpfullversion)" build_litmus
link "$built/litmus" litmus
