// SPDX-License-Identifier: GPL-2.0-only
//! Tests of a page by the entries of all address spaces.

use super::*;
use crate::testing::id;

#[test]
fn l8_an_exclusive_page_that_is_mapped_twice() {
    let mut guest = good(Guest::new());
    let (at, pa) = (guest.members, PA + guest.block);
    let pfn = guest.first() + at;
    // Read-only in both places, and counted.
    guest.change(at, |word| word & !WRITE | RDONLY);
    let end = VA + 2 * guest.block;
    guest.tables.map_page(end, pa, read_only(), false);
    guest.kernel().change(pfn, |page| {
        (page.mapcount, page.refcount) = (Some(2), 2);
    });
    guest.kernel().numbering.clear();
    guest.kernel().rss = None;
    assert_eq!(errors(&guest.counted(None)), [id("L8")]);
    guest.kernel().change(pfn, |page| page.exclusive = false);
    assert_eq!(errors(&guest.counted(None)), []);
}

#[test]
fn l8_an_exclusive_page_that_another_has_in_swap() {
    let mut guest = good(Guest::new());
    let pfn = guest.first() + guest.members;
    let with = |guest: &mut Guest, slot| guest.kernel().change(pfn, |page| page.slot = slot);
    // The last page of the block is in swap: area 3, slot 5.
    guest.change(2 * guest.members - 1, |_| 3 << 6 | 5 << 12);
    guest.kernel().rss = None;
    for slot in [None, Some((3, 4)), Some((2, 5))] {
        with(&mut guest, slot);
        assert_eq!(errors(&guest.counted(None)), [], "{slot:?}");
    }
    with(&mut guest, Some((3, 5)));
    let verdict = guest.counted(None);
    assert_eq!(errors(&verdict), [id("L8")]);
    let message = &verdict.findings[0].message;
    assert!(
        message.contains("1 entries lead to its slot in swap"),
        "{message}"
    );
    guest.change(guest.members, |word| word & !WRITE | RDONLY);
    guest.kernel().change(pfn, |page| page.exclusive = false);
    assert_eq!(errors(&guest.counted(None)), []);
}

#[test]
fn l8_a_page_that_is_not_exclusive_any_more() {
    let mut guest = good(Guest::new());
    let (first, members) = (guest.first(), guest.members);
    // No entry may be written: what is shared may be mapped so.
    for at in 0..2 * members {
        guest.change(at, |word| word & !WRITE | RDONLY);
    }
    let of_folio = first + 5;
    let single = first + members + 3;
    for pfn in [of_folio, single] {
        guest.kernel().change(pfn, |page| page.exclusive = false);
        assert_eq!(errors(&guest.counted(None)), []);
        let mut stated = guest.clone();
        stated.expect(Expected::Exclusive, VA, VA + 2 * guest.block);
        assert_eq!(errors(&stated.counted(None)), [id("L8")], "{pfn:x}");
        // A file's page has another meaning of that flag, and KSM's is shared by nature.
        for kind in [Kind::File, Kind::Ksm] {
            let mut other = stated.clone();
            other.kernel().change(pfn, |page| page.kind = kind);
            assert!(!errors(&other.counted(None)).contains(&id("L8")));
        }
        guest.kernel().change(pfn, |page| page.exclusive = true);
    }
    guest.expect(Expected::Exclusive, VA, VA + 2 * guest.block);
    assert_eq!(errors(&guest.counted(None)), []);
}

#[test]
fn l9_fewer_references_than_entries() {
    for guest in Guest::all() {
        let mut guest = good(guest);
        let pages = guest.members as i64;
        for at in 0..guest.members {
            let pfn = guest.first() + at;
            guest.kernel().change(pfn, |page| page.refcount = pages - 1);
        }
        for incomplete in [None, Some("one was not read")] {
            let verdict = guest.counted(incomplete);
            assert_eq!(errors(&verdict), [id("L9")]);
            let message = &verdict.findings[0].message;
            assert!(
                message.contains(&format!("references of the folio {}", pages - 1)),
                "{message}"
            );
        }
        // More are anybody's.
        for at in 0..guest.members {
            let pfn = guest.first() + at;
            guest
                .kernel()
                .change(pfn, |page| page.refcount = 99 * pages);
        }
        assert_eq!(errors(&guest.counted(None)), []);
    }
}

#[test]
fn what_was_being_changed_is_not_judged() {
    let mut guest = good(Guest::new());
    let pfn = guest.first() + guest.members;
    guest.kernel().change(pfn, |page| page.index += 1);
    guest.kernel().changing = true;
    guest.kernel().rss = None;
    let verdict = guest.judge();
    assert_eq!(errors(&verdict), []);
    let reasons: Vec<_> = verdict.not_judged.iter().map(|it| &it.reason).collect();
    assert!(
        reasons[0].starts_with("L7, L19 were not judged: "),
        "{reasons:?}"
    );
    assert!(reasons[1].contains("RSS"), "{reasons:?}");
    // The same at rest is an error.
    guest.kernel().changing = false;
    assert_eq!(errors(&guest.judge()), [id("L7")]);
}
