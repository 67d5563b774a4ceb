// SPDX-License-Identifier: GPL-2.0-only
//! Checks the contents of memory: each page has the words last written to it, whatever has happened to its entry.

use std::ops::Range;

use protocol::{Expect, Operation, Outcome, ProcessId};
use verdict::{contents_differ, Finding, Process};

use super::{Stage, StageResult};
use crate::guest::unexpected;
use crate::Error;

impl Stage<'_> {
    /// Checks that every page of the range has the words that a write at its address has left there. It must be called
    /// after the checkpoint that it belongs to, because it reads the pages.
    ///
    /// # Errors
    /// As every request to the guest.
    pub fn holds(&mut self, process: ProcessId, start: u64, length: u64) -> StageResult {
        self.holds_from(process, start, length, start)
    }

    /// Checks pages that were written at another address, or that have the pattern of a file from this offset on.
    ///
    /// # Errors
    /// As every request to the guest.
    pub fn holds_from(
        &mut self,
        process: ProcessId,
        start: u64,
        length: u64,
        origin: u64,
    ) -> StageResult {
        self.holds_salted(process, start, length, origin, 0)
    }

    /// Checks pages that were written with this salt.
    ///
    /// # Errors
    /// As every request to the guest.
    pub fn holds_salted(
        &mut self,
        process: ProcessId,
        start: u64,
        length: u64,
        origin: u64,
        salt: u64,
    ) -> StageResult {
        let origin = Some(origin);
        self.verify(process, start, length, Expect::Pattern { salt, origin })
    }

    /// Returns the first word of every page of the range is zero.
    ///
    /// # Errors
    /// As every request to the guest.
    pub fn zero(&mut self, process: ProcessId, start: u64, length: u64) -> StageResult {
        self.verify(process, start, length, Expect::Zero)
    }

    fn verify(
        &mut self,
        process: ProcessId,
        start: u64,
        length: u64,
        expect: Expect,
    ) -> StageResult {
        let asked = Operation::Verify {
            address: start,
            length,
            stride: None,
            expect,
        };
        let found = match self.op(process, asked) {
            // Memory that was there once and cannot be read any more: the guest is wrong, not the request.
            Err(Error::Guest {
                failure: protocol::Failure::Signal { address, name, .. },
                ..
            }) => {
                let message = format!("the access at VA 0x{address:016x} raised {name}: what was written there is lost");
                return self.wrong(process, start, start + length, message);
            }
            found => found?,
        };
        match found {
            Outcome::Verified(found) => {
                if let (true, Some(first)) = (found.wrong > 0, found.first.first()) {
                    let message = format!(
                        "{} of {} pages do not hold what was written to them: at VA 0x{:016x} there must be {:#018x} and \
                         there is {:#018x}",
                        found.wrong, found.words, first.address, first.expected, first.found
                    );
                    self.wrong(process, start, start + length, message)?;
                }
                Ok(())
            }
            other => Err(unexpected("verify", &other)),
        }
    }

    /// Returns the word at an address.
    ///
    /// # Errors
    /// As every request to the guest.
    pub fn word(&mut self, process: ProcessId, address: u64, expected: u64) -> StageResult {
        match self.op(process, Operation::Peek { address, words: 1 })? {
            Outcome::Words { words } => {
                let found = words.first().copied().unwrap_or(0);
                if words.len() != 1 || found != expected {
                    let message = format!(
                        "at VA 0x{address:016x} there must be {expected:#018x} and there is {found:#018x}"
                    );
                    self.wrong(process, address, address + 8, message)?;
                }
                Ok(())
            }
            other => Err(unexpected("peek", &other)),
        }
    }

    /// Checks that the access is refused with a signal, as the watcher of the page requires.
    ///
    /// # Errors
    /// As every request to the guest.
    pub fn refused(&mut self, process: ProcessId, op: Operation) -> StageResult {
        let Operation::Touch {
            address, length, ..
        } = op
        else {
            return Err(Error::Input("only an access can be refused".into()));
        };
        match self.op(process, op) {
            Err(Error::Guest {
                failure: protocol::Failure::Signal { .. },
                ..
            }) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => {
                let message = format!(
                    "the access at VA 0x{address:016x} must raise a signal and was allowed"
                );
                self.wrong(process, address, address + length, message)
            }
        }
    }

    /// Adds that contents differ to the last checkpoint of a process.
    ///
    /// # Errors
    /// Where the process has no checkpoint yet.
    pub fn wrong(
        &mut self,
        process: ProcessId,
        start: u64,
        end: u64,
        message: String,
    ) -> StageResult {
        self.found(process, start..end, message, contents_differ)
    }

    /// Returns whether a process has a checkpoint.
    pub fn has_checkpoint(&self, process: ProcessId) -> bool {
        self.last.iter().any(|(id, _)| *id == process)
    }

    /// Adds a finding to the last checkpoint of a process.
    ///
    /// # Errors
    /// Where the process has no checkpoint yet, or its last one has no verdict: the finding is in the sentence then.
    pub fn found(
        &mut self,
        process: ProcessId,
        range: Range<u64>,
        message: String,
        finding: fn(&Process, Range<u64>, String) -> Finding,
    ) -> StageResult {
        let last = self.last.iter().rev().find(|(id, _)| *id == process);
        let Some((_, at)) = last else {
            return Err(Error::Input(format!(
                "{process} has no checkpoint yet that could have this finding: {message}"
            )));
        };
        let Some(verdict) = self.seen[*at].look.judged.processes.first_mut() else {
            return Err(Error::Input(format!(
                "the last checkpoint of {process} has no verdict that could have this finding: {message}"
            )));
        };
        let found = finding(&verdict.process, range, message);
        verdict.findings.push(found);
        Ok(())
    }
}
