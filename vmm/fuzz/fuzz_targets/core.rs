// SPDX-License-Identifier: GPL-2.0-only
//! Reads a core of arbitrary bytes: reading neither panics nor hangs, and the result can be saved and reads back the
//! same.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../snapshot/tests/hostile/mod.rs"]
mod hostile;

fuzz_target!(|input: &[u8]| {
    hostile::Victim::new(input.to_vec()).is_taken();
});
