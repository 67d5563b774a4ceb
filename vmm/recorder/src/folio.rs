// SPDX-License-Identifier: GPL-2.0-only
//! The folio behind a page frame, at the instant at which a descriptor that maps it is written or taken away.
//!
//! A task that maps or unmaps a page holds a reference to the folio, so its `struct page` is valid at that store. A
//! moment later the frame may belong to another folio.

use std::collections::BTreeMap;

use stage1::{Descriptor, Half};

/// Kind of a folio's memory, by the low bits of its `mapping` (`FOLIO_MAPPING_ANON`, include/linux/page-flags.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FolioKind {
    /// No mapping: the kernel's own memory, the zero page.
    Unowned,
    /// Private memory of processes.
    Anonymous,
    /// A driver's own, which it can move.
    Movable,
    /// Anonymous memory that KSM has merged.
    Ksm,
    /// A file's page cache, shmem's too.
    File,
    /// Its `mapping` could not be read.
    Unknown,
}

impl FolioKind {
    /// All kinds, by the number that a trace has for them.
    pub(crate) const ALL: [Self; 6] = [
        Self::Unowned,
        Self::Anonymous,
        Self::Movable,
        Self::Ksm,
        Self::File,
        Self::Unknown,
    ];

    fn of(mapping: u64) -> Self {
        match mapping & 3 {
            1 => Self::Anonymous,
            2 => Self::Movable,
            3 => Self::Ksm,
            _ if mapping == 0 => Self::Unowned,
            _ => Self::File,
        }
    }

    /// Returns the kind in a word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unowned => "unowned",
            Self::Anonymous => "anonymous",
            Self::Movable => "movable",
            Self::Ksm => "ksm",
            Self::File => "file",
            Self::Unknown => "not known",
        }
    }
}

/// A folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Folio {
    /// Its first page frame.
    pub first: u64,
    /// Binary logarithm of its number of pages.
    pub order: u8,
    /// Kind of its memory.
    pub kind: FolioKind,
    /// Its first page's `index`: pages from the start of its file, or of the numbering that an anonymous VMA has.
    pub index: u64,
}

impl Folio {
    /// No folio is larger: 16 GiB of 4K pages.
    pub const LARGEST: u8 = 22;

    /// Returns whether a page frame now holds another page of memory than then, so that it was freed in between. Equal
    /// states may be the same memory, moved by mremap() or split, or another process's at the same place.
    pub(crate) fn is_other(&self, now: &Self, frame: u64) -> bool {
        let memory = |folio: &Self| match folio.kind {
            FolioKind::Anonymous | FolioKind::File => {
                let page = folio.index.wrapping_add(frame.wrapping_sub(folio.first));
                Some((folio.kind, page))
            }
            _ => None,
        };
        match (memory(self), memory(now)) {
            (Some(then), Some(now)) => then != now,
            _ => false,
        }
    }

    fn has(&self, frame: u64) -> bool {
        frame.wrapping_sub(self.first) >> self.order == 0
    }
}

/// Returns the page frame that a descriptor of user space maps.
pub(crate) fn mapped(descriptor: &Descriptor<'_>) -> Option<u64> {
    let regime = descriptor.regime();
    let user = regime.half == Half::Lower && descriptor.kind().is_leaf();
    user.then(|| descriptor.output_address().0 >> regime.granule.shift())
}

/// Maximum number of folios that are kept: those of 16 GiB in single pages of 16K. If there are more, all are dropped.
const MOST: usize = 1 << 20;

/// The last recorded state of each page frame.
#[derive(Clone, Debug, Default)]
pub(crate) struct Folios(BTreeMap<u64, Folio>);

impl Folios {
    /// Returns the last recorded state of a page frame.
    fn told(&self, frame: u64) -> Option<Folio> {
        let (_, folio) = self.0.range(..=frame).next_back()?;
        folio.has(frame).then_some(*folio)
    }

    /// Returns the folio of a page frame, as far as it is known.
    pub(crate) fn at(&self, frame: u64) -> Option<Folio> {
        let told = self.told(frame);
        told.filter(|folio| folio.kind != FolioKind::Unknown)
    }

    /// Records the state of a folio; returns whether it is new.
    pub(crate) fn is_news(&mut self, folio: Folio) -> bool {
        let news = self.told(folio.first) != Some(folio);
        if news {
            self.insert(folio);
        }
        news
    }

    /// Records a folio, and drops all others that overlap it.
    pub(crate) fn insert(&mut self, folio: Folio) {
        let last = folio.first.saturating_add((1 << folio.order) - 1);
        if let Some(before) = self.told(folio.first) {
            self.0.remove(&before.first);
        }
        let over: Vec<u64> = self
            .0
            .range(folio.first..=last)
            .map(|(at, _)| *at)
            .collect();
        for first in over {
            self.0.remove(&first);
        }
        if self.0.len() >= MOST {
            self.0.clear();
        }
        self.0.insert(folio.first, folio);
    }
}

/// The kernel's layout of `struct page` and `struct folio` (include/linux/mm_types.h), as far as it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLayout {
    /// The virtual address of the `struct page` of page frame 0, which need not be mapped.
    pub vmemmap: u64,
    /// The first virtual address at which the array of pages may be mapped.
    pub start: u64,
    /// The first one behind it.
    pub end: u64,
    /// Bytes of a `struct page`.
    pub size: u64,
    /// Offset of `flags`, in bytes.
    pub flags: u64,
    /// The bit of `PG_head` in that.
    pub head: u64,
    /// Offset of `compound_head`.
    pub compound_head: u64,
    /// Offset of the folio's `_flags_1`, whose low byte is the order.
    pub flags_1: u64,
    /// Offset of its `mapping`.
    pub mapping: u64,
    /// Offset of its `index`.
    pub index: u64,
}

impl PageLayout {
    /// A mark's number that announces the numbers of a layout.
    pub const BEGINS: u64 = u64::MAX;
    /// Numbers of one.
    pub const NUMBERS: usize = 10;

    /// Returns the layout as numbers.
    #[must_use]
    pub const fn numbers(&self) -> [u64; Self::NUMBERS] {
        [
            self.vmemmap,
            self.start,
            self.end,
            self.size,
            self.flags,
            self.head,
            self.compound_head,
            self.flags_1,
            self.mapping,
            self.index,
        ]
    }

    /// Creates the layout from its numbers.
    #[must_use]
    pub const fn of(numbers: [u64; Self::NUMBERS]) -> Self {
        let [vmemmap, start, end, size, flags, head, compound_head, flags_1, mapping, index] =
            numbers;
        Self {
            vmemmap,
            start,
            end,
            size,
            flags,
            head,
            compound_head,
            flags_1,
            mapping,
            index,
        }
    }

    /// Returns the folio of a page frame; `read` returns the word at a virtual address of the kernel's. The result is
    /// `None` if there is no such page, or its state makes no sense.
    pub fn folio(&self, frame: u64, mut read: impl FnMut(u64) -> Option<u64>) -> Option<Folio> {
        let own = self.address(frame)?;
        let link = read(own.checked_add(self.compound_head)?)?;
        let head = if link & 1 == 0 { own } else { link - 1 };
        let first = self.frame(head)?;
        let order = match read(head.checked_add(self.flags)?)? & self.head {
            0 => 0,
            _ => read(head.checked_add(self.flags_1)?)? as u8,
        };
        let kind = FolioKind::of(read(head.checked_add(self.mapping)?)?);
        let index = read(head.checked_add(self.index)?)?;
        let folio = Folio {
            first,
            order,
            kind,
            index,
        };
        let large = link & 1 != 0 || order > 0;
        let sane = order <= Folio::LARGEST && first & ((1 << order) - 1) == 0 && folio.has(frame);
        (sane && (!large || order > 0)).then_some(folio)
    }

    fn address(&self, frame: u64) -> Option<u64> {
        let at = self.vmemmap.wrapping_add(frame.checked_mul(self.size)?);
        (self.start..self.end).contains(&at).then_some(at)
    }

    fn frame(&self, at: u64) -> Option<u64> {
        let bytes = at.wrapping_sub(self.vmemmap);
        let frame = bytes.checked_div(self.size)?;
        (self.address(frame) == Some(at)).then_some(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: PageLayout = PageLayout {
        vmemmap: 0xffff_fdff_c000_0000,
        start: 0xffff_fdff_c000_0000,
        end: 0xffff_fdff_c000_0000 + 64 * 0x1000,
        size: 64,
        flags: 0,
        head: 1 << 6,
        compound_head: 8,
        flags_1: 64,
        mapping: 24,
        index: 32,
    };

    /// Returns the words of `struct page`s by page frame and word.
    fn folio(frame: u64, words: &[(u64, u64, u64)]) -> Option<Folio> {
        let at = |(frame, word, value): &(u64, u64, u64)| {
            (LAYOUT.vmemmap + frame * 64 + word * 8, *value)
        };
        let words: BTreeMap<u64, u64> = words.iter().map(at).collect();
        LAYOUT.folio(frame, |va| Some(*words.get(&va).unwrap_or(&0)))
    }

    fn page(first: u64, order: u8, kind: FolioKind) -> Folio {
        let index = 0;
        Folio {
            first,
            order,
            kind,
            index,
        }
    }

    #[test]
    fn single_pages_and_parts_of_larger_folios() {
        let anonymous = [(0x10, 3, 0xffff_0000_1234_5679)];
        let single = Some(page(0x10, 0, FolioKind::Anonymous));
        assert_eq!(folio(0x10, &anonymous), single);
        let file = [(0x10, 3, 0xffff_0000_1234_5678)];
        assert_eq!(folio(0x10, &file), Some(page(0x10, 0, FolioKind::File)));
        assert_eq!(folio(0x10, &[]), Some(page(0x10, 0, FolioKind::Unowned)));
        let head = LAYOUT.vmemmap + 0x20 * 64;
        let large = [
            (0x20, 0, 1 << 6),
            (0x21, 0, 4),
            (0x20, 3, 0xffff_0000_0000_1001),
            (0x20, 4, 0x7_fff0),
            (0x2f, 1, head | 1),
        ];
        let whole = Some(Folio {
            index: 0x7_fff0,
            ..page(0x20, 4, FolioKind::Anonymous)
        });
        assert_eq!(folio(0x20, &large), whole);
        assert_eq!(folio(0x2f, &large), whole);
    }

    #[test]
    fn what_makes_no_sense_is_none() {
        assert_eq!(folio(0x1000, &[]), None, "beyond the array");
        let head = LAYOUT.vmemmap + 0x20 * 64;
        assert_eq!(
            folio(0x23, &[(0x23, 1, head | 1)]),
            None,
            "its head is none"
        );
        let small = [(0x20, 0, 1 << 6), (0x21, 0, 1), (0x23, 1, head | 1)];
        assert_eq!(folio(0x23, &small), None, "it ends before");
        let odd = [(0x21, 0, 1 << 6), (0x22, 0, 4)];
        assert_eq!(folio(0x21, &odd), None, "it cannot begin there");
        assert_eq!(folio(0x23, &[(0x23, 1, 0x1235)]), None, "no page's address");
    }

    #[test]
    fn a_page_is_another_by_its_index_or_its_kind() {
        let large = Folio {
            index: 0x100,
            ..page(0x20, 4, FolioKind::Anonymous)
        };
        let split = Folio {
            index: 0x103,
            ..page(0x23, 0, FolioKind::Anonymous)
        };
        assert!(!large.is_other(&split, 0x23), "split, it is the same page");
        let other = Folio {
            index: 0x104,
            ..split
        };
        assert!(large.is_other(&other, 0x23));
        let file = Folio {
            kind: FolioKind::File,
            ..split
        };
        assert!(large.is_other(&file, 0x23));
        let merged = Folio {
            kind: FolioKind::Ksm,
            ..other
        };
        assert!(!large.is_other(&merged, 0x23), "KSM's are not told apart");
    }

    #[test]
    fn what_was_said_last_counts() {
        let mut folios = Folios::default();
        let (large, single) = (
            page(0x20, 4, FolioKind::Anonymous),
            page(0x23, 0, FolioKind::File),
        );
        folios.insert(large);
        assert_eq!(folios.at(0x2f), Some(large));
        assert_eq!(folios.at(0x30), None);
        folios.insert(single);
        assert_eq!(folios.at(0x23), Some(single));
        assert_eq!(
            folios.at(0x22),
            None,
            "it is no part of the large one any more"
        );
        folios.insert(large);
        assert_eq!(folios.at(0x23), Some(large));
    }
}
