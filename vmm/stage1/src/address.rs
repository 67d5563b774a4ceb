// SPDX-License-Identifier: GPL-2.0-only
//! Types for virtual and physical addresses, so that the compiler keeps them apart.

use std::fmt;

/// A 64-bit virtual address (VA) of the EL1&0 regime, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VirtualAddress(pub u64);

/// A physical address as the guest sees it (an IPA where stage 2 exists), in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PhysicalAddress(pub u64);

impl fmt::Display for VirtualAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:016x}", self.0)
    }
}

/// Thirteen digits hold the 52 bits that any physical address has.
impl fmt::Display for PhysicalAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:013x}", self.0)
    }
}
