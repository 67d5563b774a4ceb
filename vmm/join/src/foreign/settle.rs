//! Looks at a guest that goes on between them, until what is wrong is known to stay wrong.
//!
//! A machine can be stopped in the middle of any update of a table, and what is there then may look like an error. So
//! an error counts when it was there, word for word, in several looks, and between each two of them every CPU that was
//! in the kernel has run on for longer than any update takes.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use snapshot::{Notes, Snapshot};
use verdict::{Hex, RuleId, Severity};

use super::judge::{verdicts, Verdict};
use super::{Foreign, Instant};
use crate::Error;

/// Looks at most.
const LOOKS: u32 = 16;
/// Looks that have to agree.
const AGREEING: u32 = 3;
/// What a CPU's thread has to have run between two looks: thousands of updates of a table, also under emulation.
const RAN_NS: u64 = 1_000_000;

/// What the looks at a guest came to; a snapshot keeps it, so that it can be judged again.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sight {
    /// How many there were.
    pub looks: u32,
    /// Errors that are none of a moment: in whose tables (the first one), by which rule, and where.
    pub confirmed: Vec<(u64, RuleId, u64)>,
    /// What was seen and cannot be said to be an error, and why.
    pub unconfirmed: Vec<String>,
}

/// The notes' key of [`Sight`].
const SIGHT: &str = "sight";

impl Sight {
    /// As a snapshot keeps it.
    #[must_use]
    pub fn of(notes: &Notes) -> Option<Self> {
        serde_json::from_value(notes.extra.get(SIGHT)?.clone()).ok()
    }

    /// Keeps it.
    pub fn keep(&self, notes: &mut Notes) {
        let value = serde_json::to_value(self).unwrap_or_default();
        notes.extra.insert(SIGHT.into(), value);
    }
}

/// An error, to be found again: whose, and what.
type Fault = (Owner, RuleId, u64, Vec<Hex>);
/// The pid, absent for the kernel, and the first table.
type Owner = (Option<u32>, u64);

/// Looks until every error is confirmed or gone. The snapshot is of the last look, and keeps what they came to.
///
/// # Errors
/// Where the guest cannot be looked at, or the process `pid` is not seen.
pub fn settle(guest: &mut Foreign, pid: Option<u32>) -> Result<Snapshot, Error> {
    let mut streaks: BTreeMap<Fault, u32> = BTreeMap::new();
    let mut before: Option<Instant> = None;
    for look in 1.. {
        let mut now = match (pid, look) {
            (Some(_), 1) => guest.instant_of(pid)?,
            // The last look has to show a process that was named.
            (None, 1) | (Some(_), _) => guest.instant_at_work(pid)?,
            _ => guest.instant()?,
        };
        let processes = &mut now.snapshot.notes.processes;
        processes.retain(|process| pid.is_none_or(|pid| process.pid == pid));
        let verdicts = verdicts(&now.snapshot);
        let faults: Vec<Fault> = verdicts.iter().flat_map(faults).collect();
        let here: Vec<Owner> = verdicts.iter().map(Verdict::owner).collect();
        // What is gone where it was has been an update.
        streaks.retain(|fault, _| !here.contains(&fault.0) || faults.contains(fault));
        let ran_on = before.as_ref().is_none_or(|before| ran_on(before, &now));
        for fault in faults {
            let streak = streaks.entry(fault).or_insert(u32::from(!ran_on));
            *streak += u32::from(ran_on);
        }
        let settled = streaks
            .iter()
            .all(|(fault, streak)| *streak >= AGREEING && here.contains(&fault.0));
        if settled || look == LOOKS || !guest.attached.ran() {
            let sight = sight(look, &streaks, &here, guest.attached.ran());
            sight.keep(&mut now.snapshot.notes);
            return Ok(now.snapshot);
        }
        before = Some(now);
        std::thread::sleep(Duration::from_millis((4 << look).min(60)));
    }
    unreachable!("the last look returns")
}

fn sight(looks: u32, streaks: &BTreeMap<Fault, u32>, here: &[Owner], ran: bool) -> Sight {
    let sure = |fault: &Fault, streak: u32| streak >= AGREEING && here.contains(&fault.0);
    let confirmed = streaks
        .iter()
        .filter(|(fault, streak)| sure(fault, **streak));
    let confirmed = confirmed.map(|((owner, rule, va, _), _)| (owner.1, *rule, *va));
    let mut open: BTreeMap<(Owner, RuleId), (usize, u64)> = BTreeMap::new();
    for (fault, _) in streaks
        .iter()
        .filter(|(fault, streak)| !sure(fault, **streak))
    {
        let (count, _) = open.entry((fault.0, fault.1)).or_insert((0, fault.2));
        *count += 1;
    }
    let why = |owner: &Owner| {
        match (ran, here.contains(owner)) {
        (false, _) => "the guest stood still when it was found, and at one instant an update that is under way looks the same: let it go on and look again",
        (true, false) => "its process was not seen in user mode again",
        (true, true) => "it did not stand still, or a CPU in the kernel did not run on meanwhile: look again when the guest has less to do",
    }
    };
    let unconfirmed = open.iter().map(|((owner, rule), (count, va))| {
        let whose = owner.0.map_or("the kernel half".into(), |pid| format!("process {pid}"));
        format!(
            "{whose}: what may be {count} error(s) by {rule}, the first at VA {va:#018x}, was seen and is not known to stay; {}",
            why(owner)
        )
    });
    Sight {
        looks,
        confirmed: confirmed.collect(),
        unconfirmed: unconfirmed.collect(),
    }
}

fn faults(verdict: &Verdict) -> Vec<Fault> {
    let errors = verdict.findings().iter();
    let errors = errors.filter(|finding| finding.severity == Severity::Error);
    errors
        .map(|finding| {
            let words = finding.words.clone();
            (verdict.owner(), finding.rule, finding.va.0, words)
        })
        .collect()
}

/// Whether every CPU that may have been in the middle of something has run on since.
fn ran_on(before: &Instant, now: &Instant) -> bool {
    let cpus = before.snapshot.cpus.iter().zip(&now.snapshot.cpus);
    cpus.enumerate().all(|(index, (was, is))| {
        let ran = |instant: &Instant| instant.ran_ns.get(index).copied().unwrap_or(0);
        let (earlier, later) = (ran(before), ran(now));
        let ran = earlier == 0 || later.saturating_sub(earlier) >= RAN_NS;
        was.el() == 0 || before.idle[index] || (was.general != is.general && ran)
    })
}

#[cfg(test)]
mod tests {
    use snapshot::{Cpu, Memory};

    use super::*;

    /// One CPU, at this exception level and PC.
    fn instant(el: u64, pc: u64, ran_ns: u64, idle: bool) -> Instant {
        let mut cpu = Cpu::default();
        cpu.general.pstate = el << 2 | 1;
        cpu.general.pc = pc;
        Instant {
            snapshot: Snapshot {
                cpus: vec![cpu],
                memory: Memory::new(Vec::new(), Vec::new()).unwrap(),
                notes: Notes::default(),
            },
            ran_ns: vec![ran_ns],
            idle: vec![idle],
        }
    }

    #[test]
    fn a_cpu_in_the_kernel_has_to_run_on() {
        let busy = || instant(1, 0x1000, 5, false);
        assert!(ran_on(&busy(), &instant(1, 0x2000, 5 + RAN_NS, false)));
        let no = [
            instant(1, 0x1000, 5 + RAN_NS, false),
            instant(1, 0x2000, 4 + RAN_NS, false),
            instant(0, 0x1000, 5 + RAN_NS / 2, false),
        ];
        for now in no {
            assert!(!ran_on(&busy(), &now), "{now:?}");
        }
        // In the middle of nothing: in user mode, or waiting for an interrupt.
        for was in [instant(0, 0x1000, 5, false), instant(1, 0x1000, 5, true)] {
            assert!(ran_on(&was, &instant(1, 0x1000, 5, false)));
        }
        // Where its time is not known its registers have to do.
        assert!(ran_on(
            &instant(1, 0x1000, 0, false),
            &instant(1, 0x2000, 0, false)
        ));
    }

    #[test]
    fn what_is_not_sure_is_told_once_by_rule() {
        let kernel: Owner = (None, 7);
        let process: Owner = (Some(42), 8);
        let word = vec![Hex(1)];
        let streaks = [
            ((kernel, RuleId::A7, 0x1000, word.clone()), AGREEING),
            ((kernel, RuleId::A7, 0x2000, word.clone()), AGREEING - 1),
            ((kernel, RuleId::A7, 0x3000, word.clone()), 1),
            ((process, RuleId::A4, 0x4000, word), AGREEING),
        ];
        let sight = sight(5, &streaks.into(), &[kernel], true);
        assert_eq!(sight.confirmed, [(7, RuleId::A7, 0x1000)]);
        let [first, second] = sight.unconfirmed.as_slice() else {
            panic!("{sight:?}");
        };
        assert!(first.contains("2 error(s) by A7, the first at VA 0x0000000000002000"));
        assert!(second.contains("process 42") && second.contains("not seen in user mode again"));
    }
}
