// SPDX-License-Identifier: GPL-2.0-only
//! Facts given for pages without reading each are those that reading each gives.

use linux::folio::Page;
use stage1::testing::{Attributes, Layout as Regime, SparseMemory, TableBuilder};
use stage1::{Granule, Half};

use crate::kernel::View;
use crate::pages::{Bits, Field, Layout, PageTypes, Pages};

/// Where the array of pages is, and where its pages lie in physical memory: not in order, and the last is nowhere.
pub(crate) const VMEMMAP: u64 = 0xffff_ff00_0000_0000;
const PLACES: [u64; 3] = [0x9000_1000, 0x9000_0000, 0x9000_2000];
pub(crate) const PAGES: u64 = 3 * 64;
pub(crate) const FIRST: u64 = 64;

pub(crate) const FLAGS: usize = 0;
pub(crate) const LINK: usize = 1;
pub(crate) const MAPPING: usize = 3;
pub(crate) const INDEX: usize = 4;
pub(crate) const COUNTS: usize = 6;
const EXCLUSIVE: u64 = 1 << 17;
const HEAD: u64 = 1 << 6;

/// As 6.12 has it.
pub(crate) fn layout(per_page: bool) -> Layout {
    Layout {
        vmemmap: VMEMMAP,
        start: VMEMMAP,
        end: VMEMMAP + (FIRST + PAGES + 64) * 64,
        size: 64,
        flags: Field(0, 8),
        compound_head: Field(8, 8),
        mapcount: Field(48, 4),
        refcount: Field(52, 4),
        mapping: Field(24, 8),
        index: Field(32, 8),
        flags_1: Field(64, 8),
        large_mapcount: Field(80, 4),
        entire_mapcount: Field(84, 4),
        pincount: Some(Field(104, 4)),
        list: Some(Field(8, 16)),
        private: Some(Field(40, 8)),
        table_lock: Some(Field(40, 4)),
        table_lock_at: None,
        swap: Some(Field(40, 8)),
        memcg: Some(Field(56, 8)),
        deferred: Some(Field(144, 16)),
        written: None,
        per_page,
        bits: Bits {
            head: HEAD,
            anon_exclusive: EXCLUSIVE,
            swapbacked: 1 << 18,
            swapcache: 1 << 10,
            hwpoison: Some(1 << 21),
            partially_mapped: Some(1 << 9),
            locked: Some(1),
            lru: Some(1 << 5),
            mlocked: Some(1 << 20),
            unevictable: Some(1 << 19),
            dirty: Some(1 << 4),
            writeback: Some(1 << 3),
            migratable: Some(1 << 1),
            any: Some((1 << 24) - 1),
        },
        types: PageTypes {
            buddy: 0xf0,
            table: 0xf2,
            slab: 0xf5,
            hugetlb: 0xf4,
            underflow: 0xff,
        },
        names: Vec::new(),
        type_names: Vec::new(),
    }
}

/// A free page.
pub(crate) fn page() -> Page {
    let mut random = Random(1);
    let mut guest = Guest::new(0, &mut random);
    guest.poke(FIRST, MAPPING, 0);
    let upper = stage1::Regime::new(&guest.tables.registers(), Half::Upper).unwrap();
    let view = View {
        memory: &guest.memory,
        upper: &upper,
    };
    Pages::new(&layout(true), view).page(FIRST).unwrap()
}

/// xorshift64*.
pub(crate) struct Random(pub u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 8) % end
    }
}

/// The kernel's tables and its array of pages, all of it of anonymous folios that are mapped once. Of single ones, and
/// of those of `order`, in turn.
pub(crate) struct Guest {
    pub tables: TableBuilder,
    pub memory: SparseMemory,
}

impl Guest {
    pub fn new(order: u8, random: &mut Random) -> Guest {
        let mut tables = TableBuilder::new(Regime::new(Granule::K4, Half::Upper, 48));
        let mut memory = SparseMemory::new();
        for (n, place) in (0..).zip(PLACES) {
            let va = VMEMMAP + FIRST * 64 + n * 4096;
            tables.map_page(va, place, Attributes::default(), false);
            memory.add(place, vec![0; 512]);
        }
        memory.merge(tables.memory().clone());
        let mut guest = Guest { tables, memory };
        for pfn in FIRST..FIRST + PAGES {
            let large = order > 0 && pfn >> order & 1 == 1;
            let head = if large { pfn >> order << order } else { pfn };
            // Where a page is in the lists of reclaim, and how old, is each one's own.
            let own = random.below(2) << 11 | random.below(2) << 12;
            guest.poke(pfn, FLAGS, EXCLUSIVE | 1 << 18 | own);
            guest.poke(pfn, MAPPING, 0xffff_0000_1234_5001);
            guest.poke(pfn, INDEX, 0x4_0000 + pfn);
            guest.poke(pfn, COUNTS, 1 << 32);
            guest.poke(pfn, LINK, 0xffff_0000_0000_1000 | random.below(99) << 4);
            if head != pfn {
                guest.poke(pfn, LINK, VMEMMAP + head * 64 + 1);
            } else if large {
                guest.change(pfn, FLAGS, |word| word | HEAD);
                guest.poke(pfn, COUNTS, 1 << (32 + order));
            }
            if large && pfn == head + 1 {
                guest.change(pfn, FLAGS, |word| word | u64::from(order));
                guest.poke(pfn, 2, (u64::from(u32::MAX) << 32) | ((1 << order) - 1));
            }
        }
        guest
    }

    fn place(pfn: u64, word: usize) -> u64 {
        let own = pfn - FIRST;
        PLACES[(own / 64) as usize] + own % 64 * 64 + word as u64 * 8
    }

    pub fn poke(&mut self, pfn: u64, word: usize, value: u64) {
        assert!(self.memory.poke(Guest::place(pfn, word), value));
    }

    pub fn change(&mut self, pfn: u64, word: usize, change: impl Fn(u64) -> u64) {
        let was = self.memory.word(Guest::place(pfn, word)).unwrap();
        self.poke(pfn, word, change(was));
    }

    /// How many pages behind each are told to be like it; that they are, is held to what is said of each one.
    fn alike(&self, per_page: bool, random: &mut Random, what: &str) -> Vec<u64> {
        let layout = layout(per_page);
        let upper = stage1::Regime::new(&self.tables.registers(), Half::Upper).unwrap();
        let memory = &self.memory;
        let upper = &upper;
        let pages = Pages::new(&layout, View { memory, upper });
        let without_flags = |page: Page| Page {
            flags: 0,
            folio_flags: 0,
            ..page
        };
        let mut all = Vec::new();
        for pfn in FIRST..FIRST + PAGES {
            let Ok(page) = pages.page(pfn) else {
                all.push(0);
                continue;
            };
            let most = if random.below(4) == 0 {
                random.below(9)
            } else {
                999
            };
            let alike = pages.alike(&page, most);
            assert!(alike <= most, "{what}: {alike} of {most}");
            for n in 1..=alike {
                let found = pages.page(pfn + n).map(without_flags);
                let expected = Ok(without_flags(page.nth_behind(n)));
                assert_eq!(found, expected, "{what}: {n} behind 0x{pfn:x}");
            }
            all.push(if most == 999 { alike } else { u64::MAX });
        }
        all
    }
}

#[test]
fn pages_that_are_alike_are_told_to_the_last_one() {
    let mut random = Random(0x0a11_0f17_0a11_1ce5);
    for order in 0..6 {
        let guest = Guest::new(order, &mut random);
        let told = guest.alike(true, &mut random, "a good one");
        for (at, told) in (0..).zip(told).filter(|(_, told)| *told != u64::MAX) {
            let span = if order == 0 { PAGES } else { 1 << order };
            let last = (at / span + 1) * span - 1;
            assert_eq!(told, last - at, "order {order}, page {at}");
        }
    }
}

#[test]
fn a_bit_that_differs_anywhere_ends_what_is_alike() {
    let mut random = Random(0x5eed_0000_0a11_1ce5);
    for round in 0..600 {
        let order = random.below(6) as u8;
        let mut guest = Guest::new(order, &mut random);
        for fault in 0..6 {
            let what = format!("round {round}, fault {fault}, order {order}");
            guest.alike(round % 2 == 0, &mut random, &what);
            let (pfn, word) = (FIRST + random.below(PAGES), random.below(8) as usize);
            match random.below(4) {
                0 => guest.poke(pfn, LINK, VMEMMAP + (FIRST + random.below(PAGES)) * 64 + 1),
                1 => guest.change(pfn, LINK, |word| word ^ 1),
                _ => {
                    let bit = random.below(64);
                    guest.change(pfn, word, |word| word ^ 1 << bit);
                }
            }
        }
    }
}

/// Each member that a rule asks for, changed in one page of a run.
#[test]
fn each_member_counts() {
    let changes: [(usize, u64); 12] = [
        (FLAGS, EXCLUSIVE),
        (FLAGS, 1 << 18),
        (FLAGS, 1 << 10),
        (FLAGS, 1 << 21),
        (FLAGS, HEAD),
        (LINK, 1),
        (MAPPING, 1 << 1),
        (MAPPING, 1 << 20),
        (INDEX, 1),
        (COUNTS, 1),
        (COUNTS, 0xf0 << 24),
        (COUNTS, 1 << 32),
    ];
    let mut random = Random(7);
    for at in [1, 62, 63, 64, 65, 127, 128, 190] {
        for (word, bits) in changes {
            let mut guest = Guest::new(0, &mut random);
            guest.change(FIRST + at, word, |word| word ^ bits);
            let what = format!("bits {bits:#x} of word {word} in page {at}");
            let told = guest.alike(true, &mut random, &what);
            let before = told[..at as usize].iter().zip(0..);
            for (told, place) in before.filter(|(told, _)| **told != u64::MAX) {
                assert_eq!(*told, at - 1 - place, "{what}");
            }
        }
    }
}

/// The first page behind a folio is made a tail of it: the folio ends before it, and it is of none.
#[test]
fn a_folio_ends_where_its_order_says() {
    let mut random = Random(11);
    for order in 1..6 {
        let mut guest = Guest::new(order, &mut random);
        let (head, pages) = (FIRST + (1 << order), 1 << order);
        guest.poke(head + pages, LINK, VMEMMAP + head * 64 + 1);
        let told = guest.alike(true, &mut random, &format!("order {order}"));
        assert_ne!(told[pages as usize], pages);
    }
}
