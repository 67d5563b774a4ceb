// SPDX-License-Identifier: GPL-2.0-only
//! The answer of `page`: a page and its folio, as the kernel keeps them, and the processes that map it, by all tables.

use std::io::{self, Write};

use linux::folio::{Kind, Memcg, Page, Type};
use schemars::{schema_for, JsonSchema};
use serde::Serialize;
use untrusted::Text;

use crate::map;
use verdict::Hex;

/// Pages of a guest at one instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Frames {
    /// [`crate::listing::LISTING_VERSION`].
    pub schema_version: u32,
    /// The kernel's release; null where it does not tell.
    pub kernel: Option<String>,
    /// Bytes per page.
    pub page_size: u64,
    /// Those that were asked for.
    pub pages: Vec<Frame>,
    /// True if the tables of all processes were walked, so that a page without a mapping here is mapped by none.
    pub walked: bool,
    /// Parts that were left out, with the reason.
    pub notes: Vec<String>,
}

/// One page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Frame {
    /// Its page frame number.
    pub pfn: u64,
    /// The page and its folio; null where that is not known.
    pub page: Option<Page>,
    /// The reason.
    pub problem: Option<String>,
    /// The page in words; empty if it is not known.
    pub is: String,
    /// The free block of the buddy allocator that the page lies in; null for a page that is in none.
    pub free: Option<FreeBlock>,
    /// The names of what is set in the page's flags, as a page of its kind uses their bits; where two fit, both, joined by a bar.
    /// What the second page of a folio keeps there of the folio is no flag, and is left out.
    pub flags: Vec<String>,
    /// The same of its folio's.
    pub folio_flags: Vec<String>,
    /// The memory cgroup that its folio is charged to; null where that is none, or is not known.
    pub memcg: Option<Memcg>,
    /// Where processes map this very page, by the tables of all.
    pub mapped: Vec<Mapped>,
    /// Where it is present for Linux and no CPU may use the entry (PROT_NONE, a NUMA hint), by the same tables: Linux counts these
    /// places as mappings too.
    #[serde(default)]
    pub present: Vec<Mapped>,
    /// Where VMAs are in which it belongs, by the kernel's reverse mapping, mapped there or not; null where that is not known.
    pub belongs: Option<Vec<Belongs>>,
}

/// Reasons why an entry that is present for Linux is not valid.
pub const UNUSABLE: &str = "PROT_NONE or a NUMA hint";

/// A free block of the buddy allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FreeBlock {
    /// The page frame number of its first page.
    pub first: u64,
    /// It has 2 to the power of this pages.
    pub order: u8,
}

/// A place where a page belongs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Belongs {
    /// The process; null for an address space that no task has.
    pub pid: Option<u32>,
    /// Its name.
    pub name: Text,
    /// Where the page would be in it.
    pub va: Hex,
}

/// A place where a page is mapped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Mapped {
    /// The process.
    pub pid: u32,
    /// Its name.
    pub name: Text,
    /// Where the page is in it.
    pub va: Hex,
    /// The lookup level of the entry: 3 for a page, less for a block that holds it.
    pub level: i8,
    /// The raw entry.
    pub word: Hex,
}

impl Frames {
    /// Writes them for people.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        for frame in &self.pages {
            let at = frame.pfn * self.page_size;
            writeln!(out, "page frame {:#x}  at 0x{at:013x}", frame.pfn)?;
            match (&frame.page, &frame.problem) {
                (Some(page), _) => self.describe(out, frame, page)?,
                (None, Some(why)) => writeln!(out, "  not known: {why}")?,
                (None, None) => {}
            }
            let mapped = frame.mapped.iter().map(|at| (at, true));
            for (at, usable) in mapped.chain(frame.present.iter().map(|at| (at, false))) {
                let entry = format!(
                    "at 0x{:012x} in {} ({}) by level {} entry {:#018x}",
                    at.va.0, at.name, at.pid, at.level, at.word.0
                );
                match usable {
                    true => writeln!(out, "  mapped   {entry}")?,
                    false => {
                        writeln!(out, "  present  {entry}, which no CPU may use ({UNUSABLE})")?
                    }
                }
            }
            if frame.mapped.is_empty() && frame.present.is_empty() && self.walked {
                writeln!(out, "  mapped   by no process")?;
            } else if !self.walked {
                let more = if frame.mapped.is_empty() {
                    "by whom"
                } else {
                    "where else"
                };
                writeln!(out, "  mapped   {more} is not known")?;
            }
            let is_mapped = |it: &&Belongs| {
                let mut mapped = frame.mapped.iter().chain(&frame.present);
                mapped.any(|at| Some(at.pid) == it.pid && at.va == it.va)
            };
            let belongs = frame.belongs.iter().flatten();
            for it in belongs.filter(|it| !is_mapped(it)) {
                let pid = it.pid.map_or(String::new(), |pid| format!(" ({pid})"));
                writeln!(
                    out,
                    "  belongs  at 0x{:012x} in {}{pid}, by its reverse mapping, and {}",
                    it.va.0,
                    it.name,
                    if self.walked {
                        "is not mapped there"
                    } else {
                        "is not seen to be mapped there"
                    }
                )?;
            }
        }
        for note in &self.notes {
            writeln!(out, "note: {note}")?;
        }
        Ok(())
    }

    /// Writes what is known of one of them and its folio, without who maps it.
    ///
    /// # Errors
    /// As `out`.
    pub fn describe(&self, out: &mut impl Write, frame: &Frame, page: &Page) -> io::Result<()> {
        self.place(out, frame, page)?;
        counts(out, page)?;
        mapping(out, page)?;
        if let Some((area, slot)) = page.slot {
            writeln!(
                out,
                "  swap     slot {slot:#x} of area {area} is its own, in the swap cache"
            )?;
        }
        if let Some(memcg) = &frame.memcg {
            let Memcg { path, css, inode } = memcg;
            writeln!(out, "  memcg    {path} (css {css}, inode {inode})")?;
        }
        let names = |flags: &[String]| match flags.is_empty() {
            true => "none".to_owned(),
            false => flags.join(" "),
        };
        writeln!(out, "  flags    {}", names(&frame.folio_flags))?;
        if page.order > 0 {
            writeln!(out, "  its own  {}", names(&frame.flags))?;
        }
        Ok(())
    }

    /// Which page of what it is.
    fn place(&self, out: &mut impl Write, frame: &Frame, page: &Page) -> io::Result<()> {
        let (name, order, first) = match frame.free {
            Some(free) => ("block", free.order, free.first),
            None => ("folio", page.order, page.head),
        };
        writeln!(
            out,
            "  {name}    order {order} ({}), page {} of it, from page frame {first:#x}: {}",
            map::bytes(self.page_size << order),
            page.pfn - first,
            frame.is
        )
    }
}

/// Returns the counts of a page: a page with a type, and a free one, has only references.
fn counts(out: &mut impl Write, page: &Page) -> io::Result<()> {
    write!(out, "  counts   references {}", page.refcount)?;
    if page.kind_of_page.is_some() {
        return writeln!(out);
    }
    let counts = [
        ("page", page.mapcount),
        ("whole folio", (page.order > 0).then_some(page.entire)),
        ("any part", page.large),
    ];
    let counts = counts.iter();
    let counts = counts.filter_map(|(name, count)| Some(format!("{name} {}", (*count)?)));
    let counts: Vec<String> = counts.collect();
    match counts.is_empty() {
        true => writeln!(out),
        false => writeln!(out, ", mapped: {}", counts.join(", ")),
    }
}

/// Where a folio belongs, where it has a mapping.
fn mapping(out: &mut impl Write, page: &Page) -> io::Result<()> {
    let Some(mapping) = page.mapping_if_any() else {
        return Ok(());
    };
    let of = match page.kind {
        Kind::Anonymous => "anon_vma",
        Kind::Ksm => "ksm_stable_node",
        Kind::File | Kind::Unowned => "address_space",
        Kind::Movable => "movable_operations",
    };
    write!(out, "  mapping  {mapping:#x} ({of})")?;
    if let Some(index) = page.index_if_any() {
        write!(out, ", index {index:#x}")?;
        if page.subpage() > 0 {
            write!(out, ", {:#x} of this page", page.index_of_page())?;
        }
    }
    writeln!(out, "{}", if page.exclusive { ", exclusive" } else { "" })
}

/// Returns a page in words. `free` is the free block that it lies in, `of_type` the kernel's own name of its type.
#[must_use]
pub fn what(page: &Page, free: Option<FreeBlock>, of_type: Option<&str>, reserved: bool) -> String {
    let said = match (free, page.kind_of_page, page.kind) {
        (Some(_), ..) | (_, Some(Type::Buddy), _) => "free",
        (_, Some(Type::Table), _) => "a page table",
        (_, Some(Type::Slab), _) => "slab",
        (_, Some(Type::Other(number)), _) => {
            return match of_type {
                Some("offline") => "offline: the guest gave it up, as to a balloon, or is not to use it".into(),
                Some("guard") => "a guard page of the page allocator (debug_guardpage)".into(),
                Some("large_kmalloc") => "kmalloc memory beyond the size of slabs".into(),
                Some("unaccepted") => "memory that the guest has not accepted yet".into(),
                Some(name) => format!("of type {name}"),
                None => format!("of type 0x{number:x}, which the kernel does not name"),
            }
        }
        _ if page.hugetlb => match (page.kind, page.refcount) {
            (Kind::Unowned, 0) => "hugetlb, free in its pool",
            (Kind::Unowned, _) => "hugetlb, without a mapping",
            (Kind::File, _) => "hugetlb, a file's",
            _ => "hugetlb, anonymous",
        },
        (.., Kind::Anonymous) => "anonymous",
        (.., Kind::Ksm) => "merged by KSM",
        (.., Kind::File) if page.swapbacked => "shmem",
        (.., Kind::File) => "a file's",
        (.., Kind::Movable) => "a driver's, which it can move",
        (.., Kind::Unowned) if page.swapcache => "shmem's, in the swap cache alone",
        (.., Kind::Unowned) if reserved => "reserved: the kernel's image, what it set aside at boot, or firmware's",
        (.., Kind::Unowned) if page.refcount == 0 => {
            "without a type and a reference: on a CPU's list of free pages, or on its way there or from there"
        }
        (.., Kind::Unowned) => "of no mapping: the kernel's own memory, or what a file has let go",
    };
    said.to_owned()
}

/// The JSON schema of [`Frames`].
pub fn frames_schema() -> serde_json::Value {
    schema_for!(Frames).to_value()
}
