// SPDX-License-Identifier: GPL-2.0-only
//! Decides what software must do to change one descriptor word into another, from the two words alone.
//!
//! A TLB may hold a valid descriptor until software invalidates it. Most changes of a live descriptor merely take
//! effect late; some are never allowed, since no model covers a TLB that holds both words. Those need
//! *break-before-make*: an invalid word, a DSB, the TLBI, a DSB, and only then the new word. Every TLBI needs a DSB
//! between the store and itself, and one after itself (R_DDMVT).
//!
//! The list is that of the Arm ARM, DDI 0487, "Using break-before-make when updating translation table entries"
//! (D8.17.1 in issue L.a, D8.16.1 in earlier ones). The ids of that list's own rules were not at hand and are not
//! quoted. The ids quoted (R_DDMVT, R_QTRPM, R_SKQHL, R_HMQXG, I_PGVGZ) come from extracts. If the words do not suffice
//! to decide, the [`Cause`] states it.

use std::fmt;

use crate::geometry::{
    AP1, AP2, CONTIGUOUS, DBM, GP, NG, NS, NS_TABLE, NT, PXN, PXN_TABLE, SH, UXN, UXN_TABLE,
};
use crate::{Descriptor, Kind, Level, Regime};

/// The level of FEAT_BBM that the kernel relies on, which is not the level of the PE: a kernel that runs on any PE
/// relies on none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BbmLevel {
    /// Level 0: break-before-make for every change of size.
    #[default]
    Zero,
    /// Level 1: not from a block that has nT set, and not for the Contiguous bit.
    One,
    /// Level 2 and above: not for any change of size.
    Two,
}

/// The requirement of a change of a descriptor, least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Maintenance {
    /// Nothing: no TLB can hold an entry that the new word contradicts.
    Nothing,
    /// A TLBI. Without it a PE may go on to use the old word. The kernel chooses the time.
    Tlbi,
    /// The old word has to be out of every TLB before the new one is written.
    BreakBeforeMake,
}

/// The reason for a [`Maintenance`], in the order of precedence: of several causes that apply the first is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// No TLB could hold the old word: it was invalid, reserved, or a leaf with AF 0 where the PE does not set AF.
    NeverCached,
    /// The same word.
    Same,
    /// The new word is invalid: the break itself.
    Broken,
    /// A block became a table, a table a block, or a leaf another one of another level.
    Size,
    /// Another table. Its contents alone decide whether the translation changes: if they are the same for every VA, a
    /// TLBI is enough.
    NextTable,
    /// Another output address, and the old or the new word allows writes.
    OutputAddress,
    /// Another output address, and neither word allows writes. Break-before-make is needed unless both places hold the
    /// same bytes, which the words do not show.
    ReadOnlyOutputAddress,
    /// Another memory type or cacheability.
    MemoryType,
    /// The Contiguous bit changed, and with it the size of the TLB entry.
    Contiguous,
    /// From nG 1 to nG 0: the global entry would overlap with non-global ones of any ASID.
    Global,
    /// A permission was removed.
    Restricted,
    /// From nG 0 to nG 1.
    NonGlobal,
    /// Another shareability. Some readings of the Arm ARM require break-before-make. This one does not, to avoid a
    /// false alarm.
    Shareability,
    /// Normal memory became Tagged or ceased to be: mismatched attributes that are a matter of permission.
    Tagged,
    /// A permission was added. Without the TLBI a spurious fault may occur.
    Relaxed,
    /// GP, NS, DBM, PBHA, POIndex, or a table's own attributes.
    Attributes,
    /// nT of a block (FEAT_BBM).
    NoTranslation,
    /// AF went from 1 to 0.
    Aged,
    /// AF went from 0 to 1.
    AccessFlag,
    /// Bits that are left to software or ignored.
    Software,
}

impl Cause {
    /// Returns the place in the Arm ARM (DDI 0487). Section numbers are of issue L.a.
    #[must_use]
    pub const fn reference(self) -> &'static str {
        match self {
            Self::NeverCached | Self::Same | Self::AccessFlag => {
                "Arm ARM D8.16, TLB entries: what faults on Translation, Address size or Access flag is not cached"
            }
            Self::Broken | Self::Restricted | Self::Relaxed | Self::Aged | Self::NonGlobal => {
                "Arm ARM D8.17, TLB maintenance; R_DDMVT"
            }
            Self::Size => "Arm ARM D8.17.1, break-before-make: block size; D8.17.2, FEAT_BBM",
            Self::NextTable | Self::OutputAddress | Self::ReadOnlyOutputAddress => {
                "Arm ARM D8.17.1, break-before-make: output address"
            }
            Self::MemoryType => "Arm ARM D8.17.1, break-before-make: memory type, cacheability",
            Self::Contiguous => {
                "Arm ARM D8.17.1, break-before-make: block size; D8.7.1, R_QTRPM and R_SKQHL"
            }
            Self::Global => "Arm ARM D8.17.1, break-before-make: creation of a global entry",
            Self::Shareability => "Arm ARM D8.17.1 (shareability is not in its list)",
            Self::Tagged => "Arm ARM D8.17.1; D10, Tagged as a permission attribute",
            Self::Attributes => "Arm ARM D8.3, descriptor formats; D8.17, TLB maintenance",
            Self::NoTranslation => "Arm ARM D8.17.2, FEAT_BBM: the nT bit",
            Self::Software => "Arm ARM D8.3: IGNORED and software's bits",
        }
    }

    /// Returns the difference as a phrase.
    #[must_use]
    pub const fn phrase(self) -> &'static str {
        match self {
            Self::NeverCached => "the old word could be in no TLB",
            Self::Same => "nothing differs",
            Self::Broken => "the new word is invalid",
            Self::Size => "the size of the translation differs",
            Self::NextTable => "the next-level table differs",
            Self::OutputAddress => "the output address differs",
            Self::ReadOnlyOutputAddress => "the output address of read-only memory differs",
            Self::MemoryType => "the memory type differs",
            Self::Contiguous => "the Contiguous bit differs",
            Self::Global => "the new word is global and the old one was not",
            Self::Restricted => "a right is taken away",
            Self::NonGlobal => "the new word is not global and the old one was",
            Self::Shareability => "the shareability differs",
            Self::Tagged => "Normal memory is Tagged in one of them",
            Self::Relaxed => "a right is given",
            Self::Attributes => "attributes differ",
            Self::NoTranslation => "nT differs",
            Self::Aged => "AF is cleared",
            Self::AccessFlag => "AF is set",
            Self::Software => "only bits that the PE does not use differ",
        }
    }
}

/// The need of a change, and its cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The need.
    pub need: Maintenance,
    /// The cause.
    pub cause: Cause,
}

impl fmt::Display for Transition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let need = match self.need {
            Maintenance::Nothing => "nothing is needed",
            Maintenance::Tlbi => "a TLBI is needed",
            Maintenance::BreakBeforeMake => "break-before-make is needed",
        };
        write!(f, "{need}: {}", self.cause.phrase())
    }
}

const fn of(need: Maintenance, cause: Cause) -> Transition {
    Transition { need, cause }
}

/// Returns what software must do to change `old` into `new`, both of the same regime and for the same VA. Their levels
/// may differ, if a whole table was added or removed between them.
#[must_use]
pub fn transition(old: &Descriptor<'_>, new: &Descriptor<'_>, bbm: BbmLevel) -> Transition {
    if old.word == new.word && old.level == new.level {
        return of(Maintenance::Nothing, Cause::Same);
    }
    if !may_be_cached(old) {
        return of(Maintenance::Nothing, Cause::NeverCached);
    }
    match (old.kind(), new.kind()) {
        (_, Kind::Invalid | Kind::Reserved) => of(Maintenance::Tlbi, Cause::Broken),
        (Kind::Table, Kind::Table) if old.level == new.level => tables(old, new),
        // A table above the leaf is part of the leaf's own walk.
        (Kind::Table, _) if new.level > old.level => of(Maintenance::Nothing, Cause::NeverCached),
        (_, Kind::Table) if old.level > new.level => of(Maintenance::Nothing, Cause::NeverCached),
        (from, to) if from != to || old.level != new.level => size(old, bbm),
        _ => leaves(old, new, bbm),
    }
}

/// Returns whether a TLB may hold the descriptor: not if it faults before its permissions are checked. Another member's
/// AF may let a TLB hold a member of a contiguous group.
#[must_use]
pub fn may_be_cached(descriptor: &Descriptor<'_>) -> bool {
    match descriptor.kind() {
        Kind::Invalid | Kind::Reserved => false,
        Kind::Table => true,
        Kind::Block | Kind::Page => {
            descriptor.af() || descriptor.regime().ha || descriptor.contiguous()
        }
    }
}

fn size(old: &Descriptor<'_>, bbm: BbmLevel) -> Transition {
    let unused = old.nt() && bbm >= BbmLevel::One;
    let need = if unused || bbm >= BbmLevel::Two {
        Maintenance::Tlbi
    } else {
        Maintenance::BreakBeforeMake
    };
    of(need, Cause::Size)
}

fn tables(old: &Descriptor<'_>, new: &Descriptor<'_>) -> Transition {
    const ATTRIBUTES: u64 = 0b11 << 61 | UXN_TABLE | PXN_TABLE;
    let used = if old.regime().hpd { 0 } else { ATTRIBUTES } | NS_TABLE;
    let differ = (old.word ^ new.word) & used;
    if old.next_table() != new.next_table() {
        of(Maintenance::BreakBeforeMake, Cause::NextTable)
    } else if differ & new.word != 0 {
        of(Maintenance::Tlbi, Cause::Restricted)
    } else if differ != 0 {
        of(Maintenance::Tlbi, Cause::Relaxed)
    } else {
        of(Maintenance::Nothing, Cause::Software)
    }
}

fn leaves(old: &Descriptor<'_>, new: &Descriptor<'_>, bbm: BbmLevel) -> Transition {
    let regime = old.regime();
    let differ = old.word ^ new.word;
    let writable = |leaf: &Descriptor<'_>| regime.indirection.is_some() || writable(leaf.word);
    if old.output_address() != new.output_address() {
        let cause = if writable(old) || writable(new) {
            Cause::OutputAddress
        } else {
            Cause::ReadOnlyOutputAddress
        };
        return of(Maintenance::BreakBeforeMake, cause);
    }
    let memory = memory(old, new);
    if memory == Some(Cause::MemoryType) {
        return of(Maintenance::BreakBeforeMake, Cause::MemoryType);
    }
    if differ & CONTIGUOUS != 0 {
        let need = if bbm >= BbmLevel::One {
            Maintenance::Tlbi
        } else {
            Maintenance::BreakBeforeMake
        };
        return of(need, Cause::Contiguous);
    }
    if differ & NG & old.word != 0 {
        return of(Maintenance::BreakBeforeMake, Cause::Global);
    }
    let (lost, given) = rights(regime, old.word, new.word);
    let attributes = if regime.indirection.is_some() {
        GP | NS
    } else {
        GP | NS | DBM
    } | regime.upper_attributes;
    let late = [
        (lost, Cause::Restricted),
        (differ & NG != 0, Cause::NonGlobal),
        (!regime.ds && differ & SH != 0, Cause::Shareability),
        (memory.is_some(), Cause::Tagged),
        (given, Cause::Relaxed),
        (differ & attributes != 0, Cause::Attributes),
        (
            old.level != Level::L3 && differ & NT != 0,
            Cause::NoTranslation,
        ),
        (old.af() && !new.af(), Cause::Aged),
    ];
    match late.into_iter().find(|(applies, _)| *applies) {
        Some((_, cause)) => of(Maintenance::Tlbi, cause),
        None if old.af() != new.af() => of(Maintenance::Nothing, Cause::AccessFlag),
        None => of(Maintenance::Nothing, Cause::Software),
    }
}

/// Returns whether EL0 or EL1 may write there, where the PE's own dirty state counts as permission.
const fn writable(word: u64) -> bool {
    word & AP2 == 0 || word & DBM != 0
}

/// Returns the difference in memory type; `None` if there is none.
fn memory(old: &Descriptor<'_>, new: &Descriptor<'_>) -> Option<Cause> {
    /// MAIR_EL1: Normal, Inner and Outer Write-Back, non-transient, Read- and Write-Allocate; the same Tagged.
    const NORMAL: [u8; 2] = [0xff, 0xf0];
    if old.attr_indx() == new.attr_indx() {
        return None;
    }
    match (old.memory_attributes(), new.memory_attributes()) {
        (Some(one), Some(two)) if one == two => None,
        (Some(one), Some(two)) if NORMAL.contains(&one) && NORMAL.contains(&two) => {
            Some(Cause::Tagged)
        }
        (Some(_), Some(_)) => Some(Cause::MemoryType),
        // MAIR2_EL1 was not read.
        _ => Some(Cause::Tagged),
    }
}

/// Returns whether a permission is removed, and whether one is added. With PIIndex any other index may do both.
const fn rights(regime: &Regime, old: u64, new: u64) -> (bool, bool) {
    if regime.indirection.is_some() {
        // PIIndex is bits [54:53], 51 and 6; nDirty is AP[2].
        let differ = (old ^ new) & (PXN | UXN | DBM | AP1 | AP2);
        return (differ != 0, false);
    }
    // As rights: EL0 has access, writes are allowed, EL0 may execute, EL1 may execute.
    let (old, new) = (old ^ (AP2 | UXN | PXN), new ^ (AP2 | UXN | PXN));
    let mask = AP1 | AP2 | UXN | PXN;
    (old & !new & mask != 0, new & !old & mask != 0)
}
