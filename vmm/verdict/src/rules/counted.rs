//! What the kernel counts of all memory, held to what there is: rules L12 to L16.

use linux::counted::{Census, Counted, Known, NotRead};

use super::l9_counts::AllMapped;
use super::{l12, l13, l14, l15, l16, remark};
use crate::finding::Finding;
use crate::folios::Folios;
use crate::{Lack, NotJudged, ProcessVerdict, RuleId, Severity};

/// Holds the kernel's counters and lists to its pages; `mapped` is what is mapped. All
/// must be of one instant. `unlisted` says why an address space with swap entries may not be among those that were walked. What is found is of no process, and goes to the first verdict.
/// Gives how many counters are above what is mapped and were not judged, as there may be more.
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
    let by_page = first.release.is_some_and(|release| release < l15::BY_FOLIO);
    let mut told = |rule, found: Vec<String>| {
        for message in found {
            first.findings.push(Finding {
                remarks: remark(rule, &message, first.release),
                ..Finding::new(rule, message)
            });
        }
    };
    let (queues, known) = (counted.queues.as_ref().ok(), census.as_ref().ok().copied());
    let (mut not_judged, mut uncounted) = (Vec::new(), 0);
    let (mut free, mut unjudged) = (Vec::new(), Vec::new());
    if let Ok(sizes) = &counted.sizes {
        told(
            RuleId::L12,
            l12::check(sizes, (&mapped.folios, known), queues, folios),
        );
    }
    if let Some(queues) = queues {
        told(RuleId::L13, l13::queues(queues, folios));
    }
    if let Ok(zones) = &counted.zones {
        l14::check(zones, &mut free, &mut unjudged);
    }
    told(RuleId::L14, free);
    if let Ok(memory) = &counted.memory {
        let (wrong, above) = l15::mapped(memory, (mapped, known), (by_page, moving));
        told(RuleId::L15, wrong);
        uncounted = above.len() as u64;
        not_judged.extend(above.into_iter().map(|reason| NotJudged { reason }));
    }
    if let Ok(zones) = &counted.zones {
        told(RuleId::L15, l15::free(zones));
    }
    if let Ok(swap) = &counted.swap {
        let incomplete = unlisted.or(mapped.unwalked.as_deref());
        let (wrong, reason) = l16::check(swap, &mapped.swapped, incomplete);
        told(RuleId::L16, wrong);
        not_judged.extend(reason.map(|reason| NotJudged { reason }));
    }
    why_not(first, ("L12", &[RuleId::L12]), &counted.sizes);
    let of_queues = "L13, and what L12 says of partially mapped folios,";
    why_not(first, (of_queues, &[RuleId::L13]), &counted.queues);
    let of_zones = "L14, and what L15 says of free pages,";
    why_not(
        first,
        (of_zones, &[RuleId::L14, RuleId::L15]),
        &counted.zones,
    );
    let of_memory = "What L15 says of mapped memory";
    why_not(first, (of_memory, &[RuleId::L15]), &counted.memory);
    why_not(first, ("L16", &[RuleId::L16]), &counted.swap);
    let of_all = "That all counters of L12 and L15 are just what there is";
    why_not(first, (of_all, &[]), &census);
    first.not_judged.extend(not_judged);
    let reasons = unjudged.into_iter();
    first.not_judged.extend(reasons.map(|why| NotJudged {
        reason: format!(
            "L14 was not judged {why}; nor was, of a zone, what L15 says of its free pages"
        ),
    }));
    uncounted
}

/// What all pages are, where counters can be held to it: not where a page is not what it should be.
fn census<'c>(counted: &'c Counted, verdicts: &[ProcessVerdict]) -> Known<&'c Census> {
    let census = counted.census.as_ref().map_err(Clone::clone)?;
    of_pages(verdicts).map_or(Ok(census), Err)
}

/// Why nothing can be held to pages, where a rule has told of one that is not what it should be.
pub(super) fn of_pages(verdicts: &[ProcessVerdict]) -> Option<NotRead> {
    use RuleId::{L10, L2, L7, L8, L9};
    let mut findings = verdicts.iter().flat_map(|verdict| &verdict.findings);
    let told = findings
        .find(|it| it.severity == Severity::Error && [L2, L7, L8, L9, L10].contains(&it.rule))?;
    Some(NotRead {
        why: format!(
            "{} has told of pages that are not what they should be",
            told.rule
        ),
        later: false,
        not_built: false,
    })
}

/// Says why a rule was not judged, where what it needs was not read.
/// What only makes the rules ask less is a note.
pub(super) fn why_not<T>(
    verdict: &mut ProcessVerdict,
    (rule, rules): (&str, &[RuleId]),
    known: &Known<T>,
) {
    let Err(not_read) = known else {
        return;
    };
    let reason = format!("{rule} was not judged: {}", not_read.why);
    match (not_read.later, rules) {
        (true, _) => verdict.not_judged.push(NotJudged { reason }),
        (false, []) if !not_read.not_built => verdict.notes.push(reason),
        (false, []) => (),
        (false, rules) => verdict.lacks.push(Lack {
            not_built: not_read.not_built,
            ..Lack::new(rules, reason)
        }),
    }
}
