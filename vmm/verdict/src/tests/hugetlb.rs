// SPDX-License-Identifier: GPL-2.0-only
//! L10, and the half of L11 that asks the folio.

use crate::testing::id;
use linux::folio::{HugetlbUsage, Numbering, Rss};
use linux::vma::parse_smaps;

use super::guest::*;
use crate::testing::folios::{good, Kernel, ANON_VMA};
use crate::Expected;

fn usage(pages: i64, may_share: bool) -> Option<HugetlbUsage> {
    Some(HugetlbUsage { pages, may_share })
}

/// A folded block in a VMA with these flags, of a folio of hugetlb.
fn hugetlb(flags: &str) -> Guest {
    let mut guest = Guest::new();
    let (page, end) = (guest.page, VA + guest.block);
    let smaps = format!(
        "{VA:x}-{end:x} rw-p 00000000 00:0f 5 /anon_hugepage (deleted)\nVmFlags: {flags} \n"
    );
    guest.vmas = parse_smaps(&smaps).unwrap();
    guest.fold(0, written());
    let mut kernel = Kernel::default();
    kernel.folio(PA / page, 4, 0);
    for pfn in PA / page..PA / page + 16 {
        kernel.change(pfn, |page| {
            page.hugetlb = true;
            page.mapcount = None;
        });
    }
    kernel.numbering = vec![Numbering {
        start: VA,
        end,
        file: 0,
        anonymous: 0,
        of: None,
        order_state: None,
        found_by: Some(Ok(vec![ANON_VMA])),
    }];
    kernel.rss = Some(Rss::default());
    kernel.tables_bytes = Some(3 * 4096);
    kernel.hugetlb = usage(16, false);
    guest.kernel = Some(kernel);
    guest
}

#[test]
fn l10_hugetlb() {
    let flags = "rd wr mr mw me de ht";
    hugetlb(flags).assert_legal();
    // Not in a VMA of hugetlb, and not of hugetlb in one.
    assert_eq!(hugetlb("rd wr mr mw me ac").errors(), [id("L10")]);
    let change = |change: fn(&mut linux::folio::Page)| {
        let mut guest = hugetlb(flags);
        let first = guest.first();
        for pfn in first..first + 16 {
            guest.kernel().change(pfn, change);
        }
        guest.errors()
    };
    assert_eq!(change(|page| page.hugetlb = false), [id("L10")]);
    // Larger and smaller than what maps it; at another place in it.
    assert_eq!(change(|page| page.order = 9), [id("L10")]);
    assert_eq!(change(|page| page.order = 2), [id("L10")]);
    assert_eq!(change(|page| page.head -= 1), [id("L10")]);
    // By single pages, as no hugetlb page is mapped.
    let mut guest = hugetlb(flags);
    for at in 0..16 {
        guest.change(at, |word| word & !CONT);
    }
    assert_eq!(guest.errors(), [id("L10")]);
    // On its way, whole.
    let mut guest = hugetlb(flags);
    for at in 0..16 {
        guest.change(at, |_| 27 << 6 | 5 << 12);
    }
    guest.assert_legal();
}

#[test]
fn l10_entries_that_are_not_valid() {
    let flags = "rd wr mr mw me de ht";
    let of = |word: fn(u64) -> u64| {
        let mut guest = hugetlb(flags);
        for at in 0..16 {
            guest.change(at, |_| word(at));
        }
        guest
    };
    // A marker in all slots, and without access page by page: the count of pages is L9's.
    let found = |guest: Guest| guest.errors().contains(&id("L10"));
    assert!(!found(of(|_| 31 << 6 | 1 << 12)));
    let without_access = |at| 1 << 11 | (PA + at * 4096) | 1 << 54;
    assert!(!found(of(without_access)));
    // Written to the first slot only; another one lost; of two kinds; not one page after the other.
    let wrong: [fn(u64) -> u64; 4] = [
        |at| if at == 0 { 31 << 6 | 1 << 12 } else { 0 },
        |at| if at == 9 { 0 } else { 27 << 6 | 5 << 12 },
        |at| 31 << 6 | if at < 8 { 1 << 12 } else { 1 << 13 },
        |at| 1 << 11 | (PA + at / 2 * 4096) | 1 << 54,
    ];
    for (case, word) in wrong.into_iter().enumerate() {
        assert!(found(of(word)), "{case}");
    }
    // In other VMAs each entry is a page's of its own.
    let mut guest = of(wrong[0]);
    guest.vmas = parse_smaps(&format!(
        "{VA:x}-{:x} rw-p 00000000 00:00 0 \nVmFlags: rd wr mr mw me ac \n",
        VA + guest.block
    ))
    .unwrap();
    assert!(!found(guest));
}

#[test]
fn l10_a_folio_that_cannot_be_migrated() {
    let change = |change: fn(&mut linux::folio::Page)| {
        let mut guest = hugetlb("rd wr mr mw me de ht");
        let first = guest.first();
        for pfn in first..first + 16 {
            guest.kernel().change(pfn, |page| {
                (page.large, page.refcount, page.migratable) = (Some(1), 1, Some(false));
                change(page);
            });
        }
        guest.errors().contains(&id("L10"))
    };
    assert!(change(|_| {}));
    assert!(!change(|page| page.migratable = Some(true)));
    assert!(!change(|page| page.migratable = None));
    // Isolated; broken; a file's, which memfd_alloc_folio() may have filled.
    assert!(!change(|page| page.refcount = 2));
    assert!(!change(|page| page.poisoned = true));
    assert!(!change(|page| page.kind = linux::folio::Kind::File));
}

#[test]
fn l11_a_folio_that_the_record_does_not_name() {
    let fresh = |pfn: u64| {
        let mut guest = good(Guest::new());
        guest.record(VA, 4);
        guest.orders.as_mut().unwrap().records[0].pfn = Some(pfn);
        guest.expect(Expected::FreshlyFaulted, VA, VA + guest.block);
        guest
    };
    let first = good(Guest::new()).first();
    fresh(first).assert_legal();
    // It was migrated, or collapsed, and its frames have another owner or none.
    fresh(first + 16).assert_legal();
    fresh(1).assert_legal();
    // It is where it was, and another folio is mapped in its place.
    let mut guest = fresh(first + 32);
    let number = VA / guest.page;
    guest.kernel().folio(first + 32, 4, number);
    assert!(guest.errors().contains(&id("L11")));
    // A single page that was copied on write lives on in a child, and the copy has no record.
    let mut guest = good(Guest::new());
    guest.record(VA, 0);
    guest.orders.as_mut().unwrap().records[0].pfn = Some(first + 32);
    guest.kernel().folio(first + 32, 0, number);
    guest.expect(Expected::FreshlyFaulted, VA, VA + guest.page);
    guest.assert_legal();
}

#[test]
fn l11_a_fresh_folio_of_another_order() {
    let fresh = |at: u64| {
        let mut guest = good(Guest::new());
        let start = VA + at * guest.block;
        guest.record(start, 4);
        guest.expect(Expected::FreshlyFaulted, start, start + guest.block);
        guest
    };
    fresh(0).assert_legal();
    // Pages that merely lie next to each other are no folio.
    let mut errors = fresh(1).errors();
    errors.dedup();
    assert_eq!(errors, [id("L11")]);
    // Another CPU has overwritten records of later faults, which may have been of the same place.
    for (seq, judged) in [(1, true), (2, false)] {
        let mut guest = fresh(1);
        guest.record(VA, 4);
        let other = &mut guest.orders.as_mut().unwrap().records[1];
        (other.cpu, other.seq) = (1, seq);
        assert_eq!(guest.errors().contains(&id("L11")), judged);
    }
    // khugepaged makes larger ones of any.
    let mut guest = fresh(0);
    let first = guest.first();
    guest.record(VA, 3);
    guest.record(VA + 8 * guest.page, 3);
    guest.assert_legal();
    // Smaller ones it does not make, and no file's.
    for pfn in first..first + 16 {
        guest
            .kernel()
            .change(pfn, |page| page.kind = linux::folio::Kind::File);
    }
    assert!(guest.errors().contains(&id("L11")));
    // Without the kernel's pages that is not known.
    let mut guest = fresh(1);
    guest.kernel = None;
    let errors = guest.errors();
    assert!(!errors.contains(&id("L11")), "{errors:?}");
}

#[test]
fn l9_hugetlb_pages_of_a_process() {
    let mut guest = hugetlb("rd wr mr mw me de ht");
    for wrong in [0, 15, 17, 32, -16] {
        guest.kernel().hugetlb = usage(wrong, false);
        assert_eq!(guest.errors(), [id("L9")], "{wrong}");
    }
    let message = &guest.judge().findings[0].message;
    assert!(message.contains("-16, and its entries map 16"), "{message}");
    // Page tables that were shared, and no count at all, are said to be not judged; and nothing where there is nothing.
    for (said, usage) in [("shared", usage(99, true)), ("could not be read", None)] {
        guest.kernel().hugetlb = usage;
        guest.assert_legal();
        let notes = guest.judge().notes;
        assert!(notes.iter().any(|note| note.contains(said)), "{notes:?}");
    }
    let mut guest = good(Guest::new());
    for (usage, errors) in [
        (usage(0, false), 0),
        (usage(16, false), 1),
        (usage(0, true), 0),
    ] {
        guest.kernel().hugetlb = usage;
        assert_eq!(guest.errors().len(), errors);
        assert!(guest.judge().notes.is_empty());
    }
    // On its way it is counted still; of poison it is not, and the entries do not differ.
    let mut guest = hugetlb("rd wr mr mw me de ht");
    guest.kernel().hugetlb = usage(0, false);
    for at in 0..16 {
        guest.change(at, |_| 27 << 6 | 5 << 12);
    }
    guest.assert_legal();
}
