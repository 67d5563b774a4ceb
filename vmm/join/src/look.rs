//! A look at a guest: one instant, and what the rules say of it.

use linux::order::OrderRecord;
use snapshot::Snapshot;
use verdict::{Basis, Expectation, ProcessVerdict};

use crate::evidence::Evidence;
use crate::judge::{judge, Judged};
use crate::{Capture, Error, ReadAgain};

/// What was seen at one instant, judged.
#[derive(Debug)]
pub struct Look {
    /// The instant.
    pub capture: Capture,
    /// What the rules say of it. Of processes that were held, the one that was asked for comes first; the others were looked
    /// at beside it: what is exclusive there must not be mapped here.
    pub judged: Judged,
    /// What the verdicts stand on.
    pub basis: Basis,
    /// Where only tables that were written to were to be read: how many those were.
    pub read_again: Option<ReadAgain>,
}

impl Look {
    /// Judges the only process of a capture, which waits for us, and its companions.
    ///
    /// # Errors
    /// Where the process's tables are not proved to be its own.
    pub fn of(capture: Capture, expectations: &[Expectation]) -> Result<Self, Error> {
        let evidence = Evidence::of_waiting(&capture.snapshot, None, expectations)?;
        let mut evidence = evidence.with_companions(&capture.companions)?;
        evidence.kernel_half = capture.extent.kernel;
        let pid = evidence.waiting.as_ref().map(|it| it.process.pid);
        let judged = judge(&evidence);
        let basis = judged.basis(evidence.known(pid));
        Ok(Self::new(capture, judged, basis))
    }

    /// Judges a capture of a guest in which nobody waits for us.
    #[must_use]
    pub fn of_guest(capture: Capture) -> Self {
        let evidence = Evidence::of_guest(&capture.snapshot);
        let judged = judge(&evidence);
        let basis = judged.basis(evidence.known(None));
        Self::new(capture, judged, basis)
    }

    fn new(capture: Capture, judged: Judged, basis: Basis) -> Self {
        Self {
            capture,
            judged,
            basis,
            read_again: None,
        }
    }
}

/// Judges one process of a snapshot: the one with this pid, or the only one. Gives its order records too.
///
/// # Errors
/// Where there is none such, or its tables are not proved to be its own.
pub fn judge_process(
    snapshot: &Snapshot,
    pid: Option<u32>,
    expectations: &[Expectation],
) -> Result<(ProcessVerdict, Vec<OrderRecord>), Error> {
    let evidence = Evidence::of_waiting(snapshot, pid, expectations)?;
    let mut judged = judge(&evidence);
    Ok((judged.processes.remove(0), judged.orders))
}
