// SPDX-License-Identifier: GPL-2.0-only
//! Reads arbitrary bytes as a kernel's types: they are read or refused, and every query ends.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../structures/tests/hostile/mod.rs"]
mod hostile;

fuzz_target!(|input: &[u8]| {
    let _ = hostile::is_read(input);
});
