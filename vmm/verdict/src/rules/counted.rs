//! What the kernel counts of all memory, held to what there is: rules L12 to L16.

use linux::counted::{Census, Counted, Known};

use super::all_mapped::AllMapped;
use super::rule::Rule;
use super::unread::{of_pages, why_not};
use super::{l12, l13, l14, l15, l16};
use crate::finding::Finding;
use crate::structures::Folios;
use crate::{NotJudged, ProcessVerdict, RuleId};

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
    let mut told = |rule: &Rule, found: Vec<String>| {
        for message in found {
            first.findings.push(Finding {
                remarks: rule.remark(&message, first.release),
                ..Finding::new(rule.id, message)
            });
        }
    };
    let (queues, known) = (counted.queues.as_ref().ok(), census.as_ref().ok().copied());
    let (mut not_judged, mut uncounted) = (Vec::new(), 0);
    let (mut free, mut unjudged) = (Vec::new(), Vec::new());
    if let Ok(sizes) = &counted.sizes {
        told(
            &l12::RULE,
            l12::check(sizes, (&mapped.folios, known), queues, folios),
        );
    }
    if let Some(queues) = queues {
        told(&l13::RULE, l13::queues(queues, folios));
    }
    if let Ok(zones) = &counted.zones {
        l14::check(zones, &mut free, &mut unjudged);
    }
    told(&l14::RULE, free);
    if let Ok(memory) = &counted.memory {
        let (wrong, above) = l15::mapped(memory, (mapped, known), (by_page, moving));
        told(&l15::RULE, wrong);
        uncounted = above.len() as u64;
        not_judged.extend(above.into_iter().map(|reason| NotJudged { reason }));
    }
    if let Ok(zones) = &counted.zones {
        told(&l15::RULE, l15::free(zones));
    }
    if let Ok(swap) = &counted.swap {
        let incomplete = unlisted.or(mapped.unwalked.as_deref());
        let (wrong, reason) = l16::check(swap, &mapped.swapped, incomplete);
        told(&l16::RULE, wrong);
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
