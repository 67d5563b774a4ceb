// SPDX-License-Identifier: GPL-2.0-only
//! C7: a folio of a process or of shmem is charged to a memory cgroup.

use linux::folio::Kind;

use crate::check::{Check, Unheld, UnheldSeen};
use crate::finding::Finding;
use crate::rules::rule::{Identity, Need, OnBreak, Releases, Rule, Tier};

pub(crate) static RULE: Rule = Rule {
    name: "C7",
    title: "a folio is charged to a memory cgroup",
    asserts: "In ranges that the checkpoint calls `unheld`, each anonymous folio and each of shmem has a memory cgroup (memcg_data): its \
              own, also after it was migrated or split. Without one no cgroup counts it, and no limit applies to it. \
              When the processes of a batch of the crossing have ended and its files are gone, their cgroup has neither memory nor swap \
              charged any more (`cgroup.memory=nokmem` keeps the kernel's own memory out of it): what it still has is lost to its limit. Not asked where no \
              folio of the judged processes has one, as where memory cgroups are switched off, nor of hugetlb and other files.",
    tier: Tier::Linux,
    sources: &[
        "mm/memcontrol.c, charge_memcg(), commit_charge(), mem_cgroup_migrate(), split_page_memcg(); folio_split_memcg_refs() from 6.16 on",
        "mm/memory.c, alloc_anon_folio(); mm/shmem.c, shmem_alloc_and_add_folio()",
        "mm/memcontrol.c, uncharge_folio(), uncharge_batch(), memory_high_write()",
    ],
    needs: &[Need::Expectations.all(), Need::Folios.all()],
    releases: Releases::WIDELY,
    known: &[],
    identity: Identity::Sentence,
    on_break: OnBreak::GoOn,
    checks: &[Check::Unheld(check), Check::Elsewhere("the crossing (charges that are left)")],
    synthetic: &["c7_a_folio_without_a_cgroup", "c7_where_nothing_is_charged", "c7_charges_that_are_left"],
    live: &["test_a_lost_charge_is_named"],
};

/// That a cgroup still has so many pages of memory or swap charged, and all whom they were charged for are gone.
#[must_use]
pub fn charges_left(pages: u64, what: &str) -> Finding {
    Finding::new(
        &RULE,
        format!("expected no {what} charged to the memory cgroup of processes that have ended and of files that are gone, and found {pages} pages"),
    )
}

fn check(seen: &UnheldSeen<'_>) -> Unheld {
    let page = seen.page;
    let of_shmem = page.kind == Kind::File && page.swapbacked;
    let is_asked = seen.charges && !page.hugetlb && (page.kind.anonymous() || of_shmem);
    if !is_asked || seen.folios.charged(&page) != Some(false) {
        return Unheld::Right;
    }
    Unheld::Wrong(format!(
        "the folio of order {} at page frame 0x{:x}, mapped at VA 0x{:016x}, is charged to no memory cgroup (memcg_data is 0)",
        page.order, page.head, seen.va
    ))
}

#[cfg(test)]
mod tests {
    use crate::testing::folios::{errors, good, unheld};
    use crate::testing::id;
    use crate::tests::guest::*;

    #[test]
    fn c7_a_folio_without_a_cgroup() {
        let mut guest = unheld();
        guest.kernel().charges = true;
        assert!(errors(&guest.counted(None)).is_empty());
        let (first, members) = (guest.first(), guest.members);
        for head in [first, first + members + 3] {
            guest.kernel().uncharged.insert(head);
            assert_eq!(errors(&guest.counted(None)), [id("C7")], "{head:x}");
            guest.kernel().uncharged.clear();
        }
        let mut elsewhere = good(Guest::new());
        elsewhere.kernel().charges = true;
        elsewhere.kernel().uncharged.insert(first);
        assert!(errors(&elsewhere.counted(None)).is_empty());
    }

    #[test]
    fn c7_charges_that_are_left() {
        let finding = super::charges_left(3, "swap");
        assert_eq!(finding.rule, id("C7"));
        assert!(finding.message.contains("no swap") && finding.message.ends_with("3 pages"));
    }

    #[test]
    fn c7_where_nothing_is_charged() {
        let mut guest = unheld();
        guest.kernel().charges = false;
        assert!(errors(&guest.counted(None)).is_empty());
    }
}
