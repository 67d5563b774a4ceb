// SPDX-License-Identifier: GPL-2.0-only
//! Made-up instants.

use std::collections::BTreeMap;

use linux::counted::{Events, FOLIO_SPLIT, NAMES};
use linux::folio::{Kind as Memory, NoPage, Page};
use linux::order::{OrderRecord, OrderRecords, Path, Policy, Reason, ORDERS};
use linux::pte::{bits, Pte};
use linux::structures::NotKnown;
use linux::vma::parse_smaps;
use verdict::Folios;

use crate::{diff, Diff, Entry, Frames, Space, View, Who};

/// 4K pages.
pub const PAGE: u64 = 4096;
/// Where the process has its memory, and a first frame.
pub const VA: u64 = 0xffff_f7c0_0000;
pub const FRAME: u64 = 0x4_1000;
/// A writable page of a process: young, user, not global, not executable; and one that was written to.
pub const CLEAN: u64 =
    3 | bits::USER | bits::RDONLY | bits::AF | bits::NG | bits::WRITE | bits::PXN | bits::UXN;
pub const DIRTY: u64 = CLEAN & !bits::RDONLY;
/// Permission that its writer has lost by a fork.
pub const SHARED: u64 = (CLEAN & !bits::WRITE) | bits::DIRTY;

/// Folios by page frame number.
#[derive(Clone, Debug, Default)]
pub struct Pages(BTreeMap<u64, Page>);

impl Folios for Pages {
    fn page(&self, pfn: u64) -> Result<Page, NoPage> {
        let page = self.0.get(&pfn).copied();
        page.ok_or_else(|| NoPage::Unreadable("it is not in this test".into()))
    }

    fn charged(&self, _: &Page) -> Option<bool> {
        None
    }

    fn batched(&self, _: &Page) -> Result<u64, NotKnown> {
        Ok(0)
    }
}

/// One instant of one process.
#[derive(Clone, Debug)]
pub struct Instant {
    pub who: Who,
    pub entries: Vec<Entry>,
    pub pages: Option<Pages>,
    pub vmas: String,
    pub records: Option<OrderRecords>,
    /// Pages that other processes map.
    pub others: Vec<Entry>,
    /// True if other processes may map more.
    pub incomplete: bool,
    /// True if all processes are known by name.
    pub all: bool,
    /// The kernel's counters.
    pub events: Option<Events>,
    /// Its faults, where they are known.
    pub faults: Option<u64>,
    /// The address of its `struct mm_struct`.
    pub mm: u64,
}

impl Instant {
    pub fn new() -> Self {
        Self {
            who: Who {
                pid: 44,
                name: "mine".into(),
                started_ns: Some(1_250_000_000),
            },
            entries: Vec::new(),
            pages: Some(Pages::default()),
            vmas: vma(VA, VA + 0x40_0000, "rw-p", "rd wr mr mw me ac"),
            records: None,
            others: Vec::new(),
            incomplete: false,
            all: true,
            events: Some(Events(
                NAMES
                    .into_iter()
                    .chain([FOLIO_SPLIT])
                    .map(|name| (name.to_owned(), 1000))
                    .collect(),
            )),
            faults: None,
            mm: 1,
        }
        .fault(0, 0)
        .of_another()
    }

    /// The newest record is of another process.
    pub fn of_another(mut self) -> Self {
        let records = self.records.iter_mut().flat_map(|all| &mut all.records);
        if let Some(record) = records.last() {
            (record.tgid, record.mm) = (45, 2);
        }
        self
    }

    /// The kernel has counted so many more.
    pub fn counted(mut self, name: &str, more: u64) -> Self {
        let events = self.events.iter_mut();
        *events.flat_map(|all| all.0.get_mut(name)).next().unwrap() += more;
        self
    }

    /// It has had so many faults.
    pub fn faults(self, faults: u64) -> Self {
        Self {
            faults: Some(faults),
            ..self
        }
    }

    /// There is no record.
    pub fn unrecorded(self) -> Self {
        Self {
            records: None,
            ..self
        }
    }

    /// An anonymous folio of this order from page `at` on, mapped by these bits.
    pub fn folio(mut self, at: u64, frame: u64, order: u8, word: u64) -> Self {
        for page in 0..1 << order {
            self = self.page(at + page, frame + page, word);
            let index = VA / PAGE + at;
            self.tell(frame + page, |it| {
                (it.head, it.order, it.index) = (frame, order, index);
            });
        }
        self
    }

    /// A page of an anonymous folio of its own.
    pub fn page(mut self, at: u64, frame: u64, word: u64) -> Self {
        self.entry(entry(at, frame, word));
        let page = Page {
            pfn: frame,
            head: frame,
            order: 0,
            flags: 0,
            folio_flags: 0,
            refcount: 1,
            mapcount: Some(1),
            entire: 0,
            large: None,
            kind_of_page: None,
            hugetlb: false,
            kind: Memory::Anonymous,
            mapping: 0xffff_0000_0000_1000,
            index: VA / PAGE + at,
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
        if let Some(pages) = self.pages.as_mut().filter(|_| !Pte(word).special()) {
            pages.0.insert(frame, page);
        }
        self
    }

    /// An entry that maps nothing.
    pub fn word(mut self, at: u64, word: u64) -> Self {
        self.entry(Entry {
            frame: 0,
            ..entry(at, 0, word)
        });
        self
    }

    pub fn entry(&mut self, entry: Entry) {
        self.entries.push(entry);
        self.entries.sort_by_key(|entry| entry.va);
    }

    /// Changes a page.
    pub fn tell(&mut self, frame: u64, change: impl FnOnce(&mut Page)) {
        if let Some(page) = self.pages.as_mut().and_then(|all| all.0.get_mut(&frame)) {
            change(page);
        }
    }

    pub fn with(mut self, frame: u64, change: impl FnOnce(&mut Page)) -> Self {
        self.tell(frame, change);
        self
    }

    /// Another process maps this one.
    pub fn elsewhere(mut self, frame: u64) -> Self {
        self.others.push(entry(0, frame, SHARED));
        self
    }

    /// And perhaps others map more.
    pub fn incomplete(self) -> Self {
        Self {
            incomplete: true,
            ..self
        }
    }

    /// The pages of another instant are known here, and not mapped.
    pub fn knowing(mut self, other: &Instant) -> Self {
        let pages = other.pages.clone().unwrap_or_default();
        self.pages.get_or_insert_default().0.extend(pages.0);
        self
    }

    /// The kernel's record of one more fault.
    pub fn fault(mut self, at: u64, order: u8) -> Self {
        let records = self.records.get_or_insert_default();
        let seq = records.records.len() as u64 + 1;
        records.records.push(OrderRecord {
            seq,
            cpu: 0,
            time_ns: seq,
            address: VA + at * PAGE,
            vm_start: VA,
            vm_end: VA + 0x40_0000,
            mm: 1,
            tgid: 44,
            tid: 44,
            policy: Policy::Variable,
            preferred: Some(4),
            chosen: Some(order),
            hinted: true,
            userfaultfd: false,
            reasons: [Reason::NotConsidered; ORDERS],
            path: Path::Anonymous,
            pfn: None,
            allowed: None,
            overlap: None,
            adapted: None,
            free: None,
        });
        self
    }

    fn view(&self) -> View<'_> {
        let mut mapped = Frames::default();
        mapped.add(&self.entries, PAGE);
        mapped.add(&self.others, PAGE);
        View {
            kernel: Some("6.12.117".into()),
            page_size: PAGE,
            spaces: vec![Space {
                who: self.who.clone(),
                mm: Some(self.mm),
                faults: self.faults,
                entries: self.entries.clone(),
                problems: 0,
                vmas: parse_smaps(&self.vmas).map_err(|error| error.to_string()),
            }],
            listed: self.all.then(|| vec![self.who.clone()]),
            names: linux::absent::SwapTypes::OPEN,
            folios: match &self.pages {
                Some(pages) => Ok(pages),
                None => Err("nobody said".into()),
            },
            mapped: mapped.sorted(self.incomplete),
            records: self.records.clone().ok_or("there is none".into()),
            events: self.events.clone().ok_or("they are not known".into()),
        }
    }
}

/// Lines of smaps.
pub fn vma(start: u64, end: u64, permissions: &str, flags: &str) -> String {
    format!("{start:x}-{end:x} {permissions} 00000000 00:00 0 \nVmFlags: {flags} \n")
}

pub fn entry(at: u64, frame: u64, word: u64) -> Entry {
    let pte = Pte(word);
    Entry {
        va: VA + at * PAGE,
        size: PAGE,
        level: 3,
        word: word | if pte.present() { frame * PAGE } else { 0 },
        frame,
        young: pte.present() && pte.young(),
        dirty: pte.present() && pte.dirty(),
    }
}

pub fn compared(before: &Instant, after: &Instant) -> Diff {
    diff(&before.view(), &after.view(), None)
}

/// Each event in a word, with the pages from [`VA`] on that it is of.
pub fn told(before: &Instant, after: &Instant) -> Vec<String> {
    let diff = compared(before, after);
    assert_eq!(diff.notes, [""; 0]);
    let events = diff.processes.iter().flat_map(|process| &process.events);
    let page = |va: u64| va.wrapping_sub(VA) / PAGE;
    let line =
        |it: &crate::Event| format!("{} {}-{}", it.kind.name(), page(it.va.0), page(it.end.0));
    events.map(line).collect()
}

/// Returns the words of the only event.
pub fn detail(before: &Instant, after: &Instant) -> String {
    let diff = compared(before, after);
    let [process] = &diff.processes[..] else {
        panic!("{diff:?}")
    };
    let [event] = &process.events[..] else {
        panic!("{:?}", process.events)
    };
    event.detail.clone()
}
