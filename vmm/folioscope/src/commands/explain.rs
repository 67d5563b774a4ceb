//! `folioscope explain`: why an address is mapped as it is.

mod traced;

use std::io;
use std::path::PathBuf;

use clap::Args;
use join::changed::{diff, Instant};
use join::{may_be_of, Place, Subject};
use linux::order::OrderRecord;
use linux::vma::Vma;
use serde_json::{json, Value};
use snapshot::Snapshot;
use stage1::{Lookup, VirtualAddress};
use verdict::frames::Mapped;

use super::output::{self, say};
use super::Outcome;
use crate::holder::ask;
use crate::options::parse_address;
use crate::source::{open_core, Need, Source, SourceOptions};
use crate::{Error, EXIT_NOT_JUDGED, EXIT_OK};

/// Other places of a page that are listed.
const OTHERS: usize = 8;

/// Say why an address is mapped as it is: VMA, block, folio and who else maps it, each order rejected and why; of a trace of
/// `folioscope record` in the place of a saved snapshot, how it came to be so, step by step
#[derive(Args, Debug)]
#[command(
    after_help = "Example: folioscope explain 0xfffff7c05000 saved.core\n         folioscope explain 0xfffff7c05000 out/mprotect.trace --vmlinux out/kernel-4k/vmlinux"
)]
pub struct Explain {
    /// The virtual address, in hexadecimal
    #[arg(value_name = "VA", value_parser = parse_address)]
    va: u64,
    #[command(flatten)]
    pub source: SourceOptions,
    /// An earlier snapshot: say what has happened here since. Of a guest that `folioscope boot` holds it is the look before
    #[arg(long, value_name = "CORE")]
    since: Option<PathBuf>,
    /// Of a trace, how many of the last sequences are told
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
            return self.traced(path);
        }
        let Source { snapshot, .. } = self.source.open(Need::Process)?;
        let subject = Subject::find(&snapshot, self.source.pid)?;
        let (va, page) = (self.va, subject.regime.granule.bytes());
        let place = Place::of(&snapshot, &subject, va)?;
        let started = place.started_ns.map_or(String::new(), |ns| {
            format!(", started {:.2} s after boot", ns as f64 / 1e9)
        });
        say!(
            "{:#x} in process {} ({}){started}",
            va,
            subject.process.pid,
            subject.process.name
        );
        let vma = subject.vmas.iter().find(|vma| vma.contains(va));
        match vma {
            Some(vma) => say_vma(vma, va)?,
            None if subject.process.maps.is_empty() => {
                say!("  VMA      not known: there is no agent in this guest to give it");
            }
            None => say!("  VMA      none: nothing may be mapped here"),
        }
        match stage1::lookup(&snapshot.memory, &subject.regime, VirtualAddress(va)) {
            Lookup::Mapped { entry, pa, .. } => say!(
                "  mapped   to {pa} by level {} entry {} of table {}: {}",
                entry.descriptor.level,
                entry.index,
                entry.table,
                entry.descriptor
            ),
            Lookup::NotMapped { entry } => say!(
                "  mapped   no: level {} entry {} of table {} is {:#x}",
                entry.descriptor.level,
                entry.index,
                entry.table,
                entry.descriptor.word
            ),
            Lookup::BeyondOutputSize { entry } => say!(
                "  mapped   no: its output address is beyond the output size: {}",
                entry.descriptor
            ),
            Lookup::OutsideRegime => say!("  mapped   no: the address is not in this half"),
            Lookup::Problem(problem) => say!("  mapped   cannot be said: {problem}"),
        }
        if let Some(block) = &place.block {
            say!("  block    {}", block.text());
        }
        for finding in &place.findings {
            say!("  wrong    {}: {}", finding.rule, finding.message);
        }
        say_folio(&place, subject.process.pid, va & !(page - 1))?;
        let orders = match &subject.orders {
            Ok(orders) => orders,
            Err(why) => {
                say!("  order    not judged: {why}");
                self.say_history(&snapshot, subject.process.pid)?;
                return Ok(EXIT_NOT_JUDGED);
            }
        };
        match orders.last_for(subject.process.pid, va, page) {
            Some(record) => {
                let preferred = record
                    .preferred
                    .map_or("none".to_owned(), |order| order.to_string());
                let hint = if record.hinted {
                    ", hinted by MADV_HUGEPAGE"
                } else {
                    ""
                };
                say!(
                    "  fault    at {:#x}, CPU {}, {:.6} s after boot, VMA then {:#x}-{:#x}{hint}",
                    record.address,
                    record.cpu,
                    record.time_ns as f64 / 1e9,
                    record.vm_start,
                    record.vm_end
                );
                if let Some(allowed) = &record.allowed {
                    let pfn = record
                        .pfn
                        .map_or(String::new(), |pfn| format!(", page frame {pfn:#x}"));
                    say!("  path     {}{pfn}", record.path.words());
                    let allowed: Vec<_> = allowed.iter().map(u8::to_string).collect();
                    match allowed.join(", ") {
                        none if none.is_empty() => say!("  allowed  no order above 0"),
                        orders => say!("  allowed  order {orders}"),
                    }
                }
                say!(
                    "  policy   {}, preferred order {preferred}",
                    record.policy.name()
                );
                for (order, reason) in record.reasons.iter().enumerate().rev() {
                    if let Some(why) = reason.rejection() {
                        say!("  order {order:<2} {why}");
                    }
                }
                match record.folio(page) {
                    Some((start, size)) => say!(
                        "  chosen   order {}: a folio of {} KiB at {start:#x}",
                        record.chosen.unwrap_or_default(),
                        size / 1024
                    ),
                    None => say!("  chosen   none: the fault ended without a folio"),
                }
                say_which(&place, record, va, page)?;
            }
            None if orders.lost > 0 => say!(
                "  order    no record of this address; {} older records were overwritten",
                orders.lost
            ),
            None => {
                say!("  order    no record of this address: no anonymous write fault brought it in")
            }
        }
        self.say_history(&snapshot, subject.process.pid)?;
        Ok(EXIT_OK)
    }

    /// What has happened here since an earlier instant, where there is one.
    fn say_history(&self, snapshot: &Snapshot, pid: u32) -> Result<(), Error> {
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
        // A holder that has looked at it once only says nothing.
        if found.get("processes").is_none() {
            return Ok(());
        }
        let mut told = false;
        let processes = found["processes"].as_array().into_iter().flatten();
        for event in processes.flat_map(|it| it["events"].as_array().into_iter().flatten()) {
            let (first, end) = (number(&event["va"]), number(&event["end"]));
            if !(first..end).contains(&self.va) {
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

fn say_vma(vma: &Vma, va: u64) -> Result<(), Error> {
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

/// The folio behind the entry, and who else maps this page.
fn say_folio(place: &Place, pid: u32, va: u64) -> Result<(), Error> {
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
        .describe(&mut io::stdout().lock(), frame, page)
        .map_err(Error::io(output::STDOUT))?;
    // Of a folio that is mapped in part, its whole counts less.
    if let Some(mapped) = page
        .large
        .filter(|it| page.entire == 0 && (1..1 << page.order).contains(it))
    {
        say!(
            "  partly   {mapped} of its {} pages are mapped",
            page.pages()
        );
    }
    let other = |it: &&Mapped| (it.pid, it.va.0) != (pid, va);
    let others: Vec<&Mapped> = frame.mapped.iter().filter(other).collect();
    for it in others.iter().take(OTHERS) {
        say!(
            "  also     mapped at {:#x} in {} ({})",
            it.va.0,
            it.name,
            it.pid
        );
    }
    match others.len().checked_sub(OTHERS + 1) {
        Some(more) => say!("  also     mapped in {} more places", more + 1),
        None if others.is_empty() => say!("  also     mapped nowhere else"),
        None => {}
    }
    Ok(())
}

/// Whether the record speaks of the folio that is there.
fn say_which(place: &Place, record: &OrderRecord, va: u64, size: u64) -> Result<(), Error> {
    match (&place.frame, place.page().and_then(|frame| frame.page)) {
        (None, _) if record.chosen.is_some() => {
            say!("  now      nothing: the record speaks of an earlier folio");
        }
        (_, Some(page)) if !may_be_of(record, &page, va, size) => {
            say!(
                "  now      order {}: the record speaks of an earlier folio",
                page.order
            );
        }
        _ => {}
    }
    Ok(())
}
