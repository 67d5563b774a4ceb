// SPDX-License-Identifier: GPL-2.0-only
//! Runs the body of the fuzz target on random input, so that `cargo test` covers it without a fuzzer.

use proptest::prelude::*;
use stage1::testing::{read_anything, Layout};
use stage1::{Granule, Half};

/// Generates words that look like descriptors, of all kinds and with all sorts of errors.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => any::<u64>().prop_map(|word| word & 0x0000_0000_0003_ffff | 0b11),
        2 => any::<u64>().prop_map(|word| word & 0x00f8_0000_0003_ffff | 0b01),
        1 => any::<u64>(),
        1 => Just(0),
    ]
}

fn header() -> impl Strategy<Value = Vec<u64>> {
    let layouts = (0..3_usize, 16..53_u32, any::<bool>());
    (any::<u16>(), layouts, any::<u64>(), any::<[u64; 9]>()).prop_map(
        |(shape, (granule, va_bits, wide), flags, raw)| {
            let granule = Granule::ALL[granule];
            let layout = Layout::new(granule, Half::Lower, va_bits);
            let layout = if wide { layout.wide() } else { layout };
            let lower = layout.registers(0x4000_0000);
            let upper = Layout {
                half: Half::Upper,
                ..layout
            }
            .registers(0x4000_0000);
            // Both halves on: EPD0 and EPD1 are 0. HA, HD, HPD, TBI and so on are random.
            let tcr = (lower.tcr_el1 | upper.tcr_el1) & !(1 << 7 | 1 << 23);
            let tcr = tcr ^ flags & 0x07ff_fff0_0000_0000;
            let ids = lower.id_aa64mmfr.map(Option::unwrap);
            let mut words = vec![u64::from(shape) & !5, raw[0], raw[1], tcr, raw[2] & !0x23];
            words.extend([lower.mair_el1, 1]);
            words.extend(ids);
            words.extend([raw[3], raw[4]]);
            words
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn arbitrary_tables_under_legal_registers(
        header in header(),
        words in proptest::collection::vec(word(), 1..200),
    ) {
        let bytes: Vec<u8> =
            header.iter().chain(&words).flat_map(|word| word.to_le_bytes()).collect();
        read_anything(&bytes);
    }

    #[test]
    fn arbitrary_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        read_anything(&bytes);
    }
}
