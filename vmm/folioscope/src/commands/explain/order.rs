//! Why an address got the order that it has, by the kernel's record.

use join::{may_be_of, Place, Subject};
use linux::order::adaptive::State;
use linux::order::{OrderRecord, OrderRecords, Policy, Reason};
use snapshot::Snapshot;
use stage1::{Lookup, VirtualAddress};

use super::Explain;
use crate::commands::output::say;
use crate::commands::Outcome;
use crate::{Error, EXIT_NOT_JUDGED, EXIT_OK};

impl Explain {
    /// The record of the fault that brought an address in.
    pub(super) fn say_order(
        &self,
        va: u64,
        snapshot: &Snapshot,
        subject: &Subject<'_>,
        place: &Place,
    ) -> Outcome {
        let page = subject.regime.granule.bytes();
        let orders = match &subject.orders {
            Ok(orders) => orders,
            Err(why) => {
                say!("  order    not judged: {why}");
                return Ok(EXIT_NOT_JUDGED);
            }
        };
        match orders.last_for(subject.process.pid, va, page) {
            Some(record) => {
                say_fault(record)?;
                for (order, reason) in record.reasons.iter().enumerate().rev() {
                    if let Some(why) = reason.rejection() {
                        let more = more(order as u8, record, (snapshot, subject, orders));
                        say!("  order {order:<2} {why}{more}");
                    }
                }
                if record.policy == Policy::Adaptive {
                    say_state(record, place, page)?;
                }
                match record.folio(page) {
                    Some((start, size)) => say!(
                        "  chosen   order {}: a folio of {} KiB at {start:#x}",
                        record.chosen.unwrap_or_default(),
                        size / 1024
                    ),
                    None => say!("  chosen   none: the fault ended without a folio"),
                }
                say_which(place, record, va, page)?;
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

fn say_fault(record: &OrderRecord) -> Result<(), Error> {
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
    Ok(())
}

/// What policy `adaptive` remembers now, and whether that is what this fault has left.
fn say_state(record: &OrderRecord, place: &Place, page: u64) -> Result<(), Error> {
    match place.order_state.map(|word| State::decode(word, page)) {
        None => say!("  state    not known: the kernel's VMAs were not read"),
        Some(None) => say!(
            "  state    nothing is remembered of this VMA: no fault since it was made, or forked"
        ),
        Some(Some(state)) => {
            let of = match state.last == record.address & !(page - 1) {
                true => ", which is this fault's",
                false => ", which is a later fault's or another VMA's",
            };
            say!("  state    {}{of}", state.text());
        }
    }
    Ok(())
}

/// What is behind a rejection, where that is known.
fn more(
    order: u8,
    record: &OrderRecord,
    (snapshot, subject, orders): (&Snapshot, &Subject<'_>, &OrderRecords),
) -> String {
    let page = subject.regime.granule.bytes();
    match record.reasons[usize::from(order)] {
        Reason::Policy => record
            .adaptive_reason(order, page)
            .map_or(String::new(), |why| format!(": {why}")),
        Reason::Overlap => {
            let size = page << order;
            let start = record.address & !(size - 1);
            let folio = record.folio(page);
            let own =
                |va: &u64| folio.is_some_and(|(first, size)| (first..first + size).contains(va));
            let there = |va: &u64| match stage1::lookup(
                &snapshot.memory,
                &subject.regime,
                VirtualAddress(*va),
            ) {
                Lookup::Mapped { .. } => true,
                Lookup::NotMapped { entry } => entry.descriptor.word != 0,
                _ => false,
            };
            let before = |va: &u64| {
                let mut all = orders.records.iter();
                let is = |it: &&OrderRecord| {
                    it.tgid == record.tgid && it.time_ns < record.time_ns && it.covers(*va, page)
                };
                all.find(is).map(|it| record.time_ns - it.time_ns)
            };
            let pages = (start..start.saturating_add(size)).step_by(page as usize);
            let others: Vec<u64> = pages.filter(|va| !own(va) && there(va)).collect();
            let first = others.iter().find_map(|va| Some((*va, before(va)?)));
            match (first, others.first()) {
                (Some((va, ns)), _) => format!(
                    ": the page at {va:#x}, which a fault {:.6} s before had brought in",
                    ns as f64 / 1e9
                ),
                (None, Some(va)) => {
                    format!(": the page at {va:#x} has one now, without an earlier record")
                }
                (None, None) => ", of which none is there any more".to_owned(),
            }
        }
        _ => String::new(),
    }
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
