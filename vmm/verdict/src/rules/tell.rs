// SPDX-License-Identifier: GPL-2.0-only
//! Findings of rules that look across processes, each with the words of its group, and given to the process that has it.

use stage1::{PhysMemory, Regime};

use super::rule::RuleId;
use crate::findings::Findings;
use crate::group::group_at;
use crate::{Finding, Hex, ProcessVerdict};

/// Adds what was found: the rule, the place of the verdict that it goes to, the virtual address, and the sentence.
pub(super) fn tell<M: PhysMemory + ?Sized>(
    memory: &M,
    regimes: &[Regime],
    verdicts: &mut [ProcessVerdict],
    found: Vec<(RuleId, usize, u64, String)>,
) {
    let mut broken = vec![Vec::new(); verdicts.len()];
    let mut lists: Vec<Findings> = verdicts.iter().map(|_| Findings::new()).collect();
    for (rule, owner, va, message) in found {
        let verdict = &mut verdicts[owner];
        let remarks = rule.rule().remark(&message, verdict.release);
        let process = Some(&verdict.process);
        // What was walked a moment ago can be read again; of some things no table says anything.
        let finding = match group_at(memory, &regimes[owner], va) {
            Ok(group) => Finding::on(&group, rule, process, message),
            Err(_) => Finding {
                process: process.cloned(),
                ..Finding::new(rule, message)
            },
        };
        let end = va + verdict.page_size;
        broken[owner].push((rule, va..end));
        lists[owner].add(Finding {
            va: Hex(va),
            end: Hex(end),
            remarks,
            ..finding
        });
    }
    for ((verdict, list), broken) in verdicts.iter_mut().zip(lists).zip(broken) {
        verdict.mark(broken);
        for (rule, count) in list.dropped() {
            *verdict.dropped.entry(rule).or_default() += count;
        }
        for (cause, count) in list.beyond {
            *verdict.beyond.entry(cause).or_default() += count;
        }
        verdict.findings.extend(list.list);
    }
}
