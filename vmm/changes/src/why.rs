// SPDX-License-Identifier: GPL-2.0-only
//! Further facts about an event. They are compared for every page, and put into words once per range.

use linux::absent::SwapTypes;
use linux::folio::{Kind as Memory, Page};
use linux::pte::Pte;

use crate::view::Entry;

/// Further facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Why {
    Nothing,
    /// The memory that is, or was, mapped.
    As(As),
    /// The same, and how far away the page was: what is added to its address there.
    From(As, u64),
    Swapped,
    SwappedUnseen,
    /// An entry that is not present: its type, and of a marker what it marks.
    Absent(u64),
    Block(i8),
    FolioSplit(u8, u8),
    /// Pages that were mapped, of how many, of which how many in the same place.
    Collapsed(u64, u64, u64),
    /// The same, and a fault may have brought the block.
    CollapsedOrGone(u64, u64),
    ZeroPageWritten,
    KsmWritten,
    FileWritten,
    StillElsewhere,
    Forked,
    /// The folio's order, and how many pages the kernel has migrated.
    SameFolio(u8, u64),
    SameFileFolio(u64),
    FaultedAgain(u8),
    CopiedByRecord(u8),
    ZeroPageByRecord(u8),
    SwappedAgain(u8),
    /// It was in swap, and a fault has brought another of this order.
    DroppedFromSwap(u8),
    SameFrame,
    FolioGrew(u8, u8),
    FolioShrank(u8, u8),
    ZeroPage,
    NoFolios,
    NotProved(Doubt),
    Userfaultfd,
    Bits(u64),
}

/// The reason that the fate of a frame is not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Doubt {
    /// How many pages were migrated is not known.
    NoCount,
    /// No page was migrated.
    NotMigrated,
    /// So many were, and whether this one was is not known.
    Migrations(u64),
    /// It was shared, or is now, and a fault may have brought another.
    CopiedOrGone,
    /// A file's page, and no page was migrated.
    ReadAgain,
    /// A file's page.
    MigratedOrReadAgain,
    /// It was in swap, and nothing shows that it came from there.
    SwapOrGone,
    /// No process maps the old frame, which was shared.
    OwnerGone,
    /// It is not known which processes map the old frame.
    NotEverybody,
    /// Another process has the frame that was this one's own.
    Elsewhere,
    /// It is of another mapping or index.
    Other,
    /// It is of another order.
    Order(u8, u8),
}

/// A page as it is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct As {
    memory: Option<(Memory, bool, bool)>,
    order: u8,
    level: i8,
    contiguous: bool,
    zero: bool,
}

impl As {
    pub fn of(entry: &Entry, page: Option<&Page>) -> As {
        let memory = page.map(|page| (page.kind, page.swapbacked, page.hugetlb));
        As {
            memory,
            order: page.map_or(0, |page| page.order),
            level: entry.level,
            contiguous: entry.pte().valid_cont(),
            zero: entry.pte().special(),
        }
    }

    fn text(self) -> String {
        let mut words = Vec::new();
        let memory = match self.memory {
            Some((_, _, true)) => "hugetlb",
            Some((Memory::Anonymous, ..)) => "anonymous",
            Some((Memory::Ksm, ..)) => "KSM",
            Some((Memory::File, true, _)) => "shmem",
            Some((Memory::File, ..)) => "file",
            Some((Memory::Movable, ..)) => "a driver's",
            Some((Memory::Unowned, ..)) => "of no mapping",
            None if self.zero => "zero page or another special one",
            None => "",
        };
        if !memory.is_empty() {
            words.push(memory.to_owned());
        }
        if self.memory.is_some() {
            words.push(format!("order {}", self.order));
        }
        if self.level != 3 {
            words.push(format!("by a block of level {}", self.level));
        }
        if self.contiguous {
            words.push("contiguous".into());
        }
        words.join(", ")
    }
}

const NAMED: [(u64, &str); 14] = [
    (0b111 << 2, "AttrIndx"),
    (1 << 5, "NS"),
    (1 << 6, "AP[1]"),
    (1 << 7, "AP[2]"),
    (0b11 << 8, "SH"),
    (1 << 11, "nG"),
    (1 << 50, "GP"),
    (1 << 52, "Contiguous"),
    (1 << 53, "PXN"),
    (1 << 54, "UXN"),
    (1 << 56, "SPECIAL"),
    (1 << 57, "DEVMAP"),
    (0b1111 << 59, "PBHA"),
    (1 << 63, "bit 63"),
];

impl Why {
    pub fn text(self, names: &SwapTypes) -> String {
        match self {
            Why::Nothing => String::new(),
            Why::As(what) => what.text(),
            Why::From(what, _) => what.text(),
            Why::Swapped => "from swap".into(),
            Why::SwappedUnseen => "it was mapped in between, or has another slot".into(),
            Why::Absent(word) => names.kind(Pte(word), None).unwrap_or_default(),
            Why::Block(level) => format!("a block of level {level}, to pages"),
            Why::FolioSplit(from, to) => format!("folio of order {from}, to order {to}"),
            Why::Collapsed(mapped, of, same) => format!(
                "{mapped} of {of} pages were mapped, {same} of them by the same frames"
            ),
            Why::ZeroPageWritten => "the zero page was written to".into(),
            Why::KsmWritten => "of a page that KSM had merged".into(),
            Why::FileWritten => "of a file's page".into(),
            Why::StillElsewhere => "the page before is still mapped elsewhere".into(),
            Why::Forked => "the page before has been shared since, as by a fork, and is still mapped elsewhere".into(),
            Why::SameFolio(_, pages) => format!("mapping, index and order are the same, no fault brought it in, nobody maps the frame before, and the kernel migrated {pages} pages"),
            Why::SameFileFolio(pages) => format!("file, index and order are the same, the process had no fault, nobody maps the frame before, and the kernel migrated {pages} pages"),
            Why::CopiedByRecord(order) => format!("copied with order {order}, by the kernel's record"),
            Why::ZeroPageByRecord(order) => format!("the zero page was written to, with order {order}, by the kernel's record"),
            Why::SwappedAgain(order) => format!("swapped out, and in again with order {order}, by the kernel's record"),
            Why::DroppedFromSwap(order) => format!("it was in swap, and was thrown away there: faulted in again with order {order}, by the kernel's record"),
            Why::CollapsedOrGone(mapped, of) => format!("by a block, where {mapped} of {of} pages were mapped: collapsed, or gone and faulted in again"),
            Why::FolioShrank(from, to) => format!("the same frame, and a folio of order {to} where order {from} was: split, or gone and faulted into the same frame"),
            Why::FaultedAgain(order) => {
                format!("taken away and faulted in again with order {order}, by the kernel's record")
            }
            Why::SameFrame => "the same frame, and another folio".into(),
            Why::FolioGrew(from, to) => {
                format!("the same frame, and a folio of order {to} where order {from} was")
            }
            Why::ZeroPage => "by the zero page or another special one".into(),
            Why::NoFolios => "by another frame; the folios are not known".into(),
            Why::NotProved(doubt) => match doubt {
                Doubt::NoCount => "by a folio of the same mapping and index: migrated, copied on write, or gone and faulted in again (how many pages were migrated is not known)".into(),
                Doubt::NotMigrated => "by a folio of the same mapping and index: copied on write, swapped out and in, or gone and faulted in again (the kernel migrated no page)".into(),
                Doubt::Migrations(pages) => format!("by a folio of the same mapping and index: migrated (the kernel migrated {pages} pages), copied on write, or gone and faulted in again"),
                Doubt::CopiedOrGone => "by another frame: copied on write, or gone and faulted in again (no record tells)".into(),
                Doubt::ReadAgain => "by a folio of the same file and index: dropped and read in again (the kernel migrated no page)".into(),
                Doubt::MigratedOrReadAgain => "by a folio of the same file and index: migrated, or dropped and read in again".into(),
                Doubt::SwapOrGone => "it was in swap: swapped in, or thrown away there and faulted in again (the kernel read no page from swap that it could be)".into(),
                Doubt::OwnerGone => "the page before was shared, and nobody maps it now: copied on write, or gone and faulted in again".into(),
                Doubt::NotEverybody => "by another frame; who else maps the one before is not known".into(),
                Doubt::Elsewhere => "by another frame; the one before was this process's own, and is mapped elsewhere now".into(),
                Doubt::Other => "by a folio of another mapping or index".into(),
                Doubt::Order(from, to) => format!("by a folio of order {to} where order {from} was: collapsed, split and moved, or gone and faulted in again"),
            },
            Why::Userfaultfd => "by userfaultfd".into(),
            Why::Bits(bits) => {
                let names = NAMED.iter().filter(|(mask, _)| bits & mask != 0);
                let names: Vec<&str> = names.map(|(_, name)| *name).collect();
                names.join(" ")
            }
        }
    }
}
