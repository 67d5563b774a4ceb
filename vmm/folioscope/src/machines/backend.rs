// SPDX-License-Identifier: GPL-2.0-only
//! A machine that runs guests, and a guest to start on it.

use std::path::Path;

use clap::ValueEnum;
use machine::qemu::Recording;
use machine::Machine;

use crate::Error;

/// A machine that runs guests.
#[derive(Debug)]
pub struct Backend {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its description in the help.
    pub about: &'static str,
    /// Its name in reports; `carried` if this host is a carrier.
    pub kind: fn(carried: bool) -> &'static str,
    /// The name of the guest's CPU, if it is not the one that the user names.
    pub cpu: Option<&'static str>,
    /// True if it is QEMU's TCG, whose plugins count and record instructions.
    pub is_tcg: bool,
    /// True if this process runs the guest itself, so that it has to be confined.
    pub is_in_process: bool,
    /// Starts a guest.
    pub start: fn(&Launch<'_>) -> Result<Box<dyn Machine>, Error>,
}

/// A guest to start.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// Its kernel, unpacked.
    pub image: &'a Path,
    /// Its initramfs.
    pub initrd: &'a Path,
    /// A directory for its logs.
    pub scratch: &'a Path,
    /// The QEMU to run.
    pub qemu: &'a Path,
    /// The CPU model, by QEMU's name.
    pub cpu: &'a str,
    /// Its memory, in bytes.
    pub memory: u64,
    /// Number of its CPUs.
    pub smp: u32,
    /// True if its memory is backed by huge pages of the host.
    pub hugepages: bool,
    /// More words for its command line.
    pub append: &'a str,
    /// True if it is not looked into: its command line has a console and the user's words.
    pub plain: bool,
    /// The recorder's plugin and trace, if it is recorded.
    pub recording: Option<&'a Recording>,
    /// The file of the counted instructions, if they are counted.
    pub marks: Option<&'a Path>,
    /// The plugin that counts them.
    pub counter: &'a Path,
    /// True if the kernel's entries are counted too.
    pub entries: bool,
    /// The list of the kernel functions whose calls are counted.
    pub functions: Option<&'a Path>,
    /// The file of the kernel code that it executes.
    pub executed: Option<&'a Path>,
    /// True if its time advances by its instructions.
    pub icount: bool,
    /// How TCG runs its CPUs, if the user says so.
    pub tcg_thread: Option<TcgThread>,
}

/// How QEMU's TCG runs the guest's CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TcgThread {
    /// In turns, in one thread: faster if they wait for each other, or the host has other work.
    Single,
    /// At the same time, each in a thread: races show there sooner.
    Multi,
}

/// Returns the kernel's command line. It has two NUMA nodes, so that pages can be moved from one to the other
/// (CONFIG_NUMA_EMU; other kernels ignore it). It has no `DAMON_STAT` (since 6.17, on by default in Debian's kernels):
/// that clears AF of random pages, and so destroys the state that a step has just left. A plain guest has neither.
pub(super) fn command_line(console: &str, launch: &Launch<'_>) -> String {
    let watched = match launch.plain {
        true => "",
        false => " numa=fake=2 damon_stat.enabled=N",
    };
    format!("{console}{watched} {}", launch.append.trim())
        .trim_end()
        .to_owned()
}
