// SPDX-License-Identifier: GPL-2.0-only
//! Judges evidence, and confirms errors over several looks.
//!
//! [`judge()`] is pure: one instant's [`Evidence`] in, verdicts out. Nothing else asks the rules about a guest. [`step()`]
//! is the verdict on a snapshot, whatever it was taken from; [`Look`] is one on a running guest; [`mod@confirm`] repeats
//! looks until every error is confirmed or gone, and knows neither a rule nor a guest by name. [`unattended`] does so for a
//! guest without a process at a checkpoint: in an external QEMU ([`external_qemu`]), or one that hangs ([`Hung`]).
//!
//! A program of one's own judges a saved core so:
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let snapshot = snapshot::read_core("saved.core".as_ref())?;
//! let step = analysis::step(&snapshot, None)?;
//! println!("{} errors: {:?}", step.errors(), step.outcome());
//! # Ok(())
//! # }
//! ```
//!
//! `examples/judge.rs` is such a program, whole.

mod address;
mod confirm_checkpoint;
mod confirmation;
mod context;
mod counting;
mod error;
mod hung;
mod judge;
mod kernel_address;
mod kernel_half;
mod kernel_log;
mod look;
mod process;
mod step;
mod stop;
mod switches;
mod wait;
mod watch;

pub mod confirm;
pub mod diff;
pub mod external_qemu;
pub mod frames;
pub mod kernel_map;
pub mod tasks;
pub mod unattended;

pub use address::{may_be_of, AddressInfo, Places};
pub use confirmation::{Open, Sight};
pub use error::Error;
pub use evidence::Evidence;
pub use hung::Hung;
pub use judge::{judge, Judged};
pub use kernel_address::KernelPlace;
pub use kernel_half::judge_kernel_half;
pub use look::{judge_process, Look};
pub use step::step;
pub use stop::cpus_at_a_stop;
pub use wait::Wait;
pub use watch::Moment;
