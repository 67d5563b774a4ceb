// SPDX-License-Identifier: GPL-2.0-only
//! An address space: the CPUs that can have cached its entries.

use crate::stale::Gone;

/// One CPU with one ASID that walks, or walked, an address space, so that its TLB may hold some of its entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Context {
    pub(crate) cpu: u16,
    pub(crate) asid: u16,
    /// When it ceased to; `None` while it does.
    pub(crate) until: Option<u64>,
    /// The TLBIs that have emptied it since, the last of each CPU, until a DSB completes one.
    pub(crate) gone: Vec<Gone>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Space {
    pub(crate) contexts: Vec<Context>,
    /// The ASIDs in use: one, or two with KPTI, each with the upper half's first table.
    pub(crate) current: Vec<(u64, u16)>,
    pub(crate) used: u64,
}

impl Space {
    pub(crate) fn uses(&self, asid: u16) -> bool {
        self.current.iter().any(|(_, one)| *one == asid)
    }

    pub(crate) fn set_asid(&mut self, upper: u64, asid: u16) {
        // KPTI has pairs of ASIDs, of which the kernel's is even.
        self.current
            .retain(|(other, old)| *other != upper && (old ^ asid) & !1 == 0);
        self.current.push((upper, asid));
    }
}
