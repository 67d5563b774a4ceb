// SPDX-License-Identifier: GPL-2.0-only
//! L15: the kernel's counters of memory are what there is.

use linux::counted::{Amount, Area, Census, Committed, Lists, Memory, Written, Zone};
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
              and the count are not changed in one. NR_SHMEM_THPS and NR_FILE_THPS are the pages of folios of a PMD's size in the page cache of shmem \
              and of other files, NR_SHMEM_PMDMAPPED and NR_FILE_PMDMAPPED of those of them that PMDs map. \
              NR_FILE_DIRTY is the pages of folios with PG_dirty in the page cache of files that are written back, NR_WRITEBACK of those with \
              PG_writeback, NR_ZONE_WRITE_PENDING over all zones of both, each but for as many as the largest has. \
              NR_INACTIVE_ANON and NR_ACTIVE_ANON together are the pages of folios with PG_lru and PG_swapbacked, NR_INACTIVE_FILE and NR_ACTIVE_FILE of \
              those with PG_lru alone, NR_UNEVICTABLE of those with PG_lru and PG_unevictable, but for as many as the largest has; not judged while \
              the lock of a list is held. From 6.15 on a folio is counted whole \
              once any of it is mapped where no page of a large one counts its own entries (CONFIG_NO_PAGE_MAPCOUNT). Folios that are locked and mapped \
              nowhere, and of files those on no LRU list, may be in a cache or not. \
              Where not all pages could be looked at, or L2, L7, L8, L9 or L10 has told of pages, \
              each is only no less than what the judged processes map, and before 6.15 all but NR_SHMEM are no more than that and all else that entries of any address space map, where these are known and \
              nobody holds their locks; a note says so. In each zone \
              NR_FREE_PAGES is the sum of its lists of free blocks, without those that are isolated; not judged where the zone's \
              lock is held. Memory that is promised (vm_committed_as) is the pages of all VMAs with VM_ACCOUNT and those of shmem's files: the size of one that reserves it (no VM_NORESERVE), the pages of others. A tmpfs with a limit counts the pages that its files have, in memory and in swap (used_blocks). Neither is \
              judged while a task makes, changes or takes down an address space or such a file. \
              NR_FOLL_PIN_ACQUIRED less NR_FOLL_PIN_RELEASED is the pins of all folios, num_poisoned_pages (HardwareCorrupted) the pages with \
              PG_hwpoison, and NR_ISOLATED_ANON and NR_ISOLATED_FILE are 0. The last two are not judged while a task reclaims, compacts, migrates, \
              collapses or handles a broken page, pins while a CPU is in the kernel and not idle. What differs by no more than 128 pages for each such CPU is \
              left alone; for each CPU while a task that folds their parts of the counters (`refresh_cpu_vm_stats()`), or is anywhere in the kernel, \
              is preempted, and with PREEMPT_RT: a counter is not changed together with what it counts.",
    tier: Tier::Linux,
    sources: &[
        "mm/rmap.c, __folio_mod_stat(), __folio_add_rmap(); mm/shmem.c, shmem_update_stats(); mm/page_alloc.c, account_freepages()",
        "mm/filemap.c, __filemap_add_folio(), filemap_unaccount_folio(); mm/swap_state.c, add_to_swap_cache()",
        "include/linux/mm_inline.h, update_lru_size(); mm/util.c, __vm_enough_memory(); mm/shmem.c, shmem_acct_size(), shmem_acct_blocks()",
        "mm/page-writeback.c, folio_account_dirtied(), folio_clear_dirty_for_io(), __folio_start_writeback(), __folio_end_writeback()",
        "mm/vmstat.c, __mod_node_page_state(), refresh_cpu_vm_stats(); mm/mlock.c, mlock_folio(), __munlock_folio()",
    ],
    needs: &[Need::Vmas.less(), Need::Folios.all(), Need::Memory.half("mapped memory"), Need::Zones.half("free pages"), Need::Lists.part("the LRU lists"), Need::Committed.part("memory that is promised"), Need::Census.less()],
    releases: Releases::WIDELY,
    known: &[],
    identity: Identity::Sentence,
    on_break: OnBreak::GoOn,
    checks: &[Check::Counted(mapped), Check::Counted(free), Check::Counted(committed)],
    synthetic: &["l15_less_counted_than_mapped", "l15_more_counted_than_mapped", "l15_as_much_as_there_is", "l15_locked_pages", "l15_what_is_held", "l15_what_is_held_may_be_on_its_way", "l15_free_pages", "l15_folios_of_a_pmd", "l15_lists_of_the_lru", "l15_what_is_to_be_written", "l15_memory_that_is_promised"],
    live: &["test_l15_mapped", "test_l15_is_exact", "test_l15_free_pages", "test_l15_memory_that_is_promised"],
};

/// From which release on a folio may be counted whole once one of its pages is mapped (`CONFIG_NO_PAGE_MAPCOUNT`).
const BY_FOLIO: Release = Release::new(6, 15, 0);

/// The part of a counter that one CPU keeps is a signed byte, and its fold takes it out before it adds it
/// (`refresh_cpu_vm_stats()`, `cpu_vm_stats_fold()`). All that count what is mapped or free hold a spinlock meanwhile, so that
/// a CPU that is idle or in user mode is not at it.
const FOLDED: i64 = 128;

/// Returns the end of a sentence, with the pages that may be on their way.
fn adding(open: i64) -> String {
    match open {
        0 => String::new(),
        _ => format!(", but for {open} that its CPUs may be adding"),
    }
}

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
    /// Reason why it may differ from that at this instant.
    moving: Option<String>,
}

/// Reason why folios may be isolated, or being marked as broken.
fn at_it(memory: &Memory) -> Option<String> {
    let unknown = || "the stacks of tasks are not known".into();
    match memory.counting {
        Some(_) => memory.isolating.clone(),
        None => Some(unknown()),
    }
}

/// Reason why a folio may be pinned or released: it has all its pins at once, up to as many as it has pages.
fn pinning(memory: &Memory) -> Option<String> {
    match memory.counting {
        Some(0) => None,
        Some(_) => Some("a CPU was in the kernel".into()),
        None => Some("the CPUs' registers are not known".into()),
    }
}

/// Each counter of memory that is known.
fn counters(memory: &Memory, mapped: &AllMapped, census: Option<&Census>) -> Vec<Counter> {
    let of = |counted, mapped, there: Option<Amount>, what| Counter {
        what,
        counted,
        mapped,
        exact: true,
        there,
        moving: None,
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
    let not_all_mapped = |(counted, _): (i64, u64), there: Option<Amount>, what| Counter {
        exact: false,
        ..of(counted, 0, there, what)
    };
    // The flag and the count are not changed in one.
    let around = |there: Amount, largest: i64| Amount {
        least: there.least - largest,
        most: there.most + largest,
    };
    all.extend(memory.mlocked.map(|counted| {
        let there = census.map(|it| around(it.mlocked.into(), it.largest_mlocked));
        not_all_mapped(counted, there, "memory that is locked (NR_MLOCK)")
    }));
    all.extend(memory.cache.map(|counted| {
        let what = "page cache and swap cache (NR_FILE_PAGES)";
        not_all_mapped(counted, census.map(|census| census.cache), what)
    }));
    let (at_it, pinning) = (at_it(memory), pinning(memory));
    let held = [
        (
            memory.pinned,
            census.and_then(|census| census.pinned),
            pinning,
            "pins (NR_FOLL_PIN_ACQUIRED less NR_FOLL_PIN_RELEASED)",
        ),
        (
            memory.poisoned,
            census.and_then(|census| census.poisoned),
            at_it.clone(),
            "memory with PG_hwpoison (num_poisoned_pages, HardwareCorrupted)",
        ),
        (
            memory.isolated,
            Some(0.into()),
            at_it,
            "folios that a task has taken from their list (NR_ISOLATED_ANON, NR_ISOLATED_FILE)",
        ),
    ];
    for (counted, there, moving, what) in held {
        all.extend(counted.map(|counted| Counter {
            moving,
            ..not_all_mapped(counted, there, what)
        }));
    }
    if let Some(counted) = memory.large {
        let there = census.and_then(|census| census.large);
        let of = |counted, there: Option<Amount>, what| not_all_mapped(counted, there, what);
        all.extend([
            of(
                counted.shmem,
                there.map(|it| it.shmem),
                "folios of a PMD's size in the page cache of shmem (NR_SHMEM_THPS)",
            ),
            of(
                counted.file,
                there.map(|it| it.file),
                "folios of a PMD's size in the page cache of files (NR_FILE_THPS)",
            ),
            of(
                counted.shmem_mapped,
                there.map(|it| it.shmem_mapped),
                "shmem's folios that PMDs map (NR_SHMEM_PMDMAPPED)",
            ),
            of(
                counted.file_mapped,
                there.map(|it| it.file_mapped),
                "files' folios that PMDs map (NR_FILE_PMDMAPPED)",
            ),
        ]);
    }
    if let Some(counted) = memory.written {
        let there = census.and_then(|census| Some((census.written?, census.largest_written)));
        let of = |counted, amount: fn(&Written<Amount>) -> Amount, what| {
            let there = there.map(|(written, largest)| around(amount(&written), largest));
            not_all_mapped(counted, there, what)
        };
        all.extend([
            of(
                counted.dirty,
                |it| it.dirty,
                "files that are dirty and written back (NR_FILE_DIRTY)",
            ),
            of(
                counted.under_way,
                |it| it.under_way,
                "memory that is being written (NR_WRITEBACK)",
            ),
            of(
                counted.pending,
                |it| it.pending,
                "what is to be written, over all zones (NR_ZONE_WRITE_PENDING)",
            ),
        ]);
    }
    if let Some(Ok(counted)) = &memory.lists {
        // `folio_isolate_lru()` clears PG_lru before it takes the lock under which the folio is counted down.
        let there = census.and_then(|census| Some((census.lists?, census.largest_listed)));
        let of = |counted, pages: fn(&Lists<i64>) -> i64, what| {
            let there = there.as_ref();
            let there = there.map(|(lists, largest)| around(pages(lists).into(), *largest));
            not_all_mapped(counted, there, what)
        };
        all.extend([
            of(
                counted.anonymous,
                |it| it.anonymous,
                "LRU lists of anonymous memory (NR_INACTIVE_ANON, NR_ACTIVE_ANON)",
            ),
            of(
                counted.file,
                |it| it.file,
                "LRU lists of files (NR_INACTIVE_FILE, NR_ACTIVE_FILE)",
            ),
            of(
                counted.unevictable,
                |it| it.unevictable,
                "unevictable memory (NR_UNEVICTABLE)",
            ),
        ]);
    }
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
    let of_all = FOLDED * memory.cpus as i64;
    let (wrong, above) = (&mut counts.wrong, &mut counts.not_judged);
    for counter in counters(memory, mapped, seen.census) {
        let (what, counted, least) = (counter.what, counter.counted, counter.mapped);
        // Another rule may have told of a page that makes the difference.
        let open = match (counter.there, memory.counting) {
            (Some(_), Some(counting)) => FOLDED * counting as i64,
            _ => of_all,
        };
        if counted < least - open {
            wrong.push(format!("the kernel counts {counted} pages of {what}, and the judged processes map {least}: it must count these at least"));
            continue;
        }
        if let Some(there) = counter.there {
            let differs = !there.holds(counted, open + moving as i64);
            if let (true, Some(why)) = (differs, counter.moving) {
                counts.uncounted += 1;
                above.push(format!("L15 was not judged for {what}, of which the kernel counts {counted} pages and {there} are there: {why}"));
            } else if differs {
                wrong.push(format!("the kernel counts {counted} pages of {what}, and there are {there} in all memory: they must be equal{}", adding(open)));
            }
            continue;
        }
        let others = mapped.others;
        if !counter.exact || !by_page || counted <= least + others + moving as i64 + open {
            continue;
        }
        match &mapped.more {
            None => wrong.push(format!("the kernel counts {counted} pages of {what}; the judged processes map {least}, and whatever else is mapped is {others} pages: it must count no more than both{}", adding(open))),
            Some(why) => {
                counts.uncounted += 1;
                above.push(format!("L15 was not judged for {what}, of which the kernel counts {counted} pages, {least} of judged processes and {others} others were seen: {why}"));
            }
        }
    }
}

/// The sentences if more or less memory is promised than to whom it was, and where a tmpfs counts otherwise than its files.
fn committed(seen: &CountedSeen<'_>, counts: &mut Counts) {
    let Some(Ok(committed)) = &seen.counted.committed else {
        return;
    };
    let Committed {
        counted,
        vmas,
        shmem,
        limited,
        ..
    } = committed;
    let mut wrong = Vec::new();
    if *counted != vmas + shmem {
        wrong.push(format!(
            "the kernel counts {counted} pages as promised (vm_committed_as), and VMAs with VM_ACCOUNT have {vmas} and shmem's files {shmem}: both together must be as many"
        ));
    }
    let limited = limited.iter().filter(|it| it.used != it.alloced);
    wrong.extend(limited.map(|it| {
        format!(
            "the tmpfs of device 0:{} counts {} pages (used_blocks), and its files have {}: they must be equal",
            it.device, it.used, it.alloced
        )
    }));
    match committed.busy.as_ref().or(seen.mapped.more.as_ref()) {
        None => counts.wrong.extend(wrong),
        Some(why) => {
            counts.uncounted += wrong.len() as u64;
            let open = wrong
                .iter()
                .map(|it| format!("L15 was not judged for what is promised: {it}: {why}"));
            counts.not_judged.extend(open);
        }
    }
}

/// The sentence of each zone whose free pages are not as many as counted.
fn free(seen: &CountedSeen<'_>, counts: &mut Counts) {
    let zones = seen.counted.zones.iter().flatten();
    let memory = seen.counted.memory.as_ref();
    let counting = memory.ok().and_then(|memory| memory.counting);
    counts
        .wrong
        .extend(zones.filter_map(|it| zone(it, counting)));
}

/// On one zone, while so many CPUs may be changing the count, if that is known.
fn zone(zone: &Zone, counting: Option<u64>) -> Option<String> {
    let (areas, counted) = (zone.areas.as_ref().ok()?, zone.free?);
    // Lists that are wrong are told of by L14.
    if areas.iter().any(|area| area.problem.is_some()) {
        return None;
    }
    let pages = |area: &Area| (area.listed - area.isolated) << area.order;
    let listed: i64 = areas.iter().map(pages).sum();
    let open = FOLDED * counting.unwrap_or(zone.cpus.len() as u64) as i64;
    (counted.abs_diff(listed) > open.unsigned_abs()).then(|| {
        format!(
            "zone {} of node {} counts {counted} free pages (NR_FREE_PAGES), and {listed} are on its lists: they must be equal{}",
            zone.name, zone.node, adding(open)
        )
    })
}
