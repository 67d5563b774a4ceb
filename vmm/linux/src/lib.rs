// SPDX-License-Identifier: GPL-2.0-only
//! Knowledge of the Linux guest that the rig judges.
//!
//! Pure functions over bytes, text and guest memory:
//! - kernel images and their packings ([`image`])
//! - the symbols of a vmlinux ([`symbols`]), or the kernel's own in its memory ([`kallsyms`])
//! - `/proc/PID/maps` ([`vma`])
//! - the kernel's records of why it chose a folio's order ([`order`])
//! - pages and their folios ([`folio`])
//! - the kernel's own interfaces for memory ([`getters`])
//! - counts of all memory ([`counted`]), of one file ([`cache`]) and of contiguous blocks ([`contpte`])
//! - what is known of a guest at one instant ([`structures`]), and of a range by who drives it ([`expectation`])
//! - the kernel's reports on its console ([`console`])
//! - Linux's meaning of a descriptor ([`pte`]), and the name of one that is not present ([`absent`])
//!
//! The crate `verdict` decides what is right or wrong; this crate does not.

pub mod absent;
pub mod cache;
pub mod console;
pub mod contpte;
pub mod counted;
pub mod expectation;
pub mod folio;
pub mod getters;
pub mod image;
pub mod kallsyms;
pub mod kernel_memory;
pub mod order;
pub mod process;
pub mod pte;
pub mod release;
pub mod structures;
pub mod symbols;
pub mod unmapped;
pub mod vma;
