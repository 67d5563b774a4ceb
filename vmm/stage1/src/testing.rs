// SPDX-License-Identifier: GPL-2.0-only
//! Synthetic tables for tests: sparse physical memory, and a builder that writes descriptors.
//!
//! The tests write the encodings a second time, from the Arm ARM's figures and tables, and do not use the crate's own
//! decoding. A test thus does not repeat a mistake of the crate.
//!
//! ```
//! use stage1::testing::{Attributes, Layout, TableBuilder};
//! use stage1::{check, Granule, Half, Regime};
//!
//! let mut tables = TableBuilder::new(Layout::new(Granule::K4, Half::Lower, 48));
//! tables.map_group(0x40_0000, 0x8000_0000, 3, Attributes::default());
//! tables.change(0x40_3000, 3, |word| word & !(1 << 52)); // one member loses the Contiguous bit
//!
//! let regime = Regime::new(&tables.registers(), Half::Lower).unwrap();
//! let mut found = Vec::new();
//! check(tables.memory(), &regime, regime.first, regime.last, &mut |v| found.push(v.rule.id()));
//! assert_eq!(found, ["A4"]);
//! ```

mod arbitrary;
mod builder;
mod layout;
mod memory;
pub mod scenario;

pub use arbitrary::read_anything;
pub use builder::{Attributes, TableBuilder};
pub use layout::Layout;
pub use memory::SparseMemory;
