// SPDX-License-Identifier: GPL-2.0-only
//! A QEMU's gdb stub that sends arbitrary packets: registers, or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|lines: &[u8]| {
    let _ = machine::qemu::testing::stub_is_understood(lines);
});
