// SPDX-License-Identifier: GPL-2.0-only
//! The answers of `ps` and `maps`: the kernel's own structures, read from its memory, with the page tables' contents of each VMA.

use std::collections::BTreeMap;
use std::io::{self, Write};

use linux::vma::Vma;
use schemars::{schema_for, JsonSchema};
use serde::Serialize;
use untrusted::Text;

use crate::map::{self, MapOptions};
use verdict::{BlockState, Hex, ProcessVerdict, VmaVerdict};

/// Version of both listings. It goes up when a field changes its meaning or goes away; new fields do not count.
pub const LISTING_VERSION: u32 = 1;

/// Reasons that are printed for the blocks of one state.
const REASONS: usize = 4;

/// All tasks of a guest at one instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Tasks {
    /// [`LISTING_VERSION`].
    pub schema_version: u32,
    /// The kernel's release; null where it does not tell.
    pub kernel: Option<String>,
    /// Processes and threads of the kernel, as the kernel lists them.
    pub tasks: Vec<Task>,
}

/// One process, or a thread of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Task {
    /// Its id (`tgid`) in the initial PID namespace.
    pub pid: u32,
    /// Its leader's name (`comm`).
    pub name: Text,
    /// When its leader was started, in nanoseconds since boot, of `CLOCK_BOOTTIME`.
    pub started_ns: u64,
    /// The ids of its threads, the leader's first.
    pub threads: Vec<u32>,
    /// A thread of the kernel.
    pub is_kernel: bool,
    /// It has ended, and its parent has not asked how: its memory is gone, and its name stays.
    pub has_ended: bool,
    /// The address of its `struct mm_struct`; null for a thread of the kernel, and for a process that has ended.
    pub mm: Option<Hex>,
    /// The physical address of its first table.
    pub table: Option<Hex>,
}

/// The address space of a process at one instant: its VMAs, and what its tables have in each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Maps {
    /// [`LISTING_VERSION`].
    pub schema_version: u32,
    /// The kernel's release; null where it does not tell.
    pub kernel: Option<String>,
    /// The task.
    pub task: Task,
    /// Bytes per page.
    pub page_size: u64,
    /// Bytes per block: what a level-3 group maps.
    pub block_size: u64,
    /// By address.
    pub vmas: Vec<VmaMap>,
    /// Places where the tables look wrong at this one instant, as they may in the middle of an update: `check` judges.
    pub suspicious: u64,
    /// Parts that were left out, with the reason.
    pub notes: Vec<String>,
}

/// One VMA.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct VmaMap {
    /// Contents of its tables: range, permissions, name, bytes mapped and contiguous, blocks and their reasons.
    #[serde(flatten)]
    pub map: VmaVerdict,
    /// Its offset in the file, in bytes; 0 for anonymous memory.
    pub offset: u64,
    /// The file's device, major and minor.
    pub device: (u32, u32),
    /// The file's inode number; 0 for memory without a file.
    pub inode: u64,
    /// Its flags (`VmFlags` of smaps), in two letters each.
    pub flags: Vec<String>,
    /// The page cache of its file as a whole; null for memory without a file, and where that was not looked through.
    pub cache: Option<FileCache>,
}

/// The page cache of a file, whatever process maps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FileCache {
    /// The address of its `struct address_space`.
    pub mapping: Hex,
    /// Bytes of the folios in it.
    pub bytes: u64,
    /// Bytes of which it has a slot in swap, or remembers when they went.
    pub gone: u64,
}

impl Maps {
    /// The listing of a process whose tables were judged with these VMAs.
    pub fn new(kernel: Option<String>, task: Task, vmas: &[Vma], verdict: ProcessVerdict) -> Maps {
        let suspicious = verdict.errors();
        let described = verdict.vmas.into_iter().filter_map(|map| {
            let vma = vmas.iter().find(|vma| vma.start == map.start.0)?;
            Some(VmaMap {
                map,
                offset: vma.offset,
                device: vma.device,
                inode: vma.inode,
                flags: vma
                    .flags
                    .as_ref()
                    .map_or_else(Vec::new, |flags| flags.words().to_vec()),
                cache: None,
            })
        });
        Maps {
            schema_version: LISTING_VERSION,
            kernel,
            task,
            page_size: verdict.page_size,
            block_size: verdict.block_size,
            vmas: described.collect(),
            suspicious,
            notes: verdict.notes,
        }
    }
}

impl Tasks {
    /// Writes them for people, as ps(1) does.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "    PID THREADS    STARTED TABLE            NAME")?;
        for task in &self.tasks {
            let table = task.table;
            let table = table.map_or("-".to_owned(), |table| format!("0x{:013x}", table.0));
            // What is in brackets has no memory of its own.
            let name = match task.mm {
                Some(_) => task.name.to_string(),
                None if task.has_ended => format!("[{}] ended", task.name),
                None => format!("[{}]", task.name),
            };
            writeln!(
                out,
                "{:>7} {:>7} {:>8}.{:02} {table:<16} {name}",
                task.pid,
                task.threads.len(),
                task.started_ns / 1_000_000_000,
                task.started_ns / 10_000_000 % 100
            )?;
        }
        Ok(())
    }
}

impl Maps {
    /// Writes them for people: what is mapped where, how much of it is contiguous, and why the rest is not.
    pub fn write(&self, out: &mut impl Write, options: &MapOptions) -> io::Result<()> {
        let bold = map::paint(options, anstyle::Style::new().bold());
        let who = format!("{} ({})", self.task.name, self.task.pid);
        writeln!(
            out,
            "{bold}{who}{bold:#}  Linux {}, pages of {}, blocks of {}, {} VMAs",
            self.kernel.as_deref().unwrap_or("of an unknown release"),
            map::bytes(self.page_size),
            map::bytes(self.block_size),
            self.vmas.len()
        )?;
        for vma in &self.vmas {
            vma.write(out, options)?;
        }
        for note in &self.notes {
            writeln!(out, "note: {note}")?;
        }
        if self.suspicious > 0 {
            writeln!(
                out,
                "note: {} places look wrong at this one instant, as they may in the middle of an update: `folioscope check` judges",
                self.suspicious
            )?;
        }
        Ok(())
    }
}

impl VmaMap {
    fn write(&self, out: &mut impl Write, options: &MapOptions) -> io::Result<()> {
        let map = &self.map;
        let bold = map::paint(options, anstyle::Style::new().bold());
        let line = format!(
            "{:012x}-{:012x} {} {}",
            map.start.0, map.end.0, map.permissions, map.name
        );
        writeln!(out, "{bold}{}{bold:#}", line.trim_end())?;
        let mut facts = vec![format!(
            "{} of {} mapped",
            map::bytes(map.mapped),
            map::bytes(map.end.0 - map.start.0)
        )];
        if map.contiguous > 0 {
            facts.push(format!(
                "{} contiguous ({}%)",
                map::bytes(map.contiguous),
                map.contiguous * 100 / map.mapped.max(1)
            ));
        }
        if !map.folios.is_empty() {
            let folios = map.folios.iter().rev();
            let folios =
                folios.map(|(order, size)| format!("{} of order {order}", map::bytes(*size)));
            facts.push(format!("folios {}", folios.collect::<Vec<_>>().join(" + ")));
        }
        if let Some(cache) = self.cache {
            facts.push(format!("page cache {}", map::bytes(cache.bytes)));
        }
        if !map.orders.is_empty() {
            facts.push(format!("orders {}", map::orders(&map.orders)));
        }
        map::wrapped(out, 0, &format!("  {}", facts.join(", ")))?;
        for (state, count) in &map.blocks {
            if *state == BlockState::Empty {
                continue;
            }
            let mut reasons: BTreeMap<String, u64> = BTreeMap::new();
            for row in map.rows.iter().filter(|row| row.state == *state) {
                *reasons.entry(row.why()).or_default() += row.blocks;
            }
            reasons.retain(|reason, _| !reason.is_empty());
            let mut told: Vec<(String, u64)> = reasons.into_iter().collect();
            told.sort_by_key(|(_, blocks)| std::cmp::Reverse(*blocks));
            let more = told.len().saturating_sub(REASONS);
            let told = told.iter().take(REASONS);
            let told: Vec<String> = told
                .map(|(reason, blocks)| match blocks == count {
                    true => reason.clone(),
                    false => format!("{reason} x{blocks}"),
                })
                .collect();
            let why = match (told.is_empty(), more) {
                (true, _) => String::new(),
                (false, 0) => format!(": {}", told.join("; ")),
                (false, more) => format!(": {}; {more} other reasons", told.join("; ")),
            };
            let text = format!("  {count} {}{why}", state.name());
            map::wrapped(out, 0, &text)?;
        }
        Ok(())
    }
}

/// The JSON schema of [`Tasks`].
pub fn tasks_schema() -> serde_json::Value {
    schema_for!(Tasks).to_value()
}

/// The JSON schema of [`Maps`].
pub fn maps_schema() -> serde_json::Value {
    schema_for!(Maps).to_value()
}
