// SPDX-License-Identifier: GPL-2.0-only
//! The need of a change of a descriptor, compared with a table that is written by fields.

mod common;

use common::any_layout;
use proptest::prelude::*;
use stage1::testing::Layout;
use stage1::{transition, BbmLevel, Cause, Descriptor, Granule, Half, Level, Maintenance, Regime};

const LEVELS: [BbmLevel; 3] = [BbmLevel::Zero, BbmLevel::One, BbmLevel::Two];
/// Normal memory, AP 0b01, SH 0b11, AF, nG, PXN and UXN, as Linux uses for data.
const DATA: u64 = 0x0060_0000_0000_0f43;

fn regime(layout: Layout) -> Regime {
    Regime::new(&layout.registers(0x4000_0000), layout.half).expect("the layout's registers")
}

fn k4() -> Regime {
    regime(Layout::new(Granule::K4, Half::Lower, 48))
}

fn need(regime: &Regime, old: u64, new: u64, bbm: BbmLevel) -> (Maintenance, Cause) {
    at(regime, (old, Level::L3), (new, Level::L3), bbm)
}

fn at(
    regime: &Regime,
    old: (u64, Level),
    new: (u64, Level),
    bbm: BbmLevel,
) -> (Maintenance, Cause) {
    let old = Descriptor::new(old.0, old.1, regime);
    let new = Descriptor::new(new.0, new.1, regime);
    let found = transition(&old, &new, bbm);
    assert!(found.cause.reference().starts_with("Arm ARM D8."));
    (found.need, found.cause)
}

/// One row for each change: the bits it flips, its need without FEAT_BBM, its cause.
#[test]
fn a_page_by_fields() {
    use Maintenance::{BreakBeforeMake, Nothing, Tlbi};
    let regime = k4();
    let page = DATA | 0x4000_0000;
    for (flip, expected, cause) in [
        (1, Tlbi, Cause::Broken),
        (2, Tlbi, Cause::Broken),
        (1 << 20, BreakBeforeMake, Cause::OutputAddress),
        // MAIR: 0xff, 0xf0, 0x44, ...
        (2 << 2, BreakBeforeMake, Cause::MemoryType),
        (1 << 2, Tlbi, Cause::Tagged),
        (1 << 52, BreakBeforeMake, Cause::Contiguous),
        (1 << 11, BreakBeforeMake, Cause::Global),
        (1 << 7, Tlbi, Cause::Restricted),
        (1 << 6, Tlbi, Cause::Restricted),
        (1 << 53, Tlbi, Cause::Relaxed),
        (1 << 54, Tlbi, Cause::Relaxed),
        (1 << 7 | 1 << 53, Tlbi, Cause::Restricted),
        (1 << 8, Tlbi, Cause::Shareability),
        (1 << 50, Tlbi, Cause::Attributes),
        (1 << 51, Tlbi, Cause::Attributes),
        (1 << 10, Tlbi, Cause::Aged),
        (1 << 55, Nothing, Cause::Software),
        (0xf << 55, Nothing, Cause::Software),
        (0xf << 59, Nothing, Cause::Software),
        (0, Nothing, Cause::Same),
    ] {
        let found = need(&regime, page, page ^ flip, BbmLevel::Zero);
        assert_eq!(found, (expected, cause), "flip {flip:#x}");
    }
    let read_only = page | 1 << 7;
    assert_eq!(
        need(&regime, read_only, read_only ^ 1 << 20, BbmLevel::Zero),
        (BreakBeforeMake, Cause::ReadOnlyOutputAddress)
    );
    assert_eq!(
        need(&regime, read_only, read_only ^ 1 << 7, BbmLevel::Zero),
        (Tlbi, Cause::Relaxed)
    );
    assert_eq!(
        need(&regime, page & !(1 << 11), page, BbmLevel::Zero),
        (Tlbi, Cause::NonGlobal)
    );
}

#[test]
fn sizes_and_the_levels_of_feat_bbm() {
    use Maintenance::{BreakBeforeMake, Nothing, Tlbi};
    let regime = k4();
    let block = (DATA & !2 | 0x4000_0000, Level::L2);
    let quiet = (block.0 | 1 << 16, Level::L2);
    let table = (0x5000_0003, Level::L2);
    let page = (DATA | 0x4000_0000, Level::L3);
    let b = [BreakBeforeMake, BreakBeforeMake, Tlbi];
    let n = [BreakBeforeMake, Tlbi, Tlbi];
    for (old, new, needs) in [
        (block, table, b),
        (quiet, table, n),
        (table, block, b),
        (block, page, b),
        (page, block, b),
        // The table that a page is under, and the page that a table leads to.
        (table, page, [Nothing; 3]),
        (page, table, [Nothing; 3]),
        (page, (page.0 | 1 << 52, Level::L3), n),
        (table, (0x5000_1003, Level::L2), [BreakBeforeMake; 3]),
        (table, (0x5000_0003 | 1 << 60, Level::L2), [Tlbi; 3]),
        (table, (0x5000_0003 | 1 << 55, Level::L2), [Nothing; 3]),
        (block, quiet, [Tlbi; 3]),
        // An address differs as well: no level of FEAT_BBM allows that.
        (
            page,
            (page.0 ^ (1 << 52 | 1 << 20), Level::L3),
            [BreakBeforeMake; 3],
        ),
    ] {
        for (bbm, expected) in LEVELS.into_iter().zip(needs) {
            assert_eq!(
                at(&regime, old, new, bbm).0,
                expected,
                "{old:x?} to {new:x?} with {bbm:?}"
            );
        }
    }
}

/// With AF 0 nothing is cached, unless the PE sets AF, or another member of the group has it.
#[test]
fn what_is_old_is_in_no_tlb() {
    let layout = Layout::new(Granule::K4, Half::Lower, 48);
    let (software, hardware) = (regime(layout), regime(layout.hardware_dirty()));
    let old = (DATA | 0x4000_0000) & !(1 << 10);
    let other = old ^ 1 << 20;
    let zero = BbmLevel::Zero;
    assert_eq!(need(&software, old, other, zero).1, Cause::NeverCached);
    assert_eq!(need(&hardware, old, other, zero).1, Cause::OutputAddress);
    let (group, other) = (old | 1 << 52, other | 1 << 52);
    assert_eq!(need(&software, group, other, zero).1, Cause::OutputAddress);
    let set = need(&hardware, old, old | 1 << 10, zero);
    assert_eq!(set, (Maintenance::Nothing, Cause::AccessFlag));
}

fn any_level() -> impl Strategy<Value = Level> {
    proptest::sample::select(&[Level::L1, Level::L2, Level::L3][..])
}

proptest! {
    #[test]
    fn words_of_any_kind(
        layout in any_layout(),
        level in any_level(),
        old in any::<u64>(),
        flips in any::<u64>(),
        narrow in any::<u64>(),
    ) {
        let regime = regime(layout);
        let new = old ^ flips & narrow;
        let needs = LEVELS.map(|bbm| at(&regime, (old, level), (new, level), bbm));
        // A higher level of FEAT_BBM never needs more.
        prop_assert!(needs[0].0 >= needs[1].0 && needs[1].0 >= needs[2].0);
        for (bbm, (need, cause)) in LEVELS.into_iter().zip(needs) {
            // The other direction needs break-before-make too, except for nG and where the new word is cached and
            // the old is not.
            let back = at(&regime, (new, level), (old, level), bbm);
            let one_way = matches!(cause, Cause::Global) || back.1 == Cause::NeverCached;
            if need == Maintenance::BreakBeforeMake && !one_way && !matches!(cause, Cause::Size) {
                prop_assert_eq!(back.0, Maintenance::BreakBeforeMake);
            }
            // An invalid word needs nothing; a word that becomes invalid needs at most a TLBI.
            let valid = |word: u64| Descriptor::new(word, level, &regime).kind();
            if matches!(valid(old), stage1::Kind::Invalid | stage1::Kind::Reserved) {
                prop_assert_eq!(need, Maintenance::Nothing);
            }
            if matches!(valid(new), stage1::Kind::Invalid | stage1::Kind::Reserved) {
                prop_assert!(need <= Maintenance::Tlbi);
            }
            // The same bits with other software bits are the same change.
            if old != new {
                let other = at(&regime, (old ^ 0xf << 55, level), (new, level), bbm);
                prop_assert_eq!(need, other.0);
            }
        }
    }

    /// Changes of rights, age and software's bits alone never need a break, whatever the layout.
    #[test]
    fn rights_and_age_need_no_break(layout in any_layout(), level in any_level(), word in any::<u64>(), flips in any::<u64>()) {
        let regime = regime(layout);
        let mask = 0b11 << 6 | 1 << 10 | 1 << 51 | 1 << 53 | 1 << 54 | 0xf << 55;
        let old = word | 1 | u64::from(level == Level::L3) << 1;
        let leaf = Descriptor::new(old, level, &regime).kind().is_leaf();
        prop_assume!(leaf);
        let (need, _) = at(&regime, (old, level), (old ^ flips & mask, level), BbmLevel::Zero);
        prop_assert!(need <= Maintenance::Tlbi);
    }

    /// Every change of address of a leaf that may be written and cached needs one.
    #[test]
    fn addresses_need_a_break(layout in any_layout(), from in 1_u64..1 << 20, to in 1_u64..1 << 20) {
        prop_assume!(from != to);
        let regime = regime(layout);
        let page = |at: u64| DATA & !(0b11 << 8) | at << layout.granule.shift();
        for bbm in LEVELS {
            let found = need(&regime, page(from), page(to), bbm);
            prop_assert_eq!(found, (Maintenance::BreakBeforeMake, Cause::OutputAddress));
        }
    }
}
