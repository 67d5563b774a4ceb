//! `folioscope record`: a guest's sequences, judged while it runs, or from a trace.

use std::collections::HashSet;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use linux::symbols::Symbols;
use protocol::{Advice, Protection};
use recorder::trace::Reader;
use recorder::{Judge, Stored};

use super::output::say;
use super::run::{chosen, default_policy, progress};
use super::Outcome;
use crate::guest::{unexpected, Guest};
use crate::ops::{advise, map, protect, write};
use crate::options::{GuestOptions, MachineName};
use crate::recorded::{judge_all, End, Live};
use crate::stage::{block_size, Played, Stage, THP};
use crate::{control, Error, EXIT_ERRORS, EXIT_NOT_JUDGED, EXIT_OK};

/// How long QEMU may take to write the last of the trace.
const LAST: Duration = Duration::from_secs(60);

/// Boot a guest, run the tour in it, and judge every store to its page tables and all TLB maintenance
#[derive(Args, Debug)]
#[command(
    after_help = "Example: folioscope record --only anon,mprotect --trace out/mprotect.trace\n         folioscope record --judge out/mprotect.trace --vmlinux out/kernel-4k/vmlinux\n\n\
        It needs QEMU's TCG and the recorder's plugin, which vmm/setup/plugin.sh builds. What is judged and what is not is in\n\
        docs/recorder.md."
)]
pub struct Record {
    #[command(flatten)]
    guest: GuestOptions,
    /// The recorder's plugin
    #[arg(long, value_name = "FILE", default_value = "out/librecorder_plugin.so")]
    plugin: PathBuf,
    /// Keep the trace in this file
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Judge this trace, and boot nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["trace", "only", "boot_only"])]
    judge: Option<PathBuf>,
    /// Only these workloads of the tour, as `folioscope run` names them; or unfolded, which changes the rights of a whole
    /// block that is present and not folded
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Boot alone, without the tour
    #[arg(long, conflicts_with = "only")]
    boot_only: bool,
}

impl Record {
    pub fn run(self) -> Outcome {
        match &self.judge {
            Some(path) => self.offline(path),
            None => self.live(),
        }
    }

    fn offline(&self, path: &PathBuf) -> Outcome {
        let file = File::open(path).map_err(Error::io(format!("open {}", path.display())))?;
        let reader = Reader::new(file).map_err(|error| Error::Input(error.to_string()))?;
        let (judge, end) = judge_all(reader);
        let symbols = match &self.guest.vmlinux {
            Some(path) => Some(Symbols::open(path)?),
            None => None,
        };
        // Where the kernel ran is not in a trace: a kernel without KASLR runs where it was linked.
        let names = Names {
            symbols: symbols.as_ref(),
            slide: Some(0),
        };
        tell(&judge, &end, &names)
    }

    fn live(mut self) -> Outcome {
        // What the recorder has beside the tour.
        let named = self.only.len();
        self.only.retain(|name| name != UNFOLDED);
        let unfolded = !self.boot_only && (named == 0 || self.only.len() < named);
        let tour = !self.boot_only && (named == 0 || !self.only.is_empty());
        let workloads = chosen(&self.only)?;
        match self.guest.machine {
            MachineName::Auto | MachineName::Tcg => self.guest.machine = MachineName::Tcg,
            _ => {
                return Err(Error::Input(
                    "a guest on KVM cannot be recorded, as nothing sees its stores; leave --machine out or say --machine tcg".into(),
                ))
            }
        }
        if !self.plugin.is_file() {
            return Err(Error::Input(format!(
                "expected the recorder's plugin at {} and found no file there; build it with: vmm/setup/plugin.sh",
                self.plugin.display()
            )));
        }
        let plugin =
            std::path::absolute(&self.plugin).map_err(Error::io("find the working directory"))?;
        let live = Live::begin(plugin, self.trace.as_deref())?;
        self.guest.recording = Some(live.recording());
        progress("booting the guest");
        let booted = Guest::boot(&self.guest);
        let live = live.booted();
        let mut guest = match booted {
            Ok(guest) => guest,
            Err(error) => {
                // QEMU has ended, and with it the trace.
                let (judge, end) = live.join();
                tell(&judge, &end, &Names::default())?;
                return Err(error);
            }
        };
        say!(
            "guest: Linux {}, {} KiB pages, {} CPUs ({}); agent ready after {:.1} s",
            guest.hello().kernel_release,
            guest.hello().page_size / 1024,
            guest.hello().cpus,
            self.guest.cpu_name(),
            guest.ready_after().as_secs_f64()
        );
        let mut lost = None;
        if unfolded {
            progress(&format!("workload {UNFOLDED}"));
            lost = mprotect_unfolded(&mut guest).err().map(|error| {
                if error.lost() {
                    control::keep(&mut guest, &self.guest.out, error)
                } else {
                    error
                }
            });
        }
        if tour && lost.is_none() {
            let policy = default_policy(&guest);
            for workload in workloads {
                progress(&format!("workload {}", workload.name));
                let played = Stage::new(&mut guest, policy)
                    .map_or_else(Played::from, |stage| stage.play(workload.run));
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
        let capture = guest.capture_all().ok();
        let slide = capture.and_then(|capture| {
            join::slide(guest.kernel().symbols.as_ref()?, &capture.snapshot.cpus)
        });
        guest.machine().quit(LAST);
        let (judge, end) = live.join();
        let names = Names {
            symbols: guest.kernel().symbols.as_ref(),
            slide,
        };
        let status = tell(&judge, &end, &names)?;
        match lost {
            // A finding is none the less true for a guest that was lost behind it.
            Some(error) if status == EXIT_ERRORS => {
                eprintln!("folioscope: {error}");
                Ok(status)
            }
            Some(error) => Err(error),
            None => Ok(status),
        }
    }
}

/// A workload that sets out from where the tour never is: a block of which every page is mapped and that is not folded.
const UNFOLDED: &str = "unfolded";

/// Takes one page's right to be written and gives it back, so that the block is unfolded; then the same with the block.
fn mprotect_unfolded(guest: &mut Guest) -> Result<(), Error> {
    const BOTH: &[Protection] = &[Protection::Read, Protection::Write];
    const READ: &[Protection] = &[Protection::Read];
    let page = guest.hello().page_size;
    let block = block_size(page);
    if guest.hello().anon_order_policy.is_some() {
        guest.set_policy("variable")?;
    } else {
        let size = format!("{THP}/hugepages-{}kB/enabled", block / 1024);
        guest.write_file(&size, "always", None)?;
    }
    let process = guest.spawn(UNFOLDED)?.process;
    let mapped = guest.op(process, map(2 * block, 0))?;
    let protocol::Outcome::Mapped { address, .. } = mapped else {
        return Err(unexpected("mmap", &mapped));
    };
    let one = address + 5 * page;
    for operation in [
        advise(address, 2 * block, Advice::Hugepage),
        write(address, 2 * block),
        protect(one, page, READ),
        protect(one, page, BOTH),
        protect(address, block, READ),
        protect(address, block, BOTH),
        write(address, 2 * block),
    ] {
        guest.op(process, operation)?;
    }
    Ok(())
}

/// Addresses of the kernel by name.
#[derive(Default)]
struct Names<'s> {
    symbols: Option<&'s Symbols>,
    slide: Option<u64>,
}

impl Names<'_> {
    fn of(&self, pc: u64) -> String {
        let linked = self.slide.map(|slide| pc.wrapping_sub(slide));
        let name = linked
            .filter(|_| pc >> 63 != 0)
            .and_then(|pc| self.symbols?.name(pc));
        match name {
            Some((name, offset)) => format!("{name}+{offset:#x}"),
            None => format!("PC {pc:#x}"),
        }
    }

    fn stored(&self, what: &str, by: Stored) -> String {
        format!(
            "  {what:<7} CPU {} at {} (event {})",
            by.cpu,
            self.of(by.pc),
            by.event
        )
    }
}

fn tell(judge: &Judge, end: &End, names: &Names<'_>) -> Outcome {
    let summary = judge.summary();
    say!(
        "{} stores to descriptors, {} TLBIs, {} barriers; {:.1} bytes of trace for an event",
        summary.stores,
        summary.tlbis,
        summary.barriers,
        end.bytes as f64 / summary.events.max(1) as f64
    );
    // The first of each cause stands for all.
    let mut told = HashSet::new();
    for finding in judge.findings().kept() {
        if !told.insert((finding.rule, finding.made.pc, finding.cause)) {
            continue;
        }
        say!(
            "{} {}\n  {}\n  VA {:#018x} level {}: {:#018x} -> {:#018x}; {} time(s) at this place",
            finding.rule,
            finding.sentence,
            finding.rule.reference(),
            finding.va,
            finding.level,
            finding.old,
            finding.new,
            judge.findings().count(finding)
        );
        for (what, by) in [
            ("broken", finding.broken),
            ("TLBI", finding.tlbi),
            ("made", Some(finding.made)),
        ] {
            if let Some(by) = by {
                say!("{}", names.stored(what, by));
            }
        }
    }
    let mut not_judged = judge.not_judged().sentences();
    not_judged.extend(end.said.iter().cloned());
    if summary.stores == 0 {
        not_judged.push("no store to a table was seen".into());
    }
    for sentence in &not_judged {
        say!("not judged: {sentence}");
    }
    say!("{} findings", summary.findings);
    let _ = std::io::stdout().flush();
    Ok(match summary.findings {
        0 if not_judged.is_empty() => EXIT_OK,
        0 => EXIT_NOT_JUDGED,
        _ => EXIT_ERRORS,
    })
}
