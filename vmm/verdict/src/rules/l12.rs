//! L12: the kernel's counters of large anonymous folios are what there is of them.

use std::collections::BTreeMap;

use linux::counted::{Queues, Size};

use super::{Need, Releases, Rule, RuleId, Tier};
use crate::folios::Folios;

pub(super) const RULE: Rule = Rule {
    id: RuleId::L12,
    title: "the counters of each size agree with its folios",
    asserts: "By order, over all CPUs: nr_anon is no less than the anonymous folios of that order that the judged processes map, \
              without hugetlb's. More is not asserted: folios that others map, that are swapped out and in the swap cache, or that a \
              CPU is about to free are counted as well. nr_anon_partially_mapped is the number of folios so marked on all \
              queues of those that wait to be split, where those are known and nobody is splitting them. Neither is below 0.",
    tier: Tier::Linux,
    sources: &[
        "include/linux/huge_mm.h, mod_mthp_stat()",
        "mm/rmap.c, folio_add_new_anon_rmap(); mm/page_alloc.c, free_pages_prepare(); mm/huge_memory.c, deferred_split_folio()",
    ],
    needs: &[Need::Vmas, Need::Folios, Need::Counted],
    releases: Releases::WIDELY,
    known: &[],
    synthetic: &[
        "l12_fewer_counted_than_mapped",
        "l12_partially_mapped_and_queued",
    ],
    live: &["test_l12_counters"],
};

/// The sentence of each counter that is wrong; `mapped` is how many anonymous folios of each order are mapped.
pub(super) fn check(
    sizes: &[Size],
    mapped: &BTreeMap<u8, i64>,
    queues: Option<&Queues>,
    folios: &dyn Folios,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let waiting = queues.and_then(|queues| partial(queues, folios));
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
    wrong
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
