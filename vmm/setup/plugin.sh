#!/usr/bin/env bash
# Builds the recorder's plugin for QEMU, and the litmus guest that its judge is held to, and links both into out/: `folioscope
# record` needs the plugin, and nothing else does.
# Usage: plugin.sh [--where-possible]   (with it, a Rust that is too old is said, and no failure)
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/toolchain.sh"

minor=$(rust_minor rustc)
if [ "${minor:-0}" -lt $PLUGIN_RUST ]; then
    lacks="the recorder's plugin needs Rust 1.$PLUGIN_RUST or later and this machine's is 1.${minor:-0}; all but folioscope record works without it"
    [ "${1:-}" = --where-possible ] || die "$lacks"
    say "$lacks"
    exit 0
fi

sources=(vmm/recorder-plugin vmm/recorder vmm/stage1)
plugin_cargo() {
    cd "$ROOT" && CARGO_TARGET_DIR=$CACHE/cargo/plugin cargo build --release --locked --manifest-path vmm/recorder-plugin/Cargo.toml
}
build_plugin() {
    step plugin "the recorder's plugin" plugin_cargo
    cp "$CACHE/cargo/plugin/release/librecorder_plugin.so" "$1/"
}
built plugin "$(content Cargo.toml "${sources[@]}")-$(rust_key rustc)" build_plugin
link "$built/librecorder_plugin.so" librecorder_plugin.so

build_litmus() { AARCH64_CC=$ARM64_CC step litmus 'the litmus guest' "$ROOT/guest/litmus/build.sh" "$1/litmus"; }
built litmus "$(content guest/litmus)-$("$ARM64_CC" -dumpfullversion)" build_litmus
link "$built/litmus" litmus
