// SPDX-License-Identifier: GPL-2.0-only
//! Translates one address, and finds the descriptor that translates it.

use crate::{
    Descriptor, Inherited, Kind, Permissions, PhysMemory, PhysicalAddress, ProblemKind, Regime,
    VirtualAddress, WalkProblem,
};

/// The descriptor that ends the translation of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'r> {
    /// The descriptor.
    pub descriptor: Descriptor<'r>,
    /// Its table.
    pub table: PhysicalAddress,
    /// Its index in the table.
    pub index: usize,
    /// The first VA that it maps.
    pub va: VirtualAddress,
    /// Attributes that the table descriptors above impose.
    pub inherited: Inherited,
}

/// Translation of a VA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup<'r> {
    /// The VA translates to an address.
    Mapped {
        /// The leaf.
        entry: Entry<'r>,
        /// The output address of exactly this VA.
        pa: PhysicalAddress,
        /// The permissions at this address.
        permissions: Permissions,
    },
    /// The VA is not mapped: the descriptor is invalid or reserved.
    NotMapped {
        /// The descriptor.
        entry: Entry<'r>,
    },
    /// The VA is not mapped: the leaf's output address is above the output size (Address size fault).
    BeyondOutputSize {
        /// The leaf.
        entry: Entry<'r>,
    },
    /// The VA is not mapped: it is not in this half, or the half's walks are disabled (TCR_EL1.EPDn).
    OutsideRegime,
    /// The translation is not known.
    Problem(WalkProblem),
}

/// Translates `va`. With TBI its tag is ignored.
pub fn lookup<'r, M: PhysMemory + ?Sized>(
    memory: &M,
    regime: &'r Regime,
    va: VirtualAddress,
) -> Lookup<'r> {
    let va = regime.canonical(va);
    if regime.epd || !regime.contains(va) {
        return Lookup::OutsideRegime;
    }
    let (mut level, mut address) = (regime.root_level, regime.root);
    let mut base = regime.first;
    let mut inherited = Inherited::default();
    let mut from = None;
    loop {
        let problem = |kind| {
            Lookup::Problem(WalkProblem {
                kind,
                level,
                va: base,
                address,
                from,
            })
        };
        let index = regime.index(level, base, va);
        // Reads one descriptor, as the PE does. The rest of the table may be outside RAM.
        let at = PhysicalAddress(address.0 + index as u64 * 8);
        let Some(&[word]) = memory.words(at, 1) else {
            let saved = memory.is_ram(at);
            return problem(if saved {
                ProblemKind::NotSaved
            } else {
                ProblemKind::OutsideRam
            });
        };
        debug_assert!(index < regime.entries(level));
        let geometry = regime.level(level);
        let descriptor = Descriptor::new(word, level, regime);
        let start = VirtualAddress(base.0.wrapping_add((index as u64) << geometry.shift));
        let entry = Entry {
            descriptor,
            table: address,
            index,
            va: start,
            inherited,
        };
        match (descriptor.kind(), level.next()) {
            (Kind::Table, Some(next)) => {
                from = Some((address, index, word));
                address = descriptor.next_table();
                (level, base) = (next, start);
                inherited = inherited.below(word, regime);
                if word & geometry.table_beyond != 0 {
                    let kind = ProblemKind::BeyondOutputSize;
                    return Lookup::Problem(WalkProblem {
                        kind,
                        level,
                        va: base,
                        address,
                        from,
                    });
                }
            }
            (Kind::Block | Kind::Page, _) if word & geometry.leaf_beyond != 0 => {
                return Lookup::BeyondOutputSize { entry };
            }
            (Kind::Block | Kind::Page, _) => {
                let offset = va.0 & ((1 << geometry.shift) - 1);
                let pa = PhysicalAddress(descriptor.output_address().0 | offset);
                let permissions = Permissions::new(&descriptor, inherited, regime);
                return Lookup::Mapped {
                    entry,
                    pa,
                    permissions,
                };
            }
            _ => return Lookup::NotMapped { entry },
        }
    }
}
