// SPDX-License-Identifier: GPL-2.0-only
//! Rules that ask the folio behind an entry, on made-up folios.

use crate::testing::id;
use linux::counted::NotRead;
use linux::folio::{Kind, Rss, Type};
use stage1::testing::{Layout, TableBuilder};
use stage1::{Granule, Half};

use super::guest::*;
use crate::testing::folios::{errors, good};
use crate::{judge_counts, Everyone, Expected, MayBe, Unmapped};

mod entries;
pub mod files;
mod reverse;
mod unmapped;

#[test]
fn l2_a_group_of_two_folios() {
    for guest in Guest::all() {
        let mut guest = good(guest);
        let (half, first, number) = (guest.members / 2, guest.first(), VA / guest.page);
        let order = half.ilog2() as u8;
        guest.kernel().folio(first, order, number);
        guest.kernel().folio(first + half, order, number + half);
        assert_eq!(guest.errors(), [id("L2")]);
        // The same without the bit is legal, and the block cannot be folded.
        for at in 0..guest.members {
            guest.change(at, |word| word & !CONT);
        }
        guest.assert_legal();
        let row = &guest.judge().vmas[0].rows[0];
        let reason = row.reason.as_ref().unwrap().text();
        assert_eq!(
            reason,
            format!("a folio of order {order} ends before page {half}")
        );
    }
}

#[test]
fn l2_a_page_whose_head_is_nowhere() {
    let mut guest = good(Guest::new());
    let pfn = guest.first() + 3;
    guest
        .kernel()
        .wild
        .insert(pfn, "its compound_head is 0x1".into());
    assert_eq!(guest.errors(), [id("L2")]);
}

#[test]
fn what_cannot_be_read_is_not_judged() {
    let mut guest = good(Guest::new());
    let pfn = guest.first() + guest.members;
    guest.kernel().pages.remove(&pfn);
    guest.kernel().rss = Some(Rss::default());
    let verdict = guest.judge();
    assert_eq!(errors(&verdict), []);
    assert!(
        verdict.not_judged[0].reason.contains("1 entries"),
        "{:?}",
        verdict.not_judged
    );
}

#[test]
fn what_is_left_out_is_noted() {
    let mut guest = good(Guest::new());
    assert!(guest.judge().notes.is_empty(), "{:?}", guest.judge().notes);
    // Pages on their way, counts that a kernel may not keep, VMAs without VmFlags.
    guest.change(20, |_| 27 << 6 | 5 << 12);
    let pfn = guest.first();
    guest.kernel().change(pfn, |page| page.mapcount = None);
    for vma in &mut guest.vmas {
        vma.flags = None;
    }
    let verdict = guest.judge();
    let lacks = verdict.lacks.into_iter().map(|lack| lack.reason);
    let notes: Vec<String> = verdict.notes.into_iter().chain(lacks).collect();
    for part in [
        "1 of its entries",
        "for 1 entries of large folios",
        "VmFlags",
    ] {
        assert!(
            notes.iter().any(|note| note.contains(part)),
            "{part}: {notes:?}"
        );
    }
}

#[test]
fn l7_a_page_of_another_place() {
    for guest in Guest::all() {
        let mut guest = good(guest);
        let pfn = guest.first() + guest.members + 1;
        guest.kernel().change(pfn, |page| page.index += 1);
        assert_eq!(guest.errors(), [id("L7")]);
        // KSM's pages have the number of one place of many.
        guest.kernel().change(pfn, |page| page.kind = Kind::Ksm);
        guest.change(guest.members + 1, |word| word & !WRITE | RDONLY);
        guest.assert_legal();
    }
    // By the VMA's numbering, not by the address.
    let mut guest = good(Guest::new());
    guest.kernel().numbering[0].anonymous += 16;
    assert!(guest.errors().iter().all(|rule| *rule == id("L7")));
    guest.kernel().numbering.clear();
    let verdict = guest.judge();
    assert_eq!(errors(&verdict), []);
    assert!(
        verdict.not_judged[0].reason.starts_with("L7"),
        "{:?}",
        verdict.not_judged
    );
}

#[test]
fn l7_a_file_s_page_in_anonymous_memory() {
    let mut guest = good(Guest::new());
    let pfn = guest.first() + guest.members;
    guest.kernel().change(pfn, |page| page.kind = Kind::File);
    assert_eq!(guest.errors(), [id("L7")]);
}

#[test]
fn l8_a_writable_page_that_is_not_exclusive() {
    for guest in Guest::all() {
        let mut guest = good(guest);
        let pfn = guest.first() + guest.members;
        guest.kernel().change(pfn, |page| page.exclusive = false);
        assert_eq!(guest.errors(), [id("L8")]);
        guest.change(guest.members, |word| word & !WRITE | RDONLY);
        guest.assert_legal();
    }
}

#[test]
fn l9_a_page_that_is_free() {
    let mut guest = good(Guest::new());
    let pfn = guest.first() + guest.members;
    guest.kernel().change(pfn, |page| page.refcount = 0);
    assert_eq!(guest.errors(), [id("L9")]);
    guest.kernel().change(pfn, |page| {
        page.refcount = 1;
        page.kind_of_page = Some(Type::Buddy);
        page.mapcount = None;
    });
    assert_eq!(guest.errors(), [id("L9")]);
    assert!(guest.judge().findings[0].message.contains("buddy"));
}

#[test]
fn l9_counters_of_a_process() {
    let mut guest = good(Guest::new());
    guest.kernel().rss = Some(Rss {
        anonymous: 31,
        ..Rss::default()
    });
    assert_eq!(guest.errors(), [id("L9")]);
    let message = &guest.judge().findings[0].message;
    assert!(message.contains("anonymous 31, entries 32"), "{message}");
    // As migration does between clearing an entry and setting the one that says so.
    guest.kernel().table_locked = true;
    let verdict = guest.judge();
    assert_eq!(errors(&verdict), []);
    let said = &verdict.not_judged[0].reason;
    assert!(said.contains("the lock of one of its tables"), "{said}");
    guest.kernel().table_locked = false;
    // What is swapped out counts as well, and a page on its way as nothing that is known.
    guest.change(20, |_| 2 << 6);
    guest.kernel().rss = Some(Rss {
        anonymous: 31,
        swapped: 1,
        ..Rss::default()
    });
    guest.assert_legal();
}

#[test]
fn l9_counts_and_entries() {
    for guest in Guest::all() {
        let mut guest = good(guest);
        assert_eq!(errors(&guest.counted(None)), []);
        let pfn = guest.first() + guest.members;
        // An entry that is not counted.
        guest.kernel().change(pfn, |page| page.mapcount = Some(0));
        assert_eq!(errors(&guest.counted(None)), [id("L9")]);
        guest.kernel().change(pfn, |page| page.mapcount = Some(1));
        // The folio's own count is one short, and once told of the folio.
        let pages = guest.members as i64;
        for at in 0..guest.members {
            let pfn = guest.first() + at;
            guest
                .kernel()
                .change(pfn, |page| page.large = Some(pages - 1));
        }
        let verdict = guest.counted(None);
        assert_eq!(errors(&verdict), [id("L9")]);
        assert_eq!(verdict.vmas[0].rows[0].rules, [id("L9")]);
    }
}

#[test]
fn l9_a_count_without_an_entry_needs_all_processes() {
    let mut guest = good(Guest::new());
    let pfn = guest.first() + guest.members;
    guest.kernel().change(pfn, |page| page.mapcount = Some(2));
    assert_eq!(errors(&guest.counted(None)), [id("L9")]);
    let verdict = guest.counted(Some("one was not read"));
    assert_eq!(errors(&verdict), []);
    assert!(verdict.not_judged[0].reason.contains("one was not read"));
    // Another process has it, too.
    guest.change(guest.members, |word| word & !WRITE | RDONLY);
    guest.kernel().change(pfn, |page| {
        (page.refcount, page.exclusive) = (2, false);
    });
    let mut other = Guest::new();
    other.tables = TableBuilder::at(Layout::new(Granule::K4, Half::Lower, 48), 0x9000_0000);
    let pa = PA + guest.block;
    other.tables.map_page(VA, pa, read_only(), false);
    let (regime, theirs) = (guest.regime(), other.regime().root.0);
    let mut verdicts = [guest.judge()];
    guest.kernel().change(pfn, |page| page.mapcount = Some(1));
    let once = guest.judge();
    guest.kernel().change(pfn, |page| page.mapcount = Some(2));
    let mut memory = guest.tables.into_memory();
    memory.merge(other.tables.into_memory());
    let tables = [regime.root.0, theirs];
    let everyone = Everyone {
        tables: &tables,
        incomplete: None,
        busy: None,
        unmapped: Ok(&[]),
    };
    let kernel = guest.kernel.as_ref().unwrap();
    judge_counts(&memory, &[regime], everyone.clone(), kernel, &mut verdicts);
    assert_eq!(errors(&verdicts[0]), []);
    // That was not counted.
    guest
        .kernel
        .as_mut()
        .unwrap()
        .change(pfn, |page| page.mapcount = Some(1));
    let mut verdicts = [once];
    let kernel = guest.kernel.as_ref().unwrap();
    judge_counts(&memory, &[regime], everyone, kernel, &mut verdicts);
    assert_eq!(errors(&verdicts[0]), [id("L9")]);
}
