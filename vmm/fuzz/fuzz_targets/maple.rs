//! Memory of arbitrary bytes that a maple tree lies in: ranges that rise, or a sentence.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let _ = structures::maple::testing::is_read(input);
});
