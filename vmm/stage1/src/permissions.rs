// SPDX-License-Identifier: GPL-2.0-only
//! Computes permissions: a leaf's own, limited by the tables that lead to it (Arm ARM D8.4).

use crate::geometry::{AP1, NS_TABLE, PXN, PXN_TABLE, UXN, UXN_TABLE};
use crate::indirection::{po_index, Access};
use crate::{Descriptor, Regime};

/// The hierarchical attributes of the table descriptors above, accumulated. All zero under HPD.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Inherited {
    /// NSTable was 1 somewhere above.
    pub ns_table: bool,
    /// All APTable above, or-ed: bit 0 takes EL0's access, bit 1 takes writes.
    pub ap_table: u8,
    /// UXNTable was 1 somewhere above.
    pub uxn_table: bool,
    /// PXNTable was 1 somewhere above.
    pub pxn_table: bool,
}

impl Inherited {
    /// Returns the attributes below the table descriptor `word`. HPDn turns off APTable, UXNTable and PXNTable, but not
    /// NSTable.
    #[must_use]
    pub fn below(self, word: u64, regime: &Regime) -> Self {
        let word = if regime.hpd { word & NS_TABLE } else { word };
        Self {
            ns_table: self.ns_table || word & NS_TABLE != 0,
            ap_table: self.ap_table | (word >> 61 & 0b11) as u8,
            uxn_table: self.uxn_table || word & UXN_TABLE != 0,
            pxn_table: self.pxn_table || word & PXN_TABLE != 0,
        }
    }
}

/// Permissions of each exception level for loads, stores and fetches, before PAN and UAO.
///
/// AF does not count: an access to a leaf whose AF is 0 either sets it or faults for that reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[allow(clippy::struct_excessive_bools)] // six independent permissions
pub struct Permissions {
    /// EL0 may read.
    pub el0_read: bool,
    /// EL0 may write.
    pub el0_write: bool,
    /// EL0 may execute.
    pub el0_exec: bool,
    /// EL1 may read.
    pub el1_read: bool,
    /// EL1 may write.
    pub el1_write: bool,
    /// EL1 may execute.
    pub el1_exec: bool,
}

impl Permissions {
    /// Returns the effective permissions of `leaf`; none if it is not a leaf.
    ///
    /// If the PE manages the dirty state, a leaf that is read-only by AP\[2\] (or nDirty) alone counts as writable.
    /// Memory that EL0 may write is not executable by EL1. Overlays count where they could be read. E0PDn takes all of
    /// EL0's access.
    #[must_use]
    pub fn new(leaf: &Descriptor<'_>, inherited: Inherited, regime: &Regime) -> Self {
        if !leaf.kind().is_leaf() {
            return Self::default();
        }
        let word = leaf.word;
        let (el0, el1) = match regime.indirection {
            Some(indirection) => indirection.base(word),
            None => direct(word, inherited, regime),
        };
        let (index, clean) = (po_index(word), regime.clean(word));
        let el0 = el0.under(regime.overlays.el0, index);
        let el1 = el1.under(regime.overlays.el1, index);
        Self {
            el0_read: el0.read && !regime.e0pd,
            el0_write: el0.write && !clean && !regime.e0pd,
            el0_exec: el0.exec && !regime.e0pd,
            el1_read: el1.read,
            el1_write: el1.write && !clean,
            el1_exec: el1.exec,
        }
    }
}

/// Returns EL0's and EL1's permissions by the leaf's own bits and the tables above.
fn direct(word: u64, inherited: Inherited, regime: &Regime) -> (Access, Access) {
    let el0 = word & AP1 != 0 && inherited.ap_table & 0b01 == 0;
    let write = !regime.clean(word) && inherited.ap_table & 0b10 == 0;
    let el0_write = el0 && write;
    let uxn = word & UXN != 0 || inherited.uxn_table;
    let pxn = word & PXN != 0 || inherited.pxn_table;
    let el0_exec = !(uxn || regime.wxn && el0_write);
    let el1_exec = !(pxn || el0_write || regime.wxn && write);
    (
        Access::new(el0, el0_write, el0_exec),
        Access::new(true, write, el1_exec),
    )
}
