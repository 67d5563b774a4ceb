// SPDX-License-Identifier: GPL-2.0-only
//! The body of the fuzz target, on random input: `cargo test` runs it without a fuzzer.

mod misuse;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn devices_bear_anything(input in proptest::collection::vec(any::<u8>(), 0..2000)) {
        misuse::use_devices(&input);
    }
}
