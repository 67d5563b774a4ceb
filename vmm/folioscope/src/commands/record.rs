// SPDX-License-Identifier: GPL-2.0-only
//! `folioscope record`: a guest's sequences, judged while it runs, or from a trace.

use std::path::PathBuf;

use clap::Args;
use recorder::Judge;
use verdict::{Kernel, Machine, Report};

use super::output::{complain, say, stdout, STDOUT};
use super::run::{default_policy, progress, reported_steps};
use super::Outcome;
use crate::guest::Guest;
use crate::options::{parse_address, GuestOptions};
use crate::program::Program;
use crate::recorded::{self, tell, End, Names, PLUGIN};
use crate::report::{ReportFiles, ReportFormat, ReportOptions};
use crate::stage::{Played, Stage};
use crate::tour::chosen;
use crate::{console_reports, control, Error, EXIT_ERRORS};

mod bare;
mod costs;
mod offline;

use costs::COSTS;

/// Boot a guest, run the tour or a program in it, and judge every store to its page tables and all TLB maintenance
#[derive(Args, Debug)]
#[command(
    after_help = "Example: folioscope record --only anon,mprotect --trace out/mprotect.trace\n         folioscope record --judge out/mprotect.trace --vmlinux out/kernel-4k/vmlinux --at 0xfffff7c01000\n         folioscope record --deadline 60 -- ./static-arm64-program its arguments\n\n\
        It needs QEMU's TCG and the recorder's plugin, which vmm/setup/plugin.sh builds. What is judged and what is not is in\n\
        docs/recorder.md."
)]
pub struct Record {
    #[command(flatten)]
    pub(super) guest: GuestOptions,
    #[command(flatten)]
    report: Reports,
    /// The recorder's plugin
    #[arg(long, value_name = "FILE", default_value = PLUGIN)]
    plugin: PathBuf,
    /// Keep the trace in this file; with --judge and --at, the cut
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Judge this trace, and boot nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["only", "boot_only", "bare"])]
    judge: Option<PathBuf>,
    /// Print only what concerns the block of this VA, step by step
    #[arg(long, value_name = "VA", requires = "judge", value_parser = parse_address)]
    at: Option<u64>,
    /// Write a trace to this file as text, in the form of casemate
    #[arg(long, value_name = "FILE", requires = "judge")]
    text: Option<PathBuf>,
    /// Only these workloads of the tour, as `folioscope run` names them; or costs, which prints how many stores, TLBIs and
    /// DSBs a fault, a fork and their kin take, by folio order
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Boot alone, without the tour
    #[arg(long, conflicts_with = "only")]
    boot_only: bool,
    /// Boot this arm64 Image, which needs no agent and ends by itself within --boot-timeout, with what --initrd names and
    /// nothing else
    #[arg(long, value_name = "FILE", conflicts_with_all = ["only", "boot_only"])]
    bare: Option<PathBuf>,
    /// Run this program in place of the tour, to its end within --deadline: a static arm64 program or a script of this host,
    /// which the guest gets as /program/NAME; or, by a name without a slash, one that the guest has
    #[arg(last = true, value_name = "PROGRAM", conflicts_with_all = ["only", "boot_only", "judge", "bare"])]
    program: Vec<String>,
}

/// The files of a report.
#[derive(Args, Debug)]
struct Reports {
    /// Also write the findings as JSON (`folioscope schema` describes it)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also write them as JUnit XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Also write them as one HTML page, each with the life of its block
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl Reports {
    /// Returns the requested files.
    fn files(&self) -> ReportFiles {
        let all = [
            (&report::json::FORMAT, &self.json),
            (&report::junit::FORMAT, &self.junit),
            (&report::html::FORMAT, &self.html),
        ];
        let all = all.into_iter();
        let named = all.filter_map(|(format, path)| Some((format, path.clone()?)));
        ReportFiles(named.collect())
    }

    /// Returns how a report is printed and written.
    fn options(&self) -> ReportOptions {
        ReportOptions {
            format: ReportFormat::Text,
            files: self.files(),
            information: false,
            all_maps: false,
        }
    }

    /// Prints the verdict, and writes the requested files.
    fn told(&self, mut report: Report, judge: &Judge, end: &End, names: &Names<'_>) -> Outcome {
        tell(&mut stdout(), judge, end, names).map_err(Error::io(STDOUT))?;
        report.push(recorded::step(judge, end, names));
        let options = self.options();
        options.write_files(&mut report, &options.picture())?;
        Ok(report.exit_status)
    }
}

/// Creates a report of a guest of which only the trace is known.
fn of_trace() -> Report {
    Report::new(Machine::default(), Kernel::default())
}

impl Record {
    pub fn run(self) -> Outcome {
        match (&self.judge, &self.bare) {
            (Some(path), _) => self.offline(path),
            (None, Some(image)) => self.bare(image),
            (None, None) => self.live(),
        }
    }

    /// Runs a workload that has the guest for itself; returns the reason why it failed.
    fn direct(
        &self,
        guest: &mut Guest,
        name: &str,
        work: fn(&mut Guest) -> Result<(), Error>,
    ) -> Option<Error> {
        progress(&format!("workload {name}"));
        let error = work(guest).err()?;
        Some(if error.lost() {
            control::keep(guest, &self.guest.out, error)
        } else {
            error
        })
    }

    /// Runs the user's program, and prints its output; returns the reason why it was not completed.
    fn play(&self, guest: &mut Guest, program: &Program) -> Result<Option<Error>, Error> {
        let name = &program.name;
        progress(&format!("program {name}"));
        let policy = default_policy(guest);
        let ended = Stage::new(guest, policy).and_then(|stage| stage.run_program(&program.argv));
        let ended = match ended {
            Ok(ended) => ended,
            Err(error) if error.lost() => {
                return Ok(Some(control::keep(guest, &self.guest.out, error)))
            }
            Err(error) if error.is_late() => {
                return Ok(Some(Error::Input(format!(
                    "program {name} did not end within {} s and was killed; give it more time with --deadline",
                    guest.deadline().as_secs()
                ))))
            }
            Err(error) => {
                let why = match &error {
                    Error::Guest { failure, .. } => program.why_not(failure),
                    _ => None,
                };
                return Ok(Some(why.map_or(error, Error::Input)));
            }
        };
        for (stream, content) in [("out", &ended.stdout), ("err", &ended.stderr)] {
            let bytes = content.bytes().unwrap_or_default();
            for line in String::from_utf8_lossy(&bytes).lines() {
                say!("  {stream}: {}", untrusted::escaped(line));
            }
        }
        if ended.truncated {
            say!("  what it printed is cut");
        }
        say!("program {name} {}", ended.how);
        Ok(None)
    }

    fn live(mut self) -> Outcome {
        let named = self.only.len();
        self.only.retain(|name| name != COSTS);
        let costs = self.only.len() < named;
        if !self.program.is_empty() {
            let program = Program::new(&self.program, self.guest.initrd.is_some())?;
            self.guest.program = Some(program);
        }
        let other = self.boot_only || self.guest.program.is_some();
        let workloads = match other || costs && self.only.is_empty() {
            true => Vec::new(),
            false => chosen(&self.only, true)?,
        };
        progress("booting the guest");
        let mut guest = Guest::boot_recorded(&mut self.guest, &self.plugin, self.trace.as_deref())?;
        say!(
            "guest: Linux {}, {} KiB pages, {} CPUs ({}); agent ready after {:.1} s",
            guest.hello().kernel_release,
            guest.hello().page_size / 1024,
            guest.hello().cpus,
            self.guest.cpu_name(),
            guest.ready_after().as_secs_f64()
        );
        // A file is read by a process of its own, which is not to be the last one of the trace.
        let levels = guest.read_file("/proc/sys/kernel/printk")?;
        let hidden = levels.as_deref().and_then(console_reports::hides_warnings);
        let mut lost = None;
        if !workloads.is_empty() {
            let policy = default_policy(&guest);
            for workload in workloads {
                progress(&format!("workload {}", workload.name));
                let played = Stage::new(&mut guest, policy)
                    .map_or_else(Played::from, |stage| stage.play(workload.run));
                if let Some(why) = &played.left_out {
                    say!("workload {} left out: {why}", workload.name);
                }
                if let Some(error) = played.failed {
                    lost = Some(if error.lost() {
                        control::keep(&mut guest, &self.guest.out, error)
                    } else {
                        error
                    });
                    break;
                }
            }
        }
        if let Some(program) = self.guest.program.clone() {
            lost = self.play(&mut guest, &program)?;
        }
        // It changes the enabled sizes of folios.
        if costs && lost.is_none() {
            lost = self.direct(&mut guest, COSTS, costs::measure);
        }
        // A kernel that has stopped by itself has no wrong sequence from there on.
        if lost.is_none() {
            for why in hidden.into_iter().chain(guest.unlogged()) {
                say!("{why}");
            }
        }
        let reported = reported_steps(&self.report.options(), &mut guest, "record", true)?;
        let Some((known, judge, end)) = guest.end_recorded() else {
            return Err(Error::Input("the guest was not recorded".into()));
        };
        let mut report = of_trace();
        report.machine.kind = self.guest.machine_kind().into();
        report.machine.cpu = Some(self.guest.cpu_name().into());
        report.machine.page_size = guest.hello().page_size;
        report.machine.cpus = Some(guest.hello().cpus);
        report.kernel.release = Some(guest.hello().kernel_release.clone());
        for step in reported {
            report.push(step);
        }
        let status = self
            .report
            .told(report, &judge, &end, &known.names(guest.symbols()))?;
        match lost {
            // A finding is valid even if the guest was lost after it.
            Some(error) if status == EXIT_ERRORS => {
                complain(&error);
                Ok(status)
            }
            Some(error) => Err(error),
            None => Ok(status),
        }
    }
}
