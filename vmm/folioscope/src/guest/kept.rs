// SPDX-License-Identifier: GPL-2.0-only
//! The last looks at a guest, to be compared.

use std::collections::VecDeque;

use evidence::Capture;

use super::Guest;
use crate::Error;

/// Number of looks that are kept.
const KEPT: usize = 16;

/// The last looks, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Kept {
    looks: VecDeque<(u64, Capture)>,
    next: u64,
}

impl Guest {
    /// Keeps a look's copy, and returns its number. The oldest is dropped.
    pub fn keep_look(&mut self, capture: Capture) -> u64 {
        let kept = &mut self.kept;
        kept.next += 1;
        kept.looks.push_back((kept.next, capture));
        if kept.looks.len() > KEPT {
            kept.looks.pop_front();
        }
        kept.next
    }

    /// Returns the looks at the process with this pid, the last first.
    pub fn looks_at(&self, pid: u32) -> impl Iterator<Item = &Capture> {
        let looks = self.kept.looks.iter().rev().map(|(_, capture)| capture);
        looks.filter(move |capture| {
            let processes = &capture.snapshot.notes.processes;
            processes.first().is_some_and(|process| process.pid == pid)
        })
    }

    /// Returns the last look of all, and the one before it at the same process.
    pub fn last_looks(&self) -> (Option<&Capture>, Option<&Capture>) {
        let last = self.kept.looks.back().map(|(_, capture)| capture);
        let pid = last.and_then(|last| last.snapshot.notes.processes.first());
        (last, pid.and_then(|of| self.looks_at(of.pid).nth(1)))
    }

    /// Returns the look with this number.
    ///
    /// # Errors
    /// If it is not kept any more, or never was.
    pub fn kept_look(&self, number: u64) -> Result<&Capture, Error> {
        let mut looks = self.kept.looks.iter();
        let found = looks.find(|(kept, _)| *kept == number);
        found.map(|(_, capture)| capture).ok_or_else(|| {
            Error::Input(match (1..=self.kept.next).contains(&number) {
                true => format!(
                    "look {number} is not kept any more: the last {KEPT} looks are; compare it earlier, or save a core"
                ),
                false => format!("there was no look {number}"),
            })
        })
    }
}
