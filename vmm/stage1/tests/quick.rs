// SPDX-License-Identifier: GPL-2.0-only
//! The quick path over tables of pages finds and counts the same as the plain reading of the rules, on every single-bit
//! fault and on tables made to mislead it.

mod common;

use common::{any_layout, regime, violations_of};
use proptest::prelude::*;
use stage1::testing::{Attributes, Layout, TableBuilder};
use stage1::{Granule, Half, Regime, VirtualAddress};

/// Returns the part of the address space that table `number` of level 3 maps.
fn span(
    regime: &Regime,
    layout: &Layout,
    from: u64,
    count: u64,
) -> (VirtualAddress, VirtualAddress) {
    let size = layout.granule.bytes();
    let first = regime.first.0 + from * size;
    (
        VirtualAddress(first),
        VirtualAddress(first + count * size - 1),
    )
}

#[test]
fn every_bit_of_every_member() {
    for granule in Granule::ALL {
        let plain = Layout::new(granule, Half::Lower, 48);
        for layout in [
            plain,
            plain.hardware_dirty(),
            plain.wide(),
            plain.wide().hardware_dirty(),
        ] {
            for folded in [true, false] {
                every_bit(layout, folded);
            }
        }
    }
}

fn every_bit(layout: Layout, folded: bool) {
    let group = layout.group(3);
    let size = layout.granule.bytes();
    let mut tables = TableBuilder::new(layout);
    // Three groups, of which the one in the middle is broken.
    for page in 0..3 * group {
        let pa = 0x8000_0000 + page * size;
        tables.map_page(page * size, pa, Attributes::default(), folded);
    }
    let regime = regime(&tables);
    let (first, last) = span(&regime, &layout, 0, 3 * group);
    assert_eq!(violations_of(&tables, &regime, first, last), []);
    let mut caught = 0;
    for member in group..2 * group {
        // The larger groups are alike inside: their ends and some members between suffice.
        if group > 32 && member > group + 20 && member < 2 * group - 4 {
            continue;
        }
        let good = tables.peek(member * size, 3).unwrap();
        for bit in 0..64 {
            tables.poke(member * size, 3, good ^ 1 << bit);
            caught += violations_of(&tables, &regime, first, last).len();
        }
        tables.poke(member * size, 3, good);
    }
    assert!(caught > 0);
}

/// Returns a descriptor of a page: right, nearly right or arbitrary.
fn word() -> impl Strategy<Value = Word> {
    prop_oneof![
        8 => Just(Word::Follows),
        2 => (0..64_u32).prop_map(Word::Flipped),
        1 => Just(Word::Invalid(0)),
        1 => any::<u64>().prop_map(|word| Word::Invalid(word & !1)),
        1 => any::<u64>().prop_map(Word::Raw),
        1 => (1..300_u64).prop_map(Word::Shifted),
    ]
}

#[derive(Clone, Copy, Debug)]
enum Word {
    /// The next one after the descriptor before it.
    Follows,
    /// As the one before, with one bit flipped.
    Flipped(u32),
    /// As the one before, some pages away.
    Shifted(u64),
    Invalid(u64),
    Raw(u64),
}

/// Generates a stretch of pages: its length, whether it is folded, and one exception.
fn stretch() -> impl Strategy<Value = (usize, bool, usize, Word)> {
    (1..200_usize, any::<bool>(), 0..200_usize, word())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn misleading_tables(
        layout in any_layout(),
        stretches in proptest::collection::vec(stretch(), 1..12),
        base in 0..4_u64,
        (from, count) in (0..600_u64, 1..600_u64),
    ) {
        let size = layout.granule.bytes();
        let mut tables = TableBuilder::new(layout);
        let first_va = layout.first_va();
        let limit = (1_u64 << layout.va_bits) / size;
        let mut page = 0;
        for (length, folded, odd, word) in stretches {
            for place in 0..length {
                if page >= limit.min(4096) {
                    break;
                }
                let va = first_va + page * size;
                let pa = 0x8000_0000 + (base + page) * size;
                let leaf = |pa| tables.leaf(pa, 3, Attributes::default(), folded);
                let value = match word {
                    Word::Flipped(bit) if place == odd => leaf(pa) ^ 1 << bit,
                    Word::Shifted(pages) if place == odd => leaf(pa + pages * size),
                    Word::Invalid(value) | Word::Raw(value) if place == odd => value,
                    _ => leaf(pa),
                };
                tables.poke(va, 3, value);
                page += 1;
            }
        }
        let regime = regime(&tables);
        // The comparison is in this function.
        violations_of(&tables, &regime, regime.first, regime.last);
        let (first, last) = span(&regime, &layout, from, count);
        violations_of(&tables, &regime, first, last);
    }

    #[test]
    fn arbitrary_words(
        layout in any_layout(),
        words in proptest::collection::vec(word(), 1..260),
        from in 0..300_u64,
        count in 1..300_u64,
    ) {
        let size = layout.granule.bytes();
        let mut tables = TableBuilder::new(layout);
        for (page, word) in (0_u64..).zip(&words) {
            let leaf = tables.leaf(page * size, 3, Attributes::default(), page % 40 < 30);
            let value = match word {
                Word::Follows => leaf,
                Word::Flipped(bit) => leaf ^ 1 << bit,
                Word::Shifted(pages) => tables.leaf((page + pages) * size, 3, Attributes::default(), true),
                Word::Invalid(value) | Word::Raw(value) => *value,
            };
            tables.poke(layout.first_va() + page * size, 3, value);
        }
        let regime = regime(&tables);
        violations_of(&tables, &regime, regime.first, regime.last);
        let (first, last) = span(&regime, &layout, from, count);
        violations_of(&tables, &regime, first, last);
    }
}
