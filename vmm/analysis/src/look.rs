// SPDX-License-Identifier: GPL-2.0-only
//! A look at a guest: one instant and the verdicts on it.

use linux::order::OrderRecord;
use snapshot::Snapshot;
use verdict::{Basis, Expectation, ProcessVerdict};

use evidence::{Capture, Evidence, ReadAgain};

use crate::context::context;
use crate::judge::{judge, Judged};
use crate::Error;

/// One instant and the verdicts on it.
#[derive(Debug)]
pub struct Look {
    /// The instant.
    pub capture: Capture,
    /// The verdicts. The process at the checkpoint comes first; its companions are judged with it, since a page that is
    /// exclusive to one must not be mapped by another.
    pub judged: Judged,
    /// The basis of the verdicts.
    pub basis: Basis,
    /// How many tables were read again, if only written ones were to be.
    pub read_again: Option<ReadAgain>,
}

impl Look {
    /// Judges the process at a checkpoint and its companions.
    ///
    /// # Errors
    /// If no CPU is proved to run the process.
    pub fn of(capture: Capture, expectations: &[Expectation]) -> Result<Self, Error> {
        let evidence = Evidence::of_waiting(&capture.snapshot, None, expectations)?;
        let mut evidence = evidence.with_companions(&capture.companions)?;
        evidence.kernel_half = capture.extent.kernel;
        let pid = evidence.waiting.as_ref().map(|it| it.process.pid);
        let judged = judge(&evidence);
        let basis = judged.basis(context(&evidence, pid));
        Ok(Self::new(capture, judged, basis))
    }

    /// Judges a guest without a process at a checkpoint.
    #[must_use]
    pub fn of_guest(capture: Capture) -> Self {
        let evidence = Evidence::of_guest(&capture.snapshot);
        let judged = judge(&evidence);
        let basis = judged.basis(context(&evidence, None));
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

/// Judges one process of a snapshot: the one with this pid, or the only one. Returns its order records too.
///
/// # Errors
/// If there is no such process, or no CPU is proved to run it.
pub fn judge_process(
    snapshot: &Snapshot,
    pid: Option<u32>,
    expectations: &[Expectation],
) -> Result<(ProcessVerdict, Vec<OrderRecord>), Error> {
    let evidence = Evidence::of_waiting(snapshot, pid, expectations)?;
    let mut judged = judge(&evidence);
    Ok((judged.processes.remove(0), judged.orders))
}
