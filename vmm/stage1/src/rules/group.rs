// SPDX-License-Identifier: GPL-2.0-only
//! Judges one group of the Contiguous bit by the plain reading: A1 to A5.

use std::fmt::Write as _;
use std::ops::Range;

use super::violation::{ArchRule, Violation};
use crate::geometry::{AP, AP2, ATTR_INDX, CONTIGUOUS, DBM, GP, NG, PXN, SH, UXN};
use crate::indirection::PI_INDEX;
use crate::{Descriptor, Kind, Regime, Table};

/// Returns whether any valid leaf of the window has the Contiguous bit.
pub(super) fn is_contiguous(regime: &Regime, table: &Table<'_>, window: &Range<usize>) -> bool {
    window
        .clone()
        .any(|index| Group::at(regime, table, index).contiguous())
}

/// Judges the window, of which at least one valid leaf has the Contiguous bit.
pub(super) fn judge(
    regime: &Regime,
    table: &Table<'_>,
    window: Range<usize>,
    report: &mut impl FnMut(Option<Violation>),
) {
    let group = Group {
        regime,
        table,
        window,
    };
    if let Some(sentence) = group.smaller_table() {
        return report(Some(group.violation(ArchRule::A1, sentence)));
    }
    let sentences = [
        (ArchRule::A4, group.without_bit()),
        (ArchRule::A3, group.scattered()),
        (ArchRule::A5, group.unequal()),
    ];
    for (rule, sentence) in sentences {
        report(sentence.map(|sentence| group.violation(rule, sentence)));
    }
    report(
        group
            .misaligned()
            .map(|(rule, sentence)| group.violation(rule, sentence)),
    );
}

struct Group<'a, 'm> {
    regime: &'a Regime,
    table: &'a Table<'m>,
    window: Range<usize>,
}

impl<'a> Group<'a, '_> {
    fn at(regime: &'a Regime, table: &Table<'_>, index: usize) -> Descriptor<'a> {
        Descriptor::new(table.words[index], table.level, regime)
    }

    fn descriptor(&self, index: usize) -> Descriptor<'a> {
        Self::at(self.regime, self.table, index)
    }

    /// Returns the valid leaves that have the bit.
    fn members(&self) -> impl Iterator<Item = (usize, Descriptor<'a>)> + '_ {
        let all = self
            .window
            .clone()
            .map(|index| (index, self.descriptor(index)));
        all.filter(|(_, descriptor)| descriptor.contiguous())
    }

    fn entry_size(&self) -> u64 {
        self.regime.entry_size(self.table.level)
    }

    /// Returns the number of bytes that a group maps.
    fn bytes(&self) -> u64 {
        self.entry_size() * self.regime.level(self.table.level).group as u64
    }

    /// Returns the output address at which the group starts if the member at `index` is right.
    fn base(&self, index: usize, descriptor: &Descriptor<'_>) -> u64 {
        let offset = (index - self.window.start) as u64 * self.entry_size();
        descriptor.output_address().0.wrapping_sub(offset)
    }

    /// Checks A1: a table with fewer descriptors than a group (R_WMNPV: it maps more than TnSZ has).
    fn smaller_table(&self) -> Option<String> {
        let (entries, group) = (
            self.table.words.len(),
            self.regime.level(self.table.level).group,
        );
        (entries < group).then(|| {
            format!("the Contiguous bit is set in a table of {entries} descriptors, expected 0: a group has {group}, more than TCR_EL1.T{}SZ covers", self.regime.half.number())
        })
    }

    /// Checks A4: valid descriptors that lack the bit. A table descriptor has none to set (I_PGVGZ is about blocks and
    /// pages only), yet it lies in the range that a TLB may take from the others.
    fn without_bit(&self) -> Option<String> {
        let mut lacking = Vec::new();
        let (mut tables, mut members) = (0, 0);
        for index in self.window.clone() {
            let descriptor = self.descriptor(index);
            match descriptor.kind() {
                Kind::Table => {
                    tables += 1;
                    lacking.push(index);
                }
                Kind::Block | Kind::Page if !descriptor.contiguous() => lacking.push(index),
                Kind::Block | Kind::Page => members += 1,
                Kind::Invalid | Kind::Reserved => {}
            }
        }
        let first = *lacking.first()?;
        let mut sentence = format!(
            "{members} descriptors have the Contiguous bit and {} valid ones lack it (the first at index {first}",
            lacking.len()
        );
        if tables > 0 {
            let _ = write!(sentence, "; {tables} are table descriptors");
        }
        sentence.push_str("), expected all valid ones of a group to agree");
        Some(sentence)
    }

    /// Checks A3: members that do not continue one output range.
    fn scattered(&self) -> Option<String> {
        let base = self.likely_base();
        let (index, descriptor) = self.members().find(|(i, d)| self.base(*i, d) != base)?;
        let expected = base.wrapping_add((index - self.window.start) as u64 * self.entry_size());
        Some(format!(
            "the descriptor at index {index} has OA {}, expected 0x{expected:013x}: the others of the group make up one range",
            descriptor.output_address()
        ))
    }

    /// Returns the base that most members have, if most agree (Boyer and Moore's vote).
    fn likely_base(&self) -> u64 {
        let (mut base, mut votes) = (0, 0_usize);
        for (index, descriptor) in self.members() {
            let candidate = self.base(index, &descriptor);
            if votes == 0 {
                base = candidate;
            }
            votes = if candidate == base {
                votes + 1
            } else {
                votes - 1
            };
        }
        base
    }

    /// Checks A1 and A2: one output range that is not aligned to its size. The place in the table is wrong (A1) if the
    /// range continues beyond the window and its start is aligned in output address but not in the table.
    fn misaligned(&self) -> Option<(ArchRule, String)> {
        let (first, descriptor) = self.members().next()?;
        let base = self.base(first, &descriptor);
        if base % self.bytes() == 0 || self.scattered().is_some() {
            return None;
        }
        let (kib, entries) = (
            self.bytes() >> 10,
            self.regime.level(self.table.level).group,
        );
        let run = self.run(first);
        let crosses = run.start < self.window.start || run.end > self.window.end;
        let start = self.descriptor(run.start).output_address();
        if crosses && run.start % entries != 0 && start.0 % self.bytes() == 0 {
            let sentence = format!("a range of contiguous descriptors starts at index {} of its table with OA {start}, expected an index that is a multiple of {entries}", run.start);
            return Some((ArchRule::A1, sentence));
        }
        let base = crate::PhysicalAddress(base);
        let sentence = format!(
            "the group's output range starts at {base}, expected a multiple of its {kib} KiB"
        );
        Some((ArchRule::A2, sentence))
    }

    /// Returns the longest stretch of the table around `index` where contiguous leaves go on in output address.
    fn run(&self, index: usize) -> Range<usize> {
        let size = self.entry_size();
        let follows = |at: usize| {
            let (one, two) = (self.descriptor(at), self.descriptor(at + 1));
            one.contiguous()
                && two.contiguous()
                && one.output_address().0.wrapping_add(size) == two.output_address().0
        };
        let (mut start, mut end) = (index, index + 1);
        while start > 0 && follows(start - 1) {
            start -= 1;
        }
        while end < self.table.words.len() && follows(end - 1) {
            end += 1;
        }
        start..end
    }

    /// Checks A5: members whose attributes or permissions differ.
    fn unequal(&self) -> Option<String> {
        let (first, one) = self.members().next()?;
        let (index, names) = self.members().find_map(|(index, other)| {
            let names = differences(self.regime, &one, &other);
            (!names.is_empty()).then_some((index, names))
        })?;
        let names = names.join(", ");
        Some(format!(
            "the descriptors at index {first} and {index} differ in {names}, expected a group's attributes and permissions to be equal"
        ))
    }

    fn violation(&self, rule: ArchRule, sentence: String) -> Violation {
        Violation {
            rule,
            level: self.table.level,
            va: self.table.va_of(self.window.start, self.regime),
            table: self.table.address,
            index: self.window.start,
            words: self.table.words[self.window.clone()].to_vec(),
            sentence,
        }
    }
}

/// Returns the fields in which two members of a group differ and may not.
///
/// AF may always differ, and AP\[2\] where the PE clears it (I_CQTNL). Without hardware management of the dirty state
/// the PE ignores DBM. Two AttrIndx that select the same byte of MAIR_EL1 are the same attributes. Device and Normal
/// Non-cacheable memory is Outer Shareable whatever its SH. With permission indirection two PIIndex that select the
/// same permissions are the same, and nDirty counts where EL0 or EL1 may write.
fn differences(regime: &Regime, one: &Descriptor<'_>, other: &Descriptor<'_>) -> Vec<&'static str> {
    let diff = one.word ^ other.word;
    let mut names = Vec::new();
    let memory = one.memory_attributes();
    let same_memory = match (memory, other.memory_attributes()) {
        (Some(one), Some(other)) => one == other,
        _ => one.attr_indx() == other.attr_indx(),
    };
    if !same_memory {
        names.push("AttrIndx");
    }
    let dirty_managed = regime.dirty_managed(one.word) && regime.dirty_managed(other.word);
    let own = match regime.indirection {
        Some(indirection) => {
            if !indirection.same(one.word, other.word) {
                names.push("PIIndex");
            }
            if diff & AP2 != 0 && !dirty_managed && regime.has_dirty_state(one.word) {
                names.push("nDirty");
            }
            0
        }
        None => {
            if diff & AP & !(if dirty_managed { AP2 } else { 0 }) != 0 {
                names.push("AP");
            }
            u64::MAX
        }
    };
    let shareable = memory.is_none_or(|attr| attr >> 4 != 0 && attr != 0x44 && attr != 0x40);
    if diff & SH != 0 && !regime.ds && shareable {
        names.push("SH");
    }
    let fields = [
        (NG, "nG"),
        (GP, "GP"),
        (if regime.hd { DBM & own } else { 0 }, "DBM"),
        (PXN & own, "PXN"),
        (UXN & own, "UXN"),
        (regime.upper_attributes, "bits [62:59]"),
    ];
    names.extend(
        fields
            .iter()
            .filter(|(mask, _)| diff & mask != 0)
            .map(|(_, name)| *name),
    );
    names
}

/// Returns the bits that the quick path compares: all in which members may not differ, and some in which they may.
pub(super) fn compared(regime: &Regime) -> u64 {
    let sh = if regime.ds { 0 } else { SH };
    let dbm = if regime.hd { DBM } else { 0 };
    let index = if regime.indirection.is_some() {
        PI_INDEX
    } else {
        0
    };
    ATTR_INDX | AP | sh | NG | GP | dbm | index | CONTIGUOUS | PXN | UXN | regime.upper_attributes
}
