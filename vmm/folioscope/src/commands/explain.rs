// SPDX-License-Identifier: GPL-2.0-only
//! `folioscope explain`: why an address is mapped as it is.

mod kernel;
mod order;
mod traced;

use std::path::PathBuf;

use analysis::{
    diff::{diff, Instant},
    AddressInfo, Places,
};
use clap::Args;
use evidence::Subject;
use linux::vma::Vma;
use report::frames::{Mapped, UNUSABLE};
use serde_json::{json, Value};
use snapshot::Snapshot;
use stage1::{Lookup, Regime, VirtualAddress};

use super::output::{self, say};
use super::Outcome;
use crate::holder::ask;
use crate::options::parse_address;
use crate::source::{open_core, Source, SourceOptions, Wanted};
use crate::{Error, EXIT_OK};

/// Other places of a page that are listed.
const OTHERS: usize = 8;

/// Explain why an address is mapped as it is: VMA, block, folio and the other processes that map it, each order
/// rejected and why; with a trace of `folioscope record` in the place of a saved snapshot, how it came to be so, step
/// by step
#[derive(Args, Debug)]
#[command(
    after_help = "Example: folioscope explain 0xfffff7c05000 saved.core\n         folioscope explain 0xfffff7c05000 out/mprotect.trace --vmlinux out/kernel-4k/vmlinux"
)]
pub struct Explain {
    /// The virtual address, in hexadecimal: of the process, or of the kernel. Several, with commas, are explained one by one
    #[arg(value_name = "VA", value_parser = parse_addresses)]
    va: Addresses,
    #[command(flatten)]
    pub source: SourceOptions,
    /// An earlier snapshot: print what has happened here since. For a guest that `folioscope boot` holds it is the look
    /// before
    #[arg(long, value_name = "CORE")]
    since: Option<PathBuf>,
    /// Number of the last sequences to print, with a trace
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    last: u8,
}

impl Explain {
    pub fn run(self) -> Outcome {
        if let Some(path) = self
            .source
            .core
            .as_ref()
            .filter(|path| traced::is_trace(path))
        {
            return each(&self.va.0, |va| self.traced(va, path));
        }
        let (kernel, user): (Vec<u64>, Vec<u64>) = self.va.0.iter().partition(|va| is_kernel(**va));
        if user.is_empty() {
            return self.kernel(&kernel);
        }
        let Source { snapshot, .. } = self.source.open(Wanted::Process)?;
        let subject = Subject::find(&snapshot, self.source.pid)?;
        let places = Places::new(&snapshot, &subject)?;
        let status = each(&user, |va| self.one(va, &snapshot, &subject, &places))?;
        if kernel.is_empty() {
            return Ok(status);
        }
        say!("");
        Ok(status.max(self.kernel(&kernel)?))
    }

    /// Returns one address of a process.
    fn one(
        &self,
        va: u64,
        snapshot: &Snapshot,
        subject: &Subject<'_>,
        places: &Places<'_>,
    ) -> Outcome {
        let page = subject.regime.granule.bytes();
        // With TBI0 the top byte is a tag, and no VMA, page or record has one.
        let (given, va) = (va, subject.regime.canonical(VirtualAddress(va)).0);
        let place = places.at(va);
        let started = places.started_ns.map_or(String::new(), |ns| {
            format!(", started {:.2} s after boot", ns as f64 / 1e9)
        });
        say!(
            "{given:#x} in process {} ({}){started}",
            subject.process.pid,
            subject.process.name
        );
        let vma = subject.vmas.iter().find(|vma| vma.contains(va));
        match vma {
            Some(vma) => print_vma(vma, va)?,
            None if subject.process.maps.is_empty() => {
                say!("  VMA      not known: there is no agent in this guest to give it");
            }
            None => match stack_above(&subject.vmas, va) {
                Some(start) => say!("  VMA      none: the stack at {start:#x} may grow to here"),
                None => say!("  VMA      none: nothing may be mapped here"),
            },
        }
        let found = stage1::lookup(&snapshot.memory, &subject.regime, VirtualAddress(va));
        print_entry(&found, place.absent.as_deref(), &subject.regime)?;
        if let Some(block) = &place.block {
            say!("  block    {}", block.text());
        }
        for finding in &place.findings {
            say!("  wrong    {}: {}", finding.rule, finding.message);
        }
        print_folio(&place, subject.process.pid, va & !(page - 1))?;
        let status = self.print_order(va, snapshot, subject, &place)?;
        self.print_history(va, snapshot, subject.process.pid)?;
        Ok(status)
    }

    /// Prints the events at this address since an earlier instant, if there is one.
    fn print_history(&self, va: u64, snapshot: &Snapshot, pid: u32) -> Result<(), Error> {
        let (before, found) = match (&self.since, self.source.holder()?) {
            (Some(core), _) => {
                let earlier = open_core(core)?;
                let found = diff(Instant::from(&earlier), Instant::from(snapshot), Some(pid))?;
                (format!("{}", core.display()), json!(found))
            }
            (None, Some(socket)) => {
                let found = ask(&socket, "changes", &json!({"pid": pid}))?;
                ("the look before".to_owned(), found)
            }
            (None, None) => return Ok(()),
        };
        let number = |value: &Value| {
            let text = value.as_str().unwrap_or_default().trim_start_matches("0x");
            u64::from_str_radix(text, 16).unwrap_or(0)
        };
        // A holder that has looked at it only once reports nothing.
        if found.get("processes").is_none() {
            return Ok(());
        }
        let mut told = false;
        let processes = found["processes"].as_array().into_iter().flatten();
        for event in processes.flat_map(|it| it["events"].as_array().into_iter().flatten()) {
            let (first, end) = (number(&event["va"]), number(&event["end"]));
            if !(first..end).contains(&va) {
                continue;
            }
            told = true;
            let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
            let line = format!("{} {first:#x}-{end:#x}  {}", text("kind"), text("detail"));
            say!("  since    {before}: {}", line.trim_end());
        }
        let notes = found["notes"].as_array().into_iter().flatten();
        for note in notes.filter_map(Value::as_str) {
            say!("  since    {before}: {note}");
        }
        if !told {
            say!("  since    {before}: nothing has happened here");
        }
        Ok(())
    }
}

/// Returns the next VMA above an address, if an access below it lets that grow (`VM_GROWSDOWN`).
fn stack_above(vmas: &[Vma], va: u64) -> Option<u64> {
    let above = vmas.iter().filter(|vma| vma.start > va);
    let next = above.min_by_key(|vma| vma.start)?;
    let flags = next.flags.as_ref()?;
    flags
        .words()
        .iter()
        .any(|word| word == "gd")
        .then_some(next.start)
}

/// Addresses, in the order in which they were given.
#[derive(Clone, Debug)]
struct Addresses(Vec<u64>);

fn parse_addresses(text: &str) -> Result<Addresses, String> {
    let all: Result<Vec<u64>, String> = text.split(',').map(parse_address).collect();
    all.map(Addresses)
}

/// Explains one address after the other; the worst status is returned.
fn each(all: &[u64], mut one: impl FnMut(u64) -> Outcome) -> Outcome {
    let mut status = EXIT_OK;
    for (at, va) in all.iter().enumerate() {
        if at > 0 {
            say!("");
        }
        status = status.max(one(*va)?);
    }
    Ok(status)
}

/// Returns whether an address is translated by TTBR1_EL1: bit 55 decides, also of one with a tag.
fn is_kernel(va: u64) -> bool {
    va >> 55 & 1 == 1
}

/// Returns the entry at an address; `absent` names one that is not valid.
fn print_entry(found: &Lookup<'_>, absent: Option<&str>, regime: &Regime) -> Result<(), Error> {
    match found {
        Lookup::Mapped { entry, pa, .. } => say!(
            "  mapped   to {pa} by level {} entry {} of table {}: {}",
            entry.descriptor.level,
            entry.index,
            entry.table,
            entry.descriptor
        ),
        Lookup::NotMapped { entry } => {
            let name = match (entry.descriptor.word, absent) {
                (_, Some(name)) => format!(": {name}"),
                (word, None) if word & 1 == 1 => ": reserved".to_owned(),
                (_, None) => String::new(),
            };
            say!(
                "  mapped   no: level {} entry {} of table {} is {:#x}{name}",
                entry.descriptor.level,
                entry.index,
                entry.table,
                entry.descriptor.word
            );
        }
        Lookup::BeyondOutputSize { entry } => say!(
            "  mapped   no: its output address is beyond the output size: {}",
            entry.descriptor
        ),
        Lookup::OutsideRegime => say!(
            "  mapped   no: no table translates it; this half reaches from {} to {}",
            regime.first,
            regime.last
        ),
        Lookup::Problem(problem) => say!("  mapped   cannot be said: {problem}"),
    }
    Ok(())
}

fn print_vma(vma: &Vma, va: u64) -> Result<(), Error> {
    let line = format!(
        "{:#x}-{:#x} {} {}",
        vma.start,
        vma.end,
        vma.permissions.text(),
        vma.name
    );
    say!("  VMA      {}", line.trim_end());
    if let Some(flags) = &vma.flags {
        say!("  flags    {}", flags.words().join(" "));
    }
    if vma.inode != 0 {
        let (major, minor) = vma.device;
        say!(
            "  file     inode {} of device {major:02x}:{minor:02x}, at offset {:#x}",
            vma.inode,
            vma.offset + (va - vma.start)
        );
    }
    Ok(())
}

/// Prints the folio behind the entry, and the other processes that map this page.
fn print_folio(place: &AddressInfo, pid: u32, va: u64) -> Result<(), Error> {
    let frames = match &place.frame {
        None => return Ok(()),
        Some(Err(why)) => {
            say!("  folio    not known: {why}");
            return Ok(());
        }
        Some(Ok(frames)) => frames,
    };
    let Some(frame) = frames.pages.first() else {
        return Ok(());
    };
    let Some(page) = &frame.page else {
        let why = frame.problem.as_deref().unwrap_or("it was not read");
        say!("  folio    not known: {why}");
        return Ok(());
    };
    frames
        .describe(&mut output::stdout(), frame, page)
        .map_err(Error::io(output::STDOUT))?;
    // A page that several processes map counts for each, so no count shows how many processes there are.
    if let Some(mapped) = page
        .large
        .filter(|it| page.entire == 0 && (1..1 << page.order).contains(it))
    {
        say!(
            "  partly   not all of its {} pages are mapped: they have {mapped} mapping{} in all",
            page.pages(),
            if mapped == 1 { "" } else { "s" }
        );
    }
    let other = |it: &&(&Mapped, bool)| (it.0.pid, it.0.va.0) != (pid, va);
    let valid = frame.mapped.iter().map(|it| (it, true));
    let all: Vec<_> = valid
        .chain(frame.present.iter().map(|it| (it, false)))
        .collect();
    let others: Vec<_> = all.iter().filter(other).collect();
    for (it, valid) in others.iter().take(OTHERS) {
        say!(
            "  also     mapped at {:#x} in {} ({}){}",
            it.va.0,
            it.name,
            it.pid,
            if *valid {
                String::new()
            } else {
                format!(", for no CPU ({UNUSABLE})")
            }
        );
    }
    // Mappings that are counted and were not seen; blocks that map the whole folio map this page too.
    let counted = page
        .mapcount
        .or(page.hugetlb.then_some(0))
        .map(|own| own + if page.order > 0 { page.entire } else { 0 });
    let counted = counted.and_then(|count| usize::try_from(count).ok());
    let hidden = counted.map_or(0, |count| count.saturating_sub(all.len()));
    match others.len().checked_sub(OTHERS + 1) {
        Some(more) => say!("  also     mapped in {} more places", more + 1),
        None if others.is_empty() && hidden == 0 && frames.walked => {
            say!("  also     mapped nowhere else");
        }
        None => {}
    }
    if hidden > 0 {
        let entries = if hidden == 1 { "entry" } else { "entries" };
        say!("  also     counted for {hidden} more {entries}, and where is not known");
    } else if !frames.walked {
        say!("  also     where else is not known");
    }
    for note in &frames.notes {
        say!("  note     {note}");
    }
    Ok(())
}
