// SPDX-License-Identifier: GPL-2.0-only
//! The entries of all address spaces of an instant, counted and held to what the kernel counts.

use std::borrow::Cow;

use linux::counted::{Committed, Counted, NotRead};
use linux::release::Release;
use snapshot::{Memory, Snapshot};
use stage1::{PhysMemory, Regime};
use structures::spaces::Space;
use verdict::{
    judge_caches, judge_counted, judge_counts, Everyone, NotKnown, ProcessVerdict, Structures,
};

use evidence::{older, page_caches, unmapped, Gathered, PageReader};

/// Returns whether another instant may show more of the kernel's structures than this one: they, or an address space of which
/// the first table is one of `tables`, were just being changed.
pub(crate) fn later(gathered: &Result<Gathered, NotKnown>, tables: &[u64]) -> bool {
    match gathered {
        Ok(gathered) => {
            let mut spaces = gathered.spaces.iter();
            let counted = gathered.counted.as_ref();
            let changing = |space: &Space| space.lock.is_held() || space.table_locked;
            spaces.any(|space| changing(space) && tables.contains(&space.table))
                || counted.is_some_and(Counted::later)
                || page_caches::later(gathered.caches.as_ref())
        }
        Err(not_known) => not_known.later,
    }
}

/// A process that no task has: it is ending, or the list of tasks is not what it was.
static NO_TASK: NotKnown = NotKnown {
    why: std::borrow::Cow::Borrowed("no task of the kernel's has its first table"),
    later: true,
};

/// Returns the kernel's structures for the process with this half, or the reason that they are not known.
pub(crate) fn structures<'g, M: PhysMemory + ?Sized + std::fmt::Debug>(
    gathered: &'g Result<Gathered, NotKnown>,
    folios: &'g Result<PageReader<'_, M>, NotKnown>,
    regime: &Regime,
) -> Result<Structures<'g>, &'g NotKnown> {
    let folios = folios.as_ref()?;
    let space = gathered.as_ref()?.space(regime.root.0).ok_or(&NO_TASK)?;
    Ok(Structures {
        folios,
        numbering: space.numbering.as_deref(),
        table_locked: space.table_locked,
        rss: space.rss,
        tables_bytes: space.tables_bytes,
        hugetlb: space.hugetlb,
        vm_pages: space.vm_pages,
        huge_zero: space.huge_zero,
        kept: &gathered.as_ref()?.kept,
        swap: &gathered.as_ref()?.swap,
    })
}

/// The reason that counts above their entries are allowed without a checkpoint: a child's address space has its
/// entries, which are counted, some time before the child is in any list, and its parent may be preempted there.
const FORKS: &str = "a process may be forking, and its child be in no list yet";

/// Counts the entries of all address spaces, where those are known. `forks`: whether a process may be in the middle of
/// fork(). Gives whether another instant may show more: something that was just being changed left counts not judged.
pub(crate) fn count(
    snapshot: &Snapshot,
    forks: bool,
    regimes: &[Regime],
    gathered: &Result<Gathered, NotKnown>,
    folios: &Result<PageReader<'_, Memory>, NotKnown>,
    verdicts: &mut [ProcessVerdict],
) -> bool {
    let release = Release::parse(&snapshot.notes.kernel_release);
    let (Ok(gathered), Ok(folios)) = (gathered, folios) else {
        return false;
    };
    if !release.is_some_and(Release::has_this_layout) {
        return false;
    }
    let tables = gathered.tables();
    let mut unlisted = regimes.iter().map(|regime| regime.root.0);
    let unlisted = unlisted.find(|table| gathered.space(*table).is_none());
    let unlisted = unlisted.map(|_| NO_TASK.why.clone().into_owned());
    let locked = gathered.spaces.iter().find(|space| space.lock.is_held());
    let incomplete = locked.map(|space| {
        format!(
            "the mmap_lock of process {} ({}) was held, as by a fork, whose entries are counted before the child is in any list",
            space.pid, space.name
        )
    });
    let incomplete = incomplete.or(unlisted);
    let incomplete = incomplete.or_else(|| gathered.unlisted.clone());
    let table = gathered.spaces.iter().find(|space| space.table_locked);
    let incomplete = incomplete.or(table.map(|space| {
        format!(
            "the lock of a table of process {} ({}) was held, and an entry and its count change one after the other",
            space.pid, space.name
        )
    }));
    let busy = incomplete.clone();
    let incomplete = incomplete.or(forks.then(|| FORKS.to_owned()));
    let new = incomplete.as_deref().or(gathered.exec.as_deref());
    let claimed = gathered.claimed.as_ref().map_or_else(older, Clone::clone);
    let unmapped = claimed.map(|claimed| unmapped(&claimed, &gathered.spaces, new));
    let everyone = Everyone {
        tables: &tables,
        incomplete: incomplete.as_deref(),
        busy: busy.as_deref(),
        unmapped: unmapped.as_deref().map_err(Clone::clone),
    };
    let mapped = judge_counts(&snapshot.memory, regimes, everyone, folios, verdicts);
    let (mut uncounted, mut changes) = (mapped.uncounted, busy.is_some());
    if let Some(counted) = &gathered.counted {
        let swapped = counted.swap.iter().flat_map(|swap| &swap.spaces);
        let known = |mm: &&u64| gathered.spaces.iter().any(|space| space.mm == **mm);
        let unlisted = swapped.filter(|mm| !known(mm)).count();
        let unlisted = (unlisted > 0).then(|| {
            format!("{unlisted} address spaces that may have swap entries are of no task: of a fork under way, or at their end")
        });
        let mut counted = Cow::Borrowed(counted);
        // Under that lock an entry and the count of its slot change one after the other.
        let in_use = counted.swap.iter().any(|swap| !swap.areas.is_empty());
        if in_use && gathered.spaces.iter().any(|space| space.table_locked) {
            counted.to_mut().swap = Err(NotRead {
                why: "the lock of a page table was held".into(),
                later: true,
                not_built: false,
            });
        }
        changes |= counted.committed.iter().flatten().any(Committed::is_busy);
        uncounted += judge_counted(&counted, (&mapped, unlisted.as_deref()), folios, verdicts);
    }
    if let Some(caches) = &gathered.caches {
        judge_caches(caches, gathered.collapses.as_deref(), verdicts);
    }
    changes && uncounted > 0
}
