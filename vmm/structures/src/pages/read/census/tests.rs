// SPDX-License-Identifier: GPL-2.0-only
//! A made-up array of pages, counted.

use std::collections::BTreeMap;
use std::ops::Range;

use linux::counted::{Amount, Census, Large, Lists, Lost};
use stage1::Half;

use crate::kernel::View;
use crate::pages::made_up::*;
use crate::pages::Pages;

/// The order of every other run of pages; the others are folios of one.
const ORDER: u8 = 3;
/// So many folios of it, and the first page of the first.
const FOLIOS: i64 = PAGES as i64 / 16;
const HEAD: u64 = FIRST + 8;
/// A folio of one page.
const SINGLE: u64 = FIRST;
const LOCKED: u64 = 1;
const LRU: u64 = 1 << 5;
const SWAPBACKED: u64 = 1 << 18;
const UNEVICTABLE: u64 = 1 << 19;
const SWAPCACHE: u64 = 1 << 10;
/// The file of a page, in `mapping`.
const FILE: u64 = 0xffff_0000_7654_3000;
/// `_mapcount` of what is not mapped, below a reference.
const UNMAPPED: u64 = 1 << 32 | 0xffff_ffff;

fn guest() -> Guest {
    Guest::new(ORDER, &mut Random(5))
}

fn amount(count: i64) -> Amount {
    count.into()
}

fn counted(guest: &Guest, per_page: bool) -> Census {
    counted_with(guest, per_page, Vec::new())
}

fn counted_with(guest: &Guest, per_page: bool, kept: Vec<Range<u64>>) -> Census {
    let layout = layout(per_page);
    let upper = stage1::Regime::new(&guest.tables.registers(), Half::Upper).unwrap();
    let (memory, upper) = (&guest.memory, &upper);
    let pages = Pages::new(&layout, View { memory, upper });
    // Holes before and behind, and spans that overlap.
    let spans = vec![FIRST + 70..FIRST + PAGES + 64, 0..FIRST + 100];
    pages.census(spans, Ok(kept)).unwrap()
}

/// All of it: anonymous, and mapped once.
fn good() -> Census {
    Census {
        folios: BTreeMap::from([(ORDER, amount(FOLIOS))]),
        anonymous: PAGES as i64,
        counts_pages: true,
        large: Some(Large::default()),
        lists: Some(Lists::default()),
        pinned: Some(amount(0)),
        poisoned: Some(amount(0)),
        lost: Some(Ok(Lost::default())),
        ..Census::default()
    }
}

/// Returns the counts where one field is changed.
fn with(change: impl FnOnce(&mut Guest)) -> Census {
    let mut guest = guest();
    change(&mut guest);
    counted(&guest, true)
}

#[test]
fn all_pages_are_counted_once() {
    assert_eq!(counted(&guest(), true), good());
    // Where the layout does not say that pages count their entries, they show it.
    assert_eq!(counted(&guest(), false), good());
    for order in [0, 1, 2, 4, 5] {
        let census = counted(&Guest::new(order, &mut Random(9)), true);
        let folios = (order > 0).then(|| (order, amount((PAGES as i64 >> order) / 2)));
        assert_eq!(census.folios, BTreeMap::from_iter(folios), "order {order}");
        assert_eq!(census.anonymous, PAGES as i64, "order {order}");
    }
}

#[test]
fn what_is_no_folio_of_processes_is_not_counted() {
    let less = |pages| Census {
        anonymous: PAGES as i64 - pages,
        ..good()
    };
    // Free, of another type, and what was never set up.
    let free = with(|guest| {
        guest.poke(SINGLE, COUNTS, 0xf0 << 24);
        guest.poke(SINGLE, 5, 2);
    });
    assert_eq!(free, less(4));
    assert_eq!(
        with(|guest| guest.poke(SINGLE, COUNTS, 0xf5 << 24)),
        less(1)
    );
    let empty = with(|guest| (0..8).for_each(|word| guest.poke(SINGLE, word, 0)));
    assert_eq!(empty, less(1));
    // A whole folio of hugetlb.
    let hugetlb = with(|guest| guest.poke(HEAD, COUNTS, 1 << 32 | 0xf4 << 24));
    let folios = BTreeMap::from([(ORDER, amount(FOLIOS - 1))]);
    assert_eq!(hugetlb, Census { folios, ..less(8) });
}

#[test]
fn what_is_held() {
    const HWPOISON: u64 = 1 << 21;
    // Two pins of a large folio are a count of its own. Those of a page are references, and its entries have some too.
    let pins = |references: u64, entries: u64| {
        with(|guest| {
            guest.poke(HEAD + 1, 5, 2);
            guest.poke(SINGLE, COUNTS, references << 32 | (entries - 1));
        })
    };
    for (references, entries, most) in [(1, 1, 2), (1025, 1, 3), (1500, 1000, 2), (3073, 1, 5)] {
        let pinned = Amount { least: 2, most };
        assert_eq!(
            pins(references, entries).pinned,
            Some(pinned),
            "{references}"
        );
    }
    let broken = |pfn| with(|guest| guest.change(pfn, FLAGS, |word| word | HWPOISON));
    for pfn in [SINGLE, HEAD] {
        assert_eq!(broken(pfn).poisoned, Some(amount(1)));
    }
    // hugetlb has one flag for all.
    let hugetlb = with(|guest| {
        guest.poke(HEAD, COUNTS, 1 << 32 | 0xf4 << 24);
        guest.change(HEAD, FLAGS, |word| word | HWPOISON);
    });
    assert_eq!(hugetlb.poisoned, Some(Amount { least: 1, most: 8 }));
}

#[test]
fn folios_that_come_and_go() {
    let folios = |least, most| BTreeMap::from([(ORDER, Amount { least, most })]);
    let open = folios(FOLIOS - 1, FOLIOS);
    // Frozen; locked, which changes nothing while it is mapped; and locked while no process maps it.
    let frozen = with(|guest| guest.change(HEAD, COUNTS, |word| word & 0xffff_ffff));
    assert_eq!(frozen.folios, open);
    let locked = |guest: &mut Guest| guest.change(HEAD, FLAGS, |word| word | LOCKED);
    assert_eq!(with(locked), good());
    let unmap = |guest: &mut Guest| {
        (HEAD..HEAD + 8).for_each(|pfn| guest.poke(pfn, COUNTS, UNMAPPED));
        guest.poke(HEAD + 1, 2, u64::MAX);
    };
    let unmapped = with(|guest| {
        unmap(guest);
        locked(guest);
    });
    assert_eq!(
        (&unmapped.folios, unmapped.anonymous),
        (&open, PAGES as i64 - 8)
    );
    // One that is in the swap cache and mapped nowhere is counted.
    let cached = with(|guest| {
        unmap(guest);
        guest.change(HEAD, FLAGS, |word| word | SWAPCACHE);
    });
    assert_eq!((cached.folios, cached.cache), (good().folios, amount(8)));
    // The order is gone.
    let going = with(|guest| guest.change(HEAD + 1, FLAGS, |word| word & !0xff));
    assert_eq!(
        (going.folios, going.unknown),
        (folios(FOLIOS - 1, FOLIOS - 1), 1)
    );
}

#[test]
fn pages_of_files() {
    let file = |flags: u64, count: u64| {
        with(|guest| {
            guest.poke(SINGLE, MAPPING, FILE);
            guest.change(SINGLE, FLAGS, |word| word & !SWAPBACKED | flags);
            guest.poke(SINGLE, COUNTS, count);
        })
    };
    let only = |most| Amount { least: 0, most };
    let cached = file(LRU, UNMAPPED);
    assert_eq!(
        (cached.file, cached.cache, cached.shmem),
        (0, amount(1), amount(0))
    );
    let mapped = file(LRU | SWAPBACKED, 1 << 32);
    assert_eq!(
        (mapped.file, mapped.cache, mapped.shmem),
        (1, amount(1), amount(1))
    );
    assert_eq!(mapped.anonymous, PAGES as i64 - 1);
    let coming = file(LRU | SWAPBACKED | LOCKED, UNMAPPED);
    assert_eq!((coming.cache, coming.shmem), (only(1), only(1)));
    // It may be a driver's.
    assert_eq!(file(0, 1 << 32).cache, only(1));
}

#[test]
fn pages_by_their_list() {
    let on = |pfn, flags: u64| {
        let census = with(|guest| {
            guest.change(pfn, FLAGS, |word| word & !SWAPBACKED | flags);
        });
        (census.lists.unwrap(), census.largest_listed)
    };
    let none = Lists::default();
    assert_eq!(on(SINGLE, SWAPBACKED | UNEVICTABLE), (none, 0));
    let anonymous = Lists {
        anonymous: 1,
        ..none
    };
    assert_eq!(on(SINGLE, LRU | SWAPBACKED), (anonymous, 1));
    assert_eq!(on(SINGLE, LRU), (Lists { file: 1, ..none }, 1));
    let unevictable = Lists {
        unevictable: 8,
        ..none
    };
    assert_eq!(on(HEAD, LRU | SWAPBACKED | UNEVICTABLE), (unevictable, 8));
}

#[test]
fn folios_that_are_mapped_in_part() {
    // Three pages of a folio, two of them by two entries.
    let in_part = |guest: &mut Guest| {
        (HEAD..HEAD + 8).for_each(|pfn| guest.poke(pfn, COUNTS, UNMAPPED));
        for (n, raw) in [(0, 0), (1, 1), (2, 1)] {
            guest.poke(HEAD + n, COUNTS, 1 << 32 | raw);
        }
        guest.poke(HEAD + 1, 2, u64::from(u32::MAX) << 32 | 4);
    };
    assert_eq!(with(in_part).anonymous, PAGES as i64 - 5);
    // A block, and pages of it beside.
    let block = with(|guest| {
        in_part(guest);
        guest.poke(HEAD + 1, 2, 5);
    });
    assert_eq!((block.anonymous, block.blocks), (PAGES as i64, 8));
    // Where no page of a large folio counts, one is counted whole.
    let mut guest = guest();
    for pfn in (FIRST..FIRST + PAGES).filter(|pfn| pfn >> ORDER & 1 == 1) {
        guest.change(pfn, COUNTS, |word| word | 0xffff_ffff);
    }
    guest.poke(HEAD + 1, 2, u64::from(u32::MAX) << 32);
    let whole = Census {
        counts_pages: false,
        ..good()
    };
    assert_eq!(counted(&guest, false), whole);
    // A page that is wrong is not all pages.
    guest.change(HEAD, COUNTS, |word| word & !0xffff_ffff);
    assert_eq!(counted(&guest, false), whole);
}

/// A page without an owner: no reference, type, flag or mapping.
fn ownerless(guest: &mut Guest, pfn: u64) {
    guest.poke(pfn, FLAGS, 0);
    guest.poke(pfn, MAPPING, 0);
    guest.poke(pfn, COUNTS, 0xffff_ffff);
}

#[test]
fn pages_that_are_lost() {
    let lost = |change: &dyn Fn(&mut Guest), kept: Vec<Range<u64>>| {
        let mut guest = Guest::new(0, &mut Random(5));
        change(&mut guest);
        let lost = counted_with(&guest, true, kept).lost.unwrap().unwrap();
        assert_eq!(lost.first.len() as u64, lost.pages.min(4));
        (lost.pages, lost.first.first().copied())
    };
    let block = FIRST + 16..FIRST + 24;
    let all = |guest: &mut Guest| block.clone().for_each(|pfn| ownerless(guest, pfn));
    let behind = |first: &dyn Fn(&mut Guest, u64)| {
        lost(
            &|guest| {
                all(guest);
                first(guest, block.start);
            },
            Vec::new(),
        )
    };
    assert_eq!(lost(&all, Vec::new()), (8, Some(block.start)));
    // All but the first page of a block: that one is free, or has become a process's, a file's or a table's.
    let rest = (7, Some(block.start + 1));
    let free = |guest: &mut Guest, pfn| guest.poke(pfn, COUNTS, 0xf0 << 24);
    let free = |guest: &mut Guest, pfn| {
        free(guest, pfn);
        guest.poke(pfn, 5, 0);
    };
    assert_eq!(behind(&free), rest);
    let table = |guest: &mut Guest, pfn| guest.poke(pfn, COUNTS, 1 << 32 | 0xf2 << 24);
    assert_eq!(behind(&table), rest);
    let anonymous = |guest: &mut Guest, pfn| {
        guest.poke(pfn, MAPPING, 0xffff_0000_1234_5001);
        guest.poke(pfn, COUNTS, 1 << 32);
    };
    assert_eq!(behind(&anonymous), rest);
    let file = |guest: &mut Guest, pfn| {
        guest.poke(pfn, FLAGS, LRU);
        guest.poke(pfn, MAPPING, FILE);
        guest.poke(pfn, COUNTS, UNMAPPED);
    };
    assert_eq!(behind(&file), rest);
    // The kernel's, which may have all of them.
    let kernel = |guest: &mut Guest, pfn| guest.poke(pfn, COUNTS, UNMAPPED);
    assert_eq!(behind(&kernel), (0, None));
    let flagged = |guest: &mut Guest, pfn| {
        kernel(guest, pfn);
        guest.poke(pfn + 3, FLAGS, 1 << 12);
    };
    assert_eq!(behind(&flagged), (0, None));
    // Up to the largest block that can begin there.
    let second = |guest: &mut Guest, pfn| kernel(guest, pfn + 2);
    assert_eq!(behind(&second), (6, Some(block.start)));
    // A free block of 8, and one that a CPU keeps.
    let whole = |guest: &mut Guest, pfn| {
        guest.poke(pfn, COUNTS, 0xf0 << 24);
        guest.poke(pfn, 5, 3);
    };
    assert_eq!(behind(&whole), (0, None));
    assert_eq!(lost(&all, vec![0..1, block.clone()]), (0, None));
    let half = std::iter::once(block.start..block.start + 4).collect();
    assert_eq!(lost(&all, half), (4, Some(block.start + 4)));
    // Any of these gives it an owner.
    for (word, value) in [
        (FLAGS, 1 << 13),
        (MAPPING, FILE),
        (COUNTS, UNMAPPED),
        (COUNTS, 0xf5 << 24),
        (COUNTS, 0),
    ] {
        let one = |guest: &mut Guest| {
            ownerless(guest, FIRST + 1);
            guest.poke(FIRST + 1, word, value);
        };
        assert_eq!(lost(&one, Vec::new()), (0, None), "word {word}");
    }
    // The zone of a page is in its flags, too.
    let zoned = |guest: &mut Guest| {
        ownerless(guest, FIRST + 1);
        guest.poke(FIRST + 1, FLAGS, 1 << 62);
    };
    assert_eq!(lost(&zoned, Vec::new()), (1, Some(FIRST + 1)));
}
