// SPDX-License-Identifier: GPL-2.0-only
//! The version of the protocol, and how much one answer may be.

/// The version of everything here. It goes up when a field changes its meaning or is removed; new methods and fields do
/// not count.
pub const VERSION: u32 = 1;

/// The longest answer, in bytes. A request with a longer one is refused. A process that maps a million pages one by one
/// has some 200 MiB.
pub const LONGEST_ANSWER: usize = 256 << 20;
