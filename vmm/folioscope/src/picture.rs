// SPDX-License-Identifier: GPL-2.0-only
//! Data of each checkpoint for the HTML page, besides the verdict; gathered only if a page was requested.

use analysis::Look;
use evidence::{kernel_half, with_folios, Facts, Subject};
use linux::folio::Kind;
use linux::release::Release;
use report::html::Pages;
use snapshot::Snapshot;
use stage1::{Half, Regime};
use verdict::KernelLayout;

/// The raw words of each checkpoint so far, or nothing.
#[derive(Debug)]
pub struct Picture(Option<Pages>);

impl Picture {
    /// Gathers, or does nothing.
    #[must_use]
    pub fn new(wanted: bool) -> Self {
        Self(wanted.then(Pages::default))
    }

    /// Returns the gathered data, if a page was requested.
    #[must_use]
    pub fn pages(&self) -> Option<&Pages> {
        self.0.as_ref()
    }

    /// Adds the processes of a look that becomes the step with this number.
    pub fn look(&mut self, step: usize, look: &Look) {
        let Some(pages) = &mut self.0 else { return };
        let snapshot = &look.capture.snapshot;
        let linux = software_bits_are_known(snapshot);
        let subject = Subject::find(snapshot, None).map(|subject| subject.regime);
        let others = look.capture.companions.iter();
        let others = others.filter_map(|it| Regime::new(&it.cpu.system, Half::Lower).ok());
        let regimes: Vec<Regime> = subject.into_iter().chain(others).collect();
        gather(pages, step, snapshot, &regimes, linux);
    }

    /// The kernel half of a snapshot.
    pub fn kernel(&mut self, step: usize, snapshot: &Snapshot) {
        let Some(pages) = &mut self.0 else { return };
        if let Some(upper) = kernel_half(&snapshot.cpus) {
            let linux = software_bits_are_known(snapshot);
            pages.gather(step, &snapshot.memory, &upper, linux, None);
            pages.name_regions(step, regions(snapshot, &upper));
        }
    }

    /// All of a snapshot that can be judged.
    pub fn snapshot(&mut self, step: usize, snapshot: &Snapshot) {
        self.kernel(step, snapshot);
        let Some(pages) = &mut self.0 else { return };
        let linux = software_bits_are_known(snapshot);
        let processes = snapshot.notes.processes.iter();
        let subjects = processes.filter_map(|process| Subject::of(snapshot, process).ok());
        let regimes: Vec<Regime> = subjects.map(|subject| subject.regime).collect();
        gather(pages, step, snapshot, &regimes, linux);
    }
}

/// Adds the entries of processes, and the folios behind them if those are known.
fn gather(pages: &mut Pages, step: usize, snapshot: &Snapshot, regimes: &[Regime], linux: bool) {
    with_folios(snapshot, |folios| {
        let folio = |pfn| {
            let found = folios?.page(pfn).ok()?;
            let text = match (found.kind, found.swapbacked) {
                (Kind::Anonymous, _) => "anonymous",
                (Kind::Ksm, _) => "KSM",
                (Kind::File, true) => "shmem",
                (Kind::File, false) => "file",
                (Kind::Movable, _) => "movable",
                (Kind::Unowned, _) => "of no mapping",
            };
            Some(report::html::Folio {
                head: found.head,
                order: found.order,
                text: text.to_owned(),
            })
        };
        let known: Option<&report::html::Folios<'_>> = folios.is_some().then_some(&folio);
        for regime in regimes {
            pages.gather(step, &snapshot.memory, regime, linux, known);
        }
    });
}

/// Returns linear map and image, if they are known.
fn regions(snapshot: &Snapshot, upper: &Regime) -> Vec<(String, u64, u64)> {
    let release = Release::parse(&snapshot.notes.kernel_release);
    let facts = Facts::of(snapshot);
    let image = facts.image.map(|(start, end)| start..end);
    let layout = KernelLayout::new(upper, release, image, None)
        .map(|layout| layout.with_shadow(upper, facts.kasan_scale));
    let known = layout.map(|layout| layout.known()).unwrap_or_default();
    known
        .into_iter()
        .map(|(region, start, end)| (region.to_string(), start.0, end.0))
        .collect()
}

fn software_bits_are_known(snapshot: &Snapshot) -> bool {
    Release::parse(&snapshot.notes.kernel_release).is_some_and(Release::has_this_layout)
}
