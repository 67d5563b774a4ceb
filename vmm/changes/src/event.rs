// SPDX-License-Identifier: GPL-2.0-only
//! Events between two instants.

use linux::folio::Page;
use schemars::{schema_for, JsonSchema};
use serde::Serialize;
use untrusted::Text;
use verdict::Hex;

use crate::view::Entry;

/// The version of [`Diff`]. It goes up when a field changes its meaning or goes away; new fields and kinds do not count.
pub const DIFF_VERSION: u32 = 1;

/// Events between two instants of a guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(title = "Diff")]
pub struct Diff {
    /// [`DIFF_VERSION`].
    pub schema_version: u32,
    /// The kernel's release; null where it is not known.
    pub kernel: Option<String>,
    /// Bytes per page.
    pub page_size: u64,
    /// Processes to which something happened, by pid.
    pub processes: Vec<ProcessDiff>,
    /// How many others were looked at on both sides.
    pub unchanged: u64,
    /// Parts that were left out or are not known, with the reason.
    pub notes: Vec<String>,
}

/// Events of one process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ProcessDiff {
    /// Its id in the initial PID namespace.
    pub pid: u32,
    /// Its name.
    pub name: Text,
    /// When it was started, in nanoseconds since boot; null where that is not known.
    pub started_ns: Option<u64>,
    /// Instants at which it was there. A process that was not there at both has no events.
    pub lives: Lives,
    /// By address.
    pub events: Vec<Event>,
    /// Parts that were left out or are not known, with the reason.
    pub notes: Vec<String>,
}

/// When a process was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Lives {
    /// Both times.
    Both,
    /// It is there only now.
    Started,
    /// It was there only before.
    Ended,
}

/// One thing that happened to neighbouring pages alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Event {
    /// The kind.
    pub kind: Kind,
    /// The first address.
    pub va: Hex,
    /// The first address behind it.
    pub end: Hex,
    /// Pages that it happened to.
    pub pages: u64,
    /// Further facts about it, in words; empty if there are none.
    pub detail: String,
    /// The first entry as it was; null where there was none, and for what happened to a VMA.
    pub before: Option<State>,
    /// The first entry as it is.
    pub after: Option<State>,
}

/// An entry at one instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct State {
    /// Its lookup level.
    pub level: i8,
    /// The raw word.
    pub word: Hex,
    /// The page frame number; null where it maps none.
    pub pfn: Option<u64>,
    /// True if it is valid and has the Contiguous bit.
    pub contiguous: bool,
    /// The order of its folio, where that is known.
    pub order: Option<u8>,
}

impl State {
    pub(crate) fn of(entry: &Entry, page: Option<&Page>) -> State {
        State {
            level: entry.level,
            word: Hex(entry.word),
            pfn: entry.present().then_some(entry.frame),
            contiguous: entry.pte().valid_cont(),
            order: page.map(|page| page.order),
        }
    }
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The process has executed another program: its address space is another one, and its places are not compared. It is of no
    /// address.
    Exec,
    /// A VMA is here now, and was not, or another one was.
    Map,
    /// A VMA was here, and is not, or another one is. Its pages are gone with it.
    Unmap,
    /// The permissions of the VMA (`rwx`) changed.
    Protection,
    /// Other flags of the VMA changed, as smaps names them.
    Flags,
    /// Blocks became pages, or a folio was split; the memory is the same. Of a folio that is told where the kernel has counted a
    /// split, or nothing else can have been.
    Split,
    /// Pages became a block: of their frames, or where the kernel has allocated such a block to make one of pages.
    Collapse,
    /// A page is mapped, and nothing was.
    Fault,
    /// The entry is gone, and its VMA is not: by madvise(), by truncation, or because a file's page was reclaimed.
    Zap,
    /// A page that was elsewhere in this process is here now (`mremap()`): the same frame, mapping and index.
    Move,
    /// A writer got a page of its own; what was mapped before belongs to others as well, or to a file.
    CopyOnWrite,
    /// The same memory in another frame, where the kernel has migrated so many pages, and nothing else can have been.
    Migrate,
    /// KSM gave it a page that is shared with others of the same content.
    Merge,
    /// Another folio is here; what for is left open.
    Replace,
    /// The page is in a swap area.
    SwapOut,
    /// It is back: from its slot, or where the kernel has read so many pages from swap.
    SwapIn,
    /// The entry has become contiguous.
    Fold,
    /// It is no more.
    Unfold,
    /// The CPU may no longer use the page: PROT_NONE, or a hint for NUMA.
    Deny,
    /// It may again.
    Allow,
    /// The entry is no longer writable.
    WriteProtect,
    /// It is writable.
    WriteUnprotect,
    /// It has been written to, by what software or hardware notes in the entry.
    Dirty,
    /// It is clean again.
    Clean,
    /// It has been accessed.
    Young,
    /// Its access flag is clear again.
    Old,
    /// The entry holds a mark in place of a page: a migration under way, broken memory, a device's page, userfaultfd's.
    Mark,
    /// The mark is gone.
    Unmark,
    /// Other bits of the entry changed.
    Attributes,
}

impl Kind {
    /// As JSON has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Exec => "exec",
            Kind::Map => "map",
            Kind::Unmap => "unmap",
            Kind::Protection => "protection",
            Kind::Flags => "flags",
            Kind::Split => "split",
            Kind::Collapse => "collapse",
            Kind::Fault => "fault",
            Kind::Zap => "zap",
            Kind::Move => "move",
            Kind::CopyOnWrite => "copy-on-write",
            Kind::Migrate => "migrate",
            Kind::Merge => "merge",
            Kind::Replace => "replace",
            Kind::SwapOut => "swap-out",
            Kind::SwapIn => "swap-in",
            Kind::Fold => "fold",
            Kind::Unfold => "unfold",
            Kind::Deny => "deny",
            Kind::Allow => "allow",
            Kind::WriteProtect => "write-protect",
            Kind::WriteUnprotect => "write-unprotect",
            Kind::Dirty => "dirty",
            Kind::Clean => "clean",
            Kind::Young => "young",
            Kind::Old => "old",
            Kind::Mark => "mark",
            Kind::Unmark => "unmark",
            Kind::Attributes => "attributes",
        }
    }
}

/// The JSON schema of [`Diff`].
#[must_use]
pub fn schema() -> serde_json::Value {
    schema_for!(Diff).to_value()
}
