//! Rules that hold only where whoever drove the workload knows what went before: which groups they look at.

use std::ops::Range;

use linux::release::Release;
use stage1::{Level, PhysMemory, Regime};

use super::rule::Told;
use super::{c1, c2, l11, l5, l6};
use crate::group::{group_at, Group};
use crate::orders::Newest;
use crate::ranges::Ranges;
use crate::RuleId;
use crate::{Expected, ProcessInput};

/// Looks at one group, at the part of it that is in question.
type Look<'a> = dyn FnMut(&Group<'_>, Range<u64>, &mut dyn Told) + 'a;

/// All of them: every range once, by address.
pub(crate) fn check<M: PhysMemory + ?Sized>(
    memory: &M,
    input: &ProcessInput<'_>,
    newest: &Newest<'_>,
    told: &mut impl Told,
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
        let look: &mut Look<'_> = match what {
            Expected::FreshlyFaulted => continue,
            Expected::Contiguous => {
                &mut |group, at, told| c1::check(group, at, "the checkpoint says so", told)
            }
            Expected::NotContiguous => &mut c2::check,
            Expected::Written => &mut |group, at, told| l6::written(group, at, true, told),
            Expected::NotWritten => &mut |group, at, told| l6::written(group, at, false, told),
            Expected::Dirty => &mut |group, at, told| l6::dirty(group, at, true, told),
            Expected::Clean => &mut |group, at, told| l6::dirty(group, at, false, told),
            Expected::Readable => &mut |group, at, told| l5::accessed(group, at, false, told),
            Expected::Writable => &mut |group, at, told| l5::accessed(group, at, true, told),
            Expected::Young => &mut |group, at, told| l5::young(group, at, true, told),
            Expected::Old => &mut |group, at, told| l5::young(group, at, false, told),
        };
        // Only whole blocks can be folded.
        let whole = |range: Range<u64>| match what {
            Expected::Contiguous => range.start.next_multiple_of(block)..range.end / block * block,
            _ => range,
        };
        for mut range in Ranges::new(known(what).map(whole)).iter() {
            if what == Expected::NotWritten && by_folio(input) {
                range = whole_folios(memory, regime, range);
            }
            each(memory, regime, block, range, look, told);
        }
    }
    let fresh = Ranges::new(known(Expected::FreshlyFaulted));
    fresh_folios(memory, input, (&fresh, newest), block, told);
}

/// Every block of a range, or the larger group that maps it.
fn each<M: PhysMemory + ?Sized>(
    memory: &M,
    regime: &Regime,
    block: u64,
    range: Range<u64>,
    look: &mut Look<'_>,
    told: &mut impl Told,
) {
    let mut va = range.start;
    while va < range.end {
        let mut next = (va / block + 1) * block;
        match group_at(memory, regime, va) {
            Ok(group) => {
                // Above level 3 one entry stands for many blocks.
                let step = group.step();
                next = next.max((va / step + 1) * step);
                look(&group, va..next.min(range.end), told);
            }
            Err(why) => told.not_judged(format!("block at VA 0x{va:016x}: {why}")),
        }
        va = next;
    }
}

/// Whether a write to one page may dirty the entries of all its folio: after 6.12 a fault maps a file's whole
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

/// L11 and C1 for folios that the kernel recorded in freshly faulted ranges.
fn fresh_folios<M: PhysMemory + ?Sized>(
    memory: &M,
    input: &ProcessInput<'_>,
    (fresh, newest): (&Ranges, &Newest<'_>),
    block: u64,
    told: &mut impl Told,
) {
    let page = input.regime.granule.bytes();
    for &record in newest.records() {
        // None of a path whose orders are chosen otherwise.
        let Some((start, size)) = record.folio(page) else {
            continue;
        };
        if let Some(message) = l11::decision(record, (start, size)) {
            match group_at(memory, input.regime, record.address) {
                Ok(group) => told.broken(RuleId::L11, &group, start..start + size, message),
                Err(why) => told.not_judged(format!("order record of VA 0x{start:016x}: {why}")),
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
        match l11::whole(memory, input.regime, record, (start, size)) {
            Ok(None) => {
                if let Some((group, message)) = l11::folio(memory, input, record, start) {
                    told.broken(RuleId::L11, &group, start..start + size, message);
                    continue;
                }
                if size >= block && input.contpte != Some(false) {
                    for va in (start..start + size).step_by(block as usize) {
                        match group_at(memory, input.regime, va) {
                            // A folio of a PMD's size has a block of its own.
                            Ok(group) if group.level != Level::L3 => {}
                            Ok(group) => {
                                let because = format!(
                                    "order {} was just faulted in",
                                    record.chosen.unwrap_or(0)
                                );
                                c1::check(&group, va..va + block, &because, told);
                            }
                            Err(why) => told.not_judged(format!("folio at VA 0x{va:016x}: {why}")),
                        }
                    }
                }
            }
            Ok(Some((group, message))) => {
                told.broken(RuleId::L11, &group, start..start + size, message);
            }
            Err(why) => told.not_judged(format!("folio at VA 0x{start:016x}: {why}")),
        }
    }
}
