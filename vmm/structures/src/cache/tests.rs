// SPDX-License-Identifier: GPL-2.0-only
//! A made-up tree over a made-up array of pages.

use linux::cache::Tree;
use linux::counted::Known;
use stage1::testing::Attributes;
use stage1::Half;

use super::*;
use crate::pages::made_up::*;
use crate::xarray::INTERNAL;

/// The file's `struct address_space` and inode, and nodes of its tree, each in a page of its own.
const FILE: u64 = VMEMMAP + (1 << 30);
const INODE: u64 = FILE + 0x1000;
const NODE: [u64; 3] = [FILE + 0x2000, FILE + 0x3000, FILE + 0x4000];
/// `shmem_aops`.
const SHMEM: u64 = 0xffff_8000_0123_0000;
const PLACE: u64 = 0x9100_0000;
/// The order of the large folios, and the first page of one.
const ORDER: u8 = 3;
const LARGE: u64 = FIRST + 8;

fn member(offset: u64, size: u64, elements: u64) -> Member {
    Member {
        offset,
        size,
        elements,
    }
}

fn made_up_layout() -> Layout {
    Layout {
        lock: SpinLock::of(member(0, 4, 1)),
        lock_of: member(8, 4, 1),
        root: member(16, 8, 1),
        count: member(24, 8, 1),
        host: member(0, 8, 1),
        flags: member(12, 4, 1),
        entries: XArray::of(WHAT, member(0, 1, 1), member(40, 512, 64)),
        shmem: Ok(ShmemLayout {
            operations: (member(32, 8, 1), SHMEM),
            inode: 64,
            alloced: member(0, 8, 1),
            swapped: member(8, 8, 1),
            lock: RwSemaphore::Count(member(24, 8, 1)),
        }),
    }
}

/// An address space whose tree has a node that stands for 4096 numbers, with two below; there are ten single folios from
/// number 0 on but for one that is in swap, and a large one at number 64 * 5 + 8.
struct File(Guest);

impl File {
    fn new() -> File {
        let mut guest = Guest::new(ORDER, &mut Random(3));
        for (n, va) in [FILE, INODE].into_iter().chain(NODE).enumerate() {
            let place = PLACE + n as u64 * 0x1000;
            guest
                .tables
                .map_page(va, place, Attributes::default(), false);
            guest.memory.add(place, vec![0; 512]);
        }
        // The newer tables first.
        let mut memory = guest.tables.memory().clone();
        memory.merge(std::mem::take(&mut guest.memory));
        guest.memory = memory;
        let mut file = File(guest);
        file.poke(FILE, 0, INODE);
        file.poke(FILE, 16, NODE[0] | INTERNAL);
        file.poke(FILE, 24, 9 + 8);
        file.poke(NODE[0], 0, 6);
        file.slot(0, 0, NODE[1] | INTERNAL);
        file.slot(0, 5, NODE[2] | INTERNAL);
        for n in 0..10 {
            let pfn = single(n);
            file.slot(1, n, VMEMMAP + pfn * 64);
            file.own(pfn, n);
        }
        file.slot(1, 4, 0x1234 << 1 | VALUE);
        file.slot(2, 8, VMEMMAP + LARGE * 64);
        (9..16).for_each(|at| file.slot(2, at, 8 << 2 | INTERNAL));
        file.own(LARGE, 64 * 5 + 8);
        file
    }

    /// Makes a page the file's, of this number.
    fn own(&mut self, pfn: u64, number: u64) {
        self.0.poke(pfn, MAPPING, FILE);
        self.0.poke(pfn, INDEX, number);
    }

    fn slot(&mut self, node: usize, at: u64, entry: u64) {
        self.poke(NODE[node], 40 + 8 * at, entry);
    }

    fn poke(&mut self, page: u64, offset: u64, value: u64) {
        assert!(self.0.memory.poke(PLACE + (page - FILE) + offset, value));
    }

    fn tree(&self) -> Known<Option<Tree>> {
        self.with(&mut { 1000 })
    }

    fn with(&self, left: &mut u64) -> Known<Option<Tree>> {
        let layout = layout(true);
        let upper = stage1::Regime::new(&self.0.tables.registers(), Half::Upper).unwrap();
        let (memory, upper) = (&self.0.memory, &upper);
        let view = View { memory, upper };
        made_up_layout().tree(view, &Pages::new(&layout, view), FILE, left)
    }

    fn wrong(&self) -> Vec<String> {
        let tree = self.tree().unwrap().unwrap();
        assert_eq!(tree.found + tree.wrong.len() as u64, 17);
        tree.wrong
    }
}

/// The folios of one page: every other run of eight.
fn single(n: u64) -> u64 {
    FIRST + n / 8 * 16 + n % 8
}

#[test]
fn folios_and_what_is_in_swap() {
    let good = Tree {
        counted: 17,
        found: 17,
        values: 1,
        ..Tree::default()
    };
    let mut file = File::new();
    assert_eq!(file.tree(), Ok(Some(good.clone())));
    // A folio alone needs no node.
    file.poke(FILE, 16, VMEMMAP + single(0) * 64);
    let one = Tree {
        found: 1,
        values: 0,
        ..good.clone()
    };
    assert_eq!(file.tree(), Ok(Some(one)));
    // What stands for nothing: XA_RETRY_ENTRY and XA_ZERO_ENTRY; and no tree at all.
    let mut file = File::new();
    file.slot(1, 20, 256 << 2 | INTERNAL);
    file.slot(2, 40, 257 << 2 | INTERNAL);
    assert_eq!(file.tree(), Ok(Some(good)));
    file.poke(FILE, 16, 0);
    assert_eq!(file.tree().unwrap().unwrap().found, 0);
}

/// An inode of shmem in its `struct shmem_inode_info`, 64 bytes before it.
#[test]
fn what_shmem_counts() {
    let counts = |file: &File| file.tree().unwrap().unwrap().shmem;
    let mut file = File::new();
    file.poke(FILE, 0, INODE + 64);
    file.poke(INODE, 0, 18);
    file.poke(INODE, 8, 1);
    // Of another file system.
    file.poke(FILE, 32, SHMEM + 8);
    assert_eq!(counts(&file), None);
    file.poke(FILE, 32, SHMEM);
    let good = Shmem {
        alloced: 18,
        swapped: 1,
        in_swap: 1,
        busy: false,
        at: [INODE, INODE + 8],
    };
    assert_eq!(counts(&file), Some(good));
    // The inode's lock is held; a folio's is; and a page is lost, which is no area's slot.
    let busy = Shmem { busy: true, ..good };
    file.poke(INODE, 64 + 24, 1);
    assert_eq!(counts(&file), Some(busy));
    file.poke(INODE, 64 + 24, 0);
    file.0.change(LARGE, FLAGS, |word| word | 1);
    assert_eq!(counts(&file), Some(busy));
    file.0.change(LARGE, FLAGS, |word| word & !1);
    assert_eq!(counts(&file), Some(good));
    file.slot(1, 4, (30 << SLOT_BITS) << 1 | VALUE);
    assert_eq!(counts(&file), Some(Shmem { in_swap: 0, ..busy }));
}

#[test]
fn folios_that_must_not_be_there() {
    type Change = fn(&mut File);
    let each: [(Change, &str); 9] = [
        (
            |file| file.slot(1, 2, VMEMMAP + 1024),
            "where there is no page",
        ),
        (|file| file.slot(1, 2, VMEMMAP + 8), "which is no page's"),
        (
            |file| file.0.change(single(2), COUNTS, |_| 0xf0 << 24),
            "whose type is 0xf0",
        ),
        (
            |file| file.0.poke(single(2), MAPPING, FILE + 64),
            "whose mapping is",
        ),
        // Anonymous, by the lowest bit.
        (
            |file| file.0.change(single(2), MAPPING, |word| word | 1),
            "whose mapping is",
        ),
        (
            |file| file.0.poke(single(2), INDEX, 3),
            "whose index is 0x3",
        ),
        (
            |file| file.0.poke(single(2), LINK, VMEMMAP + 1),
            "which is no first page",
        ),
        (
            |file| file.slot(1, 2, VMEMMAP + single(3) * 64),
            "whose index is 0x3",
        ),
        (
            |file| file.0.poke(single(2), COUNTS, 0),
            "which nobody has a reference of",
        ),
    ];
    for (change, part) in each {
        let mut file = File::new();
        change(&mut file);
        let wrong = file.wrong();
        assert_eq!(wrong.len(), 1, "{part}: {wrong:?}");
        assert!(
            wrong[0].contains(part) && wrong[0].contains("number 0x2 "),
            "{wrong:?}"
        );
    }
    // The holder of its lock may just have frozen it.
    let mut file = File::new();
    file.0.poke(single(2), COUNTS, 0);
    file.0.change(single(2), FLAGS, |word| word | 1);
    assert_eq!(file.wrong(), [""; 0]);
    // A large folio that stands for too few numbers, and for too many.
    for (at, entry) in [(15, 0), (16, 8 << 2 | INTERNAL)] {
        let mut file = File::new();
        file.slot(2, at, entry);
        let tree = file.tree().unwrap().unwrap();
        assert_eq!(tree.found, 9);
        assert!(tree.wrong[0].contains("a folio of 8 pages"), "{tree:?}");
    }
    // No more are told of than there is room for.
    let mut file = File::new();
    (0..10).for_each(|n| file.own(single(n), 77));
    let tree = file.tree().unwrap().unwrap();
    assert_eq!((tree.wrong.len(), tree.more, tree.found), (TOLD, 5, 8));
}

#[test]
fn trees_that_are_not_followed() {
    let mut file = File::new();
    file.poke(FILE, 8, 1);
    assert!(file.tree().unwrap_err().later);
    let said = |file: &File| file.tree().unwrap_err().why;
    // A node below itself, one that is not there, one that stands for too much.
    let mut file = File::new();
    file.slot(1, 60, NODE[0] | INTERNAL);
    assert!(
        said(&file).contains("the entries of this node stand for"),
        "{}",
        said(&file)
    );
    let mut file = File::new();
    file.slot(0, 60, (FILE + (1 << 20)) | INTERNAL);
    assert!(file.tree().is_err());
    let mut file = File::new();
    file.poke(NODE[0], 0, 63);
    assert!(
        said(&file).contains("the entries of this node stand for"),
        "{}",
        said(&file)
    );
    let file = File::new();
    assert!(!file.with(&mut 5).unwrap_err().later);
    let mut left = 100;
    file.with(&mut left).unwrap();
    assert_eq!(left, 100 - 2 - 10 - 1);
    // DAX.
    let mut file = File::new();
    file.poke(INODE, 8, DAX << 32);
    assert_eq!(file.tree(), Ok(None));
}
