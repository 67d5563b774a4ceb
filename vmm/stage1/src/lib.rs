// SPDX-License-Identifier: GPL-2.0-only
//! Decodes AArch64 stage 1 translation (VMSAv8-64, EL1&0) from outside a machine.
//!
//! The crate is pure: it works on words that its caller has read. The order is [`SystemRegisters`] -> [`Regime`] ->
//! [`walk()`] -> architecture rules ([`check`]). No function does I/O or allocates per descriptor.
//!
//! "Arm ARM" is DDI 0487; names in the form `R_QTRPM` are its rules, which [`ArchRule`] quotes.

mod address;
mod decode;
mod descriptor;
mod error;
mod geometry;
mod granule;
mod indirection;
mod lookup;
mod memory;
mod permissions;
mod problem;
mod regime;
mod registers;
mod rules;
#[cfg(feature = "testing")]
pub mod testing;
mod transition;
mod walk;

pub use address::{PhysicalAddress, VirtualAddress};
pub use descriptor::{Descriptor, Kind};
pub use error::RegimeError;
pub use geometry::LevelGeometry;
pub use granule::{Granule, Half, Level};
pub use indirection::{Indirection, Overlays};
pub use lookup::{lookup, Entry, Lookup};
pub use memory::PhysMemory;
pub use permissions::{Inherited, Permissions};
pub use problem::{ProblemKind, WalkProblem};
pub use regime::Regime;
pub use registers::SystemRegisters;
pub use rules::{check, check_plainly, check_within, ArchRule, CheckSummary, Checker, Violation};
pub use transition::{may_be_cached, transition, BbmLevel, Cause, Maintenance, Transition};
pub use walk::{
    tables_below, walk, walk_within, Descend, Shown, Table, Visitor, WalkSummary, DEFAULT_BUDGET,
};
