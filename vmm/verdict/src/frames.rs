//! What `page` lists: a page and its folio, as the kernel keeps them, and who maps it, as all tables have it.

use std::io::{self, Write};

use linux::folio::{Kind, Memcg, Page, Type};
use schemars::{schema_for, JsonSchema};
use serde::Serialize;

use crate::map;
use crate::Hex;

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
    /// What was left out, and why.
    pub notes: Vec<String>,
}

/// One page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Frame {
    /// Its page frame number.
    pub pfn: u64,
    /// The page and its folio; null where that is not known.
    pub page: Option<Page>,
    /// Why not.
    pub problem: Option<String>,
    /// The names of what is set in the page's flags; those of a bit that has several are joined by a bar.
    pub flags: Vec<String>,
    /// The same of its folio's.
    pub folio_flags: Vec<String>,
    /// The memory cgroup that its folio is charged to; null where that is none, or is not known.
    pub memcg: Option<Memcg>,
    /// Where processes map this very page, by the tables of all.
    pub mapped: Vec<Mapped>,
    /// Where VMAs are in which it belongs, by the kernel's reverse mapping, mapped there or not; null where that is not known.
    pub belongs: Option<Vec<Belongs>>,
}

/// A place where a page belongs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Belongs {
    /// The process; null for an address space that no task has.
    pub pid: Option<u32>,
    /// Its name.
    pub name: String,
    /// Where the page would be in it.
    pub va: Hex,
}

/// A place where a page is mapped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Mapped {
    /// The process.
    pub pid: u32,
    /// Its name.
    pub name: String,
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
            for at in &frame.mapped {
                writeln!(
                    out,
                    "  mapped   at 0x{:012x} in {} ({}) by level {} entry {:#018x}",
                    at.va.0, at.name, at.pid, at.level, at.word.0
                )?;
            }
            if frame.mapped.is_empty() {
                writeln!(out, "  mapped   by no process")?;
            }
            let is_mapped = |it: &&Belongs| {
                let mut mapped = frame.mapped.iter();
                mapped.any(|at| Some(at.pid) == it.pid && at.va == it.va)
            };
            let belongs = frame.belongs.iter().flatten();
            for it in belongs.filter(|it| !is_mapped(it)) {
                let pid = it.pid.map_or(String::new(), |pid| format!(" ({pid})"));
                writeln!(
                    out,
                    "  belongs  at 0x{:012x} in {}{pid}, by its reverse mapping, and is not mapped there",
                    it.va.0, it.name
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
        let kind = match (page.kind_of_page, page.hugetlb, page.kind) {
            (Some(Type::Buddy), ..) => "free",
            (Some(Type::Table), ..) => "a page table",
            (Some(Type::Slab), ..) => "slab",
            (Some(Type::Other(_)), ..) => "the kernel's own",
            (None, true, _) => "hugetlb",
            (None, _, Kind::Anonymous) => "anonymous",
            (None, _, Kind::Ksm) => "merged by KSM",
            (None, _, Kind::File) => "a file's",
            (None, _, Kind::Movable) => "a driver's",
            (None, _, Kind::Unowned) => "nobody's mapping",
        };
        writeln!(
            out,
            "  folio    order {} ({}), page {} of it, from page frame {:#x}: {kind}",
            page.order,
            map::bytes(self.page_size << page.order),
            page.pfn - page.head,
            page.head
        )?;
        let counts = [
            ("page", page.mapcount),
            ("whole folio", (page.order > 0).then_some(page.entire)),
            ("any part", page.large),
        ];
        let counts = counts.iter();
        let counts = counts.filter_map(|(name, count)| Some(format!("{name} {}", (*count)?)));
        let counts: Vec<String> = counts.collect();
        writeln!(
            out,
            "  counts   references {}, mapped: {}",
            page.refcount,
            counts.join(", ")
        )?;
        let exclusive = if page.exclusive { ", exclusive" } else { "" };
        writeln!(
            out,
            "  mapping  {:#x}, index {:#x}{exclusive}",
            page.mapping, page.index
        )?;
        if let Some(memcg) = &frame.memcg {
            let Memcg { path, css, inode } = memcg;
            writeln!(out, "  memcg    {path} (css {css}, inode {inode})")?;
        }
        writeln!(out, "  flags    {}", frame.folio_flags.join(" "))?;
        if page.order > 0 {
            writeln!(out, "  its own  {}", frame.flags.join(" "))?;
        }
        Ok(())
    }
}

/// The JSON schema of [`Frames`].
pub fn frames_schema() -> serde_json::Value {
    schema_for!(Frames).to_value()
}
