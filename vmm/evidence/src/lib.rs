// SPDX-License-Identifier: GPL-2.0-only
//! Evidence of one instant of a guest: what was read, or why it was not. This crate knows no rule.
//!
//! A [`snapshot`] is registers and memory. Their meaning is in the kernel: its symbols ([`Facts`]), its half of the
//! address space ([`kernel_half`]), its order records ([`read_orders`]), its structures ([`inside`], [`Gathered`]), the
//! VMAs of a process ([`Subject`]). [`Evidence`] is all of that for one instant, built in this one place, whatever the
//! instant comes from: a process at a checkpoint, a guest without one, or a file ([`full_core`]).
//!
//! The crate `analysis` judges it.

mod claimed_folios;
mod contents;
mod cpus;
mod error;
mod evidence;
mod facts;
mod mapped;
mod order_records;
mod page_reader;
mod subject;
mod tables;

pub mod capture;
pub mod cgroups;
pub mod cpu_progress;
pub mod elsewhere;
pub mod full_core;
pub mod gathered;
pub mod guest_notes;
pub mod incremental;
pub mod inside;
pub mod instant;
pub mod log;
pub mod other_core;
pub mod page_caches;
pub mod process;
pub mod procfs;
pub mod release;
pub mod root_table;
pub mod task_processes;

pub use capture::{
    copy, gather, pages, pages_of_all, pages_seen, user_pages, Capture, CaptureRequest, Companion,
    Extent,
};
pub use claimed_folios::{older, unmapped};
pub use cpu_progress::{idles, Since, Work};
pub use cpus::{
    came, in_trampoline, kernel_half, lower_half, lower_with, slide, started, vectors,
    NO_LOWER_HALF,
};
pub use error::Error;
pub use evidence::Evidence;
pub use facts::Facts;
pub use full_core::complete;
pub use gathered::{is_quiet, Gathered};
pub use guest_notes::keep_recognised;
pub use incremental::{copy_again, ReadAgain};
pub use log::keep_log;
pub use order_records::read_orders;
pub use page_reader::{folios, with_folios, PageReader};
pub use process::ProcessEvidence;
pub use procfs::keep_getters;
pub use root_table::{table_of, KnownProcess};
pub use subject::{parse_vmas, Subject};
pub use tables::walk_all;
