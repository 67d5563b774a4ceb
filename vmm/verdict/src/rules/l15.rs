//! L15: the kernel's counters of memory are what there is.

use linux::counted::{Area, Memory, Zone};
use linux::release::Release;

use super::{Need, Releases, Rule, RuleId, Tier};
use crate::rules::l9_counts::AllMapped;

pub(super) const RULE: Rule = Rule {
    id: RuleId::L15,
    title: "the kernel's counters of memory agree with it",
    asserts: "In pages, over all nodes and CPUs: NR_ANON_MAPPED is no less than the anonymous pages that the judged processes map, \
              NR_ANON_THPS than those of folios that blocks map, NR_SHMEM than the pages of shmem, NR_FILE_MAPPED than those \
              of files, shmem's among them; hugetlb's are in none. Before 6.15 all but NR_SHMEM are no more than that and all else that entries of any address space map, where these are known and \
              nobody holds their locks: later a folio may be counted whole once one of its pages is mapped. In each zone \
              NR_FREE_PAGES is the sum of its lists of free blocks, without those that are isolated; not judged where the zone's \
              lock is held. What differs by no more than 128 pages for each CPU is left alone: a thread that folds a \
              CPU's part of a counter may be preempted between taking it and adding it.",
    tier: Tier::Linux,
    sources: &[
        "mm/rmap.c, __folio_mod_stat(); mm/shmem.c, shmem_update_stats(); mm/page_alloc.c, account_freepages()",
        "mm/vmstat.c, __mod_node_page_state(), refresh_cpu_vm_stats()",
    ],
    needs: &[Need::Vmas, Need::Folios, Need::Counted],
    releases: Releases::WIDELY,
    known: &[],
    synthetic: &["l15_less_counted_than_mapped", "l15_more_counted_than_mapped", "l15_free_pages"],
    live: &["test_l15_mapped", "test_l15_free_pages"],
};

/// From which release on a folio may be counted whole once one of its pages is mapped (`CONFIG_NO_PAGE_MAPCOUNT`).
pub(super) const BY_FOLIO: Release = Release::new(6, 15, 0);

/// What one CPU keeps of a counter is a signed byte, and its fold takes it out before it adds it
/// (`refresh_cpu_vm_stats()`, `cpu_vm_stats_fold()`). All that count what is mapped or free hold a spinlock meanwhile.
const FOLDED: i64 = 128;

/// The sentence of each counter of mapped memory that is wrong, and of each that is above what is mapped where there may be
/// more. `by_page`: whether pages are counted that are mapped, not those of folios of which some are; `moving`: entries that are
/// not present and may be counted all the same, as a device's pages are.
pub(super) fn mapped(
    memory: &Memory,
    mapped: &AllMapped,
    (by_page, moving): (bool, u64),
) -> (Vec<String>, Vec<String>) {
    let open = FOLDED * memory.cpus as i64;
    let (anonymous, blocks) = (memory.anonymous, memory.blocks);
    let mut pairs = vec![
        (
            "anonymous memory that is mapped (NR_ANON_MAPPED)",
            anonymous,
            mapped.anonymous,
            true,
        ),
        (
            "anonymous memory that blocks map (NR_ANON_THPS)",
            blocks,
            mapped.blocks,
            true,
        ),
        // Not all of it is mapped.
        ("shmem (NR_SHMEM)", memory.shmem, mapped.shmem, false),
    ];
    pairs.extend(memory.file.map(|(counted, _)| {
        let what = "files that are mapped (NR_FILE_MAPPED)";
        (what, counted, mapped.file, true)
    }));
    let (mut wrong, mut above) = (Vec::new(), Vec::new());
    for (what, counted, least, exact) in pairs {
        if counted < least - open {
            wrong.push(format!("the kernel counts {counted} pages of {what}, and the judged processes map {least}: it must count these at least"));
        }
        let others = mapped.others;
        if !exact || !by_page || counted <= least + others + moving as i64 + open {
            continue;
        }
        match &mapped.more {
            None => wrong.push(format!("the kernel counts {counted} pages of {what}; the judged processes map {least}, and whatever else is mapped is {others} pages: it must count no more than both, but for {open} that its CPUs may be adding")),
            Some(why) => above.push(format!("L15 was not judged for {what}, of which the kernel counts {counted} pages, {least} of judged processes and {others} others were seen: {why}")),
        }
    }
    (wrong, above)
}

/// The sentence of each zone whose free pages are not as many as counted; `cpus` keep a part of the count.
pub(super) fn free(zones: &[Zone]) -> Vec<String> {
    zones.iter().filter_map(zone).collect()
}

fn zone(zone: &Zone) -> Option<String> {
    let (areas, counted) = (zone.areas.as_ref().ok()?, zone.free?);
    // Lists that are wrong are told of by L14.
    if areas.iter().any(|area| area.problem.is_some()) {
        return None;
    }
    let pages = |area: &Area| (area.listed - area.isolated) << area.order;
    let listed: i64 = areas.iter().map(pages).sum();
    let open = FOLDED * zone.cpus.len() as i64;
    (counted.abs_diff(listed) > open.unsigned_abs()).then(|| {
        format!(
            "zone {} of node {} counts {counted} free pages (NR_FREE_PAGES), and {listed} are on its lists: they must be equal, but for {open} that its CPUs may be adding",
            zone.name, zone.node
        )
    })
}
