//! `folioscope explain`: why an address is mapped as it is.

use clap::Args;
use join::Subject;
use stage1::{Lookup, VirtualAddress};

use super::output::say;
use super::Outcome;
use crate::options::parse_address;
use crate::source::{Need, Source, SourceOptions};
use crate::{EXIT_NOT_JUDGED, EXIT_OK};

/// Say why an address got the order it has: VMA, preferred order, each order rejected and why, what is mapped
#[derive(Args, Debug)]
#[command(after_help = "Example: folioscope explain 0xfffff7c05000 saved.core")]
pub struct Explain {
    /// The virtual address, in hexadecimal
    #[arg(value_name = "VA", value_parser = parse_address)]
    va: u64,
    #[command(flatten)]
    pub source: SourceOptions,
}

impl Explain {
    pub fn run(self) -> Outcome {
        let Source { snapshot, .. } = self.source.open(Need::Process)?;
        let subject = Subject::find(&snapshot, self.source.pid)?;
        let (va, page) = (self.va, snapshot.notes.page_size.max(4096));
        say!(
            "{:#x} in process {} ({})",
            va,
            subject.process.pid,
            subject.process.name
        );
        let vma = subject.vmas.iter().find(|vma| vma.contains(va));
        match vma {
            Some(vma) => say!(
                "  VMA      {:#x}-{:#x} {} {}",
                vma.start,
                vma.end,
                vma.permissions.text(),
                vma.name
            ),
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
        let orders = match &subject.orders {
            Ok(orders) => orders,
            Err(why) => {
                say!("  order    not judged: {why}");
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
            }
            None if orders.lost > 0 => say!(
                "  order    no record of this address; {} older records were overwritten",
                orders.lost
            ),
            None => {
                say!("  order    no record of this address: no anonymous write fault brought it in")
            }
        }
        Ok(EXIT_OK)
    }
}
