// SPDX-License-Identifier: GPL-2.0-only
//! Rules that hold only if the driver of the workload knows what went before: the groups that they look at.

use std::ops::Range;

use linux::release::Release;
use stage1::{Level, PhysMemory, Regime};

use super::checks::CHECKS;
use super::rule::RuleId;
use crate::check::{ExpectedCheck, FreshFolio};
use crate::group::group_at;
use crate::orders::Newest;
use crate::ranges::Ranges;
use crate::seen::Seen;
use crate::{Expected, ProcessInput};

/// All of them: every range once, by address.
pub(crate) fn check<M: PhysMemory + ?Sized>(
    memory: &M,
    input: &ProcessInput<'_>,
    newest: &Newest<'_>,
    seen: &mut Seen<'_>,
) {
    let regime = input.regime;
    let Some(members) = regime.contiguous_entries(Level::L3) else {
        return;
    };
    let block = regime.granule.bytes() * members as u64;
    // Nothing of a process lies behind its half.
    let limit = regime.last.0.saturating_add(1);
    let known = |what| {
        let ranges = input.expectations.iter().filter(move |e| e.what == what);
        ranges.map(|range| range.start.min(limit)..range.end.min(limit))
    };
    for what in Expected::ALL {
        // Only whole blocks can be folded.
        let whole = |range: Range<u64>| match what {
            Expected::Contiguous => range.start.next_multiple_of(block)..range.end / block * block,
            _ => range,
        };
        // Freshly faulted folios are below, unheld ones are held to the entries of all address spaces.
        if CHECKS.expected(what).next().is_none() {
            continue;
        }
        for mut range in Ranges::new(known(what).map(whole)).iter() {
            if what == Expected::NotWritten && by_folio(input) {
                range = whole_folios(memory, regime, range);
            }
            for check in CHECKS.expected(what) {
                each(memory, regime, block, range.clone(), check, seen);
            }
        }
    }
    let fresh = Ranges::new(known(Expected::FreshlyFaulted));
    fresh_folios(memory, input, (&fresh, newest), block, seen);
}

/// Every block of a range, or the larger group that maps it.
fn each<M: PhysMemory + ?Sized>(
    memory: &M,
    regime: &Regime,
    block: u64,
    range: Range<u64>,
    (rule, check): (RuleId, ExpectedCheck),
    seen: &mut Seen<'_>,
) {
    let mut va = range.start;
    while va < range.end {
        let mut next = (va / block + 1) * block;
        match group_at(memory, regime, va) {
            Ok(group) => {
                // Above level 3 one entry stands for many blocks.
                let step = group.step();
                next = next.max((va / step + 1) * step);
                let at = va..next.min(range.end);
                check(&group, at, &mut |at, message| {
                    seen.broken(rule, &group, at, message)
                });
            }
            Err(why) => seen.not_judged(format!("block at VA 0x{va:016x}: {why}")),
        }
        va = next;
    }
}

/// Returns whether a write to one page may dirty the entries of all its folio: after 6.12 a fault maps a file's whole
/// folio, and marks it so.
fn by_folio(input: &ProcessInput<'_>) -> bool {
    input.release >= Some(Release::new(6, 13, 0))
}

/// The range without the pages at its ends that may be of folios which reach beyond it: those that go on there in
/// virtual and physical address alike.
fn whole_folios<M: PhysMemory + ?Sized>(
    memory: &M,
    regime: &Regime,
    range: Range<u64>,
) -> Range<u64> {
    let page = regime.granule.bytes();
    // What VA 0 would map to, if all around were mapped as this page is.
    let base = |va: u64| {
        let group = group_at(memory, regime, va).ok()?;
        let word = group.words[((va - group.va) / group.step()) as usize];
        let at = ((va - group.va) / group.step()) as usize;
        let output = group.output(word) + (va - group.va_of(at));
        group.is_leaf(word).then(|| output.wrapping_sub(va))
    };
    let (mut start, mut end) = (range.start, range.end);
    let before = range.start.checked_sub(page).and_then(base);
    while before.is_some() && start < end && base(start) == before {
        start += page;
    }
    let behind = base(range.end);
    while behind.is_some() && start < end && base(end - page) == behind {
        end -= page;
    }
    start..end
}

/// Folios that the kernel recorded: what the record says, and in freshly faulted ranges the folio itself.
fn fresh_folios<M: PhysMemory + ?Sized>(
    memory: &M,
    input: &ProcessInput<'_>,
    (fresh, newest): (&Ranges, &Newest<'_>),
    block: u64,
    seen: &mut Seen<'_>,
) {
    let page = input.regime.granule.bytes();
    for &record in newest.records() {
        // None of a path whose orders are chosen otherwise.
        let Some((start, size)) = record.folio(page) else {
            continue;
        };
        let mut wrong = CHECKS.record.iter();
        let wrong = wrong.find_map(|(rule, check)| Some((*rule, check(record, (start, size))?)));
        if let Some((rule, message)) = wrong {
            match group_at(memory, input.regime, record.address) {
                Ok(group) => seen.broken(rule, &group, start..start + size, message),
                Err(why) => seen.not_judged(format!("order record of VA 0x{start:016x}: {why}")),
            }
            continue;
        }
        // How much of a folio another path maps is a matter of its own.
        if !record.path.is_mapped_whole() {
            continue;
        }
        let last = newest
            .at(record.address)
            .is_some_and(|last| std::ptr::eq(last, record));
        if !last
            || !newest.is_followed(record)
            || !fresh.contain(&(start..start.saturating_add(size)))
        {
            continue;
        }
        let folio = FreshFolio {
            memory: &memory,
            input,
            record,
            start,
            size,
            block,
        };
        for (rule, check) in &CHECKS.fresh {
            let told = check(&folio);
            let stands = told.broken.is_empty() && told.not_judged.is_empty();
            for (va, range, message) in told.broken {
                match group_at(memory, input.regime, va) {
                    Ok(group) => seen.broken(*rule, &group, range, message),
                    Err(why) => seen.not_judged(why),
                }
            }
            for why in told.not_judged {
                seen.not_judged(why);
            }
            if !stands && rule.rule().on_break.ends() {
                break;
            }
        }
    }
}
