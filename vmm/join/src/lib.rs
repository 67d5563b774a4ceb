// SPDX-License-Identifier: GPL-2.0-only
//! Brings a snapshot together with what the kernel's own structures say of it, and has it judged.
//!
//! A snapshot is registers and memory. What they mean is in the kernel: its symbols ([`Facts`]), the half that a CPU
//! shows of it ([`kernel_half`]), its order records ([`read_orders`]), a process's VMAs ([`Subject`]). All that the rules
//! are asked of one instant is put together in one place, wherever the instant comes from, and judged in one place
//! ([`Judged`]): for a look at a running guest ([`Look`]), for a saved one ([`step()`]), for one process
//! ([`judge_process`]). [`mod@settle`] looks until it is sure. [`unattended`] looks at a guest in which nobody waits for
//! us: in somebody else's QEMU ([`foreign`]), or one of ours that hangs ([`Hung`]).
//!
//! A program of one's own judges a saved core so:
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let snapshot = snapshot::read_core("saved.core".as_ref())?;
//! let step = join::step(&snapshot, None)?;
//! println!("{} errors: {:?}", step.errors(), step.outcome());
//! # Ok(())
//! # }
//! ```
//!
//! `examples/judge.rs` is such a program, whole.

mod again;
mod basis;
mod caches;
mod capture;
mod cgroups;
mod claimed;
mod contents;
mod counting;
mod cpus;
mod error;
mod evidence;
mod facts;
mod gathered;
mod getters;
mod hung;
mod judge;
mod kernel;
mod kernel_place;
mod look;
mod mapped;
mod moment;
mod one;
mod orders;
mod pages;
mod place;
mod proof;
mod sight;
mod step;
mod subject;
mod switches;
mod tables;
mod task_processes;
mod whole;
mod work;

pub mod changed;
pub mod elsewhere;
pub mod foreign;
pub mod frames;
pub mod inside;
pub mod instant;
pub mod kernel_map;
mod log;
pub mod other_core;
pub mod release;
pub mod seen;
pub mod settle;
mod settled;
pub mod unattended;

pub use again::{copy_again, ReadAgain};
pub use basis::keep_recognised;
pub use capture::{
    copy, gather, pages, pages_of_all, pages_seen, user_pages, Capture, Companion, Extent, Seen,
};
pub use cpus::{came, in_trampoline, kernel_half, slide, started};
pub use error::Error;
pub use facts::Facts;
pub use gathered::{is_quiet, Gathered};
pub use getters::keep_getters;
pub use hung::Hung;
pub use judge::Judged;
pub use kernel::judge_kernel_half;
pub use kernel_place::KernelPlace;
pub use log::keep_log;
pub use look::{judge_process, Look};
pub use moment::Moment;
pub use orders::read_orders;
pub use pages::with_folios;
pub use place::{may_be_of, Place, Places};
pub use proof::{table_of, Known};
pub use sight::{Open, Sight};
pub use step::step;
pub use subject::{parse_vmas, Subject};
pub use whole::complete;
pub use work::{idles, Since, Work};
