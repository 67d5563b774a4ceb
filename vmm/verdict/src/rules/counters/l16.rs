// SPDX-License-Identifier: GPL-2.0-only
//! L16: what is counted of a slot in swap are the entries that lead to it.

use linux::counted::{Swap, SwapArea};

use crate::check::{Check, CountedSeen, Counts};
use crate::entries::Swapped;
use crate::rules::rule::{Identity, Need, OnBreak, Releases, Rule, Tier};

pub(crate) static RULE: Rule = Rule {
    name: "L16",
    title: "a slot in swap is counted as often as entries lead to it",
    asserts: "Each swap entry of any address space leads to a slot that there is, and a slot's count (swap_map) is the number of \
              entries that lead to it, those in the trees of shmem's files too, its being in the swap cache apart. Not judged: bad slots, those whose count goes on \
              elsewhere (more than 62 entries, since 7.1 more than 14), those of shmem that are in the swap cache (since 7.1 those whose folio is locked there); counts above the entries where not every address space that may have swap \
              entries (mmlist, which swapoff() goes by) could be walked; and while the machine hibernates, or a task changes or frees a file of shmem. Not on 7.0, which counts \
              otherwise.",
    tier: Tier::Linux,
    sources: &["mm/swapfile.c, __swap_duplicate(), __swap_entry_free_locked(), try_to_unuse(); mm/memory.c, do_swap_page(), zap_pte_range(), copy_nonpresent_pte(); mm/rmap.c, try_to_unmap_one()"],
    needs: &[Need::Swap.all()],
    releases: Releases {
        since: Some(crate::rules::rule::V6_12),
        until: None,
        // Debian's kernels have no swap device that needs no module; of those since 7.0 modules are easily had.
        tried: &[crate::rules::rule::V6_12_117, crate::rules::rule::V7_3_4],
    },
    known: &[],
    identity: Identity::Sentence,
    on_break: OnBreak::GoOn,
    checks: &[Check::Counted(check)],
    synthetic: &["l16_slots_and_entries", "l16_what_is_not_known", "l16_slots_of_shmem"],
    live: &["test_l16_swap_slots", "test_l16_slots_of_files", "test_l16_tables_of_clusters"],
};

/// Wrong slots of one area: how many, and the first.
#[derive(Default)]
struct Wrong {
    slots: u64,
    first: Option<(u64, u64, u64)>,
}

impl Wrong {
    fn add(&mut self, slot: u64, count: u64, entries: u64) {
        self.slots += 1;
        self.first.get_or_insert((slot, count, entries));
    }

    fn text(&self, area: u8) -> Option<String> {
        let (slot, count, entries) = self.first?;
        let more = match self.slots {
            1 => String::new(),
            slots => format!("; it is so with {} slots more", slots - 1),
        };
        Some(format!(
            "slot {slot} of swap area {area} is counted {count} times (swap_map), and {entries} entries of all address spaces lead to it: they must be equal{more}"
        ))
    }
}

/// The sentences where slots and entries do not agree, and why some were not judged.
fn check(seen: &CountedSeen<'_>, counts: &mut Counts) {
    let Ok(swap) = &seen.counted.swap else {
        return;
    };
    // Why address spaces may be missing.
    let incomplete = seen.unlisted.or(seen.mapped.unwalked.as_deref());
    let (wrong, mut uncounted) = (&mut counts.wrong, 0);
    let all = with_shmem(swap, &seen.mapped.swapped);
    let swapped = &all[..];
    for entries in swapped.chunk_by(|a, b| a.0 == b.0) {
        let (number, slot, _) = entries[0];
        if !swap.areas.iter().any(|area| area.number == number) {
            wrong.push(format!(
                "an entry leads to slot {slot} of swap area {number}, which there is not"
            ));
        }
    }
    for area in &swap.areas {
        let of_area = swapped.iter().filter(|(number, ..)| *number == area.number);
        let (more, fewer) = compare(area, of_area);
        // Entries that are not counted are wrong whatever else there is.
        wrong.extend(more.text(area.number));
        match incomplete {
            Some(_) => uncounted += fewer.slots,
            None => wrong.extend(fewer.text(area.number)),
        }
    }
    let why = incomplete.filter(|_| uncounted > 0);
    counts.not_judged.extend(why.map(|why| {
        format!("{uncounted} slots are counted more often than entries lead to them, and L16 was not judged for them: {why}")
    }));
}

/// Entries, and the places of shmem that count as they do.
fn with_shmem(swap: &Swap, swapped: &[Swapped]) -> Vec<Swapped> {
    let shmem = swap.shmem.iter().flat_map(|&(area, first, slots)| {
        (first..first.saturating_add(slots)).map(move |slot| (area, slot, 1))
    });
    let mut all: Vec<Swapped> = swapped.iter().copied().chain(shmem).collect();
    all.sort_unstable();
    all.dedup_by(|next, before| {
        let same = (next.0, next.1) == (before.0, before.1);
        before.2 += if same { next.2 } else { 0 };
        same
    });
    all
}

/// The slots with more entries than are counted, and with fewer.
fn compare<'s>(area: &SwapArea, entries: impl Iterator<Item = &'s Swapped>) -> (Wrong, Wrong) {
    let (mut more, mut fewer) = (Wrong::default(), Wrong::default());
    let mut entries = entries.map(|(_, slot, count)| (*slot, *count)).peekable();
    for run in &area.counted {
        while let Some((slot, count)) = entries.next_if(|(slot, _)| *slot < run.first) {
            more.add(slot, 0, count);
        }
        for slot in run.first..run.first + run.slots {
            let found = entries.next_if(|(at, _)| *at == slot);
            let found = found.map_or(0, |(_, count)| count);
            match run.count.map(u64::from) {
                Some(count) if found > count => more.add(slot, count, found),
                Some(count) if found < count => fewer.add(slot, count, found),
                _ => {}
            }
        }
    }
    for (slot, count) in entries {
        more.add(slot, 0, count);
    }
    (more, fewer)
}
