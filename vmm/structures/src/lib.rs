// SPDX-License-Identifier: GPL-2.0-only
//! A Linux guest's own structures, read from its memory without its help.
//!
//! [`Kernel`] knows where things are (the kernel's symbol table, [`linux::kallsyms`]) and what they look like (its
//! BTF, [`types`]); both lie in guest memory. From it come all tasks ([`tasks`]) and the VMAs of each address space
//! ([`vmas`]), in the words of `/proc/PID/smaps`, all address spaces with their counters ([`spaces`]), each page with its
//! folio ([`pages`]), what the kernel counts of all memory ([`counted`]) and of its decisions ([`counts`]), the areas of
//! vmalloc ([`vmap`]), the VMAs that may map a folio ([`reverse`]), the page cache of a file ([`cache`]), the tasks that make or end an
//! address space ([`unlisted`]), its own description for readers of its dumps ([`vmcoreinfo`]), and its log
//! ([`printk`]). [`STRUCTURES`] are read at each instant and kept with a snapshot. No offset of any structure is written
//! here: what a kernel does not have is [`StructureError::Missing`], named, and never guessed.

mod all;
pub mod anon_sizes;
pub mod cache;
pub mod capability;
pub mod counted;
pub mod counts;
pub mod cpu_data;
mod error;
mod huge_zero;
mod kernel;
mod lock;
pub mod lru_batches;
pub mod maple;
pub mod memcg;
mod object;
pub mod pages;
mod per_cpu;
mod place;
pub mod printk;
pub mod reverse;
mod sizes;
pub mod spaces;
mod structure;
pub mod swap_types;
pub mod tasks;
pub mod types;
pub mod unlisted;
pub mod vmap;
pub mod vmas;
pub mod vmcoreinfo;
mod xarray;

pub use all::STRUCTURES;
pub use error::StructureError;
pub use kernel::{Kernel, View};
pub use lock::Lock;
pub use object::Object;
pub use structure::{Structure, StructureReader};
