// SPDX-License-Identifier: GPL-2.0-only
//! The folio behind each entry: what is asked of it, and what was seen of a process's.

mod whole;

use std::collections::BTreeMap;
use std::ops::Range;

use linux::counted::NotRead;
use linux::folio::{Kind, NoPage, Rss};
use linux::pte::Pte;
use linux::vma::Vma;
use stage1::Level;

use crate::group::Group;
use crate::mapped::{Mapped, Orders};
use crate::page_tables::Tables;
use crate::rules::checks::{Checks, CHECKS};
use crate::rules::NO_FOLIO;
use crate::{Lack, ProcessInput, RuleId};

/// The folios seen of a process.
#[derive(Debug)]
pub(crate) struct FoliosSeen {
    checks: &'static Checks,
    /// Bytes that entries map, by their folios' order.
    pub orders: BTreeMap<u8, u64>,
    /// The values that its counters should have.
    counted: Rss,
    /// Pages that its entries map of hugetlb, which those do not count.
    hugetlb: i64,
    /// The first address at which a block maps the huge zero folio.
    huge_zero: Option<u64>,
    /// The value that its count of page tables should have.
    pub tables: Tables,
    /// A VMA with entries is not among those whose numbering is known.
    unnumbered: bool,
    /// Reason why the trees in which the reverse mapping finds a VMA with entries are not known, of the first such VMA.
    unfound: Option<NotRead>,
    /// Pages of large folios that the kernel may not count one by one.
    not_one_by_one: u64,
    /// Page frames that are folios of one page, mapped once by their own count, and not in the swap cache: anonymous
    /// ones, those of shmem, of files, and others.
    pub once: [Vec<Range<u64>>; 4],
    /// Page frames of which CPUs keep none: those around the last that was asked for.
    not_kept: Range<u64>,
    /// Inputs of rules that are missing for good.
    pub lacks: Vec<Lack>,
    /// Entries whose page could not be read, and why the first could not.
    unread: u64,
    first: Option<String>,
}

impl Default for FoliosSeen {
    fn default() -> Self {
        FoliosSeen {
            checks: &CHECKS,
            orders: BTreeMap::new(),
            counted: Rss::default(),
            hugetlb: 0,
            huge_zero: None,
            tables: Tables::default(),
            unnumbered: false,
            unfound: None,
            not_one_by_one: 0,
            once: Default::default(),
            not_kept: 0..0,
            lacks: Vec::new(),
            unread: 0,
            first: None,
        }
    }
}

impl FoliosSeen {
    /// Looks at the members of a group that belong to `vma`; what is broken goes to `report`, each rule once. Where the
    /// group is `sound` no other rule is broken.
    pub fn group(
        &mut self,
        input: &ProcessInput<'_>,
        group: &Group<'_>,
        (members, vma): (Range<usize>, &Vma),
        sound: bool,
        report: &mut dyn FnMut(RuleId, Range<u64>, String),
    ) -> Orders {
        let mut orders = Orders::default();
        let Ok(structures) = input.structures else {
            return orders;
        };
        let page_size = group.regime.granule.bytes();
        let numbering = structures.numbering.and_then(|all| {
            let at = all.partition_point(|it| it.end <= vma.start);
            all.get(at).filter(|it| it.start <= vma.start)
        });
        self.unnumbered |= structures.numbering.is_some() && numbering.is_none();
        if let (Some(numbering), None) = (numbering, &self.unfound) {
            self.unfound = match &numbering.found_by {
                Some(found_by) => found_by.as_ref().err().cloned(),
                None => Some(NotRead {
                    why: "the snapshot is of a version that did not read the reverse mapping"
                        .into(),
                    later: false,
                    not_built: false,
                }),
            };
        }
        let mut broken: Vec<RuleId> = Vec::new();
        let mut once = |rule, range: Range<u64>, message| {
            if !broken.contains(&rule) {
                broken.push(rule);
                report(rule, range, message);
            }
        };
        let mut next = members.start;
        while next < members.end {
            let at = next;
            next += 1;
            let pte = Pte(group.words[at]);
            if !group.is_present(pte) {
                continue;
            }
            let block = group.level == Level::L2;
            let pfn = group.output(pte.0) / page_size;
            // Kernels differ in whether such an entry is special.
            if block && structures.huge_zero.is_some_and(|it| it.pfn == pfn) {
                self.huge_zero.get_or_insert(group.va_of(at));
            }
            if pte.special() || pte.devmap() {
                if block {
                    self.tables.block(vma, None);
                }
                continue;
            }
            let pages = group.step() / page_size;
            let page = match structures.folios.page(pfn) {
                Ok(page) => page,
                Err(why) => {
                    self.no_page(why, group, at, sound, &mut once);
                    continue;
                }
            };
            let mapped = Mapped {
                group,
                at,
                pte,
                pfn,
                pages,
                page: &page,
                kept: self.kept(structures.kept, pfn),
            };
            let mut silent = true;
            if sound {
                let end = mapped.va() + group.step();
                let mut told = |rule, message| {
                    silent = false;
                    once(rule, mapped.va()..end, message);
                };
                self.checks.entry(&mapped, vma, numbering, &mut told);
            }
            if silent {
                let until = at + self.checks.alike(&mapped, numbering, members.end - at);
                next += mapped.alike(until, structures.folios);
            }
            let entries = (next - at) as u64;
            orders.add(page.order, group.step() * entries);
            if page.order == 0 && page.mapcount == Some(1) && page.slot.is_none() {
                let end = pfn + entries;
                let of_kind = match page.kind {
                    kind if kind.anonymous() => &mut self.once[0],
                    Kind::File if page.shmem() => &mut self.once[1],
                    Kind::File => &mut self.once[2],
                    _ => &mut self.once[3],
                };
                match of_kind.last_mut().filter(|once| once.end == pfn) {
                    Some(once) => once.end = end,
                    None => of_kind.push(pfn..end),
                }
            }
            let single = page.mapcount.is_none() && !page.hugetlb && page.kind_of_page.is_none();
            self.not_one_by_one += if single { entries } else { 0 };
            self.count(&mapped, entries, vma);
            if block {
                self.tables.block(vma, Some(&page));
            }
        }
        orders.add_to(&mut self.orders);
        orders
    }

    /// The first page frame from `pfn` on that is in one of these ranges.
    fn kept(&mut self, kept: &[Range<u64>], pfn: u64) -> u64 {
        if !self.not_kept.contains(&pfn) {
            let next = kept.partition_point(|range| range.end <= pfn);
            let start = next.checked_sub(1).map_or(0, |before| kept[before].end);
            let end = kept.get(next).map_or(u64::MAX, |range| range.start);
            if end <= pfn {
                return pfn;
            }
            self.not_kept = start..end;
        }
        self.not_kept.end
    }

    fn no_page(
        &mut self,
        why: NoPage,
        group: &Group<'_>,
        at: usize,
        sound: bool,
        report: &mut dyn FnMut(RuleId, Range<u64>, String),
    ) {
        match why {
            NoPage::Wild(why) if sound => {
                let va = group.va_of(at);
                let message = format!("the page that VA 0x{va:016x} maps is of no folio: {why}");
                report((&NO_FOLIO).into(), va..va + group.step(), message);
            }
            NoPage::Unreadable(why) if sound => {
                self.unread += 1;
                self.first.get_or_insert(why);
            }
            // The rule that is broken has told of the entry.
            NoPage::Wild(_) | NoPage::Unreadable(_) => {}
        }
    }

    /// `mm_counter()`: what the kernel counts of so many entries like this one.
    fn count(&mut self, mapped: &Mapped<'_>, entries: u64, vma: &Vma) {
        let pages = (mapped.pages * entries) as i64;
        if mapped.page.hugetlb {
            self.hugetlb += pages;
            return;
        }
        if mapped.uncounted() || vma.hugetlb() == Some(true) {
            return;
        }
        let counter = match (mapped.page.kind.anonymous(), mapped.page.swapbacked) {
            (true, _) => &mut self.counted.anonymous,
            (false, true) => &mut self.counted.shmem,
            (false, false) => &mut self.counted.file,
        };
        *counter += pages;
    }
}
