// SPDX-License-Identifier: GPL-2.0-only
//! Names for addresses of the kernel, and of processes.

use std::collections::BTreeMap;

use linux::symbols::Symbols;
use recorder::{Judge, Stored};
use structures::tasks::Process as Task;
use untrusted::Text;
use verdict::Process;

/// Facts about a guest at an instant: its KASLR offset, and its processes.
#[derive(Debug, Default)]
pub struct KernelNames {
    slide: u64,
    /// The processes' names by pid.
    processes: BTreeMap<u32, Text>,
    /// The processes by the physical address of the root table.
    roots: BTreeMap<u64, (u32, Text)>,
}

impl KernelNames {
    /// Creates it from the processes that were started with a name, the present tasks, and the KASLR offset.
    #[must_use]
    pub fn new(started: &BTreeMap<u32, Text>, tasks: Vec<Task>, slide: Option<u64>) -> Self {
        let mut known = Self {
            slide: slide.unwrap_or(0),
            // A process may have ended since; one that lives has its name of now.
            processes: started.clone(),
            roots: BTreeMap::new(),
        };
        for task in tasks {
            if let Some(table) = task.table {
                known.roots.insert(table.0, (task.tgid, task.name.clone()));
            }
            known.processes.insert(task.tgid, task.name);
        }
        known
    }

    /// Adds processes that were started since.
    pub fn add(&mut self, started: &BTreeMap<u32, Text>) {
        let new = started.iter().map(|(pid, name)| (*pid, name.clone()));
        self.processes.extend(new);
    }

    /// Adds the guest's symbols: those of its vmlinux, else the kernel's own (kallsyms), at their runtime addresses.
    #[must_use]
    pub fn names<'s>(&'s self, symbols: Option<&'s Symbols>) -> Names<'s> {
        Names {
            symbols,
            known: Some(self),
        }
    }
}

/// Addresses of the kernel by name.
#[derive(Clone, Copy, Debug, Default)]
pub struct Names<'s> {
    symbols: Option<&'s Symbols>,
    known: Option<&'s KernelNames>,
}

impl<'s> Names<'s> {
    /// Uses the symbols of a kernel that runs at its link address.
    #[must_use]
    pub fn linked(symbols: Option<&'s Symbols>) -> Self {
        Self {
            symbols,
            known: None,
        }
    }

    /// Returns the function and distance from its start, for an address of the kernel.
    #[must_use]
    pub fn function(&self, pc: u64) -> Option<(&'s str, u64)> {
        if pc >> 63 == 0 {
            return None;
        }
        let slide = self.known.map_or(0, |known| known.slide);
        self.symbols?.name(pc.wrapping_sub(slide))
    }

    /// Returns the name as text, or the address if no name is known.
    #[must_use]
    pub fn of_pc(&self, pc: u64) -> String {
        match self.function(pc) {
            Some((name, offset)) => format!("{name}+{offset:#x}"),
            None => format!("PC {pc:#x}"),
        }
    }

    /// Returns the callers, the nearest first. The link register is the caller's only in a function without a frame
    /// record, so it is left out if it adds nothing new.
    #[must_use]
    pub fn callers(&self, judge: &Judge, by: &Stored) -> Vec<String> {
        let frames = judge.chain(by);
        let [link, records @ ..] = frames else {
            return Vec::new();
        };
        let own = self.function(by.pc).map(|(name, _)| name);
        // The address of the call, which is before the one to return to.
        let of = |back: &u64| self.function(back.wrapping_sub(4)).map(|(name, _)| name);
        let leaf = of(link).is_some() && of(link) != own && records.first() != Some(link);
        let first = leaf.then_some(link).into_iter();
        first
            .chain(records)
            .filter(|back| **back >> 63 != 0)
            .map(|back| self.of_pc(back.wrapping_sub(4)))
            .collect()
    }

    /// Returns what it was done for: the outermost of its callers that is a system call or a fault's handler.
    #[must_use]
    pub fn within(&self, judge: &Judge, by: &Stored) -> Option<String> {
        let called = judge.chain(by).iter().rev();
        let mut names = called.filter_map(|back| Some(self.function(back.wrapping_sub(4))?.0));
        let name =
            names.find(|name| *name == "do_page_fault" || name.starts_with("__arm64_sys_"))?;
        Some(match name.strip_prefix("__arm64_sys_") {
            Some(call) => format!("{call}()"),
            None => "page fault".into(),
        })
    }

    /// Returns the process that ran, and the owner of the address space, as far as either is known.
    #[must_use]
    pub fn process(&self, by: &Stored, root: u64) -> Option<Process> {
        let named = |pid: u32, name: Option<&Text>| Process {
            pid,
            name: name.cloned().unwrap_or_default(),
        };
        let of_root = self.known.and_then(|known| known.roots.get(&root));
        if let Some((pid, name)) = of_root {
            return Some(named(*pid, Some(name)));
        }
        let name = self.known.and_then(|known| known.processes.get(&by.pid));
        (by.pid != 0).then(|| named(by.pid, name))
    }
}
