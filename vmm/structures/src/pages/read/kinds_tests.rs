// SPDX-License-Identifier: GPL-2.0-only
//! A word of `struct page` is read as a field only where a page of its kind has that field (docs/pages.md).

use linux::folio::{Kind, Page, Stated, Type};

use super::made_up::{layout, Guest, Random, COUNTS, FIRST, FLAGS, INDEX, LINK, MAPPING};
use super::Pages;
use crate::kernel::View;

const HEAD: u64 = 1 << 6;
const OWNER_2: u64 = 1 << 17;
const SWAPBACKED: u64 = 1 << 18;
const SWAPCACHE: u64 = 1 << 10;
const HWPOISON: u64 = 1 << 21;
const PRIVATE: usize = 5;
/// A kernel pointer, as of a list's node.
const POINTER: u64 = 0xffff_0000_1234_5008;

fn read<T>(guest: &Guest, ask: impl FnOnce(&Pages<'_, stage1::testing::SparseMemory>) -> T) -> T {
    let layout = layout(true);
    let upper = stage1::Regime::new(&guest.tables.registers(), stage1::Half::Upper).unwrap();
    let view = View {
        memory: &guest.memory,
        upper: &upper,
    };
    ask(&Pages::new(&layout, view))
}

/// The page with these words: flags, mapping, index, private, and the word that is a count or a type.
fn page(flags: u64, [mapping, index, private]: [u64; 3], mapcount: u32, references: u32) -> Page {
    let mut guest = Guest::new(0, &mut Random(3));
    let counts = u64::from(references) << 32 | u64::from(mapcount);
    for (word, value) in [
        (FLAGS, flags),
        (LINK, POINTER),
        (MAPPING, mapping),
        (INDEX, index),
        (PRIVATE, private),
        (COUNTS, counts),
    ] {
        guest.poke(FIRST, word, value);
    }
    read(&guest, |pages| pages.page(FIRST).unwrap())
}

/// Returns the fields of a page with a type: its references, and nothing that only a folio has.
fn has_nothing(page: Page, kind: Type, references: i64) {
    assert_eq!(page.kind_of_page, Some(kind));
    let stated = Stated::from(page);
    assert_eq!((stated.mapping, stated.index), (None, None), "{kind:?}");
    let counts = (stated.mapcount, stated.large, stated.entire);
    assert_eq!(counts, (None, None, 0), "{kind:?}");
    assert_eq!((stated.kind, stated.refcount), (Kind::Unowned, references));
    let flags = (stated.exclusive, stated.swapbacked, stated.swapcache);
    assert_eq!(flags, (false, false, false), "{kind:?}");
    assert_eq!((stated.slot, stated.split), (None, None), "{kind:?}");
}

#[test]
fn a_page_with_a_type_has_no_mapping() {
    let every = OWNER_2 | SWAPBACKED | SWAPCACHE;
    // `slab_list.prev`, `freelist`, `counters` (mm/slab.h); with the low bits of an anonymous page too.
    for mapping in [POINTER, POINTER | 1, POINTER | 3, POINTER | 2, 0] {
        let words = [mapping, POINTER, 0x8020_0010];
        has_nothing(page(every, words, 0xf500_0000, 1), Type::Slab, 1);
        has_nothing(page(every, words, 0xf5ff_ffff, 0), Type::Slab, 0);
        // `pt_mm` or `pt_share_count`, and a lock.
        has_nothing(page(every, words, 0xf200_0000, 1), Type::Table, 1);
        // Left over, and the order.
        has_nothing(page(0, [0, 77, 3], 0xf000_0000, 0), Type::Buddy, 0);
        for other in [0xf1, 0xf3, 0xf6, 0xf7, 0xf8, 0xfe] {
            let kind = Type::Other(other as u8);
            has_nothing(page(every, words, other << 24 | 0x00ab_cdef, 1), kind, 1);
        }
    }
    // From the last one on the word is a count again, as -1 is none.
    let none = page(0, [0, 77, 0], u32::MAX, 1);
    assert_eq!((none.kind_of_page, none.mapcount), (None, Some(0)));
}

#[test]
fn a_large_slab_has_none_either() {
    let mut guest = Guest::new(2, &mut Random(3));
    let head = FIRST + 4;
    guest.change(head, COUNTS, |word| word & !0xffff_ffff | 0xf500_0000);
    guest.poke(head, MAPPING, POINTER | 1);
    guest.poke(head, INDEX, POINTER);
    for subpage in 0..4 {
        let page = read(&guest, |pages| pages.page(head + subpage).unwrap());
        assert_eq!((page.head, page.order), (head, 2));
        has_nothing(page, Type::Slab, page.refcount);
    }
}

#[test]
fn a_page_without_a_mapping_has_no_index() {
    // `page_pool.dma_addr`; what a file has let go; what a process had.
    for index in [0, 5, 0x8_1234_5000] {
        let page = page(0, [0, index, POINTER], u32::MAX, 1);
        let stated = Stated::from(page);
        assert_eq!(
            (stated.kind, stated.mapping, stated.index),
            (Kind::Unowned, None, None)
        );
        assert_eq!(stated.mapcount, Some(0));
    }
    // A driver's, which it can move (6.12): where its functions are, and the index is the driver's.
    let movable = Stated::from(page(0, [POINTER | 2, 9, 0], u32::MAX, 1));
    assert_eq!(
        (movable.kind, movable.mapping, movable.index),
        (Kind::Movable, Some(POINTER), None)
    );
}

#[test]
fn a_bit_of_a_files_page_is_its_file_systems() {
    let of = |flags, mapping| page(flags, [mapping, 9, 5 << 58 | 7], 0, 2);
    let both = OWNER_2 | SWAPCACHE;
    // `PG_mappedtodisk` and `PG_checked`.
    let file = of(both, POINTER);
    assert_eq!(
        (file.kind, file.exclusive, file.swapcache, file.slot),
        (Kind::File, false, false, None)
    );
    let shmem = of(both | SWAPBACKED, POINTER);
    assert_eq!(
        (shmem.exclusive, shmem.swapcache, shmem.slot),
        (false, true, Some((5, 7)))
    );
    let anonymous = of(both | SWAPBACKED, POINTER | 1);
    assert_eq!(
        (anonymous.kind, anonymous.exclusive, anonymous.slot),
        (Kind::Anonymous, true, Some((5, 7)))
    );
    assert_eq!(Stated::from(anonymous).index, Some(9));
    let merged = of(SWAPBACKED, POINTER | 3);
    assert_eq!((merged.kind, merged.exclusive), (Kind::Ksm, false));
}

#[test]
fn what_hugetlbs_first_page_says_holds_of_all() {
    let mut guest = Guest::new(4, &mut Random(3));
    let head = FIRST + 16;
    for page in head..head + 16 {
        guest.change(page, FLAGS, |word| word & !OWNER_2);
    }
    let typed = |word: u64| word & !0xffff_ffff | 0xf400_0000;
    guest.change(head, COUNTS, typed);
    let one = |guest: &Guest, at| read(guest, |pages| pages.page(head + at).unwrap());
    let cold = one(&guest, 5);
    assert_eq!(
        (cold.hugetlb, cold.kind_of_page, cold.mapcount),
        (true, None, None)
    );
    assert!(!cold.exclusive && !cold.poisoned && cold.large.is_some());
    // `HPG_migratable` is in the first page's `private`; no other folio has it.
    let migratable = |guest: &mut Guest, flags| {
        guest.poke(head, PRIVATE, flags);
        one(guest, 5).migratable
    };
    assert_eq!(migratable(&mut guest, 0b101), Some(false));
    assert_eq!(migratable(&mut guest, 0b110), Some(true));
    guest.change(head, FLAGS, |word| word | OWNER_2 | HWPOISON);
    let hot = one(&guest, 5);
    assert!(hot.exclusive && hot.poisoned);
    // Of any other folio each page speaks for itself.
    let mut guest = Guest::new(4, &mut Random(3));
    guest.change(head + 3, FLAGS, |word| (word | HWPOISON) & !OWNER_2);
    let (own, next) = (one(&guest, 3), one(&guest, 4));
    assert_eq!((own.poisoned, own.exclusive), (true, false));
    assert_eq!((next.poisoned, next.exclusive), (false, true));
    assert_eq!(own.migratable, None);
}

#[test]
fn each_page_of_a_free_block_is_known_to_be_free() {
    let mut guest = Guest::new(0, &mut Random(3));
    // A block of order 3, whose other pages have no type, and one of order 0 behind it.
    let first = FIRST + 8;
    for page in first..first + 8 {
        for word in [FLAGS, LINK, MAPPING, PRIVATE] {
            guest.poke(page, word, 0);
        }
        guest.poke(page, COUNTS, u64::from(u32::MAX));
    }
    guest.poke(first, COUNTS, 0xf000_0000);
    guest.poke(first, PRIVATE, 3);
    guest.poke(first + 8, COUNTS, 0xf000_0000);
    guest.poke(first + 8, PRIVATE, 0);
    let block = |at| read(&guest, |pages| pages.free_block(at));
    for page in first..first + 8 {
        assert_eq!(block(page), Some((first, 3)));
    }
    assert_eq!(block(first + 8), Some((first + 8, 0)));
    assert_eq!((block(first - 1), block(first + 9)), (None, None));
    // An order that no block has.
    guest.poke(first, PRIVATE, POINTER);
    assert_eq!(read(&guest, |pages| pages.free_block(first)), None);
}

#[test]
fn the_second_page_of_a_folio_is_told() {
    let guest = Guest::new(2, &mut Random(3));
    for pfn in FIRST..FIRST + 16 {
        let page = read(&guest, |pages| pages.page(pfn).unwrap());
        assert_eq!(page.is_second(), page.order > 0 && pfn % 4 == 1);
        assert_eq!(page.order > 0, page.folio_flags & HEAD != 0);
        if page.is_second() {
            assert_eq!(page.flags & 0xff, 2, "the order lies in its flags");
        }
    }
}
