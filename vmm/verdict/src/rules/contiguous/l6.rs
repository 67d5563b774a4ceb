// SPDX-License-Identifier: GPL-2.0-only
//! L6: dirty state is consistent, and true.

use std::ops::Range;

use linux::pte::bits;

use crate::check::{Check, Report};
use crate::group::Group;
use crate::rules::rule::{Identity, Need, OnBreak, Releases, Rule, Tier};
use crate::Expected;

pub(crate) static RULE: Rule = Rule {
    name: "L6",
    title: "dirty state is consistent, and true",
    asserts: "No valid entry has WRITE, DIRTY and RDONLY at once. In ranges that the checkpoint names, a page that \
              was written is dirty (`written`: in one entry of its group where the CPU updates it), and one of whose \
              folio no page was ever written is not (`not-written`; on releases after 6.12, where a fault dirties \
              all of a folio, not for pages that go on beyond the range, in virtual and physical address alike). \
              Every raw entry is dirty, or clean, where software carried that state over (`dirty`, `clean`), \
              whatever the CPU updates.",
    tier: Tier::Linux,
    sources: &[
        "arch/arm64/include/asm/pgtable.h, pte_hw_dirty(), pte_mkwrite_novma(), pte_mkdirty()",
        "mm/memory.c, do_wp_page(), set_pte_range()",
    ],
    needs: &[Need::Vmas.all(), Need::Expectations.part("written pages")],
    releases: Releases::WIDELY,
    known: &[],
    identity: Identity::Words,
    on_break: OnBreak::GoOn,
    checks: &[Check::Group(consistent),
        Check::Expected(Expected::Written, |group, at, report| written(group, at, true, report)),
        Check::Expected(Expected::NotWritten, |group, at, report| written(group, at, false, report)),
        Check::Expected(Expected::Dirty, |group, at, report| dirty(group, at, true, report)),
        Check::Expected(Expected::Clean, |group, at, report| dirty(group, at, false, report))],
    synthetic: &[
        "l6_write_and_dirty_and_read_only",
        "l6_a_written_page_that_is_clean",
        "l6_a_page_that_was_never_written_and_is_dirty",
        "l6_judges_by_folio_after_6_12",
        "l6_dirty_and_clean_are_of_every_raw_entry",
    ],
    live: &["test_folded_block", "test_l6_one_page", "test_l6_written_is_dirty", "test_l6_unwritten_is_clean"],
};

/// Never all three at once.
fn consistent(group: &Group<'_>, _: Option<bool>) -> Option<String> {
    const ALL: u64 = bits::WRITE | bits::DIRTY | bits::RDONLY;
    let (at, pte) = group.leaves().find(|(_, pte)| pte.0 & ALL == ALL)?;
    let (va, word) = (group.va_of(at), pte.0);
    Some(format!(
        "the entry for VA 0x{va:016x} ({word:#018x}) has WRITE, DIRTY and RDONLY at once: a writable dirty entry must have \
         AP[2] (RDONLY) clear"
    ))
}

/// The pages of one group that lie in a range. A group's dirty state is that of all its members together where
/// the CPU writes it: it may choose any of them.
fn written(group: &Group<'_>, range: Range<u64>, written: bool, report: &mut Report<'_>) {
    let gathered = group.regime.hd
        && group
            .leaves()
            .any(|(_, pte)| pte.valid_cont() && pte.dirty());
    let wrong = group.leaves().find(|&(at, pte)| {
        let dirty = pte.dirty() || (pte.valid_cont() && gathered);
        group.touches(at, &range) && dirty != written
    });
    if let Some((at, pte)) = wrong {
        let (va, word) = (group.va_of(at), pte.0);
        let message = if written {
            format!("the page at VA 0x{va:016x} was written and its entry ({word:#018x}) is clean: DIRTY must be set, or WRITE with RDONLY clear")
        } else {
            format!("the page at VA 0x{va:016x} was never written and its entry ({word:#018x}) is dirty: it must be clean")
        };
        let end = va.saturating_add(group.step());
        report(va..end, message);
    }
}

/// Every raw entry, valid or only present, in a range of which its state is known.
fn dirty(group: &Group<'_>, range: Range<u64>, dirty: bool, report: &mut Report<'_>) {
    let mut entries = group.present().filter(|(at, _)| group.touches(*at, &range));
    if let Some((at, pte)) = entries.find(|(_, pte)| pte.dirty() != dirty) {
        let (va, word) = (group.va_of(at), pte.0);
        let (is, must) = if dirty {
            ("clean", "dirty")
        } else {
            ("dirty", "clean")
        };
        let message = format!(
            "the raw entry for VA 0x{va:016x} ({word:#018x}) is {is}: after this step every entry must be {must}"
        );
        report(va..va.saturating_add(group.step()), message);
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::id;
    use crate::tests::guest::*;
    use crate::Expected;
    use linux::release::Release;
    use stage1::testing::{Attributes, Layout};
    use stage1::{Granule, Half};

    fn clean() -> Attributes {
        Attributes {
            ap: 0b11,
            software: 0,
            ..written()
        }
    }

    #[test]
    fn l6_write_and_dirty_and_read_only() {
        for mut guest in Guest::all() {
            guest.spread(0, written());
            guest.assert_legal();
            guest.change(2, |word| word | RDONLY);
            assert_eq!(guest.errors(), [id("L6")]);
        }
    }

    #[test]
    fn l6_a_written_page_that_is_clean() {
        let mut guest = Guest::new();
        guest.spread(0, written());
        guest.spread(1, clean());
        guest.expect(Expected::Written, VA, VA + 0x1_0000);
        guest.assert_legal();
        // The last page of the first block, and one of the second that is not in the range.
        guest.change(15, |word| word & !DIRTY | RDONLY);
        assert_eq!(guest.errors(), [id("L6")]);
    }

    #[test]
    fn l6_a_page_that_was_never_written_and_is_dirty() {
        let mut guest = Guest::new();
        guest.fold(0, clean());
        guest.expect(Expected::NotWritten, VA, VA + 0x1_0000);
        guest.assert_legal();
        for at in 0..16 {
            guest.change(at, |word| word & !RDONLY);
        }
        assert_eq!(guest.errors(), [id("L6")]);
    }

    #[test]
    fn l6_judges_by_folio_after_6_12() {
        // A folio of eight pages, of which the first two were written; the range is the other six, and beside
        // them another folio.
        let mut guest = Guest::new();
        guest.spread(0, written());
        for at in 8..16 {
            let at = at * 4096;
            guest
                .tables
                .map_page(VA + at, PA + 0x10_0000 + at, clean(), false);
        }
        guest.expect(Expected::NotWritten, VA + 0x2000, VA + 0x1_0000);
        guest.release = Release::parse("7.2.13");
        guest.assert_legal();
        // 6.12 dirties the page alone.
        guest.release = Release::parse("6.12.117");
        assert_eq!(guest.errors(), [id("L6")]);
        // The other folio is judged on both.
        guest.release = Release::parse("7.2.13");
        guest.change(11, |word| word & !RDONLY);
        assert_eq!(guest.errors(), [id("L6")]);
        assert_eq!(guest.judge().findings[0].va.0, VA + 0xb000);
        // A range that ends within a folio.
        guest.expectations.clear();
        guest.expect(Expected::NotWritten, VA + 0x8000, VA + 0xe000);
        guest.assert_legal();
    }

    #[test]
    fn l6_dirty_and_clean_are_of_every_raw_entry() {
        let layout = Layout::new(Granule::K4, Half::Lower, 48).hardware_dirty();
        let mut guest = Guest::of(layout);
        guest.fold(0, written());
        guest.fold(1, clean());
        let none = |at: u64| prot_none(PA + at * 4096);
        guest.tables.poke(VA + 0x2_0000, 3, none(32) | DIRTY);
        guest.tables.poke(VA + 0x2_1000, 3, none(33));
        guest.expect(Expected::Dirty, VA, VA + 0x1_0000);
        guest.expect(Expected::Clean, VA + 0x1_0000, VA + 0x2_0000);
        guest.expect(Expected::Dirty, VA + 0x2_0000, VA + 0x2_1000);
        guest.expect(Expected::Clean, VA + 0x2_1000, VA + 0x2_2000);
        guest.assert_legal();
        // What the CPU may do to one of a group is not what software carried over.
        type Change = (u64, fn(u64) -> u64);
        let changes: [Change; 4] = [
            (3, |word| word & !DIRTY | RDONLY),
            (19, |word| word & !RDONLY),
            (32, |word| word & !DIRTY),
            (33, |word| word | DIRTY),
        ];
        for (at, change) in changes {
            let before = guest.tables.clone();
            guest.change(at, change);
            let verdict = guest.judge();
            let errors: Vec<_> = verdict.findings.iter().map(|f| (f.rule, f.va.0)).collect();
            assert_eq!(errors, [(id("L6"), VA + at * 4096)], "page {at}");
            guest.tables = before;
        }
    }
}
