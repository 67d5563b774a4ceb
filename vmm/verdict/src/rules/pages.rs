// SPDX-License-Identifier: GPL-2.0-only
//! Every page that judged processes map, and the entries of all address spaces: rules on pages and their counts.

use std::collections::BTreeMap;
use std::ops::Range;

use linux::counted::Known;
use linux::folio::NoPage;
use stage1::{PhysMemory, Regime};

use super::checks::CHECKS;
use super::exclusive;
use super::judged::Judged;
use super::rule::{list, RuleId};
use super::tell::tell;
use super::unheld;
use super::unread::note;
use crate::all_mapped::AllMapped;
use crate::check::{PageSeen, UnmappedSeen};
use crate::entries::{Cover, Entries};
use crate::{Finding, Hex, NotJudged, ProcessVerdict, Severity};
use linux::structures::Folios;
use linux::unmapped::Unmapped;

/// All address spaces of the guest.
#[derive(Clone, Debug)]
pub struct Everyone<'a> {
    /// Physical addresses of their first tables.
    pub tables: &'a [u64],
    /// The reason if these may not be all.
    pub incomplete: Option<&'a str>,
    /// The same but for a fork() that may be under way, whose child maps what its parent does; and why entries and what
    /// counts them may be apart just now.
    pub busy: Option<&'a str>,
    /// Folios that count mappings, and that none of them was seen to map; or why they were not looked for.
    pub unmapped: Known<&'a [Unmapped]>,
}

/// Holds the counts of every page that one of the judged processes maps to the entries of all address spaces. The
/// findings go to the first process that maps it. Gives what they map.
///
/// All must be of one instant. `regimes` are those of the verdicts, in the same order. A page that an entry maps in
/// which another rule is broken is left alone.
pub fn judge_counts<M: PhysMemory + ?Sized>(
    memory: &M,
    regimes: &[Regime],
    everyone: Everyone<'_>,
    folios: &dyn Folios,
    verdicts: &mut [ProcessVerdict],
) -> AllMapped {
    let mut mapped = AllMapped::none();
    let Some(regime) = regimes.first() else {
        return mapped;
    };
    let entries = Entries::of(memory, regime, everyone.tables);
    let incomplete = everyone
        .incomplete
        .map(str::to_owned)
        .or(entries.problem.clone());
    let page_size = regime.granule.bytes();
    let mut judged = Judged::new(verdicts, regimes, page_size, &entries);
    (mapped.anonymous, mapped.shmem, mapped.file) = judged.well_of;
    let mut found: Vec<(RuleId, usize, u64, String)> = Vec::new();
    let mut uncounted: BTreeMap<RuleId, u64> = BTreeMap::new();
    let (mut unread, mut wild) = (0u64, 0u64);
    let mut last_folio = None;
    while let Some((pfn, va, owner)) = judged.next() {
        let page = match folios.page(pfn) {
            Ok(page) => page,
            Err(NoPage::Wild(_)) => {
                // Told of at its entry; a block of a wrong table may be larger than all memory.
                wild += 1;
                if wild > MOST_WILD {
                    break;
                }
                continue;
            }
            Err(NoPage::Unreadable(_)) => {
                unread += 1;
                continue;
            }
        };
        let is_first = last_folio != Some(page.head);
        mapped.add(page, is_first, &entries);
        last_folio = Some(page.head);
        let seen = PageSeen {
            entries: &entries,
            page,
            va,
            is_first,
            incomplete: incomplete.is_some(),
        };
        let (mut broken, mut open) = (false, 0);
        for (rule, check) in &CHECKS.page {
            let before = open;
            let message = check(&seen, &mut open);
            if open > before {
                *uncounted.entry(*rule).or_default() += open - before;
            }
            if let Some(message) = message {
                found.push((*rule, owner, va, message));
                broken = true;
                if rule.rule().on_break.ends() {
                    break;
                }
            }
        }
        if !broken && page.order > 0 && page.slot.is_none() && open == 0 {
            // All is well with it, and so with those of its folio that are counted alike and mapped as often.
            let same = |cover: &Cover| cover.changes_behind(pfn) - pfn - 1;
            let most = same(&entries.pages).min(same(&entries.blocks));
            let alike = folios.alike(&page, most.min(judged.rest()));
            mapped.pages(page, alike);
            judged.skip(alike);
        }
    }
    let all = unheld::All {
        memory,
        regime,
        tables: everyone.tables,
        entries: &entries,
        incomplete: incomplete.as_deref(),
    };
    let (held, open_unheld) = unheld::judge(&all, folios, verdicts);
    found.extend(held);
    let (shared, open_exclusive) = exclusive::judge(&entries, folios, verdicts, page_size);
    found.extend(shared);
    tell(memory, regimes, verdicts, found);
    if let (Some(first), Err(why)) = (verdicts.first_mut(), &everyone.unmapped) {
        let rules = list(CHECKS.unmapped.iter().map(|(rule, _)| rule), " and ");
        note(
            first,
            &format!("{rules}, of folios that no table maps, was not judged"),
            why,
        );
    }
    let busy = everyone.busy.map(str::to_owned);
    let busy = busy.or_else(|| Some(everyone.unmapped.as_ref().err()?.why.clone()));
    let open = judge_unmapped(
        &entries,
        everyone.unmapped.unwrap_or_default(),
        folios,
        verdicts,
    );
    let busy = busy.or_else(|| (open > 0).then(|| "some folios may be mapped elsewhere".into()));
    mapped.more = busy.or_else(|| entries.problem.clone());
    let all = entries.pages.covered() + entries.blocks.covered();
    mapped.others = all as i64 - mapped.anonymous - mapped.file;
    let Some(first) = verdicts.first_mut() else {
        return mapped;
    };
    if unread > 0 {
        // The first of them asks all that others ask, and more.
        let rules = CHECKS.page.first();
        let rule = rules.map_or(String::new(), |(rule, _)| rule.to_string());
        let reason =
            format!("{rule} was not judged for {unread} pages whose struct page could not be read");
        first.not_judged.push(NotJudged { reason });
    }
    let why = incomplete.unwrap_or_default();
    for (rule, count) in &uncounted {
        let reason = format!("{count} counts of pages are above their entries, and {rule} was not judged for them: {why}");
        first.not_judged.push(NotJudged { reason });
    }
    for (rule, (count, why)) in &open_unheld {
        let reason = format!("{rule} was not judged for {count} folios: {why}");
        first.not_judged.push(NotJudged { reason });
    }
    for (rule, (count, why)) in &open_exclusive {
        let reason = format!("{rule} was not judged for {count} pages: {why}");
        first.not_judged.push(NotJudged { reason });
    }
    mapped.swapped = entries.swapped;
    mapped.unwalked = entries.problem;
    let stated = open_unheld.values().chain(open_exclusive.values());
    let stated: u64 = stated.map(|(count, _)| count).sum();
    mapped.uncounted = uncounted.values().sum::<u64>() + open + stated;
    mapped
}

/// Pages that make no sense, of which the first are told of: after so many nothing is counted any more.
const MOST_WILD: u64 = 1 << 20;

/// Folios that count mappings and that no table maps. Findings go to a process that may map the folio, or to the first.
/// Gives how many were not judged.
fn judge_unmapped(
    entries: &Entries,
    all: &[Unmapped],
    folios: &dyn Folios,
    verdicts: &mut [ProcessVerdict],
) -> u64 {
    let mut open = 0;
    let Some(page_size) = verdicts.first().map(|first| first.page_size) else {
        return open;
    };
    let roots: Vec<u64> = verdicts.iter().map(|it| it.root.0).collect();
    for (rule, check) in &CHECKS.unmapped {
        let is_broken = |owner: usize, there: &Range<u64>| is_broken(&verdicts[owner], there);
        let found = check(&UnmappedSeen {
            entries,
            all,
            folios,
            page_size,
            roots: &roots,
            is_broken: &is_broken,
        });
        for (owner, va, message) in found.broken {
            let verdict = &mut verdicts[owner];
            verdict.findings.push(Finding {
                process: (va != 0).then(|| verdict.process.clone()),
                va: Hex(va),
                end: Hex(va + if va == 0 { 0 } else { page_size }),
                remarks: rule.rule().remark(&message, verdict.release),
                ..Finding::new(*rule, message)
            });
        }
        if let (Some(why), Some(first)) = (found.open.first(), verdicts.first_mut()) {
            let count = found.open.len();
            let reason = format!(
                "{count} folios count mappings and no entry was seen to map them, and {rule} was not judged for them: {why}"
            );
            first.not_judged.push(NotJudged { reason });
            open += count as u64;
        }
    }
    open
}

/// Returns whether a rule reports an error in an entry there: with it the folio's has gone.
fn is_broken(verdict: &ProcessVerdict, there: &Range<u64>) -> bool {
    let errors = verdict.findings.iter();
    let mut errors = errors.filter(|finding| finding.severity == Severity::Error);
    errors.any(|finding| finding.va.0 < there.end && finding.end.0 > there.start)
}
