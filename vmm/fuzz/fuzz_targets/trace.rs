// SPDX-License-Identifier: GPL-2.0-only
//! Reads arbitrary records of a trace: reading and judging them neither panics, nor hangs, nor takes more memory than
//! allowed.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../recorder/tests/hostile/mod.rs"]
mod hostile;

fuzz_target!(|input: &[u8]| {
    hostile::judge(input);
});
