// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's counters of all memory, compared with what there is.

use linux::cache::Cache;
use linux::counted::{Census, Counted, Known};

use super::checks::CHECKS;
use super::rule::{Need, RuleId};
use super::unread::{note, of_pages, why_not};
use super::without::{asking, without};
use crate::all_mapped::AllMapped;
use crate::check::{CountedSeen, Counts};
use crate::finding::Finding;
use crate::{NotJudged, ProcessVerdict};
use linux::structures::Folios;

/// Holds the kernel's counters and lists to its pages; `mapped` is what is mapped. All must be of one instant.
/// `unlisted` says why an address space with swap entries may not be among those that were walked. What is found is of
/// no process, and goes to the first verdict. Gives how many counters are above what is mapped and were not judged, as
/// there may be more.
pub fn judge_counted(
    counted: &Counted,
    (mapped, unlisted): (&AllMapped, Option<&str>),
    folios: &dyn Folios,
    verdicts: &mut [ProcessVerdict],
) -> u64 {
    let moving = verdicts.iter().map(|verdict| verdict.entries.moving).sum();
    let census = census(counted, verdicts);
    let Some(first) = verdicts.first_mut() else {
        return 0;
    };
    let seen = CountedSeen {
        counted,
        mapped,
        unlisted,
        census: census.as_ref().ok().copied(),
        folios,
        release: first.release,
        moving,
    };
    let mut counts = Counts::default();
    for (rule, check) in &CHECKS.counted {
        check(&seen, &mut counts);
        add(first, *rule, &mut counts.wrong);
    }
    why_not(first, Need::Sizes, &counted.sizes);
    why_not(first, Need::Queues, &counted.queues);
    why_not(first, Need::Zones, &counted.zones);
    why_not(first, Need::Memory, &counted.memory);
    let lists = counted.memory.iter().flat_map(|memory| &memory.lists);
    lists.for_each(|lists| why_not(first, Need::Lists, lists));
    let committed = counted.committed.iter();
    committed.for_each(|committed| why_not(first, Need::Committed, committed));
    why_not(first, Need::Swap, &counted.swap);
    if let Err(why) = &census {
        let counters = asking(Need::Census);
        let said = format!("That all counters of {counters} are just what there is was not judged");
        note(first, &said, why);
    }
    let is_asked = counted.memory.iter().any(|memory| memory.written.is_some());
    if is_asked && census.is_ok_and(|census| census.written.is_none()) {
        let why = "the kernel's types do not lead from a page cache to its device";
        let said = format!("What L15 says of writeback was not judged: {why}");
        first.notes.push(said);
    }
    let reasons = counts.not_judged.into_iter().chain(counts.locked);
    let reasons = reasons.map(|reason| NotJudged { reason });
    first.not_judged.extend(reasons);
    counts.uncounted
}

/// Holds the page caches of files that are mapped to themselves; `collapses` says who may have counted pages before
/// they are there. What is found is of no process, and goes to the first verdict.
pub fn judge_caches(
    caches: &Known<Vec<Cache>>,
    collapses: Option<&str>,
    verdicts: &mut [ProcessVerdict],
) {
    let told = of_pages(verdicts);
    let Some(first) = verdicts.first_mut() else {
        return;
    };
    let caches = match (told, caches) {
        (None, Ok(caches)) => caches,
        (None, Err(_)) => return why_not(first, Need::PageCaches, caches),
        // There is an error then.
        (Some(why), _) => return note(first, &without(&[Need::PageCaches]).sentence(), &why),
    };
    let mut counts = Counts::default();
    for (rule, check) in &CHECKS.caches {
        check(caches, collapses, &mut counts);
        add(first, *rule, &mut counts.wrong);
    }
    let reasons = counts.not_judged.into_iter();
    first
        .not_judged
        .extend(reasons.map(|reason| NotJudged { reason }));
    first.notes.extend(counts.notes);
}

/// Adds what breaks a rule to the verdict.
fn add(first: &mut ProcessVerdict, rule: RuleId, wrong: &mut Vec<String>) {
    for message in wrong.drain(..) {
        first.findings.push(Finding {
            remarks: rule.rule().remark(&message, first.release),
            ..Finding::new(rule, message)
        });
    }
}

/// Returns the census of all pages, if counters can be compared with it: not if a page is not what it should be.
fn census<'c>(counted: &'c Counted, verdicts: &[ProcessVerdict]) -> Known<&'c Census> {
    let census = counted.census.as_ref().map_err(Clone::clone)?;
    of_pages(verdicts).map_or(Ok(census), Err)
}
