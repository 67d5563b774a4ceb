// SPDX-License-Identifier: GPL-2.0-only
//! L15: the kernel's counters of memory are what there is.

use linux::counted::{Amount, Area, Census, Memory, Zone};
use linux::release::Release;

use crate::all_mapped::AllMapped;
use crate::check::{Check, CountedSeen, Counts};
use crate::rules::rule::{Identity, Need, OnBreak, Releases, Rule, Tier};

pub(crate) static RULE: Rule = Rule {
    name: "L15",
    title: "the kernel's counters of memory agree with it",
    asserts: "In pages, over all nodes and CPUs: NR_ANON_MAPPED is the number of anonymous pages in all memory that are mapped by their own \
              counts, NR_ANON_THPS of those of folios that blocks map, NR_FILE_MAPPED of other pages that are mapped, NR_SHMEM of those in the page cache of \
              shmem, NR_FILE_PAGES of those in any page cache and in the swap cache; hugetlb's are in none. \
              NR_MLOCK over all zones is the number of pages of folios with PG_mlocked, but for as many as the largest of these has: the flag \
              and the count are not changed in one. From 6.15 on a folio is counted whole \
              once any of it is mapped where no page of a large one counts its own entries (CONFIG_NO_PAGE_MAPCOUNT). Folios that are locked and mapped \
              nowhere, and of files those on no LRU list, may be in a cache or not. \
              Where not all pages could be looked at, or L2, L7, L8, L9 or L10 has told of pages, \
              each is only no less than what the judged processes map, and before 6.15 all but NR_SHMEM are no more than that and all else that entries of any address space map, where these are known and \
              nobody holds their locks; a note says so. In each zone \
              NR_FREE_PAGES is the sum of its lists of free blocks, without those that are isolated; not judged where the zone's \
              lock is held. What differs by no more than 128 pages for each CPU is left alone: a thread that folds a \
              CPU's part of a counter may be preempted between taking it and adding it.",
    tier: Tier::Linux,
    sources: &[
        "mm/rmap.c, __folio_mod_stat(), __folio_add_rmap(); mm/shmem.c, shmem_update_stats(); mm/page_alloc.c, account_freepages()",
        "mm/filemap.c, __filemap_add_folio(), filemap_unaccount_folio(); mm/swap_state.c, add_to_swap_cache()",
        "mm/vmstat.c, __mod_node_page_state(), refresh_cpu_vm_stats(); mm/mlock.c, mlock_folio(), __munlock_folio()",
    ],
    needs: &[Need::Vmas.less(), Need::Folios.all(), Need::Memory.half("mapped memory"), Need::Zones.half("free pages"), Need::Census.less()],
    releases: Releases::WIDELY,
    known: &[],
    identity: Identity::Sentence,
    on_break: OnBreak::GoOn,
    checks: &[Check::Counted(mapped),
        Check::Counted(free)],
    synthetic: &["l15_less_counted_than_mapped", "l15_more_counted_than_mapped", "l15_as_much_as_there_is", "l15_locked_pages", "l15_free_pages"],
    live: &["test_l15_mapped", "test_l15_free_pages"],
};

/// From which release on a folio may be counted whole once one of its pages is mapped (`CONFIG_NO_PAGE_MAPCOUNT`).
const BY_FOLIO: Release = Release::new(6, 15, 0);

/// The part of a counter that one CPU keeps is a signed byte, and its fold takes it out before it adds it
/// (`refresh_cpu_vm_stats()`, `cpu_vm_stats_fold()`). All that count what is mapped or free hold a spinlock meanwhile.
const FOLDED: i64 = 128;

/// One counter.
struct Counter {
    what: &'static str,
    counted: i64,
    /// The part that the judged processes map.
    mapped: i64,
    /// True if all of it is mapped.
    exact: bool,
    /// Its amount, if that is known.
    there: Option<Amount>,
}

/// Each counter of memory that is known.
fn counters(memory: &Memory, mapped: &AllMapped, census: Option<&Census>) -> Vec<Counter> {
    let of = |counted, mapped, there: Option<Amount>, what| Counter {
        what,
        counted,
        mapped,
        exact: true,
        there,
    };
    let anonymous = census.map(|census| census.anonymous.into());
    let what = "anonymous memory that is mapped (NR_ANON_MAPPED)";
    let mut all = vec![of(memory.anonymous, mapped.anonymous, anonymous, what)];
    let blocks = census.map(|census| census.blocks.into());
    let what = "anonymous memory that blocks map (NR_ANON_THPS)";
    all.push(of(memory.blocks, mapped.blocks, blocks, what));
    // Not all of it is mapped.
    all.push(Counter {
        exact: false,
        ..of(
            memory.shmem,
            mapped.shmem,
            census.map(|census| census.shmem),
            "shmem (NR_SHMEM)",
        )
    });
    all.extend(memory.file.map(|(counted, _)| {
        let there = census.map(|census| census.file.into());
        let what = "files that are mapped (NR_FILE_MAPPED)";
        of(counted, mapped.file, there, what)
    }));
    let mlocked = |census: &Census| Amount {
        least: census.mlocked - census.largest_mlocked,
        most: census.mlocked + census.largest_mlocked,
    };
    all.extend(memory.mlocked.map(|(counted, _)| Counter {
        exact: false,
        ..of(
            counted,
            0,
            census.map(mlocked),
            "memory that is locked (NR_MLOCK)",
        )
    }));
    all.extend(memory.cache.map(|(counted, _)| Counter {
        exact: false,
        ..of(
            counted,
            0,
            census.map(|census| census.cache),
            "page cache and swap cache (NR_FILE_PAGES)",
        )
    }));
    all
}

/// The sentence of each counter of memory that is wrong, and of each that is above what is mapped where there may be
/// more. Entries that are moving are not present and may be counted all the same, as a device's pages are.
fn mapped(seen: &CountedSeen<'_>, counts: &mut Counts) {
    let Ok(memory) = &seen.counted.memory else {
        return;
    };
    let (mapped, moving) = (seen.mapped, seen.moving);
    let by_page = seen.release.is_some_and(|release| release < BY_FOLIO);
    let open = FOLDED * memory.cpus as i64;
    let (wrong, above) = (&mut counts.wrong, &mut counts.not_judged);
    for counter in counters(memory, mapped, seen.census) {
        let (what, counted, least) = (counter.what, counter.counted, counter.mapped);
        if counted < least - open {
            wrong.push(format!("the kernel counts {counted} pages of {what}, and the judged processes map {least}: it must count these at least"));
            continue;
        }
        if let Some(there) = counter.there {
            if !there.holds(counted, open + moving as i64) {
                wrong.push(format!("the kernel counts {counted} pages of {what}, and there are {there} in all memory: they must be equal, but for {open} that its CPUs may be adding"));
            }
            continue;
        }
        let others = mapped.others;
        if !counter.exact || !by_page || counted <= least + others + moving as i64 + open {
            continue;
        }
        match &mapped.more {
            None => wrong.push(format!("the kernel counts {counted} pages of {what}; the judged processes map {least}, and whatever else is mapped is {others} pages: it must count no more than both, but for {open} that its CPUs may be adding")),
            Some(why) => {
                counts.uncounted += 1;
                above.push(format!("L15 was not judged for {what}, of which the kernel counts {counted} pages, {least} of judged processes and {others} others were seen: {why}"));
            }
        }
    }
}

/// The sentence of each zone whose free pages are not as many as counted; `cpus` keep a part of the count.
fn free(seen: &CountedSeen<'_>, counts: &mut Counts) {
    let zones = seen.counted.zones.iter().flatten();
    counts.wrong.extend(zones.filter_map(zone));
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
