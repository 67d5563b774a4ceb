// SPDX-License-Identifier: GPL-2.0-only
//! Reads a maple tree in memory of arbitrary bytes: the result is rising ranges, or a sentence.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let _ = structures::maple::testing::is_read(input);
});
