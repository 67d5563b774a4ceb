// SPDX-License-Identifier: GPL-2.0-only
//! A guest without progress: its known processes, and the verdicts on it.

use std::collections::BTreeMap;

use analysis::Hung;
use evidence::KnownProcess;
use protocol::{Command, Outcome, ProcessId};
use snapshot::Cpu;
use stage1::{Half, Regime};
use untrusted::Text;
use verdict::Step;

use super::whole::{known, own_symbols};
use super::{checkpoint, unexpected, Guest};
use crate::hang;
use crate::Error;

impl Guest {
    /// Returns the state of the CPU that was last proved to run a process that has not ended since, by the agent's
    /// reports.
    #[must_use]
    pub fn proved(&self, process: ProcessId) -> Option<Cpu> {
        let stuck = || self.stuck.get(&process).copied().flatten();
        self.roots.get(&process).copied().or_else(stuck)
    }

    /// Returns the processes that were started by us, by pid, with those that have ended.
    #[must_use]
    pub fn started(&self) -> &BTreeMap<u32, Text> {
        &self.started
    }

    /// Returns the pid and name of a living process whose last operation is past its deadline.
    ///
    /// # Errors
    /// If the guest is lost.
    pub fn stuck(&mut self, process: ProcessId) -> Result<Option<(u32, Text)>, Error> {
        if !self.stuck.contains_key(&process) {
            return Ok(None);
        }
        let outcome = self.command(Command::Processes {}, self.deadline)?;
        let Outcome::Processes { processes } = outcome else {
            return Err(unexpected("processes", &outcome));
        };
        let info = processes.into_iter().find(|info| info.process == process);
        Ok(info.and_then(|info| Some((u32::try_from(info.pid).ok()?, info.name.into()))))
    }

    pub(super) fn judge_stuck(&mut self, process: ProcessId) {
        // A guest that is lost meanwhile is met by the next command.
        if let Ok(Some(step)) = hang::without_end(self, process) {
            self.rest.push(step);
        }
    }

    /// Judges a guest that hangs, for [`Guest::take_rest`].
    ///
    /// # Errors
    /// If the machine cannot be stopped or read.
    pub fn judge_rest(&mut self) -> Result<Step, Error> {
        let step = hang::judge_rest(self)?;
        self.rest.push(step.clone());
        Ok(step)
    }

    /// Returns the verdicts since the last call on processes without progress and on a guest that hangs.
    pub fn take_rest(&mut self) -> Vec<Step> {
        std::mem::take(&mut self.rest)
    }

    /// Returns the guest for judging without its agent: all that can be proved of it, in any state.
    pub fn unattended(&mut self) -> Hung<'_> {
        let stuck = self.stuck.iter();
        let stuck = stuck.filter_map(|(id, cpu)| Some((id, cpu.as_ref()?)));
        let processes = self.roots.iter().chain(stuck).map(|(process, cpu)| {
            let regime = Regime::new(&cpu.system, Half::Lower).ok();
            KnownProcess {
                pid: checkpoint::pid_of(cpu),
                name: self.names.get(process).cloned().unwrap_or_default().into(),
                root: regime.map(|regime| regime.root.0),
            }
        });
        Hung {
            known: processes.collect(),
            notes: self.notes(Vec::new()),
            symbols: self.kernel.symbols.as_ref().or(own_symbols(&self.inside)),
            inside: known(&self.inside),
            machine: self.link.machine.as_mut(),
        }
    }
}
