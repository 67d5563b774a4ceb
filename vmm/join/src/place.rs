//! One address of a process: what is known of it beside its entry and its VMA.

use linux::folio::Page;
use linux::order::{OrderRecord, Path};
use snapshot::Snapshot;
use stage1::{lookup, Lookup, VirtualAddress};
use structures::tasks;
use verdict::frames::{Frame, Frames};
use verdict::{BlockRow, Finding, Severity};

use crate::frames::{frames, frames_kept};
use crate::inside::{is_whole, Inside};
use crate::{judge_process, Error, Gathered, Sight, Subject};

/// What is known of an address.
#[derive(Debug)]
pub struct Place {
    /// When the process was started, in nanoseconds since boot, where that is known.
    pub started_ns: Option<u64>,
    /// What is wrong there.
    pub findings: Vec<Finding>,
    /// The block that it is in, as the rules see it; none where no VMA is known to be there.
    pub block: Option<BlockRow>,
    /// The page that is mapped there, its folio, and who else maps it; or why that is not known. None where nothing is
    /// mapped.
    pub frame: Option<Result<Frames, String>>,
}

impl Place {
    /// Of an address of a snapshot's process.
    ///
    /// # Errors
    /// As [`judge_process`].
    pub fn of(snapshot: &Snapshot, subject: &Subject<'_>, va: u64) -> Result<Self, Error> {
        let (mut verdict, _) = judge_process(snapshot, Some(subject.process.pid), &[])?;
        if let Some(sight) = Sight::of(&snapshot.notes) {
            sight.hold_process(&mut verdict);
        }
        let mut findings = verdict.findings;
        findings.retain(|it| it.severity == Severity::Error && (it.va.0..it.end.0).contains(&va));
        let rows = verdict.vmas.into_iter().flat_map(|vma| vma.rows);
        let block = rows
            .into_iter()
            .find(|row| (row.va.0..row.end.0).contains(&va));
        Ok(Self {
            started_ns: started(snapshot, subject),
            findings,
            block,
            frame: Self::folio(snapshot, subject, va),
        })
    }

    /// The page that is mapped there alone, as [`Place::frame`].
    #[must_use]
    pub fn folio(
        snapshot: &Snapshot,
        subject: &Subject<'_>,
        va: u64,
    ) -> Option<Result<Frames, String>> {
        let page_size = subject.regime.granule.bytes();
        match lookup(&snapshot.memory, &subject.regime, VirtualAddress(va)) {
            Lookup::Mapped { pa, .. } => Some(page(snapshot, subject, pa.0 / page_size)),
            _ => None,
        }
    }

    /// The page that is mapped, where it is known.
    #[must_use]
    pub fn page(&self) -> Option<&Frame> {
        let frames = self.frame.as_ref()?.as_ref().ok()?;
        frames.pages.first()
    }
}

/// When the process was started.
fn started(snapshot: &Snapshot, subject: &Subject<'_>) -> Option<u64> {
    let (memory, cpus) = (&snapshot.memory, &snapshot.cpus);
    if !is_whole(memory) {
        let gathered = Gathered::of(snapshot).ok()?;
        return gathered.space(subject.regime.root.0)?.started_ns;
    }
    let inside = Inside::find(memory, cpus).ok()?;
    let tasks = tasks::processes(&inside.kernel, inside.view(memory)).ok()?;
    let mut tasks = tasks.iter();
    let task = tasks.find(|task| task.tgid == subject.process.pid)?;
    Some(task.started_ns)
}

fn page(snapshot: &Snapshot, subject: &Subject<'_>, pfn: u64) -> Result<Frames, String> {
    if !is_whole(&snapshot.memory) {
        return frames_kept(snapshot, &subject.regime, &[pfn]);
    }
    let inside = Inside::find(&snapshot.memory, &snapshot.cpus).map_err(|why| why.to_string())?;
    let found = frames(&inside, &snapshot.memory, &snapshot.cpus, &[pfn]);
    found.map_err(|why| why.why)
}

/// Whether the folio at `va` may be the one that a record speaks of: one of that order at that place, anonymous or a file's as
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
