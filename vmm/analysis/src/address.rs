// SPDX-License-Identifier: GPL-2.0-only
//! One address of a process: what is known of it beside its entry and its VMA.

use std::cell::OnceCell;

use linux::absent::SwapTypes;
use linux::folio::{Numbering, Page};
use linux::order::{OrderRecord, Path};
use linux::pte::Pte;
use linux::release::Release;
use report::frames::{Frame, Frames};
use snapshot::Snapshot;
use stage1::{lookup, Entry, Lookup, VirtualAddress};
use structures::tasks;
use verdict::{row_at, BlockRow, Finding, ProcessVerdict, Severity, VmaVerdict};

use evidence::{
    inside::{is_whole, Inside},
    Gathered, Subject,
};

use crate::frames::{frames, frames_kept};
use crate::{judge_process, Error, Sight};

/// A process, judged, of which single addresses are asked.
#[derive(Debug)]
pub struct Places<'s> {
    snapshot: &'s Snapshot,
    subject: &'s Subject<'s>,
    verdict: ProcessVerdict,
    names: SwapTypes,
    numbering: Vec<Numbering>,
    inside: OnceCell<Result<Inside, String>>,
    /// When the process was started, in nanoseconds since boot, where that is known.
    pub started_ns: Option<u64>,
}

/// The facts about an address.
#[derive(Debug)]
pub struct AddressInfo {
    /// Findings there.
    pub findings: Vec<Finding>,
    /// The block that it is in, in the VMA that it is in, as the rules see it; none where no VMA is known to be there.
    pub block: Option<BlockRow>,
    /// Meaning of its entry if that is neither valid nor empty.
    pub absent: Option<String>,
    /// The page that is there, its folio, and who else maps it; or why that is not known. None where there is no page. An entry
    /// that is not valid may have one: PROT_NONE, migration, hwpoison.
    pub frame: Option<Result<Frames, String>>,
    /// State that policy `adaptive` keeps for the VMA; `None` if the kernel keeps none, or its VMAs were not read.
    pub order_state: Option<u64>,
}

impl<'s> Places<'s> {
    /// Judges a snapshot's process.
    ///
    /// # Errors
    /// As [`judge_process`].
    pub fn new(snapshot: &'s Snapshot, subject: &'s Subject<'s>) -> Result<Self, Error> {
        let (mut verdict, _) = judge_process(snapshot, Some(subject.process.pid), &[])?;
        if let Some(sight) = Sight::of(&snapshot.notes) {
            sight.hold_process(&mut verdict);
        }
        let gathered = Gathered::of(snapshot).ok();
        let space = gathered.as_ref();
        let space = space.and_then(|gathered| gathered.space(subject.regime.root.0));
        let numbering = space.and_then(|space| space.numbering.clone());
        let started_ns = space.and_then(|space| space.started_ns);
        let mut places = Self {
            snapshot,
            subject,
            verdict,
            numbering: numbering.unwrap_or_default(),
            names: gathered.map_or(SwapTypes::OPEN, |gathered| gathered.swap),
            inside: OnceCell::new(),
            started_ns,
        };
        if places.started_ns.is_none() {
            places.started_ns = places.started();
        }
        Ok(places)
    }

    /// Returns the verdict of each VMA.
    #[must_use]
    pub fn vmas(&self) -> &[VmaVerdict] {
        &self.verdict.vmas
    }

    /// Returns the facts about one address.
    #[must_use]
    pub fn at(&self, va: u64) -> AddressInfo {
        let here =
            |it: &&Finding| it.severity == Severity::Error && (it.va.0..it.end.0).contains(&va);
        let mut numbering = self.numbering.iter();
        let numbering = numbering.find(|it| (it.start..it.end).contains(&va));
        AddressInfo {
            findings: self.verdict.findings.iter().filter(here).cloned().collect(),
            block: row_at(&self.verdict.vmas, va).cloned(),
            absent: self.absent(va),
            frame: self.frame(va),
            order_state: numbering.and_then(|it| it.order_state),
        }
    }

    /// The page that is there alone, as [`AddressInfo::frame`].
    fn frame(&self, va: u64) -> Option<Result<Frames, String>> {
        let pfn = page_frame(self.snapshot, self.subject, &self.names, va)?;
        if !is_whole(&self.snapshot.memory) {
            return Some(frames_kept(self.snapshot, &self.subject.regime, &[pfn]));
        }
        let (memory, cpus) = (&self.snapshot.memory, &self.snapshot.cpus);
        let found = self.inside().map_err(Clone::clone);
        Some(found.and_then(|inside| frames(inside, memory, cpus, &[pfn]).map_err(|why| why.why)))
    }

    /// Returns the meaning of the entry if that is neither valid nor empty.
    fn absent(&self, va: u64) -> Option<String> {
        let entry = not_mapped(self.snapshot, self.subject, va)?;
        let vma = self.subject.vmas.iter().find(|vma| vma.contains(va));
        let accessible = vma.map(|vma| {
            let allowed = vma.permissions;
            allowed.read || allowed.write || allowed.execute
        });
        self.names.name(Pte(entry.descriptor.word), accessible)
    }

    fn inside(&self) -> Result<&Inside, &String> {
        let (memory, cpus) = (&self.snapshot.memory, &self.snapshot.cpus);
        let find = || Inside::find(memory, cpus).map_err(|why| why.to_string());
        self.inside.get_or_init(find).as_ref()
    }

    /// When the process was started, by a memory that holds all of the kernel.
    fn started(&self) -> Option<u64> {
        let memory = &self.snapshot.memory;
        if !is_whole(memory) {
            return None;
        }
        let inside = self.inside().ok()?;
        let tasks = tasks::processes(&inside.kernel, inside.view(memory)).ok()?;
        let mut tasks = tasks.iter();
        let task = tasks.find(|task| task.tgid == self.subject.process.pid)?;
        Some(task.started_ns)
    }
}

impl AddressInfo {
    /// The page that is there alone, as [`AddressInfo::frame`].
    #[must_use]
    pub fn folio(
        snapshot: &Snapshot,
        subject: &Subject<'_>,
        va: u64,
    ) -> Option<Result<Frames, String>> {
        let pfn = page_frame(snapshot, subject, &SwapTypes::OPEN, va)?;
        if !is_whole(&snapshot.memory) {
            return Some(frames_kept(snapshot, &subject.regime, &[pfn]));
        }
        let inside = Inside::find(&snapshot.memory, &snapshot.cpus);
        let inside = inside.map_err(|why| why.to_string());
        let found = inside.and_then(|inside| {
            let found = frames(&inside, &snapshot.memory, &snapshot.cpus, &[pfn]);
            found.map_err(|why| why.why)
        });
        Some(found)
    }

    /// The page that is there, where it is known.
    #[must_use]
    pub fn page(&self) -> Option<&Frame> {
        let frames = self.frame.as_ref()?.as_ref().ok()?;
        frames.pages.first()
    }
}

/// The entry at an address of a Linux whose bits are known, where that is not valid.
fn not_mapped<'r>(snapshot: &Snapshot, subject: &'r Subject<'_>, va: u64) -> Option<Entry<'r>> {
    if !subject.release.is_some_and(Release::has_this_layout) {
        return None;
    }
    match lookup(&snapshot.memory, &subject.regime, VirtualAddress(va)) {
        Lookup::NotMapped { entry } => Some(entry),
        _ => None,
    }
}

/// The page frame at an address: of a valid entry, of one that is present for Linux alone, or of one that names its page.
fn page_frame(
    snapshot: &Snapshot,
    subject: &Subject<'_>,
    names: &SwapTypes,
    va: u64,
) -> Option<u64> {
    let (regime, page) = (&subject.regime, subject.regime.granule.bytes());
    if let Lookup::Mapped { pa, .. } = lookup(&snapshot.memory, regime, VirtualAddress(va)) {
        return Some(pa.0 / page);
    }
    let entry = not_mapped(snapshot, subject, va)?;
    let (level, pte) = (entry.descriptor.level, Pte(entry.descriptor.word));
    let within = va.wrapping_sub(entry.va.0) / page;
    if pte.present_invalid() {
        return Some(regime.output_address(level, pte.0).0 / page + within);
    }
    Some(names.page_frame(pte)? + within)
}

/// Returns whether the folio at `va` may be the one that a record speaks of: one of that order at that place, anonymous or a file's as
/// the record's path has it, and where the record names the page frame, at that one.
#[must_use]
pub fn may_be_of(record: &OrderRecord, page: &Page, va: u64, page_size: u64) -> bool {
    let start = (va / page_size)
        .checked_sub(page.subpage())
        .map(|first| first * page_size);
    let folio = record.folio(page_size).map(|(start, _)| start);
    let is_there = record.pfn.is_none_or(|pfn| pfn == page.head);
    let is_kind = page.kind.anonymous() != (record.path == Path::Shmem);
    is_kind && record.chosen == Some(page.order) && start == folio && is_there
}
