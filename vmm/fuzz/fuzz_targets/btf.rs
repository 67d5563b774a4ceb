//! Arbitrary bytes for a kernel's types: they are read or refused, and what is asked of them ends.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../structures/tests/hostile/mod.rs"]
mod hostile;

fuzz_target!(|input: &[u8]| {
    let _ = hostile::is_read(input);
});
