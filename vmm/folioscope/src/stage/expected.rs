// SPDX-License-Identifier: GPL-2.0-only
//! A workload's expectations of the step before a checkpoint.

use protocol::ProcessId;
use verdict::{Expectation, Expected};

use super::Stage;

impl Stage<'_> {
    /// Expects every block of the range to be contiguous at the next checkpoint, under any policy; on a kernel that
    /// folds nothing, none.
    pub fn folded(&mut self, process: ProcessId, start: u64, length: u64) {
        let folded = self.folds();
        self.folded_if(folded, process, start, length);
    }

    /// Expects every group of a hugetlb page to be contiguous at the next checkpoint, on any kernel: its size requires
    /// it.
    pub fn hugetlb_folded(&mut self, process: ProcessId, start: u64, length: u64) {
        self.folded_if(true, process, start, length);
    }

    /// Expects the same of memory that an anonymous fault filled: under a policy that fills blocks the bit must be set,
    /// else it must not.
    pub fn anon_folded(&mut self, process: ProcessId, start: u64, length: u64) {
        let folded = self.folds() && self.fills_blocks();
        self.folded_if(folded, process, start, length);
    }

    fn folded_if(&mut self, folded: bool, process: ProcessId, start: u64, length: u64) {
        let what = match folded {
            true => Expected::Contiguous,
            false => Expected::NotContiguous,
        };
        self.expect(process, start, length, what);
    }

    /// Expects every block of the range that could be contiguous to be so at the next checkpoint; on a kernel that folds
    /// nothing, none.
    pub fn folded_if_possible(&mut self, process: ProcessId, start: u64, length: u64) {
        if self.folds() {
            self.expect(process, start, length, Expected::ContiguousIfPossible);
        }
    }

    /// No entry of the range may carry the bit at the next checkpoint.
    pub fn not_folded(&mut self, process: ProcessId, start: u64, length: u64) {
        self.expect(process, start, length, Expected::NotContiguous);
    }

    /// The range was just faulted in, and nothing has changed it since.
    pub fn fresh(&mut self, process: ProcessId, start: u64, length: u64) {
        self.expect(process, start, length, Expected::FreshlyFaulted);
    }

    /// Every page of the range was written by this process, and not cleaned since.
    pub fn written(&mut self, process: ProcessId, start: u64, length: u64) {
        self.expect(process, start, length, Expected::Written);
    }

    /// Expects that no page of the range was ever written.
    pub fn not_written(&mut self, process: ProcessId, start: u64, length: u64) {
        self.expect(process, start, length, Expected::NotWritten);
    }

    /// Every raw entry of the range is dirty: software set that, or carried it through a move, a protection, a copy.
    pub fn dirty(&mut self, process: ProcessId, start: u64, length: u64) {
        self.expect(process, start, length, Expected::Dirty);
    }

    /// Expects that no raw entry of the range is dirty: it was cleaned, or is clean after a fault, and was not written
    /// since.
    pub fn clean(&mut self, process: ProcessId, start: u64, length: u64) {
        self.expect(process, start, length, Expected::Clean);
    }

    /// Every raw entry of the range has AF.
    pub fn young(&mut self, process: ProcessId, start: u64, length: u64) {
        self.expect(process, start, length, Expected::Young);
    }

    /// Expects that no raw entry of the range has AF, and that it was not accessed since it was cleared.
    pub fn old(&mut self, process: ProcessId, start: u64, length: u64) {
        self.expect(process, start, length, Expected::Old);
    }

    /// The range was just read.
    pub fn readable(&mut self, process: ProcessId, start: u64, length: u64) {
        self.expect(process, start, length, Expected::Readable);
    }

    /// The range was just written.
    pub fn writable(&mut self, process: ProcessId, start: u64, length: u64) {
        self.expect(process, start, length, Expected::Writable);
    }

    /// The kernel had no leave to take a page of the range away.
    pub fn mapped(&mut self, process: ProcessId, start: u64, length: u64) {
        self.expect(process, start, length, Expected::Mapped);
    }

    /// Nothing but entries and caches holds a folio of the range.
    pub fn unheld(&mut self, process: ProcessId, start: u64, length: u64) {
        self.expect(process, start, length, Expected::Unheld);
    }

    /// No other mapping ever had the anonymous pages of the range.
    pub fn exclusive(&mut self, process: ProcessId, start: u64, length: u64) {
        self.expect(process, start, length, Expected::Exclusive);
    }

    fn expect(&mut self, process: ProcessId, start: u64, length: u64, what: Expected) {
        self.expected.push((
            process,
            Expectation {
                start,
                end: start + length,
                what,
            },
        ));
    }
}
