//! Rules that hold only where whoever drove the workload knows what went before: C1, C2, the second
//! half of L6, and L11.

use std::ops::Range;

use linux::order::OrderRecord;
use stage1::{lookup, Level, Lookup, PhysMemory, PhysicalAddress, Regime, VirtualAddress};

use crate::group::Group;
use crate::{Expected, ProcessInput, RuleId};

/// What the checks tell.
pub(crate) trait Told {
    /// A rule is broken in this group, at these addresses.
    fn broken(&mut self, rule: RuleId, group: &Group<'_>, at: Range<u64>, message: String);
    /// Something could not be judged.
    fn not_judged(&mut self, reason: String);
}

/// The group that `va` lies in: at the level where its translation ends.
pub(crate) fn group_at<'m, M: PhysMemory + ?Sized>(
    memory: &'m M,
    regime: &'m Regime,
    va: u64,
) -> Result<Group<'m>, String> {
    let entry = match lookup(memory, regime, VirtualAddress(va)) {
        Lookup::Mapped { entry, .. }
        | Lookup::NotMapped { entry }
        | Lookup::BeyondOutputSize { entry } => entry,
        Lookup::OutsideRegime => return Err(format!("VA 0x{va:016x} is not in this half")),
        Lookup::Problem(problem) => return Err(problem.to_string()),
    };
    let level = entry.descriptor.level;
    let window = regime.contiguous_entries(level).unwrap_or(16);
    let start = entry.index / window * window;
    let count = window.min(regime.entries(level) - start);
    let at = PhysicalAddress(entry.table.0 + start as u64 * 8);
    let words = memory
        .words(at, count)
        .ok_or_else(|| format!("the table at {} cannot be read", entry.table))?;
    let before = (entry.index - start) as u64 * regime.entry_size(level);
    Ok(Group {
        regime,
        level,
        va: entry.va.0.wrapping_sub(before),
        table: entry.table.0,
        index: start,
        words,
    })
}

/// Looks at one group, at the part of it that is in question.
type Look<'a> = dyn FnMut(&Group<'_>, Range<u64>, &mut dyn Told) + 'a;

/// All of them.
pub(crate) fn check<M: PhysMemory + ?Sized>(
    memory: &M,
    input: &ProcessInput<'_>,
    told: &mut impl Told,
) {
    let regime = input.regime;
    let Some(members) = regime.contiguous_entries(Level::L3) else {
        return;
    };
    let block = regime.granule.bytes() * members as u64;
    let mut each = |from: u64, to: u64, look: &mut Look<'_>| {
        let mut va = from;
        while va < to {
            let mut next = (va / block + 1) * block;
            match group_at(memory, regime, va) {
                Ok(group) => {
                    // Above level 3 one entry stands for many blocks.
                    let step = group.step();
                    next = next.max((va / step + 1) * step);
                    look(&group, va..next.min(to), told);
                }
                Err(why) => told.not_judged(format!("block at VA 0x{va:016x}: {why}")),
            }
            va = next;
        }
    };
    // Nothing of a process lies behind its half.
    let limit = regime.last.0.saturating_add(1);
    let known = |what| {
        let ranges = input.known(what);
        ranges.map(|range| range.start.min(limit)..range.end.min(limit))
    };
    for range in known(Expected::Contiguous) {
        let (from, to) = (
            range.start.next_multiple_of(block),
            range.end / block * block,
        );
        each(from, to, &mut |group, at, told| {
            must_fold(group, at, "the checkpoint says so", told)
        });
    }
    for range in known(Expected::NotContiguous) {
        each(range.start, range.end, &mut |group, at, told| {
            let inside = |place: usize| {
                let va = group.va_of(place);
                va < at.end && va + group.step() > at.start
            };
            let mut leaves = group.leaves();
            if let Some((place, _)) = leaves.find(|(place, pte)| pte.valid_cont() && inside(*place))
            {
                let va = group.va_of(place);
                let message = format!(
                    "the entry for VA 0x{va:016x} has the Contiguous bit: after this step it must not"
                );
                told.broken(RuleId::C2, group, at, message);
            }
        });
    }
    for (what, written) in [(Expected::Written, true), (Expected::NotWritten, false)] {
        for range in known(what) {
            each(range.start, range.end, &mut |group, at, told| {
                dirty(group, at, written, told);
            });
        }
    }
    fresh_folios(memory, input, block, told);
}

/// C1 on one block.
fn must_fold(group: &Group<'_>, at: Range<u64>, because: &str, told: &mut dyn Told) {
    let folded = group.leaves().filter(|(_, pte)| pte.valid_cont()).count();
    if folded == group.words.len() {
        return;
    }
    let what = match group.level {
        Level::L3 => format!("{folded} of {} entries have it", group.words.len()),
        level => format!("it is mapped at level {level}, {folded} entries of the group have it"),
    };
    let message = format!("the whole block must have the Contiguous bit ({because}): {what}");
    told.broken(RuleId::C1, group, at, message);
}

/// L6 on the pages of one group that lie in a range. A group's dirty state is that of all its
/// members together where the CPU writes it: it may choose any of them.
fn dirty(group: &Group<'_>, range: Range<u64>, written: bool, told: &mut dyn Told) {
    let gathered = group.regime.hd
        && group
            .leaves()
            .any(|(_, pte)| pte.valid_cont() && pte.dirty());
    let wrong = group.leaves().find(|&(at, pte)| {
        let va = group.va_of(at);
        let dirty = pte.dirty() || (pte.valid_cont() && gathered);
        // A block reaches beyond the part of it that is looked at.
        let inside = va < range.end && va + group.step() > range.start;
        inside && dirty != written
    });
    if let Some((at, pte)) = wrong {
        let (va, word) = (group.va_of(at), pte.0);
        let message = if written {
            format!("the page at VA 0x{va:016x} was written and its entry ({word:#018x}) is clean: DIRTY must be set, or WRITE with RDONLY clear")
        } else {
            format!("the page at VA 0x{va:016x} was never written and its entry ({word:#018x}) is dirty: it must be clean")
        };
        let end = va.saturating_add(group.step());
        told.broken(RuleId::L6, group, va..end, message);
    }
}

/// L11 and C1 for folios that the kernel recorded in freshly faulted ranges.
fn fresh_folios<M: PhysMemory + ?Sized>(
    memory: &M,
    input: &ProcessInput<'_>,
    block: u64,
    told: &mut impl Told,
) {
    let Some(orders) = input.orders else {
        return;
    };
    let page = input.regime.granule.bytes();
    for record in orders
        .records
        .iter()
        .filter(|r| r.tgid == input.process.pid)
    {
        let Some((start, size)) = record.folio(page) else {
            continue;
        };
        let newest = orders.last_for(record.tgid, record.address, page) == Some(record);
        if !newest || !input.is_known(Expected::FreshlyFaulted, start, start + size) {
            continue;
        }
        match whole(memory, input.regime, record, (start, size)) {
            Ok(None) => {
                if size >= block && input.contpte != Some(false) {
                    for va in (start..start + size).step_by(block as usize) {
                        match group_at(memory, input.regime, va) {
                            Ok(group) => {
                                let because = format!(
                                    "order {} was just faulted in",
                                    record.chosen.unwrap_or(0)
                                );
                                must_fold(&group, va..va + block, &because, told);
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

/// L11 on one folio: the group and the sentence where it is broken.
fn whole<'m, M: PhysMemory + ?Sized>(
    memory: &'m M,
    regime: &'m Regime,
    record: &OrderRecord,
    (start, size): (u64, u64),
) -> Result<Option<(Group<'m>, String)>, String> {
    let order = record.chosen.unwrap_or(0);
    let page = regime.granule.bytes();
    let mut base = None;
    let mut va = start;
    while va < start + size {
        let group = group_at(memory, regime, va)?;
        let at = ((va - group.va) / group.step()) as usize;
        let word = group.words[at];
        if !group.is_leaf(word) {
            let message = format!(
                "the record says order {order} at VA 0x{start:016x}, and the page at 0x{va:016x} \
                 is not mapped: all {} pages must be",
                size / page
            );
            return Ok(Some((group, message)));
        }
        let found = group.output(word) + (va - group.va_of(at));
        let folio = found.wrapping_sub(va - start);
        let expected = *base.get_or_insert(folio);
        if folio != expected || expected % size != 0 {
            let message = format!(
                "the record says order {order} at VA 0x{start:016x}, and the page at 0x{va:016x} \
                 is at physical 0x{found:x}: all pages must be in one range that is aligned to {size:#x}"
            );
            return Ok(Some((group, message)));
        }
        va += page;
    }
    Ok(None)
}
