// SPDX-License-Identifier: GPL-2.0-only
//! The kinds of check that a rule may have, and what each is given.

use std::ops::Range;

use linux::cache::Cache;
use linux::counted::{Census, Counted};
use linux::folio::{Numbering, Page, Rss};
use linux::order::OrderRecord;
use linux::release::Release;
use linux::vma::Vma;
use stage1::{PhysMemory, Regime};

use crate::all_mapped::AllMapped;
use crate::entries::{Cover, Entries};
use crate::group::Group;
use crate::kernel_layout::KernelLayout;
use crate::mapped::Mapped;
use crate::page_tables::Tables;
use crate::placement::Placement;
use crate::{Expected, ProcessInput};
use linux::structures::{Folios, Structures};
use linux::unmapped::Unmapped;

/// Takes the addresses at which a rule is broken, and the sentence.
pub(crate) type Report<'a> = dyn FnMut(Range<u64>, String) + 'a;

pub(crate) type GroupCheck = fn(&Group<'_>, Option<bool>) -> Option<String>;
pub(crate) type ContiguousCheck = fn(&Group<'_>) -> Option<String>;
pub(crate) type PlacementCheck = fn(&Group<'_>, &Placement, &[Vma]) -> Vec<(usize, String)>;
pub(crate) type EntryCheck = fn(&Mapped<'_>, &Vma, Option<&Numbering>) -> Option<String>;
pub(crate) type AlikeCheck = fn(&Mapped<'_>, Option<&Numbering>, usize) -> usize;
pub(crate) type OpenCheck = fn(u64) -> String;
pub(crate) type RecordCheck = fn(&OrderRecord, (u64, u64)) -> Option<String>;
pub(crate) type FreshCheck = fn(&FreshFolio<'_>) -> Told;
pub(crate) type ProcessCheck = fn(&ProcessSeen<'_>, &mut Whole);
pub(crate) type PageCheck = fn(&PageSeen<'_>, &mut u64) -> Option<String>;
pub(crate) type UnheldCheck = fn(&UnheldSeen<'_>) -> Unheld;
pub(crate) type ExclusiveCheck = fn(&ExclusiveSeen) -> Option<String>;
pub(crate) type UnmappedCheck = fn(&UnmappedSeen<'_>) -> UnmappedFound;
pub(crate) type CountedCheck = fn(&CountedSeen<'_>, &mut Counts);
pub(crate) type CachesCheck = fn(&[Cache], Option<&str>, &mut Counts);
pub(crate) type KernelCheck = fn(&Group<'_>, &KernelSeen<'_>) -> Option<String>;
pub(crate) type ExpectedCheck = fn(&Group<'_>, Range<u64>, &mut Report<'_>);

/// How one rule is judged. Each check gives sentences; the walk that calls it makes the findings, with the rule's
/// value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Check {
    /// A group of a user table; the second is whether its VMA is hugetlb's, where that is known.
    Group(GroupCheck),
    /// A group of a user table in which an entry has the Contiguous bit.
    Contiguous(ContiguousCheck),
    /// Where the entries of a group of a user table lie among the process's VMAs.
    Placement(PlacementCheck),
    /// An entry and the folio behind it.
    Entry(EntryCheck),
    /// How many entries from this one on, at most so many, a rule of [`Check::Entry`] says the same of.
    Alike(AlikeCheck),
    /// The part of a group of which a checkpoint states something.
    Expected(Expected, ExpectedCheck),
    /// So many blocks that could be contiguous and are not, in a range of which a checkpoint states that none is so.
    Open(OpenCheck),
    /// An order record, and the place of its folio: first address and size.
    Record(RecordCheck),
    /// A folio that was just faulted in, by its record.
    Fresh(FreshCheck),
    /// A process as a whole.
    Process(ProcessCheck),
    /// A page that a judged process maps, and the entries of all address spaces. Counts that are above their entries
    /// where others may have entries are added to the number.
    Page(PageCheck),
    /// A folio in a range that a checkpoint calls unheld, by the first page of it that is mapped there.
    Unheld(UnheldCheck),
    /// A page in a range of which a checkpoint states that no other mapping ever had it.
    Exclusive(ExclusiveCheck),
    /// Folios that count mappings and that no table was seen to map.
    Unmapped(UnmappedCheck),
    /// The kernel's counters of all memory.
    Counted(CountedCheck),
    /// The page caches of files; the second says who may have counted pages before they are there.
    Caches(CachesCheck),
    /// A group of the kernel half, where the layout is known.
    Kernel(KernelCheck),
    /// Not by these walks: by this function, or crate.
    Elsewhere(&'static str),
}

/// The result of a rule on something that is looked up by address: where it is broken, each with an address of the
/// group that is shown and the range; and what could not be judged.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub broken: Vec<(u64, Range<u64>, String)>,
    pub not_judged: Vec<String>,
}

/// A folio that was just faulted in, as its order record has it.
pub(crate) struct FreshFolio<'a> {
    pub memory: &'a dyn PhysMemory,
    pub input: &'a ProcessInput<'a>,
    pub record: &'a OrderRecord,
    pub start: u64,
    pub size: u64,
    /// Bytes of a contiguous block of level 3.
    pub block: u64,
}

/// The folios seen of a process, and the values that its counters should have.
pub(crate) struct ProcessSeen<'a> {
    pub structures: &'a Structures<'a>,
    pub vmas: &'a [Vma],
    pub regime: &'a Regime,
    /// No rule is broken in its tables, and the page of each entry was read.
    pub is_sound: bool,
    /// Its pages by the kernel's kinds, as its entries have them.
    pub entries: Rss,
    /// Pages of hugetlb that its entries map.
    pub hugetlb: i64,
    /// The first address at which a block maps the huge zero folio.
    pub huge_zero: Option<u64>,
    pub tables: Tables,
    /// Entries that may be of pages on their way.
    pub moving: u64,
    /// Entries of large folios that the kernel may not count page by page.
    pub not_one_by_one: u64,
}

/// The results on a process as a whole.
#[derive(Debug, Default)]
pub(crate) struct Whole {
    /// The sentences where a rule is broken.
    pub broken: Vec<String>,
    /// Parts that could not be judged.
    pub not_judged: Vec<String>,
    /// Parts that were left out.
    pub notes: Vec<String>,
}

/// A page that a judged process maps.
pub(crate) struct PageSeen<'a> {
    pub entries: &'a Entries,
    pub page: Page,
    pub va: u64,
    /// True if it is the first that is seen of its folio.
    pub is_first: bool,
    /// True if others may have entries that were not seen.
    pub incomplete: bool,
}

/// Result of a rule for such a folio.
pub(crate) enum Unheld {
    /// The rule holds, or asks nothing of it.
    Right,
    /// The sentence of an error.
    Wrong(String),
    /// The reason why it was not judged.
    NotJudged(String),
}

/// How often the judged processes map each page frame.
pub(crate) struct ByLock {
    /// In VMAs with `VM_LOCKED`.
    pub locked: Cover,
    /// In others.
    pub open: Cover,
}

/// A folio that nothing but entries, the page cache and the swap cache holds.
pub(crate) struct UnheldSeen<'a> {
    pub entries: &'a Entries,
    pub folios: &'a dyn Folios,
    pub page: Page,
    pub va: u64,
    /// Reason why other address spaces may have entries that were not seen; `None` if there is none.
    pub incomplete: Option<&'a str>,
    /// Entries of the judged processes by whether their VMA is locked; `None` where a VMA does not say so.
    pub by_lock: Option<&'a ByLock>,
    /// True if any folio of the judged processes is charged to a memory cgroup: the kernel does that then.
    pub charges: bool,
    /// The words of a page frame, where it was saved.
    pub words: &'a dyn Fn(u64) -> Option<&'a [u64]>,
    /// Returns whether any address space maps one of these page frames by a dirty entry.
    pub has_dirty_entry: &'a dyn Fn(&Range<u64>) -> bool,
    /// Returns whether any address space maps one of these page frames by a writable entry.
    pub has_writable_entry: &'a dyn Fn(&Range<u64>) -> bool,
}

/// A page that no other mapping ever had, if it is anonymous.
pub(crate) struct ExclusiveSeen {
    /// The page; where a block maps it, the first one of its folio, which has the flags of all.
    pub page: Page,
    pub va: u64,
}

/// Folios that count mappings and that no table was seen to map.
pub(crate) struct UnmappedSeen<'a> {
    pub entries: &'a Entries,
    pub all: &'a [Unmapped],
    pub folios: &'a dyn Folios,
    pub page_size: u64,
    /// The physical addresses of the judged processes' first tables.
    pub roots: &'a [u64],
    /// Returns whether a rule reports an error in an entry of this process there.
    pub is_broken: &'a dyn Fn(usize, &Range<u64>) -> bool,
}

/// The results on these.
#[derive(Debug, Default)]
pub(crate) struct UnmappedFound {
    /// Which process may map it, at which address (0 where that is not known), and the sentence.
    pub broken: Vec<(usize, u64, String)>,
    /// The reasons that others may be mapped all the same.
    pub open: Vec<String>,
}

/// The kernel's counters of all memory, and what there is of it.
pub(crate) struct CountedSeen<'a> {
    pub counted: &'a Counted,
    pub mapped: &'a AllMapped,
    /// The reason if an address space with swap entries may not have been walked.
    pub unlisted: Option<&'a str>,
    /// All pages, where counters can be held to them.
    pub census: Option<&'a Census>,
    pub folios: &'a dyn Folios,
    pub release: Option<Release>,
    /// Entries that may be of pages on their way.
    pub moving: u64,
}

/// The results on the kernel's counters.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// The sentences where a rule is broken.
    pub wrong: Vec<String>,
    /// Parts that could not be judged.
    pub not_judged: Vec<String>,
    /// How many of these are counts above what was seen.
    pub uncounted: u64,
    /// Parts not judged as their lock was held.
    pub locked: Vec<String>,
    /// Parts that were left out.
    pub notes: Vec<String>,
}

/// The kernel half around a group.
pub(crate) struct KernelSeen<'a> {
    pub layout: &'a KernelLayout,
    /// Physical addresses of the image, where they are known.
    pub image: Option<&'a Range<u64>>,
}
