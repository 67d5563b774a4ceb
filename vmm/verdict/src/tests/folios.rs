//! Rules that ask the folio behind an entry, on made-up folios.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;

use linux::absent::SwapTypes;
use linux::counted::{Known, NotRead};
use linux::folio::{HugetlbUsage, Kind, NoPage, Numbering, Page, Rss, Type};
use linux::vma::parse_smaps;
use stage1::testing::{Layout, TableBuilder};
use stage1::{Granule, Half};

use super::guest::*;
use crate::{judge_counts, Everyone, Folios, MayBe, ProcessVerdict, RuleId, Severity, Unmapped};

mod entries;
pub mod files;
mod unmapped;

/// A kernel that knows the folios that a test gives it.
#[derive(Debug, Default)]
pub struct Kernel {
    pub pages: BTreeMap<u64, Page>,
    pub wild: BTreeMap<u64, String>,
    pub numbering: Vec<Numbering>,
    pub rss: Option<Rss>,
    pub tables_bytes: Option<i64>,
    pub hugetlb: Option<HugetlbUsage>,
    pub kept: Vec<Range<u64>>,
    pub swap: SwapTypes,
    /// Folios that were found to count mappings, and not to be mapped.
    pub unmapped: Vec<Unmapped>,
    /// Somebody holds the lock of a table.
    pub table_locked: bool,
    /// Somebody holds the mmap_lock.
    pub changing: bool,
    /// It does not tell which pages are alike.
    pub one_by_one: bool,
    /// Which bits of a folio's flags `/proc/kpageflags` copies, to bits of the same number.
    pub copies: u64,
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
                mapping: 0xffff_0000_0000_1000,
                index,
                exclusive: true,
                swapbacked: true,
                swapcache: false,
                slot: None,
                split: None,
                poisoned: false,
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
    let mut kernel = Kernel::default();
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

#[test]
fn l2_a_group_of_two_folios() {
    for guest in Guest::all() {
        let mut guest = good(guest);
        let (half, first, number) = (guest.members / 2, guest.first(), VA / guest.page);
        let order = half.ilog2() as u8;
        guest.kernel().folio(first, order, number);
        guest.kernel().folio(first + half, order, number + half);
        assert_eq!(guest.errors(), [RuleId::L2]);
        // The same without the bit is legal, and the block cannot be folded.
        for at in 0..guest.members {
            guest.change(at, |word| word & !CONT);
        }
        guest.assert_legal();
        let row = &guest.judge().vmas[0].rows[0];
        let reason = row.reason.as_ref().unwrap().text();
        assert_eq!(
            reason,
            format!("a folio of order {order} ends before page {half}")
        );
    }
}

#[test]
fn l2_a_page_whose_head_is_nowhere() {
    let mut guest = good(Guest::new());
    let pfn = guest.first() + 3;
    guest
        .kernel()
        .wild
        .insert(pfn, "its compound_head is 0x1".into());
    assert_eq!(guest.errors(), [RuleId::L2]);
}

#[test]
fn what_cannot_be_read_is_not_judged() {
    let mut guest = good(Guest::new());
    let pfn = guest.first() + guest.members;
    guest.kernel().pages.remove(&pfn);
    guest.kernel().rss = Some(Rss::default());
    let verdict = guest.judge();
    assert_eq!(errors(&verdict), []);
    assert!(
        verdict.not_judged[0].reason.contains("1 entries"),
        "{:?}",
        verdict.not_judged
    );
}

#[test]
fn what_is_left_out_is_noted() {
    let mut guest = good(Guest::new());
    assert!(guest.judge().notes.is_empty(), "{:?}", guest.judge().notes);
    // Pages on their way, counts that a kernel may not keep, VMAs without VmFlags.
    guest.change(20, |_| 27 << 6 | 5 << 12);
    let pfn = guest.first();
    guest.kernel().change(pfn, |page| page.mapcount = None);
    for vma in &mut guest.vmas {
        vma.flags = None;
    }
    let verdict = guest.judge();
    let lacks = verdict.lacks.into_iter().map(|lack| lack.reason);
    let notes: Vec<String> = verdict.notes.into_iter().chain(lacks).collect();
    for part in [
        "1 of its entries",
        "for 1 entries of large folios",
        "VmFlags",
    ] {
        assert!(
            notes.iter().any(|note| note.contains(part)),
            "{part}: {notes:?}"
        );
    }
}

#[test]
fn l7_a_page_of_another_place() {
    for guest in Guest::all() {
        let mut guest = good(guest);
        let pfn = guest.first() + guest.members + 1;
        guest.kernel().change(pfn, |page| page.index += 1);
        assert_eq!(guest.errors(), [RuleId::L7]);
        // KSM's pages have the number of one place of many.
        guest.kernel().change(pfn, |page| page.kind = Kind::Ksm);
        guest.change(guest.members + 1, |word| word & !WRITE | RDONLY);
        guest.assert_legal();
    }
    // By the VMA's numbering, not by the address.
    let mut guest = good(Guest::new());
    guest.kernel().numbering[0].anonymous += 16;
    assert!(guest.errors().iter().all(|rule| *rule == RuleId::L7));
    guest.kernel().numbering.clear();
    let verdict = guest.judge();
    assert_eq!(errors(&verdict), []);
    assert!(
        verdict.not_judged[0].reason.starts_with("L7"),
        "{:?}",
        verdict.not_judged
    );
}

#[test]
fn l7_a_file_s_page_in_anonymous_memory() {
    let mut guest = good(Guest::new());
    let pfn = guest.first() + guest.members;
    guest.kernel().change(pfn, |page| page.kind = Kind::File);
    assert_eq!(guest.errors(), [RuleId::L7]);
}

#[test]
fn l8_a_writable_page_that_is_not_exclusive() {
    for guest in Guest::all() {
        let mut guest = good(guest);
        let pfn = guest.first() + guest.members;
        guest.kernel().change(pfn, |page| page.exclusive = false);
        assert_eq!(guest.errors(), [RuleId::L8]);
        guest.change(guest.members, |word| word & !WRITE | RDONLY);
        guest.assert_legal();
    }
}

#[test]
fn l9_a_page_that_is_free() {
    let mut guest = good(Guest::new());
    let pfn = guest.first() + guest.members;
    guest.kernel().change(pfn, |page| page.refcount = 0);
    assert_eq!(guest.errors(), [RuleId::L9]);
    guest.kernel().change(pfn, |page| {
        page.refcount = 1;
        page.kind_of_page = Some(Type::Buddy);
        page.mapcount = None;
    });
    assert_eq!(guest.errors(), [RuleId::L9]);
    assert!(guest.judge().findings[0].message.contains("buddy"));
}

#[test]
fn l9_counters_of_a_process() {
    let mut guest = good(Guest::new());
    guest.kernel().rss = Some(Rss {
        anonymous: 31,
        ..Rss::default()
    });
    assert_eq!(guest.errors(), [RuleId::L9]);
    let message = &guest.judge().findings[0].message;
    assert!(message.contains("anonymous 31, entries 32"), "{message}");
    // As migration does between clearing an entry and setting the one that says so.
    guest.kernel().table_locked = true;
    let verdict = guest.judge();
    assert_eq!(errors(&verdict), []);
    let said = &verdict.not_judged[0].reason;
    assert!(said.contains("the lock of one of its tables"), "{said}");
    guest.kernel().table_locked = false;
    // What is swapped out counts as well, and a page on its way as nothing that is known.
    guest.change(20, |_| 2 << 6);
    guest.kernel().rss = Some(Rss {
        anonymous: 31,
        swapped: 1,
        ..Rss::default()
    });
    guest.assert_legal();
}

#[test]
fn l9_counts_and_entries() {
    for guest in Guest::all() {
        let mut guest = good(guest);
        assert_eq!(errors(&guest.counted(None)), []);
        let pfn = guest.first() + guest.members;
        // An entry that nobody counted.
        guest.kernel().change(pfn, |page| page.mapcount = Some(0));
        assert_eq!(errors(&guest.counted(None)), [RuleId::L9]);
        guest.kernel().change(pfn, |page| page.mapcount = Some(1));
        // The folio's own count is one short, and once told of the folio.
        let pages = guest.members as i64;
        for at in 0..guest.members {
            let pfn = guest.first() + at;
            guest
                .kernel()
                .change(pfn, |page| page.large = Some(pages - 1));
        }
        let verdict = guest.counted(None);
        assert_eq!(errors(&verdict), [RuleId::L9]);
        assert_eq!(verdict.vmas[0].rows[0].rules, [RuleId::L9]);
    }
}

#[test]
fn l9_a_count_without_an_entry_needs_all_processes() {
    let mut guest = good(Guest::new());
    let pfn = guest.first() + guest.members;
    guest.kernel().change(pfn, |page| page.mapcount = Some(2));
    assert_eq!(errors(&guest.counted(None)), [RuleId::L9]);
    let verdict = guest.counted(Some("one was not read"));
    assert_eq!(errors(&verdict), []);
    assert!(verdict.not_judged[0].reason.contains("one was not read"));
    // Somebody else has it, too.
    guest.change(guest.members, |word| word & !WRITE | RDONLY);
    guest.kernel().change(pfn, |page| {
        (page.refcount, page.exclusive) = (2, false);
    });
    let mut other = Guest::new();
    other.tables = TableBuilder::at(Layout::new(Granule::K4, Half::Lower, 48), 0x9000_0000);
    let pa = PA + guest.block;
    other.tables.map_page(VA, pa, read_only(), false);
    let (regime, theirs) = (guest.regime(), other.regime().root.0);
    let mut verdicts = [guest.judge()];
    guest.kernel().change(pfn, |page| page.mapcount = Some(1));
    let once = guest.judge();
    guest.kernel().change(pfn, |page| page.mapcount = Some(2));
    let mut memory = guest.tables.into_memory();
    memory.merge(other.tables.into_memory());
    let tables = [regime.root.0, theirs];
    let everyone = Everyone {
        tables: &tables,
        incomplete: None,
        busy: None,
        unmapped: Ok(&[]),
    };
    let kernel = guest.kernel.as_ref().unwrap();
    judge_counts(&memory, &[regime], everyone.clone(), kernel, &mut verdicts);
    assert_eq!(errors(&verdicts[0]), []);
    // Nobody counted that.
    guest
        .kernel
        .as_mut()
        .unwrap()
        .change(pfn, |page| page.mapcount = Some(1));
    let mut verdicts = [once];
    let kernel = guest.kernel.as_ref().unwrap();
    judge_counts(&memory, &[regime], everyone, kernel, &mut verdicts);
    assert_eq!(errors(&verdicts[0]), [RuleId::L9]);
}
