//! The folio behind each entry: what is asked of it, and what was seen of a process's.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use linux::folio::{Kind, NoPage, Numbering, Page, Rss};
use linux::pte::Pte;
use linux::vma::{Backing, Vma};

use crate::group::Group;
use crate::rules::{self, RuleId};
use crate::ProcessInput;

/// The pages of a guest at one instant, by page frame number.
pub trait Folios: fmt::Debug {
    /// One page, and its folio.
    ///
    /// # Errors
    /// Where it has none, or that makes no sense.
    fn page(&self, pfn: u64) -> Result<Page, NoPage>;
}

/// What the kernel's own structures say of a process, at the instant of its tables.
#[derive(Clone, Copy, Debug)]
pub struct Structures<'a> {
    /// All pages.
    pub folios: &'a dyn Folios,
    /// The numbering of its VMAs' pages, by address; `None` while somebody was changing them.
    pub numbering: Option<&'a [Numbering]>,
    /// What the kernel counts as mapped.
    pub rss: Option<Rss>,
}

/// What was seen of a process's folios.
#[derive(Debug, Default)]
pub(crate) struct FoliosSeen {
    /// Bytes that entries map, by their folios' order.
    pub orders: BTreeMap<u8, u64>,
    /// What its counters should say, of what they count.
    counted: Rss,
    /// Why the counters cannot be compared.
    uncounted: Option<String>,
    /// Entries whose page could not be read, and why the first could not.
    unread: u64,
    first: Option<String>,
}

/// One entry that maps memory, with its page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mapped<'g> {
    pub group: &'g Group<'g>,
    /// Its place in the group.
    pub at: usize,
    pub pte: Pte,
    /// Page frame number of its first page.
    pub pfn: u64,
    /// Pages that it maps.
    pub pages: u64,
    /// The first of them.
    pub page: Page,
}

impl Mapped<'_> {
    pub fn va(&self) -> u64 {
        self.group.va_of(self.at)
    }

    /// Memory of a driver's, or the huge zero page: in no mapping, and mapped without being counted.
    pub fn uncounted(&self) -> bool {
        self.pages > 1 && self.page.kind == Kind::Unowned && !self.page.hugetlb
    }
}

/// Whether entries of this VMA may map page frames as a driver likes, or the kernel's own.
pub(crate) fn of_frames(vma: &Vma) -> bool {
    vma.pfn_mapped() == Some(true) || vma.backing() == Backing::Special
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
    ) -> BTreeMap<u8, u64> {
        let mut orders = BTreeMap::new();
        let Ok(structures) = input.structures else {
            return orders;
        };
        let page_size = group.regime.granule.bytes();
        let numbering = structures.numbering.and_then(|all| {
            let at = all.partition_point(|it| it.end <= vma.start);
            all.get(at).filter(|it| it.start <= vma.start)
        });
        let mut broken: Vec<RuleId> = Vec::new();
        let mut once = |rule, range: Range<u64>, message| {
            if !broken.contains(&rule) {
                broken.push(rule);
                report(rule, range, message);
            }
        };
        for (at, pte) in group.present().filter(|(at, _)| members.contains(at)) {
            if pte.special() || pte.devmap() {
                continue;
            }
            let pfn = group.output(pte.0) / page_size;
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
                page,
            };
            *orders.entry(page.order).or_default() += group.step();
            self.count(&mapped, vma);
            if !sound {
                continue;
            }
            let end = mapped.va() + group.step();
            let mut told = |rule, message| once(rule, mapped.va()..end, message);
            rules::folio(&mapped, vma, numbering, &mut told);
        }
        for (order, bytes) in &orders {
            *self.orders.entry(*order).or_default() += bytes;
        }
        orders
    }

    fn no_page(
        &mut self,
        why: NoPage,
        group: &Group<'_>,
        at: usize,
        sound: bool,
        report: &mut dyn FnMut(RuleId, Range<u64>, String),
    ) {
        self.uncounted = Some("not every page that it maps could be read".into());
        match why {
            NoPage::Wild(why) if sound => {
                let va = group.va_of(at);
                let message = format!("the page that VA 0x{va:016x} maps is of no folio: {why}");
                report(RuleId::L2, va..va + group.step(), message);
            }
            NoPage::Unreadable(why) if sound => {
                self.unread += 1;
                self.first.get_or_insert(why);
            }
            // The rule that is broken has told of the entry.
            NoPage::Wild(_) | NoPage::Unreadable(_) => {}
        }
    }

    /// `mm_counter()`: what the kernel counts of an entry.
    fn count(&mut self, mapped: &Mapped<'_>, vma: &Vma) {
        if mapped.page.hugetlb || mapped.uncounted() || vma.hugetlb() == Some(true) {
            return;
        }
        let counter = match (mapped.page.kind.anonymous(), mapped.page.swapbacked) {
            (true, _) => &mut self.counted.anonymous,
            (false, true) => &mut self.counted.shmem,
            (false, false) => &mut self.counted.file,
        };
        *counter += mapped.pages as i64;
    }

    /// What is said of the process as a whole: what could not be read, and whether its counters are right. `swapped`
    /// entries lead to swap, `moving` ones to pages that are on their way.
    pub fn finish(
        &mut self,
        input: &ProcessInput<'_>,
        (swapped, moving): (u64, u64),
        any_broken: bool,
        report: &mut dyn FnMut(RuleId, String),
    ) -> Option<String> {
        let structures = input.structures.ok()?;
        let unread = (self.unread > 0).then(|| {
            let first = self.first.as_deref().unwrap_or_default();
            format!(
                "L2, L7 and L9 were not judged for {} entries whose page could not be read: {first}",
                self.unread
            )
        });
        // An entry that is wrong is told of by its own rule.
        if any_broken || moving > 0 || self.uncounted.is_some() {
            return unread;
        }
        self.counted.swapped = swapped as i64;
        if let Some(rss) = structures.rss {
            rules::l9::rss(rss, self.counted, report);
        }
        unread
    }
}
