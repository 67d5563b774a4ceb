// SPDX-License-Identifier: GPL-2.0-only
//! `folioscope cross`: every state of memory under every operation, judged.

use std::collections::BTreeSet;
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use report::text::TextOptions;
use verdict::crossing::{CrossedState, Crossing};
use verdict::{Basis, Report, Step};

use super::output::{say, stdout};
use super::run::{about_guest, default_policy, end_recording, nothing, progress, reported_steps};
use super::Outcome;
use crate::control;
use crate::cross::{self, Played};
use crate::guest::Guest;
use crate::options::GuestOptions;
use crate::recorded::{KernelNames, PLUGIN};
use crate::report::{ReportFormat, ReportOptions};
use crate::stage::Stage;
use crate::Error;

/// Seconds between two lines that say how far it is, where standard error is no terminal.
const PACE: u64 = 60;

/// Boot a guest, bring its memory into every state, do every operation to it, judge what comes of it
#[derive(Args, Debug)]
#[command(after_help = "Example: folioscope cross --only swapped,move --json out/cross.json")]
pub struct Cross {
    #[command(flatten)]
    pub(super) guest: GuestOptions,
    #[command(flatten)]
    pub(super) report: ReportOptions,
    /// Only these states and operations; all states where no state is named, all operations where no operation is
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Play each operation in one process, alone, a parent or a child in turn: a third of the cells
    #[arg(long)]
    quick: bool,
    /// Operations in a row; of more than two with --sample alone
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u8).range(1..=8))]
    depth: u8,
    /// Play so many sequences of operations, drawn at random, and not all
    #[arg(long, value_name = "N")]
    sample: Option<usize>,
    /// Seed of --sample: the same one draws the same sequences
    #[arg(long, value_name = "N", default_value = "1", requires = "sample")]
    seed: u64,
    /// Judge the guest's sequences as well, as `folioscope record` does
    #[arg(long)]
    record: bool,
    /// The recorder's plugin, for --record
    #[arg(long, value_name = "FILE", default_value = PLUGIN)]
    plugin: PathBuf,
    /// List states and operations, and boot nothing
    #[arg(long)]
    list: bool,
}

impl Cross {
    pub fn run(mut self) -> Outcome {
        let (count, seed) = (self.sample, self.seed);
        let sample = count.map(|count| cross::Sample { count, seed });
        let chosen = cross::chosen(&self.only, self.depth.into(), sample)?;
        if self.list {
            return list();
        }
        let words = [cross::BOOT_WORD, cross::FORCE_WORD, &self.guest.append];
        self.guest.append = words.join(" ");
        let started = Instant::now();
        progress("booting the guest");
        let mut guest = match self.record {
            true => Guest::boot_recorded(&mut self.guest, &self.plugin, None)?,
            false => Guest::boot(&self.guest)?,
        };
        let policy = match &self.guest.policy {
            Some(policy) => policy.clone(),
            None => default_policy(&guest).into(),
        };
        let text = self.report.format == ReportFormat::Text;
        if text {
            say!(
                "guest: Linux {}, {} KiB pages, {} CPUs ({}); {} states, {} operations",
                guest.hello().kernel_release,
                guest.hello().page_size / 1024,
                guest.hello().cpus,
                self.guest.cpu_name(),
                chosen.states.len(),
                chosen.operations.len()
            );
        }
        let mut report: Option<Report> = None;
        let mut picture = self.report.picture();
        let mut steps_reported = reported_steps(&self.report, &mut guest, "boot", text)?;
        let states = chosen.states.iter().map(|state| CrossedState {
            name: state.name.into(),
            title: state.title.into(),
        });
        let mut table = Crossing {
            states: states.collect(),
            rows: Vec::new(),
        };
        let batches = chosen.batches(self.quick);
        let rows = batches.len();
        let mut said = 0;
        let mut lost = false;
        // Errors of the states themselves, which no operation has made: each is told once.
        let mut told = BTreeSet::new();
        let mut ledger = match cross::prepare(&mut guest) {
            Ok(ledger) => Some(ledger),
            // What the kernel has reported by then is judged all the same.
            Err(error) => {
                let error = control::keep(&mut guest, &self.guest.out, error);
                let report = report.get_or_insert_with(nothing);
                report.push_not_judged(format!("the start of the crossing: {error}"));
                steps_reported.extend(reported_steps(&self.report, &mut guest, "start", text)?);
                lost = true;
                None
            }
        };
        let mut names = (self.record && !lost).then(|| guest.names_known());
        if let Some(names) = &mut names {
            let step = sequences(&mut guest, names, "boot", None)?;
            self.tell_and_keep(step, &mut steps_reported, text)?;
        }
        for (operations, acting) in batches {
            let Some(ledger) = &mut ledger else {
                break;
            };
            let name = format!("{}{}", cross::name_of(operations), acting.suffix());
            let now = started.elapsed().as_secs();
            let played = table.rows.len();
            let words = format!("{name}: {played} of {rows} rows, {now} s");
            progress(&words);
            if now >= said + PACE && !std::io::stderr().is_terminal() {
                said = now;
                eprintln!("folioscope: {words}");
            }
            let stage = match Stage::new(&mut guest, &policy) {
                Ok(stage) => stage,
                Err(error) => {
                    let error = control::keep(&mut guest, &self.guest.out, error);
                    let report = report.get_or_insert_with(nothing);
                    report.push_not_judged(format!("{name}: {error}"));
                    steps_reported.extend(reported_steps(&self.report, &mut guest, &name, text)?);
                    lost = true;
                    break;
                }
            };
            let mut played = cross::play(stage, &chosen.states, operations, acting);
            if played.failed.is_some() {
                ledger.close();
            }
            let mut left = None;
            match ledger.left(&mut guest, &name) {
                Ok(found) => left = found,
                Err(error) => played.failed = Some(error),
            }
            played.row.elsewhere += left.as_ref().map_or(0, Step::errors) as usize;
            if let Some(names) = &mut names {
                match sequences(&mut guest, names, &name, Some(&mut played)) {
                    Ok(step) => self.tell_and_keep(step, &mut steps_reported, text)?,
                    Err(error) => {
                        played.failed.get_or_insert(error);
                    }
                }
            }
            let mut driven = guest.driven();
            if played.failed.is_none() {
                driven.add(&Basis::of_notifiers(played.row.notified.is_some()));
            }
            table.rows.push(played.row);
            let looks = played.seen.into_iter().zip(played.errors);
            for (look, (mut seen, errors)) in looks.enumerate() {
                let report =
                    report.get_or_insert_with(|| about_guest(&self.guest, &guest, &policy, &seen));
                picture.look(report.steps.len(), &seen.look);
                seen.look.basis.add(&driven);
                let step = Step {
                    workload: "cross".into(),
                    step: seen.label,
                    seconds: Some(started.elapsed().as_secs_f64()),
                    basis: Some(seen.look.basis),
                    processes: seen.look.judged.processes,
                    ..Step::default()
                };
                let new = errors.iter().any(|error| !told.contains(error));
                if look == 0 {
                    told.extend(errors);
                }
                // The table has the others, and the report all of them.
                if text && new {
                    report::text::write_step(&mut stdout(), &step, &self.plain())
                        .map_err(Error::io("write to standard output"))?;
                }
                report.push(step);
            }
            self.tell_and_keep(left, &mut steps_reported, text)?;
            lost = played.failed.as_ref().is_some_and(Error::lost);
            // A guest that hangs is judged as it is kept, and reported with it.
            let failed = played.failed.map(|error| match lost {
                true => control::keep(&mut guest, &self.guest.out, error),
                false => error,
            });
            steps_reported.extend(reported_steps(&self.report, &mut guest, &name, text)?);
            if let Some(error) = failed {
                let report = report.get_or_insert_with(nothing);
                report.push_not_judged(format!("{name}: {error}"));
                if lost {
                    break;
                }
            }
        }
        let mut report = report.unwrap_or_else(nothing);
        if !lost {
            // An error here loses no findings.
            if let Err(error) = cross::tidy(&mut guest) {
                report.push_not_judged(format!("the end of the crossing: {error}"));
            } else {
                steps_reported.extend(reported_steps(&self.report, &mut guest, "end", text)?);
            }
        }
        for step in steps_reported {
            report.push(step);
        }
        if let Some(why) = guest.console_incomplete() {
            report.push_not_judged(why);
        }
        end_recording(&mut guest, &mut report, text)?;
        if let Some(why) = table.nothing_played() {
            report.push_not_judged(why);
        }
        for (why, cells) in table.not_judged() {
            report.push_not_judged(format!(
                "{} cells, the first is {}: {why}",
                cells.len(),
                cells[0]
            ));
        }
        if text {
            let mut out = stdout();
            report::crossing::write(&mut out, &table)
                .and_then(|()| writeln!(out))
                .and_then(|()| report::text::write_end(&mut out, &report))
                .map_err(Error::io("write to standard output"))?;
        }
        report.crossing = Some(table);
        self.report.finish(&mut report, &picture)
    }

    /// Shows a step, if there is one, and keeps it for the report.
    fn tell_and_keep(
        &self,
        step: Option<Step>,
        kept: &mut Vec<Step>,
        text: bool,
    ) -> Result<(), Error> {
        if let Some(step) = step {
            if text {
                report::text::write_step(&mut stdout(), &step, &self.plain())
                    .map_err(Error::io("write to standard output"))?;
            }
            kept.push(step);
        }
        Ok(())
    }

    /// As steps are shown that have no areas, or many.
    fn plain(&self) -> TextOptions {
        TextOptions {
            maps: false,
            ..self.report.text()
        }
    }
}

/// Returns a step with what was found of the guest's sequences since the last call, if anything was; its errors are those of
/// the cells in whose areas they lie, and of none where there are too many for each to be kept.
fn sequences(
    guest: &mut Guest,
    names: &mut KernelNames,
    name: &str,
    played: Option<&mut Played>,
) -> Result<Option<Step>, Error> {
    let (kernel, vas) = guest.sequences_found(names)?;
    if kernel.findings.is_empty() && kernel.not_judged.is_empty() {
        return Ok(None);
    }
    if let Some(played) = played {
        let places: u64 = kernel.findings.iter().map(|finding| finding.places).sum();
        played.row.elsewhere += (places as usize).saturating_sub(vas.len());
        for va in vas {
            played.found(va);
        }
    }
    Ok(Some(Step {
        workload: "cross".into(),
        step: format!("{name}: sequences"),
        kernel: Some(kernel),
        basis: Some(Basis::of_recording()),
        ..Step::default()
    }))
}

fn list() -> Outcome {
    say!("states:");
    for state in cross::STATES {
        say!("  {:18} {}", state.name, state.title);
    }
    say!("operations:");
    for operation in cross::OPERATIONS {
        say!("  {:18} {}", operation.name, operation.title);
    }
    Ok(crate::EXIT_OK)
}
