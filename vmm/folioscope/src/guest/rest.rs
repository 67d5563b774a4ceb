//! A guest that does not get on: what is known of its processes, and what was judged of it.

use std::collections::BTreeMap;

use join::Hung;
use join::Known;
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
    /// The CPU as it was when it was last proved to run a process that has not ended since, as far as the agent has told.
    #[must_use]
    pub fn proved(&self, process: ProcessId) -> Option<Cpu> {
        let stuck = || self.stuck.get(&process).copied().flatten();
        self.roots.get(&process).copied().or_else(stuck)
    }

    /// The processes that were started by us, by pid, with those that have ended.
    #[must_use]
    pub fn started(&self) -> &BTreeMap<u32, Text> {
        &self.started
    }

    /// The pid and name of a process whose last operation is past its deadline, and which lives.
    ///
    /// # Errors
    /// Where the guest is lost.
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

    /// Judges what is left of a guest that hangs, for [`Guest::take_rest`].
    ///
    /// # Errors
    /// Where the machine cannot be stopped or read.
    pub fn judge_rest(&mut self) -> Result<Step, Error> {
        let step = hang::judge_rest(self)?;
        self.rest.push(step.clone());
        Ok(step)
    }

    /// What was judged, since this was last asked, of processes that do not get on and of a guest that hangs.
    pub fn take_rest(&mut self) -> Vec<Step> {
        std::mem::take(&mut self.rest)
    }

    /// The guest as one that is not asked: what can be proved of it, whatever it does.
    pub fn unattended(&mut self) -> Hung<'_> {
        let stuck = self.stuck.iter();
        let stuck = stuck.filter_map(|(id, cpu)| Some((id, cpu.as_ref()?)));
        let processes = self.roots.iter().chain(stuck).map(|(process, cpu)| {
            let regime = Regime::new(&cpu.system, Half::Lower).ok();
            Known {
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
