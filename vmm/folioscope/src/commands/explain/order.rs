// SPDX-License-Identifier: GPL-2.0-only
//! Explains an address's order, by the kernel's record.

use analysis::{may_be_of, AddressInfo};
use evidence::Subject;
use linux::order::adaptive::State;
use linux::order::{OrderRecord, OrderRecords, Policy, Reason};
use snapshot::Snapshot;
use stage1::{Lookup, VirtualAddress};

use super::Explain;
use crate::commands::output::say;
use crate::commands::Outcome;
use crate::{Error, EXIT_NOT_JUDGED, EXIT_OK};

/// Ways to a mapping without a record.
const NO_RECORD: &str =
    "fork, mremap, reads of files, copies of single pages and hugetlb leave none";

impl Explain {
    /// Returns the record of the fault that brought an address in.
    pub(super) fn print_order(
        &self,
        va: u64,
        snapshot: &Snapshot,
        subject: &Subject<'_>,
        place: &AddressInfo,
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
                print_fault(record)?;
                for (order, reason) in record.reasons.iter().enumerate().rev() {
                    if let Some(why) = reason.rejection() {
                        let more = more(order as u8, record, (snapshot, subject, orders));
                        say!("  order {order:<2} {why}{more}");
                    }
                }
                if record.policy == Policy::Adaptive {
                    print_state(record, place)?;
                }
                match record.folio(page) {
                    Some((start, size)) => say!(
                        "  chosen   order {}: a folio of {} KiB at {start:#x}",
                        record.chosen.unwrap_or_default(),
                        size / 1024
                    ),
                    None => say!("  chosen   none: the fault ended without a folio"),
                }
                print_which(place, record, va, page)?;
            }
            None => {
                let overwritten = (orders.lost, "older records were overwritten");
                let begun = (orders.being_written, "were being written");
                let gone: Vec<String> = [overwritten, begun]
                    .iter()
                    .filter(|(count, _)| *count > 0)
                    .map(|(count, what)| format!("{count} {what}"))
                    .collect();
                match gone.is_empty() {
                    true => say!("  order    no record of this address: {NO_RECORD}"),
                    false => say!("  order    no record of this address; {}", gone.join(", ")),
                }
            }
        }
        Ok(EXIT_OK)
    }
}

fn print_fault(record: &OrderRecord) -> Result<(), Error> {
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

/// Prints the state of policy `adaptive` after this fault, and its state of the VMA now.
fn print_state(record: &OrderRecord, place: &AddressInfo) -> Result<(), Error> {
    if let Some(then) = record.adapted {
        say!(
            "  adaptive {} pages in a row were there beside the fault; {}{}",
            then.run,
            then.state.text(record.hinted),
            if then.probe {
                "; this block is one"
            } else {
                ""
            }
        );
    }
    match place.order_state.map(|byte| State::decode(byte as u8)) {
        None => say!("  state    not known: the VMAs of this kernel have none, or were not read"),
        Some(now) if record.adapted.is_some_and(|then| then.state == now) => {
            say!("  state    as after this fault");
        }
        Some(now) => say!("  state    now {}", now.text(record.hinted)),
    }
    Ok(())
}

/// Returns what is behind a rejection, where that is known.
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
            // The recorded address is in the range of the largest order that overlaps, and so in that of no other
            // unless it is in this one too.
            if let Some(va) = record
                .overlap
                .filter(|va| (start..start + size).contains(va))
            {
                return match before(&va) {
                    Some(ns) => format!(
                        ": the page at {va:#x}, which a fault {:.6} s before had brought in",
                        ns as f64 / 1e9
                    ),
                    None => format!(": the page at {va:#x}, of which no earlier record is left"),
                };
            }
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
        Reason::AllocationFailed => record.free.map_or(String::new(), |free| {
            let known = free.iter().rposition(|&blocks| blocks > 0);
            let blocks = |&blocks: &u8| match blocks {
                u8::MAX => "255 or more".to_owned(),
                some => some.to_string(),
            };
            let free: Vec<String> = free[..known.map_or(0, |last| last + 1)]
                .iter()
                .enumerate()
                .map(|(order, count)| format!("{order}: {}", blocks(count)))
                .collect();
            match free.is_empty() {
                true => "; no block of any order was free on its node".to_owned(),
                false => format!("; blocks free on its node by order {}", free.join(", ")),
            }
        }),
        _ => String::new(),
    }
}

/// Prints whether the record is about the present folio.
fn print_which(place: &AddressInfo, record: &OrderRecord, va: u64, size: u64) -> Result<(), Error> {
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
