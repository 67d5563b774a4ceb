// SPDX-License-Identifier: GPL-2.0-only
//! L13: the queues of folios that wait to be split.

use linux::counted::Queue;
use linux::folio::Numbering;
use linux::vma::Vma;

use crate::check::{Check, CountedSeen, Counts};
use crate::mapped::Mapped;
use crate::rules::rule::{Identity, Need, OnBreak, Releases, Rule, Tier};
use linux::structures::Folios;

pub(crate) static RULE: Rule = Rule {
    name: "L13",
    title: "what waits to be split is queued, counted, and a large anonymous folio",
    asserts: "Every folio on a node's or a memory cgroup's deferred split queue (since 7.3 its list of a `list_lru`) is anonymous, of order 2 or more, and listed by its \
              first page; the list comes back to its head; the queue's length is the number of its folios (while somebody splits \
              folios, which he has taken off the list before: no less). A mapped folio that is marked as partially mapped is on a \
              list, while nobody splits folios. Not judged where a queue's lock is held.",
    tier: Tier::Linux,
    sources: &["mm/huge_memory.c, deferred_split_folio(), __folio_unqueue_deferred_split(), deferred_split_scan()"],
    needs: &[Need::Folios.all(), Need::Queues.all()],
    releases: Releases {
        since: Some(crate::rules::rule::V6_12),
        until: None,
        tried: &[crate::rules::rule::V6_12_117, crate::rules::rule::V6_18_15, crate::rules::rule::V7_3_4],
    },
    known: &[],
    identity: Identity::Sentence,
    on_break: OnBreak::GoOn,
    checks: &[Check::Entry(check),
        Check::Counted(queues)],
    synthetic: &["l13_queues", "l13_partially_mapped_and_on_no_list"],
    live: &["test_l13_queue", "test_l13_folio_on_no_list", "test_lists_of_nodes_and_of_cgroups"],
};

/// The sentence of each queue that is wrong.
fn queues(seen: &CountedSeen<'_>, counts: &mut Counts) {
    let Ok(all) = &seen.counted.queues else {
        return;
    };
    let wrong = all.queues.iter().filter_map(|queue| {
        let wrong = wrong(queue, all.is_scanned, seen.folios)?;
        let whose = &queue.whose;
        Some(format!(
            "the queue of folios that wait to be split, of {whose}, {wrong}"
        ))
    });
    counts.wrong.extend(wrong);
}

fn wrong(queue: &Queue, is_scanned: bool, folios: &dyn Folios) -> Option<String> {
    if let Some(why) = &queue.problem {
        return Some(format!("cannot be followed: {why}"));
    }
    for pfn in &queue.folios {
        let page = match folios.page(*pfn) {
            Ok(page) => page,
            Err(why) => return Some(format!("has page frame 0x{pfn:x}: {}", why.why())),
        };
        let what = match () {
            () if page.head != *pfn => "which is not the first of its folio",
            () if page.order < 2 => "which is of no folio that can be on it (order 2 or more)",
            () if !page.kind.anonymous() => "which is not anonymous",
            () => continue,
        };
        return Some(format!("has page frame 0x{pfn:x}, {what}"));
    }
    let (length, listed) = (queue.length, queue.folios.len() as i64);
    let differs = if is_scanned {
        length < listed
    } else {
        length != listed
    };
    differs.then(|| format!("is said to have {length} folios and has {listed}"))
}

/// On one entry: the sentence where its folio should wait and is on no list.
fn check(mapped: &Mapped<'_>, _: &Vma, _: Option<&Numbering>) -> Option<String> {
    let page = mapped.page;
    let split = page.split?;
    (split.partially_mapped && !split.queued).then(|| {
        format!(
            "VA 0x{:016x} maps page frame 0x{:x} of the folio of order {} at 0x{:x}, which is marked as partially mapped and is on no list of those that wait to be split",
            mapped.va(),
            mapped.pfn,
            page.order,
            page.head
        )
    })
}
