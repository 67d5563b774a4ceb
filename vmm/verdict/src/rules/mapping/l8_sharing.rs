// SPDX-License-Identifier: GPL-2.0-only
//! The half of L8 that looks across mappings: a page that is writable in private memory is mapped
//! once, in all processes that were given.

use std::collections::HashSet;
use std::ops::Range;

use stage1::{PhysMemory, Regime};

use super::l8;
use crate::cause::cause;
use crate::findings::KEPT_PER_CAUSE;
use crate::group::group_at;
use crate::mapping::Mapping;
use crate::rules::RuleId;
use crate::{Finding, Hex, ProcessVerdict};

/// Looks for pages that are writable and private in one place and mapped in another, across all
/// processes (threads of one address space are told apart from processes by their first table).
///
/// Linux 6.12 maps an anonymous page writable only while it is exclusive to that mapping
/// (`PageAnonExclusive`). The findings go to the process whose mapping is writable. What is
/// special or devmap, or in a VMA of page frames, is left out; hugetlb is not held to be exclusive,
/// nor is a private *file* mapping of which VmFlags are not known, because it may be hugetlb.
///
/// All verdicts must be of one instant: a page may go from one process to the next in between.
/// `regimes` are those of the verdicts, in the same order.
pub fn judge_sharing<M: PhysMemory + ?Sized>(
    memory: &M,
    regimes: &[Regime],
    verdicts: &mut [ProcessVerdict],
) {
    let mut all: Vec<(Mapping, usize)> = Vec::new();
    let mut roots = HashSet::new();
    for (index, verdict) in verdicts.iter().enumerate() {
        if roots.insert(verdict.root.0) {
            let folios = verdict.mappings.iter().filter(|mapping| mapping.folio);
            all.extend(folios.map(|mapping| (*mapping, index)));
        }
    }
    all.sort_unstable_by_key(|(mapping, process)| (mapping.pa, mapping.va, *process));
    // Of those before, the one that reaches furthest, and the exclusive one that does.
    let mut furthest: [Option<(Mapping, usize)>; 2] = [None, None];
    let mut found = Vec::new();
    for &(mapping, process) in &all {
        let end = mapping.pa + mapping.bytes;
        // Against any earlier one if this is exclusive, else against an exclusive one.
        let before = furthest[usize::from(!mapping.exclusive)];
        if let Some((other, owner)) = before.filter(|(o, _)| o.pa + o.bytes > mapping.pa) {
            found.push(((mapping, process), (other, owner)));
        }
        let further = |kept: &Option<(Mapping, usize)>| {
            kept.is_none_or(|(kept, _)| kept.pa + kept.bytes < end)
        };
        if further(&furthest[0]) {
            furthest[0] = Some((mapping, process));
        }
        if mapping.exclusive && further(&furthest[1]) {
            furthest[1] = Some((mapping, process));
        }
    }
    let of_l8 = |verdict: &ProcessVerdict| {
        let kept = verdict.findings.iter();
        kept.filter(|finding| finding.rule == l8::RULE.id()).count()
    };
    let mut kept: Vec<usize> = verdicts.iter().map(of_l8).collect();
    let mut broken: Vec<Vec<(RuleId, Range<u64>)>> = vec![Vec::new(); verdicts.len()];
    for (one, two) in found {
        let (writable, other) = if one.0.exclusive {
            (one, two)
        } else {
            (two, one)
        };
        let owner = writable.1;
        let (range, message) = told(writable.0, other.0, &verdicts[other.1]);
        broken[owner].push((l8::RULE.id(), range.clone()));
        if kept[owner] >= KEPT_PER_CAUSE {
            let beyond = &mut verdicts[owner].beyond;
            *beyond.entry(cause(l8::RULE.id(), &message)).or_default() += 1;
            *verdicts[owner].dropped.entry(l8::RULE.id()).or_default() += 1;
            continue;
        }
        kept[owner] += 1;
        let verdict = &mut verdicts[owner];
        // Walked a moment ago, so it can be read again.
        if let Ok(group) = group_at(memory, &regimes[owner], range.start) {
            let remarks = l8::RULE.remark(&message, verdict.release);
            let finding = Finding::on(&group, &l8::RULE, Some(&verdict.process), message);
            verdict.findings.push(Finding {
                va: Hex(range.start),
                end: Hex(range.end),
                remarks,
                ..finding
            });
        }
    }
    for (verdict, broken) in verdicts.iter_mut().zip(broken) {
        verdict.mark(broken);
    }
}

/// The addresses that are writable and mapped elsewhere too, and the sentence.
fn told(writable: Mapping, other: Mapping, theirs: &ProcessVerdict) -> (Range<u64>, String) {
    let pa = writable.pa.max(other.pa);
    let end = (writable.pa + writable.bytes).min(other.pa + other.bytes);
    let va = writable.va + (pa - writable.pa);
    let other_va = other.va + (pa - other.pa);
    let message = format!(
        "{} bytes of private memory at physical 0x{pa:x} are writable here and mapped at VA \
         0x{other_va:016x} of {} ({}) too: a writable private page must be mapped once",
        end - pa,
        theirs.process.name,
        theirs.process.pid
    );
    (va..va + (end - pa), message)
}

#[cfg(test)]
#[path = "l8_sharing_tests.rs"]
mod tests;
