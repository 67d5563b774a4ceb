// SPDX-License-Identifier: GPL-2.0-only
//! Call chains of the CPUs, each kept once, and the processes that they run.

use std::collections::HashMap;

use crate::trace::MOST_CHAINS;
use crate::tracker::MOST_CPUS;

/// All recorded call chains, and the current one of each CPU.
#[derive(Debug, Default)]
pub(crate) struct Chains {
    /// The chains, numbered from 1 on.
    all: Vec<Vec<u64>>,
    numbers: HashMap<Vec<u64>, u32>,
    now: Vec<(u32, u32)>,
    /// Counts under each chain. Chain 0 stands for an unknown one.
    done: Vec<Done>,
}

/// Counts of actions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Stores to descriptors.
    pub stores: u64,
    /// TLBIs.
    pub tlbis: u64,
    /// DSBs.
    pub dsbs: u64,
}

impl std::ops::AddAssign for Done {
    fn add_assign(&mut self, other: Self) {
        self.stores += other.stores;
        self.tlbis += other.tlbis;
        self.dsbs += other.dsbs;
    }
}

impl Chains {
    fn cpu(&mut self, cpu: u16) -> Option<&mut (u32, u32)> {
        let index = usize::from(cpu);
        if index >= MOST_CPUS {
            return None;
        }
        if self.now.len() <= index {
            self.now.resize(index + 1, (0, 0));
        }
        self.now.get_mut(index)
    }

    /// Sets the call chain of `cpu` from now on.
    pub(crate) fn enter(&mut self, cpu: u16, frames: &[u64]) {
        let number = match self.numbers.get(frames) {
            Some(number) => *number,
            None if frames.is_empty() || self.all.len() == MOST_CHAINS => 0,
            None => {
                self.all.push(frames.to_vec());
                let number = self.all.len() as u32;
                self.numbers.insert(frames.to_vec(), number);
                number
            }
        };
        if let Some(now) = self.cpu(cpu) {
            now.0 = number;
        }
    }

    /// `cpu` runs the process with this PID.
    pub(crate) fn runs(&mut self, cpu: u16, pid: u32) {
        if let Some(now) = self.cpu(cpu) {
            now.1 = pid;
        }
    }

    /// Returns the counts of a chain, to be changed.
    pub(crate) fn done(&mut self, number: u32) -> &mut Done {
        let index = number as usize;
        if self.done.len() <= index {
            self.done.resize(index + 1, Done::default());
        }
        &mut self.done[index]
    }

    /// Returns all chains with their counts.
    pub(crate) fn all_done(&self) -> impl Iterator<Item = (&[u64], Done)> {
        let done = (0..).zip(&self.done);
        done.map(|(number, done)| (self.frames(number), *done))
    }

    /// Begins to count anew.
    pub(crate) fn count_anew(&mut self) {
        self.done.clear();
    }

    /// Returns the number of its chain, and the PID.
    pub(crate) fn of(&self, cpu: u16) -> (u32, u32) {
        self.now.get(usize::from(cpu)).copied().unwrap_or_default()
    }

    pub(crate) fn frames(&self, number: u32) -> &[u64] {
        let at = (number as usize).checked_sub(1);
        at.and_then(|at| self.all.get(at))
            .map_or(&[], Vec::as_slice)
    }
}
