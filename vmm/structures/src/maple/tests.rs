//! Trees made here, word by word, as `lib/maple_tree.c` describes them.

use stage1::{Half, PhysicalAddress, Regime, SystemRegisters};

use super::*;

/// 64 KiB of RAM: three tables that map its rest one to one, in the upper half, and nodes.
struct Ram(Vec<u64>);

const BASE: u64 = 0x4000_0000;
/// Where the first page behind the tables is mapped.
const VA: u64 = 0xffff_ff80_0000_3000;

impl PhysMemory for Ram {
    fn words(&self, address: PhysicalAddress, count: usize) -> Option<&[u64]> {
        let at = address.0.checked_sub(BASE)? as usize / 8;
        self.0.get(at..at + count)
    }

    fn is_ram(&self, address: PhysicalAddress) -> bool {
        (BASE..BASE + (64 << 10)).contains(&address.0)
    }
}

impl Ram {
    fn new() -> Ram {
        let mut ram = Ram(vec![0; (64 << 10) / 8]);
        ram.0[0] = (BASE + 0x1000) | 3;
        ram.0[512] = (BASE + 0x2000) | 3;
        for page in 3..16 {
            ram.0[1024 + page] = (BASE + page as u64 * 0x1000) | 0x703;
        }
        ram
    }

    fn set(&mut self, va: u64, word: u64) {
        self.0[(0x3000 + va - VA) as usize / 8] = word;
    }

    /// A node of this kernel's, 256 bytes aligned; gives the pointer that leads to it.
    fn node(&mut self, number: u64, kind: Node, pivots: &[u64], slots: &[u64]) -> u64 {
        let va = VA + 0x1000 + number * 256;
        for (at, pivot) in (0..).zip(pivots) {
            self.set(va + kind.pivots.offset + 8 * at, *pivot);
        }
        for (at, slot) in (0..).zip(slots) {
            self.set(va + kind.slots.offset + 8 * at, *slot);
        }
        va | kind.kind << TYPE_SHIFT | 4
    }

    fn read(&self, root: u64) -> Result<Vec<Entry>, StructureError> {
        let mut ram = Ram(self.0.clone());
        ram.set(VA, root);
        let registers = SystemRegisters {
            ttbr1_el1: BASE,
            tcr_el1: 25 | 25 << 16 | 2 << 30 | 5 << 32,
            sctlr_el1: 1,
            ..SystemRegisters::default()
        };
        let upper = &Regime::new(&registers, Half::Upper).unwrap();
        let memory = &ram;
        layout().entries(View { memory, upper }, VA)
    }
}

/// `MAPLE_RANGE64_SLOTS` 16 and `MAPLE_ARANGE64_SLOTS` 10.
fn layout() -> Layout {
    let member = |offset, elements| Member {
        offset,
        size: 8 * elements,
        elements,
    };
    let node = |kind, slots| Node {
        kind,
        size: 256,
        pivots: member(8, slots - 1),
        slots: member(8 * slots, slots),
    };
    Layout {
        root: member(0, 1),
        leaf: node(1, 16),
        range: node(2, 16),
        arange: node(3, 10),
    }
}

/// What the tree's owner stores: addresses of its own.
const A: u64 = 0xffff_0000_1000_0000;
const B: u64 = 0xffff_0000_2000_0000;
const C: u64 = 0xffff_0000_3000_0000;

fn entry(first: u64, last: u64, value: u64) -> Entry {
    Entry { first, last, value }
}

#[test]
fn entries_of_a_leaf_come_with_their_ranges() {
    let (mut ram, leaf) = (Ram::new(), layout().leaf);
    // 0-0xfff nothing, A, nothing, B, nothing up to the end; what lies behind the last pivot is of old.
    let pivots = [0xfff, 0x1fff, 0x3fff, 0x4fff, 0];
    let root = ram.node(0, leaf, &pivots, &[0, A, 0, B, 0, C]) | INTERNAL;
    let both = [entry(0x1000, 0x1fff, A), entry(0x4000, 0x4fff, B)];
    assert_eq!(ram.read(root).unwrap(), both);
}

#[test]
fn a_full_leaf_has_a_slot_more_than_pivots() {
    let (mut ram, leaf) = (Ram::new(), layout().leaf);
    let pivots: Vec<u64> = (1..16).map(|at| at * 0x1000 - 1).collect();
    let slots: Vec<u64> = (0..16).map(|at| A + at * 0x1000).collect();
    let root = ram.node(0, leaf, &pivots, &slots) | INTERNAL;
    let found = ram.read(root).unwrap();
    assert_eq!(found.len(), 16);
    assert_eq!(found[15], entry(0xf000, u64::MAX, A + 0xf000));
}

#[test]
fn nodes_are_followed_and_pass_on_their_bounds() {
    let (mut ram, Layout { leaf, arange, .. }) = (Ram::new(), layout());
    let low = ram.node(0, leaf, &[0xfff, 0x7fff], &[A, B]);
    // A leaf whose last pivot is its parent's and not stored.
    let high = ram.node(1, leaf, &[0x8fff, 0], &[C, 0]);
    let root = ram.node(2, arange, &[0x7fff, 0], &[low, high]) | INTERNAL;
    let all = [
        entry(0, 0xfff, A),
        entry(0x1000, 0x7fff, B),
        entry(0x8000, 0x8fff, C),
    ];
    assert_eq!(ram.read(root).unwrap(), all);
}

#[test]
fn an_empty_tree_and_one_of_a_single_number_have_no_node() {
    assert_eq!(Ram::new().read(0).unwrap(), []);
    assert_eq!(Ram::new().read(A).unwrap(), [entry(0, 0, A)]);
}

#[test]
fn what_is_no_tree_is_said_to_be_none() {
    let Layout {
        leaf,
        arange,
        range,
        ..
    } = layout();
    let why = |ram: &Ram, root: u64| match ram.read(root) {
        Err(StructureError::Inconsistent { why, .. }) => why,
        other => panic!("{other:?}"),
    };
    let mut ram = Ram::new();
    let falling = ram.node(0, leaf, &[0x1fff, 0xfff], &[A, B]) | INTERNAL;
    assert_eq!(why(&ram, falling), "its pivots do not rise");
    let nowhere = ram.node(1, arange, &[0xfff, u64::MAX], &[0, 0]) | INTERNAL;
    assert_eq!(why(&ram, nowhere), "it leads to no node");
    let kind = 7 << TYPE_SHIFT | INTERNAL;
    assert_eq!(
        why(&ram, (VA + 0x2000) | kind),
        "it is of no type that holds ranges"
    );
    let myself = ram.node(2, range, &[u64::MAX], &[]);
    ram.node(2, range, &[], &[myself]);
    assert_eq!(why(&ram, myself | INTERNAL), "it is deeper than any tree");
    let outside = ram.read(0xffff_ff80_1000_0000 | 1 << TYPE_SHIFT | INTERNAL);
    assert!(
        matches!(outside, Err(StructureError::Unreadable { .. })),
        "{outside:?}"
    );
}
