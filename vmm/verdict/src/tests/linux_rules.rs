//! Each Linux rule: a good table passes, a table broken in just that way is caught by just that
//! rule.

use super::guest::*;
use crate::{Expected, RuleId};
use stage1::testing::{Attributes, Layout};
use stage1::{Granule, Half};

#[test]
fn a_good_process_has_no_error_in_any_format() {
    for mut guest in Guest::all() {
        guest.fold(0, written());
        guest.fold(1, read_only());
        guest.spread(2, written());
        guest.assert_legal();
    }
}

#[test]
fn a1_to_a5_come_with_the_words_of_the_group() {
    let mut guest = Guest::new();
    guest.fold(0, written());
    guest.change(3, |word| word ^ CONT);
    let verdict = guest.judge();
    let finding = &verdict.findings[0];
    assert_eq!(guest.errors(), [RuleId::A4]);
    assert_eq!(finding.words.len(), 16);
    assert_eq!((finding.va.0, finding.end.0), (VA, VA + 0x1_0000));
    assert_eq!(finding.level, 3);
    assert_eq!(finding.index, 0);
    assert_eq!(finding.table.0 % 4096, 0);
    let json = serde_json::to_value(finding).unwrap();
    assert_eq!(json["va"], "0x0000000040000000");
    assert_eq!(json["rule"], "A4");
    assert_eq!(json["process"]["pid"], 42);
}

#[test]
fn each_rule_of_the_architecture_comes_through() {
    // A member or a lone entry, changed in one way each; the last two on raw words.
    type Case = (RuleId, fn(u64) -> u64);
    let cases: [Case; 4] = [
        (RuleId::A3, |word| word ^ 1 << 30),
        (RuleId::A4, |word| word ^ CONT),
        (RuleId::A5, |word| word ^ 1 << 53),
        (RuleId::A7, |word| word | 1 << 48),
    ];
    for (rule, change) in cases {
        let mut guest = Guest::new();
        guest.fold(0, written());
        guest.assert_legal();
        guest.change(6, change);
        assert_eq!(guest.errors(), [rule]);
    }
    // A2: consecutive, from an odd page on.
    let mut guest = Guest::new();
    for at in 0..16 {
        let at = at * 4096;
        guest
            .tables
            .map_page(VA + at, PA + 0x1000 + at, written(), true);
    }
    assert_eq!(guest.errors(), [RuleId::A2]);
    // A1: aligned in physical memory, from an odd place in the table on.
    let mut guest = Guest::new();
    for at in 0..32 {
        let at = at * 4096;
        guest
            .tables
            .map_page(VA + 0x8000 + at, PA + at, written(), true);
    }
    assert!(guest.errors().contains(&RuleId::A1));
    // A6: 16K blocks at level 1 (with DS) have no group. A8: without DS there are none.
    let layout = Layout::new(Granule::K16, Half::Lower, 47);
    for (layout, rule) in [(layout.wide(), RuleId::A6), (layout, RuleId::A8)] {
        let maps = "1000000000-2000000000 rw-p 00000000 00:00 0 ";
        let mut guest = Guest::of(layout).maps(maps);
        let cont = u64::from(rule == RuleId::A6) * CONT;
        guest
            .tables
            .poke(0x10_0000_0000, 1, 0b01 | 1 << 10 | 1 << 11 | cont);
        assert_eq!(guest.errors(), [rule]);
    }
}

#[test]
fn l1_a_member_that_is_gone() {
    for mut guest in Guest::all() {
        guest.fold(0, written());
        guest.fold(1, written());
        guest.assert_legal();
        let lost = guest.members + 5;
        guest.change(lost, |_| 0);
        assert_eq!(guest.errors(), [RuleId::L1]);
        let verdict = guest.judge();
        assert_eq!(verdict.findings[0].words.len() as u64, guest.members);
    }
}

#[test]
fn l1_a_member_that_is_swapped_out() {
    let mut guest = Guest::new();
    guest.fold(0, written());
    guest.change(15, |_| 2 << 6 | 0x1234 << 12);
    assert_eq!(guest.errors(), [RuleId::L1]);
}

#[test]
fn l3_a_special_member() {
    for mut guest in Guest::all() {
        guest.fold(0, read_only());
        guest.assert_legal();
        for at in 0..guest.members {
            guest.change(at, |word| word | SPECIAL);
        }
        assert_eq!(guest.errors(), [RuleId::L3]);
    }
}

#[test]
fn l4_a_prot_none_page_that_keeps_the_bit() {
    let mut guest = Guest::new();
    for at in 0..16 {
        let word = prot_none(PA + at * 4096);
        guest.tables.poke(VA + at * 4096, 3, word);
    }
    guest.assert_legal();
    guest.change(7, |word| word | CONT);
    assert_eq!(guest.errors(), [RuleId::L4]);
}

#[test]
fn l5_each_bit_that_only_the_kernel_writes() {
    // Software manages AF and dirty.
    for (bit, attributes) in [(AF, written()), (DIRTY, written()), (UFFD_WP, read_only())] {
        let mut guest = Guest::new();
        guest.fold(0, attributes);
        guest.change(4, |word| word ^ bit);
        assert_eq!(guest.errors(), [RuleId::L5], "bit {bit:#x}");
    }
    // DBM means nothing to a CPU without HD; to Linux it is WRITE.
    let mut guest = Guest::new();
    guest.fold(0, read_only());
    guest.change(4, |word| word | WRITE);
    assert_eq!(guest.errors(), [RuleId::L5]);
    // HA alone: the CPU writes AF, and nothing else.
    let mut layout = Layout::new(Granule::K4, Half::Lower, 48);
    layout.ha = true;
    for (bit, expected) in [(AF, vec![]), (DIRTY, vec![RuleId::L5])] {
        let mut guest = Guest::of(layout);
        guest.fold(0, written());
        guest.change(4, |word| word ^ bit);
        assert_eq!(guest.errors(), expected, "bit {bit:#x}");
    }
    // With HA and HD the uffd-wp bit still is the kernel's alone.
    let mut guest = Guest::of(layout.hardware_dirty());
    guest.fold(0, read_only());
    guest.change(4, |word| word | UFFD_WP);
    assert_eq!(guest.errors(), [RuleId::L5]);
}

#[test]
fn a5_and_not_l5_where_ap2_differs() {
    let mut guest = Guest::new();
    guest.fold(
        0,
        Attributes {
            software: 0,
            ..written()
        },
    );
    guest.change(4, |word| word | RDONLY);
    assert_eq!(guest.errors(), [RuleId::A5]);
}

#[test]
fn l6_write_and_dirty_and_read_only() {
    for mut guest in Guest::all() {
        guest.spread(0, written());
        guest.assert_legal();
        guest.change(2, |word| word | RDONLY);
        assert_eq!(guest.errors(), [RuleId::L6]);
    }
}

#[test]
fn l6_a_written_page_that_is_clean() {
    let clean = Attributes {
        ap: 0b11,
        software: 0,
        ..written()
    };
    let mut guest = Guest::new();
    guest.spread(0, written());
    guest.spread(1, clean);
    guest.expect(Expected::Written, VA, VA + 0x1_0000);
    guest.assert_legal();
    // The last page of the first block, and one of the second that is not in the range.
    guest.change(15, |word| word & !DIRTY | RDONLY);
    assert_eq!(guest.errors(), [RuleId::L6]);
}

#[test]
fn l6_a_page_that_was_never_written_and_is_dirty() {
    let clean = Attributes {
        ap: 0b11,
        software: 0,
        ..written()
    };
    let mut guest = Guest::new();
    guest.fold(0, clean);
    guest.expect(Expected::NotWritten, VA, VA + 0x1_0000);
    guest.assert_legal();
    for at in 0..16 {
        guest.change(at, |word| word & !RDONLY);
    }
    assert_eq!(guest.errors(), [RuleId::L6]);
}

#[test]
fn l8_outside_every_vma() {
    for mut guest in Guest::all() {
        guest.spread(0, written());
        guest.assert_legal();
        let beyond = VA + 4 * guest.block;
        guest
            .tables
            .map_page(beyond, PA + 4 * guest.block, written(), false);
        assert_eq!(guest.errors(), [RuleId::L8]);
    }
    // PROT_NONE is present too; what was swapped out is not.
    let mut guest = Guest::new();
    guest.tables.poke(VA - 4096, 3, 2 << 6 | 7 << 12);
    guest.assert_legal();
    guest.tables.poke(VA - 4096, 3, prot_none(PA));
    assert_eq!(guest.errors(), [RuleId::L8]);
}

#[test]
fn l8_writable_where_the_vma_is_not() {
    let maps = "40000000-40010000 r--p 00000000 00:00 0 \n40010000-40020000 rw-p 0 00:00 0 ";
    let mut guest = Guest::new().maps(maps);
    guest.spread(0, read_only());
    guest.spread(1, written());
    guest.assert_legal();
    guest.change(9, |word| word | WRITE);
    assert_eq!(guest.errors(), [RuleId::L8]);
    let message = &guest.judge().findings[0].message;
    assert!(
        message.contains("0x0000000040009000") && message.contains("r--p"),
        "{message}"
    );
}

#[test]
fn l11_a_fresh_folio_that_is_torn_or_misaligned() {
    for chosen in [2u8, 4] {
        let mut guest = Guest::new();
        match chosen {
            4 => guest.fold(0, written()),
            _ => guest.spread(0, written()),
        }
        guest.record(VA + 0x2000, chosen);
        // Nothing is asserted until the checkpoint says that the range is fresh.
        guest.change(1, |word| word + (0x100 << 12));
        guest.change(1, |word| word & !CONT);
        guest.expectations.clear();
        let before = guest.errors();
        guest.expect(Expected::FreshlyFaulted, VA, VA + 0x1_0000);
        let mut errors = guest.errors();
        errors.retain(|rule| !before.contains(rule));
        assert_eq!(errors, [RuleId::L11], "order {chosen}");
    }
    // Consecutive, and not aligned: order 2 at a physical address that is a multiple of 8K.
    let mut guest = Guest::new();
    for at in 0..4 {
        guest
            .tables
            .map_page(VA + at * 4096, PA + 0x2000 + at * 4096, written(), false);
    }
    guest.expect(Expected::FreshlyFaulted, VA, VA + 0x4000);
    guest.assert_legal();
    guest.record(VA, 2);
    assert_eq!(guest.errors(), [RuleId::L11]);
}

#[test]
fn c1_a_fresh_folio_of_the_order_must_be_folded() {
    for mut guest in Guest::all() {
        guest.spread(0, written());
        let order = guest.members.trailing_zeros() as u8;
        guest.record(VA + guest.page, order);
        guest.assert_legal();
        guest.expect(Expected::FreshlyFaulted, VA, VA + guest.block);
        assert_eq!(guest.errors(), [RuleId::C1]);
        guest.fold(0, written());
        guest.assert_legal();
    }
}

#[test]
fn c1_and_c2_where_the_checkpoint_says_so() {
    let mut guest = Guest::new();
    guest.fold(0, written());
    guest.spread(1, written());
    guest.expect(Expected::Contiguous, VA, VA + 0x1_0000);
    guest.expect(Expected::NotContiguous, VA + 0x1_0000, VA + 0x4_0000);
    guest.assert_legal();
    guest.expectations.clear();
    guest.expect(Expected::Contiguous, VA, VA + 0x2_0000);
    guest.expect(Expected::NotContiguous, VA + 0x5000, VA + 0x6000);
    assert_eq!(guest.errors(), [RuleId::C2, RuleId::C1]);
    // Nothing mapped at all is not folded either, and nothing but that range is marked.
    guest.expectations.clear();
    guest.expect(Expected::Contiguous, VA + 0x3_0000, VA + 0x4_0000);
    assert_eq!(guest.errors(), [RuleId::C1]);
    let mut guest = guest.maps("40000000-60000000 rw-p 00000000 00:00 0 ");
    guest.expectations.clear();
    guest.expect(Expected::Contiguous, VA + 0x1003_0000, VA + 0x1005_0000);
    let verdict = guest.judge();
    assert_eq!(verdict.errors(), 1);
    let finding = verdict
        .findings
        .iter()
        .find(|f| f.rule == RuleId::C1)
        .unwrap();
    assert_eq!(
        (finding.va.0, finding.end.0),
        (VA + 0x1003_0000, VA + 0x1005_0000)
    );
    assert_eq!(verdict.blocks()[&crate::BlockState::Broken], 2);
    // A range that makes no sense ends, too.
    guest.expectations.clear();
    guest.expect(Expected::Contiguous, 0, u64::MAX);
    guest.expect(Expected::NotContiguous, 0, u64::MAX);
    guest.expect(Expected::Written, 0, u64::MAX);
    assert!(guest.judge().errors() > 0);
}

#[test]
fn w1_a_table_outside_ram() {
    let mut guest = Guest::new();
    guest.fold(0, written());
    guest
        .tables
        .change(VA, 2, |word| word & 0xfff | 0x7000_0000_0000);
    let errors = guest.errors();
    assert_eq!(errors, [RuleId::W1]);
}

#[test]
fn findings_are_limited_and_counted() {
    let mut guest = Guest::new().maps("40000000-50000000 rw-p 00000000 00:00 0 ");
    for block in 0..150 {
        guest.fold(block, written());
        guest.change(block * 16, |_| 0);
    }
    let verdict = guest.judge();
    assert_eq!(verdict.findings.len(), 100);
    assert_eq!(verdict.dropped[&RuleId::L1], 50);
    assert_eq!(verdict.errors(), 150);
    assert_eq!(verdict.blocks()[&crate::BlockState::Broken], 150);
}
