//! A core of arbitrary bytes: reading it neither panics nor hangs, and what is read can be saved and says the same.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../snapshot/tests/hostile/mod.rs"]
mod hostile;

fuzz_target!(|input: &[u8]| {
    hostile::Victim::new(input.to_vec()).is_taken();
});
