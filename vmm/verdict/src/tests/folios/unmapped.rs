// SPDX-License-Identifier: GPL-2.0-only
//! L9 on folios that no table maps.

use super::*;
use crate::testing::id;

/// Adds a folio that no entry maps, and that may be at this place.
fn beside(guest: &mut Guest, order: u8, places: bool) -> u64 {
    let (head, index) = (guest.first() + 8 * guest.members, VA / guest.page + 3);
    let (table, va) = (guest.regime().root.0, VA + 3 * guest.page);
    let place = MayBe {
        table,
        va,
        process: "1 (made up)".into(),
    };
    guest.kernel().folio(head, order, index);
    guest.kernel().unmapped = vec![Unmapped {
        head,
        places: if places { vec![place] } else { vec![] },
        open: None,
    }];
    head
}

#[test]
fn l9_a_folio_that_nobody_maps() {
    for order in [0, 2] {
        for places in [true, false] {
            let mut guest = good(Guest::new());
            let head = beside(&mut guest, order, places);
            let verdict = guest.counted(None);
            assert_eq!(errors(&verdict), [id("L9")]);
            let va = if places { VA + 3 * guest.page } else { 0 };
            assert_eq!(verdict.findings[0].va.0, va);
            assert!(verdict.findings[0].message.contains("no entry of any"));
            // That processes are not all known is told of each by itself.
            assert_eq!(errors(&guest.counted(Some("one forks"))), [id("L9")]);
            // What counts nothing is well.
            let pages = head..head + (1 << order);
            for pfn in pages {
                guest.kernel().change(pfn, |page| {
                    page.mapcount = Some(0);
                    page.large = page.large.map(|_| 0);
                });
            }
            assert_eq!(errors(&guest.counted(None)), []);
            guest.kernel().change(head, |page| page.entire = 1);
            assert_eq!(errors(&guest.counted(None)), [id("L9")]);
        }
    }
}

#[test]
fn l9_a_folio_that_may_be_mapped_all_the_same() {
    let mut guest = good(Guest::new());
    let head = beside(&mut guest, 0, true);
    guest.kernel().unmapped[0].open = Some("an address space that no task has".into());
    let verdict = guest.counted(None);
    assert_eq!(errors(&verdict), []);
    assert!(verdict.not_judged[0].reason.contains("that no task has"));
    // Its entry is broken, and told of by another rule.
    guest.kernel().unmapped[0].open = None;
    guest.change(3, |word| word | 1 << 7);
    assert!(!errors(&guest.counted(None)).contains(&id("L9")));
    guest.change(3, |word| word & !(1 << 7));
    // It was told of, and is mapped: its entries are held to its counts like any other.
    guest.kernel().unmapped[0].open = None;
    let page = guest.page;
    guest
        .tables
        .map_page(VA + 2 * guest.block, head * page, written(), false);
    guest.kernel().numbering.clear();
    assert_eq!(guest.kernel().unmapped.len(), 1);
    let verdict = guest.counted(None);
    let said = verdict.findings.iter().map(|finding| &finding.message);
    assert!(said
        .into_iter()
        .all(|said| !said.contains("no entry of any")));
}

#[test]
fn l9_that_was_not_looked_for_is_said_so() {
    for later in [false, true] {
        let guest = good(Guest::new());
        let why = "no reason".to_owned();
        let verdict = guest.counted_with(
            None,
            Err(NotRead {
                why,
                later,
                not_built: false,
            }),
        );
        assert_eq!(errors(&verdict), []);
        let said = "L9, of folios that no table maps, was not judged: no reason";
        let noted = verdict.notes.iter().any(|note| note == said);
        let open = verdict.not_judged.iter().any(|not| not.reason == said);
        // What another instant may show is asked for again.
        assert_eq!((noted, open), (!later, later));
    }
}
