// SPDX-License-Identifier: GPL-2.0-only
//! Reads a kept trace: judges it, cuts it to a VA, or prints it as text.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use linux::symbols::Symbols;
use recorder::casemate::{option, tlbi, Text};
use recorder::trace::{Reader, TraceError, Writer};
use recorder::{Barrier, Concerns, Cut, Event, Types, What};

use super::{of_trace, Record};
use crate::commands::output::say;
use crate::commands::Outcome;
use crate::recorded::{Judging, Names};
use crate::Error;

/// Steps of a VA that are shown, the last ones.
const MOST_STEPS: usize = 200;

impl Record {
    /// Returns the symbols of `--vmlinux`.
    pub(super) fn symbols(&self) -> Result<Option<Symbols>, Error> {
        Ok(match &self.guest.vmlinux {
            Some(path) => Some(Symbols::open(path)?),
            None => None,
        })
    }

    pub(super) fn offline(&self, path: &Path) -> Outcome {
        let file = File::open(path).map_err(Error::io(format!("open {}", path.display())))?;
        let mut reader = Reader::new(file).map_err(|error| Error::Input(error.to_string()))?;
        if self.trace.is_some() && self.at.is_none() {
            return Err(Error::Input(
                "expected --at with --judge and --trace, which keeps the cut to a VA; a whole trace is copied by cp".into(),
            ));
        }
        let symbols = self.symbols()?;
        // Where the kernel ran is not in a trace: a kernel without KASLR runs where it was linked.
        let names = Names::linked(symbols.as_ref());
        let create = |path: &Path| {
            let file = crate::replace::create(path);
            file.map_err(Error::io(format!("write {}", path.display())))
        };
        // Tables and call chains of a guest; the text is a report.
        let secret = |path: &Path| {
            let file = crate::replace::create_private(path);
            file.map_err(Error::io(format!("write {}", path.display())))
        };
        let mut judging = Judging::default();
        let mut cut = self.at.map(Cut::new);
        let mut steps = Steps::default();
        let mut kept = match &self.trace {
            Some(path) => Some(Writer::new(secret(path)?).map_err(Error::io("write the cut"))?),
            None => None,
        };
        let mut text = match &self.text {
            Some(path) => Some((BufWriter::new(create(path)?), Text::default())),
            None => None,
        };
        loop {
            let event = match reader.next() {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(error @ TraceError::Io(_)) => return Err(Error::Input(error.to_string())),
                Err(error) => {
                    judging.end.said.push(error.to_string());
                    break;
                }
            };
            let event = match &mut cut {
                None => event,
                Some(cut) => match cut.keep(&event) {
                    Some((event, concerns)) => {
                        steps.take(judging.judge.summary().events + 1, &event, concerns, &names);
                        event
                    }
                    None => continue,
                },
            };
            judging.judge.event(&event);
            if let Some(writer) = &mut kept {
                writer.event(&event).map_err(Error::io("write the cut"))?;
            }
            if let Some((out, text)) = &mut text {
                let lines = text.lines(&event, &names.of_pc(event.pc));
                out.write_all(lines.as_bytes())
                    .map_err(Error::io("write the trace as text"))?;
            }
        }
        if let Some(writer) = kept {
            writer.finish().map_err(Error::io("write the cut"))?;
        }
        if let Some((mut out, _)) = text {
            out.flush().map_err(Error::io("write the trace as text"))?;
        }
        judging.end.bytes = reader.bytes();
        steps.tell()?;
        self.report
            .told(of_trace(), &judging.judge, &judging.end, &names)
    }
}

/// The events of a VA, step by step: its stores, and TLBIs and barriers while a TLB may hold a removed word.
#[derive(Default)]
struct Steps {
    lines: Vec<String>,
    /// Number of all steps.
    all: usize,
    /// A valid word was taken away, and no TLBI with its DSB has come since.
    open: bool,
    /// The CPUs whose TLBI waits for its DSB.
    flushed: BTreeSet<u16>,
}

impl Steps {
    fn take(&mut self, number: u64, event: &Event, concerns: Concerns, names: &Names<'_>) {
        let what = match &event.what {
            What::Store { word, .. } if concerns.directly => {
                let (va, old) = (concerns.va.unwrap_or(0), concerns.old.unwrap_or(0));
                if old == *word {
                    return;
                }
                self.open |= old & 1 != 0;
                format!("{va:#018x}  {old:#018x} -> {word:#018x}")
            }
            What::Tlbi { opcode, operand } if concerns.directly && self.open => {
                self.flushed.insert(event.cpu);
                format!("tlbi {} {operand:#018x}", tlbi(*opcode))
            }
            What::Barrier(Barrier::Dsb { domain, types }) if self.open => {
                if *types == Types::All && self.flushed.remove(&event.cpu) {
                    self.open = false;
                }
                format!("dsb {}", option(*domain, *types))
            }
            _ => return,
        };
        self.push(format!(
            "  {number:>9}  CPU {}  {what}  {}",
            event.cpu,
            names.of_pc(event.pc)
        ));
    }

    fn push(&mut self, line: String) {
        self.all += 1;
        if self.lines.len() == MOST_STEPS {
            self.lines.remove(0);
        }
        self.lines.push(line);
    }

    fn tell(&self) -> Result<(), Error> {
        if self.all > self.lines.len() {
            say!("  the last {} of {} steps", self.lines.len(), self.all);
        }
        for line in &self.lines {
            say!("{line}");
        }
        Ok(())
    }
}
