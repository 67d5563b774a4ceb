// SPDX-License-Identifier: GPL-2.0-only
//! `folioscope run`: the tour, judged.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use evidence::Extent;
use linux::release::Release;
use report::text::TextOptions;
use verdict::basis::{Context, Scope};
use verdict::{Basis, Expectation, ProcessVerdict, Report, Step};

use super::output::{say, stdout};
use super::Outcome;
use crate::control;
use crate::guest::Guest;
use crate::look::look;
use crate::options::GuestOptions;
use crate::patience::Patience;
use crate::picture::Picture;
use crate::recorded::{self, tell, PLUGIN};
use crate::report::{about, ReportFormat, ReportOptions};
use crate::stage::{Played, Seen, Stage};
use crate::tour::{chosen, Workload};
use crate::{console_reports, Error};

/// Maximum number of looks until a CPU idles in the kernel.
const IDLE_LOOKS: u32 = 25;

/// The first release with `CONFIG_ARM64_CONTPTE`.
const CONTPTE: Release = Release::new(6, 9, 0);

/// Boot a guest, run the tour of fault workloads in it, judge its page tables from outside
#[derive(Args, Debug)]
#[command(after_help = "Example: folioscope run --granule 16k --policy retry --junit out/tour.xml")]
pub struct Run {
    #[command(flatten)]
    pub(super) guest: GuestOptions,
    #[command(flatten)]
    pub(super) report: ReportOptions,
    /// Only these workloads of the tour: anon, neighbour, munmap, mprotect, dontneed, fork, shmem, thp, allocfail,
    /// zeropage, sizes, vma, mlock, mremap, free, populate, swap, migrate, compact, collapse, ksm, hugetlb, uffd, hole,
    /// tmpfs, text; or those about sequences, which --record adds to the tour: unfolded, hugecow, reuse
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Judge the guest's sequences as well, as `folioscope record` does
    #[arg(long)]
    record: bool,
    /// The recorder's plugin, for --record
    #[arg(long, value_name = "FILE", default_value = PLUGIN)]
    plugin: PathBuf,
}

impl Run {
    pub fn run(mut self) -> Outcome {
        let chosen = chosen(&self.only, self.record)?;
        let started = Instant::now();
        progress("booting the guest");
        let mut guest = if self.record {
            Guest::boot_recorded(&mut self.guest, &self.plugin, None)?
        } else {
            Guest::boot(&self.guest)?
        };
        let policy = self
            .guest
            .policy
            .clone()
            .unwrap_or_else(|| default_policy(&guest).into());
        let hello = guest.hello();
        let text = self.report.format == ReportFormat::Text;
        if text {
            say!(
                "guest: Linux {}, {} KiB pages, {} CPUs ({}), policy {}; agent ready after {:.1} s",
                hello.kernel_release,
                hello.page_size / 1024,
                hello.cpus,
                self.guest.cpu_name(),
                if hello.anon_order_policy.is_some() {
                    policy.as_str()
                } else {
                    "of this kernel (it has no order policies)"
                },
                guest.ready_after().as_secs_f64()
            );
            if let Some(note) = folds_nothing(&guest) {
                say!("note: {note}");
            }
        }
        let mut report = None;
        let mut picture = self.report.picture();
        let mut lost = false;
        // The kernel's own reports, workload by workload.
        let mut steps_reported = reported_steps(&self.report, &mut guest, "boot", text)?;
        let mut patience = Patience::new(guest.deadline());
        let mut chosen = chosen.into_iter();
        while let Some(workload) = chosen.next() {
            let begun = Instant::now();
            progress(&format!(
                "workload {} ({:.0} s)",
                workload.name,
                started.elapsed().as_secs_f64()
            ));
            let played = Stage::new(&mut guest, &policy)
                .map_or_else(Played::from, |stage| stage.play(workload.run));
            if text {
                say!("\n{} - {}", workload.name, workload.title);
            }
            if let (Some(why), true) = (&played.left_out, text) {
                say!("  left out: {why}");
            }
            let driven = guest.driven();
            for seen in played.seen {
                let report =
                    report.get_or_insert_with(|| about_guest(&self.guest, &guest, &policy, &seen));
                picture.look(report.steps.len(), &seen.look);
                self.push(report, workload, (seen, &driven), started, text)?;
            }
            // Verdicts so far count; a bundle of the guest is kept.
            lost = played.failed.as_ref().is_some_and(Error::lost);
            let failed = match played.failed {
                Some(error) if lost => Some(control::keep(&mut guest, &self.guest.out, error)),
                failed => failed,
            };
            steps_reported.extend(reported_steps(
                &self.report,
                &mut guest,
                workload.name,
                text,
            )?);
            if let Some(error) = failed {
                let report = report.get_or_insert_with(nothing);
                report.push_not_judged(format!("workload {}: {error}", workload.name));
                // A guest that answers with an error can still play the others.
                if !matches!(error, Error::Guest { .. }) {
                    break;
                }
                if error.is_late() {
                    if let Some(deadline) = patience.hung(begun.elapsed()) {
                        guest.set_deadline(deadline);
                        continue;
                    }
                    let left: Vec<_> = chosen.map(|workload| workload.name).collect();
                    if !left.is_empty() {
                        report.push_not_judged(patience.spent(&left));
                    }
                    break;
                }
            }
        }
        if !steps_reported.is_empty() {
            report.get_or_insert_with(nothing);
        }
        let mut report = report.ok_or_else(|| {
            Error::Input(
                "no workload of the tour could be played on this kernel, so nothing was judged"
                    .into(),
            )
        })?;
        if !lost {
            if let Err(error) = self.kernel_half(&mut guest, &mut report, &mut picture, text) {
                let error = if error.lost() {
                    control::keep(&mut guest, &self.guest.out, error)
                } else {
                    error
                };
                report.push_not_judged(format!("the kernel half: {error}"));
            }
            steps_reported.extend(reported_steps(&self.report, &mut guest, "kernel", text)?);
        }
        for step in steps_reported {
            report.push(step);
        }
        if let Some(why) = guest.console_incomplete() {
            report.push_not_judged(why);
        }
        end_recording(&mut guest, &mut report, text)?;
        if text {
            let mut out = stdout();
            write!(out, "\n{}", report::map::LEGEND)
                .and_then(|()| report::text::write_end(&mut out, &report))
                .map_err(Error::io("write to standard output"))?;
        }
        self.report.finish(&mut report, &picture)
    }

    fn push(
        &self,
        report: &mut Report,
        workload: Workload,
        (mut seen, driven): (Seen, &Basis),
        started: Instant,
        text: bool,
    ) -> Result<(), Error> {
        seen.look.basis.add(driven);
        let step = Step {
            workload: workload.name.into(),
            step: seen.label,
            seconds: Some(started.elapsed().as_secs_f64()),
            expectations: seen.expectations,
            basis: Some(seen.look.basis),
            processes: seen.look.judged.processes,
            ..Step::default()
        };
        if text {
            let mut shown = step.clone();
            // Features that the guest lacks are reported with the first step.
            let told = report.lacks();
            if let Some(basis) = &mut shown.basis {
                basis.lacks.retain(|lack| !told.contains(lack.as_str()));
            }
            for process in &mut shown.processes {
                if !self.report.all_maps {
                    keep_expected(process, &shown.expectations);
                }
                if !self.report.information {
                    process.notes.clear();
                }
            }
            report::text::write_step(&mut stdout(), &shown, &self.report.text())
                .map_err(Error::io("write to standard output"))?;
        }
        report.push(step);
        Ok(())
    }

    /// Judges the upper half, once: it is the same for every process.
    fn kernel_half(
        &self,
        guest: &mut Guest,
        report: &mut Report,
        picture: &mut Picture,
        text: bool,
    ) -> Result<(), Error> {
        let process = guest.spawn("kernel")?.process;
        let look = look(guest, process, &[], Extent::KERNEL)?;
        let (mut seen, mut instant) = (look.judged.kernel, look.capture.snapshot);
        // A lone CPU at EL0 may show KPTI's trampoline: with nothing left to do it idles at EL1.
        for _ in 0..IDLE_LOOKS {
            if let Some(Ok(_)) = seen {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
            instant = guest.unattended().settle()?;
            seen = match analysis::step(&instant, None)?.kernel {
                Some(kernel) => Some(Ok(kernel)),
                None => seen,
            };
        }
        let known = Context {
            scope: Scope::KernelHalf,
            release: Some(guest.hello().kernel_release.clone()),
            recognised_by: look.basis.kernel.recognised_by,
            no_kernel_half: seen.as_ref().and_then(|seen| seen.as_ref().err().cloned()),
            ..Context::default()
        };
        let mut step = Step {
            workload: "kernel".into(),
            step: "upper-half".into(),
            ..Step::default()
        };
        if let Some(Ok(mut verdict)) = seen {
            if guest.symbols().is_none() {
                verdict.notes.push(
                        "order records were not read: they need the kernel's symbols, which it does not say; give its vmlinux (--vmlinux)"
                            .into(),
                    );
            }
            let levels = guest.read_file("/proc/sys/kernel/printk")?;
            verdict
                .notes
                .extend(levels.as_deref().and_then(console_reports::hides_warnings));
            verdict.notes.extend(guest.unlogged());
            step.kernel = Some(verdict);
            picture.kernel(report.steps.len(), &instant);
        }
        let mut basis = Basis::new(known, &[], step.kernel.as_ref());
        basis.add(&guest.driven());
        step.basis = Some(basis);
        if text {
            say!("\nkernel - the upper half");
            report::text::write_step(&mut stdout(), &step, &self.report.text())
                .map_err(Error::io("write to standard output"))?;
        }
        report.push(step);
        Ok(())
    }
}

/// Ends a guest that is recorded, and adds what was found of its sequences.
pub(super) fn end_recording(
    guest: &mut Guest,
    report: &mut Report,
    text: bool,
) -> Result<(), Error> {
    let Some((known, judge, end)) = guest.end_recorded() else {
        return Ok(());
    };
    let names = known.names(guest.symbols());
    if text {
        say!("\nrecord - the guest's sequences");
        tell(&mut stdout(), &judge, &end, &names).map_err(Error::io("write to standard output"))?;
    }
    report.push(recorded::step(&judge, &end, &names));
    Ok(())
}

/// Creates the report of the guest that a checkpoint shows, without steps.
pub(super) fn about_guest(
    options: &GuestOptions,
    guest: &Guest,
    policy: &str,
    seen: &Seen,
) -> Report {
    let mut report = about(&seen.look.capture.snapshot, options.machine_kind());
    report.machine.cpu = Some(options.cpu_name().into());
    report.kernel.build_id.clone_from(&guest.hello().build_id);
    report.kernel.policy = guest
        .hello()
        .anon_order_policy
        .as_ref()
        .map(|_| policy.to_owned());
    report.kernel.switches.clone_from(&guest.hello().switches);
    report
}

/// Returns the kernel's reports on itself, and the verdicts on a guest without progress, since the last call: a step
/// each, if there are any.
pub(super) fn reported_steps(
    options: &ReportOptions,
    guest: &mut Guest,
    workload: &str,
    text: bool,
) -> Result<Vec<Step>, Error> {
    let mut steps: Vec<Step> = console_reports::step(workload, &guest.console_reports())
        .into_iter()
        .collect();
    steps.extend(guest.take_rest());
    // These steps have no VMAs, so there is nothing to draw.
    let plain = TextOptions {
        maps: false,
        ..options.text()
    };
    for step in &mut steps {
        workload.clone_into(&mut step.workload);
        if text {
            report::text::write_step(&mut stdout(), step, &plain)
                .map_err(Error::io("write to standard output"))?;
        }
    }
    Ok(steps)
}

/// Creates the report of a guest that was lost before any look.
pub(super) fn nothing() -> Report {
    Report::new(verdict::Machine::default(), verdict::Kernel::default())
}

/// Returns why no workload but hugetlb's can make a block contiguous, if so.
fn folds_nothing(guest: &Guest) -> Option<String> {
    if guest.contpte() != Some(false) {
        return None;
    }
    let release = &guest.hello().kernel_release;
    let why = match Release::parse(release) {
        Some(found) if found < CONTPTE => "is older than 6.9, which brought CONFIG_ARM64_CONTPTE",
        _ => "has no CONFIG_ARM64_CONTPTE, which needs CONFIG_TRANSPARENT_HUGEPAGE, as PREEMPT_RT has not",
    };
    Some(format!(
        "Linux {release} {why}: hugetlb alone sets the contiguous bit in user memory, and no other entry may have it"
    ))
}

/// Returns the default policy. Blocks are the subject of the tour, and `variable` is the series' own choice.
pub(super) fn default_policy(guest: &Guest) -> &'static str {
    if guest.hello().anon_order_policy.is_some() {
        "variable"
    } else {
        "sysfs"
    }
}

/// Restricts the drawing to the VMAs that the step was about. Counts and verdict cover everything.
fn keep_expected(process: &mut ProcessVerdict, expectations: &[Expectation]) {
    let touches = touching(expectations.iter().map(|e| (e.start, e.end)).collect());
    process.vmas.retain(|vma| touches(vma.start.0, vma.end.0));
}

/// Returns a function that tests whether a range overlaps any of these; it is called often, with many ranges.
fn touching(mut ranges: Vec<(u64, u64)>) -> impl Fn(u64, u64) -> bool {
    ranges.sort_unstable();
    // Each gets the farthest end of all that start no later.
    let mut farthest = 0;
    for (_, end) in &mut ranges {
        farthest = farthest.max(*end);
        *end = farthest;
    }
    move |start, end| {
        let before = ranges.partition_point(|&(first, _)| first < end);
        before > 0 && start < ranges[before - 1].1
    }
}

pub(super) fn progress(what: &str) {
    if io::stderr().is_terminal() {
        eprint!("\r\x1b[K{} ...\r", untrusted::filtered(what));
        let _ = io::stderr().flush();
    }
}

#[cfg(test)]
mod tests {
    use super::touching;

    #[test]
    fn ranges_that_touch_by_any_order() {
        // One inside another, two that meet, one apart.
        let ranges = vec![(20, 30), (2, 12), (4, 5), (12, 14)];
        let touches = touching(ranges.clone());
        for start in 0..32 {
            for end in start + 1..=32 {
                let expected = ranges.iter().any(|r| start < r.1 && r.0 < end);
                assert_eq!(touches(start, end), expected, "{start}..{end}");
            }
        }
        assert!(!touching(vec![])(0, u64::MAX));
    }
}
