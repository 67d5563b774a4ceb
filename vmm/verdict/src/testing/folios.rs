// SPDX-License-Identifier: GPL-2.0-only
//! The folios of a made-up kernel.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use linux::absent::SwapTypes;
use linux::counted::Known;
use linux::folio::{HugeZero, HugetlbUsage, Kind, NoPage, Numbering, Page, Rss, VmPages};
use linux::structures::NotKnown;
use linux::vma::parse_smaps;

use super::guest::{written, Guest, PA, VA};
use crate::{judge_counts, Everyone, Expected, Folios, ProcessVerdict, RuleId, Severity, Unmapped};

/// The `struct anon_vma` of the folios that it makes, and by which the reverse mapping finds their VMA.
pub const ANON_VMA: u64 = 0xffff_0000_0000_1000;

/// A kernel that knows the folios that a test gives it.
#[derive(Clone, Debug, Default)]
pub struct Kernel {
    pub pages: BTreeMap<u64, Page>,
    pub wild: BTreeMap<u64, String>,
    pub numbering: Vec<Numbering>,
    pub rss: Option<Rss>,
    pub tables_bytes: Option<i64>,
    pub vm_pages: Option<VmPages>,
    pub huge_zero: Option<HugeZero>,
    pub hugetlb: Option<HugetlbUsage>,
    pub kept: Vec<Range<u64>>,
    pub swap: SwapTypes,
    /// Folios that were found to count mappings, and not to be mapped.
    pub unmapped: Vec<Unmapped>,
    /// True if a task holds the lock of a table.
    pub table_locked: bool,
    /// True if a task holds the mmap_lock.
    pub changing: bool,
    /// It does not tell which pages are alike.
    pub one_by_one: bool,
    /// Which bits of a folio's flags `/proc/kpageflags` copies, to bits of the same number.
    pub copies: u64,
    /// Folios are charged to a memory cgroup, but for these, by their first page.
    pub charges: bool,
    pub uncharged: BTreeSet<u64>,
    /// References of batches of the LRU lists, by a folio's first page; `None` if they are not known.
    pub batched: Option<BTreeMap<u64, u64>>,
    /// True if all its files are written back; `None` if that is not known.
    pub written_back: Option<bool>,
    /// How many pages it has told to be alike.
    pub runs: Cell<u64>,
}

impl Folios for Kernel {
    fn page(&self, pfn: u64) -> Result<Page, NoPage> {
        match (self.pages.get(&pfn), self.wild.get(&pfn)) {
            (_, Some(why)) => Err(NoPage::Wild(why.clone())),
            (Some(page), _) => Ok(*page),
            _ => Err(NoPage::Unreadable(format!("no page frame 0x{pfn:x}"))),
        }
    }

    fn alike(&self, page: &Page, most: u64) -> u64 {
        let behind = (1..=most).map(|n| (page.nth_behind(n), self.page(page.pfn + n)));
        let alike = behind.take_while(|(expected, found)| found.as_ref() == Ok(expected));
        let alike = if self.one_by_one { 0 } else { alike.count() };
        self.runs.set(self.runs.get() + alike as u64);
        alike as u64
    }

    fn copied(&self, page: &Page) -> (u64, u64) {
        (self.copies, page.folio_flags & self.copies)
    }

    fn charged(&self, page: &Page) -> Option<bool> {
        Some(self.charges && !self.uncharged.contains(&page.head))
    }

    fn written_back(&self, _: &Page) -> Option<bool> {
        self.written_back
    }

    fn batched(&self, page: &Page) -> Result<u64, NotKnown> {
        let batched = self.batched.as_ref().ok_or("they were not read")?;
        Ok(batched.get(&page.head).copied().unwrap_or(0))
    }
}

impl Kernel {
    /// An anonymous folio, mapped once and whole, whose first page has this number.
    pub fn folio(&mut self, head: u64, order: u8, index: u64) {
        let pages = 1i64 << order;
        for pfn in head..head + pages as u64 {
            let page = Page {
                pfn,
                head,
                order,
                flags: 0,
                folio_flags: 0,
                refcount: pages,
                mapcount: Some(1),
                entire: 0,
                large: (order > 0).then_some(pages),
                kind_of_page: None,
                hugetlb: false,
                kind: Kind::Anonymous,
                mapping: ANON_VMA,
                index,
                exclusive: true,
                swapbacked: true,
                swapcache: false,
                slot: None,
                split: None,
                poisoned: false,
                on_lru: Some(true),
                unevictable: Some(false),
                mlocked: Some(false),
                migratable: None,
            };
            self.pages.insert(pfn, page);
        }
    }

    pub fn change(&mut self, pfn: u64, change: impl FnOnce(&mut Page)) {
        change(self.pages.get_mut(&pfn).unwrap());
    }
}

/// The first block folded, the second of single pages, each with its folios; all that the kernel says is right.
pub fn good(mut guest: Guest) -> Guest {
    let (page, members) = (guest.page, guest.members);
    let end = VA + 4 * guest.block;
    let smaps = format!("{VA:x}-{end:x} rw-p 00000000 00:00 0 \nVmFlags: rd wr mr mw me ac \n");
    guest.vmas = parse_smaps(&smaps).unwrap();
    guest.fold(0, written());
    guest.spread(1, written());
    let mut kernel = Kernel {
        batched: Some(BTreeMap::new()),
        ..Kernel::default()
    };
    let (first, number) = (PA / page, VA / page);
    kernel.folio(first, members.ilog2() as u8, number);
    for at in members..2 * members {
        kernel.folio(first + at, 0, number + at);
    }
    let (start, file) = (VA, number);
    kernel.numbering = vec![Numbering {
        start,
        end,
        file,
        anonymous: number,
        of: None,
        order_state: None,
        found_by: Some(Ok(vec![ANON_VMA])),
    }];
    let anonymous = 2 * members as i64;
    kernel.rss = Some(Rss {
        anonymous,
        ..Rss::default()
    });
    // Levels 1 to 3 without the first one, which is of level 1 with 64K.
    let levels = if page == 0x1_0000 { 2 } else { 3 };
    kernel.tables_bytes = Some(levels * page as i64);
    guest.kernel = Some(kernel);
    guest.assert_legal();
    guest
}

/// The same, whose two blocks nothing but entries and caches holds.
pub fn unheld() -> Guest {
    let mut guest = good(Guest::new());
    guest.expect(Expected::Unheld, VA, VA + 2 * guest.block);
    guest
}

impl Guest {
    pub fn kernel(&mut self) -> &mut Kernel {
        self.kernel.as_mut().unwrap()
    }

    pub fn first(&self) -> u64 {
        PA / self.page
    }

    /// The verdict with all counts held to the entries of this process.
    pub fn counted(&self, incomplete: Option<&str>) -> ProcessVerdict {
        let unmapped = &self.kernel.as_ref().unwrap().unmapped;
        self.counted_with(incomplete, Ok(unmapped.as_slice()))
    }

    /// The same, with these folios that no table maps, or why they are not known.
    pub fn counted_with(
        &self,
        incomplete: Option<&str>,
        unmapped: Known<&[Unmapped]>,
    ) -> ProcessVerdict {
        let mut verdicts = [self.judge()];
        let regime = self.regime();
        let tables = [regime.root.0];
        let folios = self.kernel.as_ref().unwrap();
        let everyone = Everyone {
            tables: &tables,
            incomplete,
            busy: None,
            unmapped,
        };
        judge_counts(
            self.tables.memory(),
            &[regime],
            everyone,
            folios,
            &mut verdicts,
        );
        let [verdict] = verdicts;
        verdict
    }
}

pub fn errors(verdict: &ProcessVerdict) -> Vec<RuleId> {
    let findings = verdict.findings.iter();
    let errors = findings.filter(|finding| finding.severity == Severity::Error);
    errors.map(|finding| finding.rule).collect()
}
