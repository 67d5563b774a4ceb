// SPDX-License-Identifier: GPL-2.0-only
//! L14: free memory is on the lists that count it.

use linux::counted::{Area, CpuPages, Lost};

use crate::check::{Check, CountedSeen, Counts};
use crate::rules::rule::{Identity, Need, OnBreak, Releases, Rule, Tier};

pub(crate) static RULE: Rule = Rule {
    name: "L14",
    title: "lists of free pages are as long as counted, and hold free pages and all of them",
    asserts: "In each zone: nr_free of each order is the length of its lists, and every block on them is of that zone, naturally \
              aligned, and the buddy allocator's, of that order. What each CPU keeps for itself (per_cpu_pages): count is the sum of \
              its lists in pages, order_count (where the kernel has it and keeps it) that of each order's, and no block on them is the buddy \
              allocator's or has references. Each list comes back to its head, forwards and backwards. Not judged where a zone's \
              or a CPU's lock is held. Every page that has no reference, type, flag, \
              mapping or folio is on such a list: otherwise it is lost, the same pages in several looks. Left alone are pages behind \
              one of the kernel's that may be the first of an allocation without __GFP_COMP, whose others have no reference \
              either, and up to 1024 pages for each CPU that is in the kernel and not idle: for each CPU while a task is preempted in \
              the kernel, and with PREEMPT_RT. Not judged of these while a task compacts, migrates, or reports free pages to the host.",
    tier: Tier::Linux,
    sources: &[
        "mm/page_alloc.c, __add_to_free_list(), __del_page_from_free_list(), free_unref_page_commit(), order_to_pindex()",
        "mm/compaction.c, release_free_list(), isolate_freepages_block(); mm/page_alloc.c, free_pages_prepare(), \
         page_expected_state()",
    ],
    needs: &[Need::Zones.all()],
    releases: Releases::WIDELY,
    known: &[],
    identity: Identity::Sentence,
    on_break: OnBreak::GoOn,
    checks: &[Check::Counted(check)],
    synthetic: &["l14_free_lists", "l14_pages_on_no_list"],
    live: &[
        "test_l14_free_lists",
        "test_l14_lists_of_cpus",
        "test_l14_orders_of_cpus",
        "test_l14_pages_on_no_list",
    ],
};

/// The sentence of each list that is wrong, and why others were not judged.
fn check(seen: &CountedSeen<'_>, counts: &mut Counts) {
    lost(seen, counts);
    let Counts { wrong, locked, .. } = counts;
    let locked_by = |why: &str, whose: &str| {
        format!("L14 was not judged of {whose}, {why}; nor was, of a zone, what L15 says of its free pages")
    };
    for zone in seen.counted.zones.iter().flatten() {
        let whose = format!("zone {} of node {}", zone.name, zone.node);
        match &zone.areas {
            Ok(areas) => wrong.extend(areas.iter().filter_map(|it| area(it, &whose))),
            Err(why) => locked.push(locked_by(&why.why, &whose)),
        }
        for cpu in &zone.cpus {
            match cpu {
                Ok(pages) => kept(pages, &whose, wrong),
                Err(why) => locked.push(locked_by(&why.why, &whose)),
            }
        }
    }
}

/// Pages that a CPU may be moving between two lists, or to and from a task: a block of the largest order (4K granule).
const MOVED: u64 = 1 << 10;

/// The sentence where pages without an owner are on no list.
fn lost(seen: &CountedSeen<'_>, counts: &mut Counts) {
    let mut census = seen.counted.census.iter();
    let Some(Ok(Lost { pages, first })) = census.find_map(|it| it.lost.as_ref()) else {
        return;
    };
    let unknown = || "the stacks of tasks are not known".into();
    let memory = seen.counted.memory.as_ref().ok();
    let why = match memory.map(|memory| (memory.counting, &memory.isolating)) {
        _ if *pages == 0 => return,
        Some((Some(0), None)) => None,
        Some((Some(_), Some(why))) => Some(why.clone()),
        Some((Some(cpus), None)) if *pages <= MOVED.saturating_mul(cpus) => return,
        Some((Some(_), None)) => {
            Some("a CPU was in the kernel, or a task was preempted there".into())
        }
        Some((None, _)) | None => Some(unknown()),
    };
    let listed: Vec<String> = first.iter().map(|pfn| format!("0x{pfn:x}")).collect();
    let more = match *pages > listed.len() as u64 {
        true => ", ...",
        false => "",
    };
    let said = format!(
        "{pages} pages have no reference and no owner, and no list of free pages has them: page frames {}{more}",
        listed.join(", ")
    );
    match why {
        None => counts
            .wrong
            .push(format!("{said}; every free page must be on a list")),
        Some(why) => {
            counts.uncounted += 1;
            let said = format!("L14 was not judged of pages that may be lost, as {why}: {said}");
            counts.not_judged.push(said);
        }
    }
}

fn area(area: &Area, whose: &str) -> Option<String> {
    let Area {
        order,
        counted,
        listed,
        ..
    } = area;
    let list = format!("the list of free blocks of order {order} of {whose}");
    if let Some(why) = &area.problem {
        return Some(format!("{list} is wrong: {why}"));
    }
    (counted != listed)
        .then(|| format!("{list} has {listed} blocks, and {counted} are counted (nr_free)"))
}

fn kept(pages: &CpuPages, whose: &str, wrong: &mut Vec<String>) {
    let CpuPages {
        cpu,
        counted,
        listed,
        ..
    } = pages;
    let list = format!("the list of free pages of CPU {cpu} in {whose}");
    if let Some(why) = &pages.problem {
        wrong.push(format!("{list} is wrong: {why}"));
        return;
    }
    if counted != listed {
        wrong.push(format!(
            "{list} has {listed} pages, and {counted} are counted"
        ));
    }
    let orders = pages
        .orders
        .iter()
        .filter(|of| of.counted != of.listed)
        .map(|of| {
            format!(
                "{list} has {} pages of order {}, and {} are counted (order_count)",
                of.listed, of.order, of.counted
            )
        });
    wrong.extend(orders);
}
