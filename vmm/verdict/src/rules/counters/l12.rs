// SPDX-License-Identifier: GPL-2.0-only
//! L12: the kernel's counters of large anonymous folios are what there is of them.

use std::collections::BTreeMap;

use linux::counted::{Queues, Size};
use linux::release::Release;

use crate::check::{Check, CountedSeen, Counts};
use crate::rules::rule::{Identity, KnownFault, Need, OnBreak, Releases, Rule, Tier};
use linux::structures::Folios;

pub(crate) static RULE: Rule = Rule {
    name: "L12",
    title: "the counters of each size agree with its folios",
    asserts: "By order, over all CPUs: nr_anon is the number of anonymous folios of that order in all memory, without hugetlb's: \
              mapped or not, in the swap cache, or about to be given back. Those that are frozen, or locked and mapped nowhere, may be \
              counted or not. Where not all pages could be looked at, or L2, L7, L8, L9 or L10 has told of pages, it is only no less than those \
              that the judged processes map; a note says so. nr_anon_partially_mapped is the number of folios so marked on all \
              queues of those that wait to be split, where those are known and nobody is splitting them. Neither is below 0.",
    tier: Tier::Linux,
    sources: &[
        "include/linux/huge_mm.h, mod_mthp_stat()",
        "mm/rmap.c, folio_add_new_anon_rmap(); mm/page_alloc.c, free_pages_prepare(); mm/migrate.c, __folio_migrate_mapping()",
        "mm/huge_memory.c, split_huge_page_to_list_to_order(), deferred_split_folio()",
    ],
    needs: &[Need::Vmas.less(), Need::Folios.all(), Need::Sizes.all(), Need::Queues.part("partially mapped folios"), Need::Census.less()],
    releases: Releases::WIDELY,
    known: &[KnownFault {
        mark: "(nr_anon), and there are only",
        commit: "mm/migrate: exclude hugetlb folios from MTHP_STAT_NR_ANON accounting",
        // Of the stable series none had it that was tried: 6.12.117 and 6.18.15 lack it, 7.2.12 has it.
        mended: &[Release::new(7, 2, 0)],
    }],
    identity: Identity::Sentence,
    on_break: OnBreak::GoOn,
    checks: &[Check::Counted(check)],
    synthetic: &[
        "l12_fewer_counted_than_mapped",
        "l12_as_many_as_there_are",
        "l12_more_than_there_are_may_be_what_was_mended",
        "l12_partially_mapped_and_queued",
    ],
    live: &["test_l12_counters", "test_hugetlb_pages_that_were_migrated"],
};

/// The sentence of each counter that is wrong.
fn check(seen: &CountedSeen<'_>, counts: &mut Counts) {
    let Ok(sizes) = &seen.counted.sizes else {
        return;
    };
    let (mapped, census) = (&seen.mapped.folios, seen.census);
    let wrong = &mut counts.wrong;
    let queues = seen.counted.queues.as_ref().ok();
    let waiting = queues.and_then(|queues| partial(queues, seen.folios));
    for size in sizes {
        let Size {
            order,
            anonymous,
            partial,
            ..
        } = *size;
        let least = mapped.get(&order).copied().unwrap_or(0);
        if anonymous < least {
            wrong.push(format!(
                "the kernel counts {anonymous} anonymous folios of order {order} (nr_anon), and {least} of that order are mapped: it must count these at least"
            ));
        } else if let Some(census) = census {
            let mut there = census.folios.get(&order).copied().unwrap_or_default();
            there.most += census.unknown;
            if !there.holds(anonymous, 0) {
                let only = if anonymous > there.most { "only " } else { "" };
                wrong.push(format!(
                    "the kernel counts {anonymous} anonymous folios of order {order} (nr_anon), and there are {only}{there} of that order in all memory: they must be equal"
                ));
            }
        }
        let waiting = waiting
            .as_ref()
            .map(|all| all.get(&order).copied().unwrap_or(0));
        if let Some(waiting) = waiting.filter(|waiting| partial != *waiting) {
            wrong.push(format!(
                "the kernel counts {partial} partially mapped folios of order {order} (nr_anon_partially_mapped), and {waiting} so marked wait to be split: they must be equal"
            ));
        } else if partial < 0 {
            wrong.push(format!(
                "the kernel counts {partial} partially mapped folios of order {order} (nr_anon_partially_mapped): it cannot be less than none"
            ));
        }
    }
}

/// By order: the partially mapped folios on all queues, where these are known to hold all of them.
fn partial(queues: &Queues, folios: &dyn Folios) -> Option<BTreeMap<u8, i64>> {
    let broken = queues.queues.iter().any(|queue| queue.problem.is_some());
    if queues.is_scanned || broken {
        return None;
    }
    let mut waiting = BTreeMap::new();
    for pfn in queues.queues.iter().flat_map(|queue| &queue.folios) {
        let page = folios.page(*pfn).ok()?;
        if page.split.is_some_and(|split| split.partially_mapped) {
            *waiting.entry(page.order).or_default() += 1;
        }
    }
    Some(waiting)
}
