// SPDX-License-Identifier: GPL-2.0-only
//! `folioscope explain VA TRACE`: the last sequences of an address, out of a trace of `folioscope record`.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use linux::symbols::Symbols;
use recorder::trace::{Reader, MAGIC};
use recorder::{casemate, Did, Followed, Judge, Moment, Now, Sequence};
use verdict::sequence::pattern;

use super::Explain;
use crate::commands::output::say;
use crate::commands::Outcome;
use crate::recorded::{folio_of, Judging, Names};
use crate::{Error, EXIT_NOT_JUDGED, EXIT_OK};

/// Other address spaces that are listed.
const OTHERS: usize = 8;

/// Returns whether it is a trace and no snapshot.
pub(super) fn is_trace(path: &Path) -> bool {
    let mut first = [0; MAGIC.len()];
    File::open(path).is_ok_and(|mut file| file.read_exact(&mut first).is_ok() && first == *MAGIC)
}

impl Explain {
    pub(super) fn traced(&self, va: u64, path: &Path) -> Outcome {
        if self.since.is_some() {
            return Err(Error::Input(
                "expected a snapshot with --since and found a trace, which has all that happened; leave --since out".into(),
            ));
        }
        let symbols = self.source.vmlinux.as_ref();
        let symbols = symbols.map(|path| Symbols::open(path)).transpose()?;
        // Where the kernel ran is not in a trace: a kernel without KASLR runs where it was linked.
        let names = Names::linked(symbols.as_ref());
        let file = File::open(path).map_err(Error::io(format!("open {}", path.display())))?;
        let mut reader = Reader::new(file).map_err(|error| Error::Input(error.to_string()))?;
        let mut judging = Judging::default();
        judging.judge.follow(va);
        judging.read(&mut reader)?;
        let judge = &judging.judge;
        say!(
            "{:#x} by the trace {}, {} events",
            va,
            path.display(),
            judge.summary().events
        );
        let (spaces, left_out) = judge.followed();
        let chosen = self.chosen(va, &spaces)?;
        if let Some(space) = chosen {
            Space {
                judge,
                names,
                space,
            }
            .print(va, usize::from(self.last))?;
            let others = spaces.iter().rev().filter(|it| **it != space);
            for other in others.clone().take(OTHERS) {
                say!(
                    "  also     in {}: {} sequence(s), the last one at event {}",
                    whose(other),
                    other.all,
                    other.last()
                );
            }
            let more = others.count().saturating_sub(OTHERS) as u64 + left_out;
            if more > 0 {
                say!("  also     in {more} more address spaces");
            }
        } else {
            say!("  sequence none: no descriptor of its block was written while it was in an address space that a CPU had loaded");
        }
        for said in &judging.end.said {
            say!("  not judged: {said}");
        }
        Ok(match chosen {
            Some(_) if judging.end.said.is_empty() => EXIT_OK,
            _ => EXIT_NOT_JUDGED,
        })
    }

    /// Returns the requested process's space, or the most recently used one.
    fn chosen<'f>(&self, va: u64, spaces: &[&'f Followed]) -> Result<Option<&'f Followed>, Error> {
        let Some(pid) = self.source.pid else {
            return Ok(spaces.last().copied());
        };
        let found = spaces.iter().rev().find(|space| space.pid == Some(pid));
        let Some(found) = found else {
            let pids: Vec<String> = spaces
                .iter()
                .filter_map(|space| Some(space.pid?.to_string()))
                .collect();
            return Err(Error::Input(format!(
                "expected process {pid} among those in whose address space the block of {:#x} was written and found {}; leave --pid out, or name one of these",
                va,
                if pids.is_empty() { "none whose PID is known".into() } else { pids.join(", ") }
            )));
        };
        Ok(Some(found))
    }
}

fn whose(space: &Followed) -> String {
    let table = format!("the address space with first table {:#x}", space.root());
    let lives = if space.lives { "" } else { ", which has ended" };
    match space.pid {
        Some(pid) => format!("{table}, process {pid}{lives}"),
        None => format!("{table}{lives}"),
    }
}

/// An address space and its description.
struct Space<'t> {
    judge: &'t Judge,
    names: Names<'t>,
    space: &'t Followed,
}

impl Space<'_> {
    fn print(&self, va: u64, last: usize) -> Result<(), Error> {
        let Self { judge, space, .. } = self;
        say!("  space    {}", whose(space));
        let [first, _] = judge.block_of(va);
        match judge.now(space, va) {
            Some(Now { text, words, folio }) => {
                say!("  mapped   {text}");
                if words.len() > 1 {
                    say!("  block    {first:#018x} [{}]", pattern(words));
                }
                if let Some(found) = folio.map(folio_of) {
                    say!("  folio    {found}, when that was written");
                }
            }
            None => say!("  mapped   not known at the end of the trace"),
        }
        let kept = space.sequences.len();
        for (at, sequence) in space.sequences.iter().enumerate() {
            if at + last.min(kept) < kept {
                continue;
            }
            let number = space.all - (kept - at) as u64 + 1;
            say!(
                "  sequence {number} of {}{}",
                space.all,
                self.what_for(sequence)
            );
            self.print_steps(va, sequence)?;
        }
        for finding in judge.findings().kept() {
            if judge.concerns(space, finding) {
                say!(
                    "  wrong    {} {} (event {})",
                    finding.rule,
                    finding.sentence,
                    finding.made.event
                );
            }
        }
        Ok(())
    }

    /// Returns the process, and its system call or exception.
    fn what_for(&self, sequence: &Sequence) -> String {
        let took = |step: &&Moment| matches!(step.did, Did::Store { old, .. } if old & 1 != 0);
        let steps = &sequence.steps;
        let Some(step) = steps.iter().find(took).or_else(|| steps.first()) else {
            return String::new();
        };
        let within = self.names.within(self.judge, &step.by);
        let within = within.map_or(String::new(), |within| format!(", in {within}"));
        match step.by.pid {
            0 => within,
            pid => format!(", by process {pid}{within}"),
        }
    }

    fn print_steps(&self, va: u64, sequence: &Sequence) -> Result<(), Error> {
        let [first, end] = self.judge.block_of(va);
        let members = sequence.before.len() as u64;
        let bytes = end.wrapping_sub(first).wrapping_add(1) / members.max(1);
        let member = |entry: u64| {
            let at = entry.checked_sub(sequence.entries)? / 8;
            (at < members).then_some(at)
        };
        let place = |step: &Moment| self.names.of_pc(step.by.pc);
        let alike = |one: &Moment, two: &Moment| {
            let [one_did, two_did] = [&one.did, &two.did].map(kind);
            let near =
                |did: &Did| matches!(did, Did::Store { entry, .. } if member(*entry).is_some());
            one_did == two_did
                && near(&one.did) == near(&two.did)
                && (one.by.cpu, place(one)) == (two.by.cpu, place(two))
        };
        let mut words = sequence.before.clone();
        for steps in sequence.steps.chunk_by(alike) {
            let Some(step) = steps.first() else { continue };
            for step in steps {
                if let Did::Store { entry, new, .. } = step.did {
                    if let Some(at) = member(entry) {
                        words[at as usize] = new;
                    }
                }
            }
            let more = match steps.len() {
                1 => String::new(),
                all => format!(" and {} more", all - 1),
            };
            let what = match step.did {
                Did::Store { entry, old, new } => {
                    let place = match member(entry) {
                        Some(at) => format!("{:#018x}", first.wrapping_add(at * bytes)),
                        None => format!("the descriptor above at {entry:#x}"),
                    };
                    format!("{place}: {old:#018x} -> {new:#018x}{more}")
                }
                Did::Tlbi {
                    opcode, operand, ..
                } => format!("TLBI {} {operand:#018x}{more}", casemate::tlbi(opcode)),
                Did::Dsb { domain, types } => {
                    format!("DSB {}", casemate::option(domain, types))
                }
            };
            say!(
                "    {:>9}  CPU {}  {what}  [{}]  {}",
                step.by.event,
                step.by.cpu,
                pattern(words.iter().copied()),
                place(step)
            );
        }
        if sequence.left_out > 0 {
            say!("    and {} steps more", sequence.left_out);
        }
        Ok(())
    }
}

/// Returns the kind of a step: for a store the old and the new state by the characters of the map, for a TLBI its
/// operation.
fn kind(did: &Did) -> String {
    match did {
        Did::Store { old, new, .. } => pattern([*old, *new]),
        Did::Tlbi { opcode, .. } => casemate::tlbi(*opcode),
        Did::Dsb { domain, types } => format!("dsb {}", casemate::option(*domain, *types)),
    }
}
