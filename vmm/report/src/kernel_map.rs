// SPDX-License-Identifier: GPL-2.0-only
//! The answer of `kernel`: by what sizes the kernel's own half is mapped, part by part, and area by area of vmalloc's.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::Range;

use linux::pte::Pte;
use schemars::{schema_for, JsonSchema};
use serde::Serialize;
use stage1::{
    walk, Descend, Descriptor, Kind, PhysMemory, Regime, Shown, Table, VirtualAddress, Visitor,
    WalkSummary,
};

use crate::map;
use verdict::size_name;
use verdict::Hex;

/// Bytes by Linux's name of the size that maps them: PTE, CONTPTE, PMD, CONTPMD, PUD.
pub type Sizes = BTreeMap<String, u64>;

/// The kernel's half at one instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct KernelMap {
    /// [`crate::listing::LISTING_VERSION`].
    pub schema_version: u32,
    /// The kernel's release; null where it does not tell.
    pub kernel: Option<String>,
    /// Bytes per page.
    pub page_size: u64,
    /// Its parts, by address; what lies in none of them is the last, without a range.
    pub parts: Vec<Part>,
    /// The areas of vmalloc, modules and ioremap, by address; null where they are not known.
    pub areas: Option<Vec<Area>>,
    /// Parts that were left out, with the reason.
    pub notes: Vec<String>,
}

/// A part of the kernel's half.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Part {
    /// Its name: `linear map`, `KASAN's shadow`, `kernel image`, `modules`, `vmalloc`, `vmemmap`, `others`.
    pub name: String,
    /// Its addresses, the end exclusive; null for what is left.
    pub range: Option<(Hex, Hex)>,
    /// Sizes mapped there, without the parts that lie within it.
    pub mapped: Sizes,
}

/// One area of vmalloc's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Area {
    /// Its first address.
    pub start: Hex,
    /// The first address behind it; the guard page is within.
    pub end: Hex,
    /// Which function asked for it, with the distance from its start; null where that is not known.
    pub caller: Option<String>,
    /// Its use, in the words of `/proc/vmallocinfo`: `vmalloc`, `vmap`, `ioremap`, `user`, `dma-coherent`,
    /// `vm_map_ram`.
    pub kinds: Vec<String>,
    /// Pages of the smallest size that it has of its own.
    pub pages: u64,
    /// The order of the blocks that it tried for; null where the kernel has one size.
    pub order: Option<u64>,
    /// Sizes mapped there.
    pub mapped: Sizes,
}

/// Returns the sizes that map each of these ranges, which are in order and do not overlap; an entry is of the range in which it begins.
pub fn sizes<M: PhysMemory + ?Sized>(
    memory: &M,
    regime: &Regime,
    ranges: &[Range<u64>],
) -> Vec<Sizes> {
    let place = |va| {
        let at = ranges.partition_point(|range| range.start <= va);
        let at = at.checked_sub(1)?;
        (va < ranges[at].end).then_some(at)
    };
    let (first, last) = (ranges.first(), ranges.iter().map(|range| range.end).max());
    let Some((first, last)) = first.zip(last) else {
        return Vec::new();
    };
    let (first, last) = (VirtualAddress(first.start), last.wrapping_sub(1));
    let mut found = Found::new(regime, ranges.len(), place);
    walk(memory, regime, first, VirtualAddress(last), &mut found);
    found.sizes.into_iter().map(Bytes::into_sizes).collect()
}

/// Returns the sizes that map each of these parts, and, last, what lies in none of them; and how far the walk came. An address is in the
/// first part that has it.
pub fn parts<M: PhysMemory + ?Sized>(
    memory: &M,
    regime: &Regime,
    mut parts: Vec<(&str, Range<u64>)>,
) -> (Vec<Part>, WalkSummary) {
    parts.push(("others", 0..u64::MAX));
    let place = |va| parts.iter().position(|(_, range)| range.contains(&va));
    let mut found = Found::new(regime, parts.len(), place);
    let walked = walk(memory, regime, regime.first, regime.last, &mut found);
    let sizes = found.sizes;
    let last = parts.len() - 1;
    let all = parts.into_iter().zip(sizes).enumerate();
    let all = all.map(|(at, ((name, range), sizes))| Part {
        name: name.to_owned(),
        range: (at < last).then_some((Hex(range.start), Hex(range.end))),
        mapped: sizes.into_sizes(),
    });
    let mut all: Vec<Part> = all.collect();
    all.sort_by_key(|part| part.range.map_or(u64::MAX, |range| range.0 .0));
    (all, walked)
}

/// Bytes by lookup level and Contiguous bit.
#[derive(Clone, Debug, Default)]
struct Bytes(BTreeMap<(i8, bool), u64>);

impl Bytes {
    fn into_sizes(self) -> Sizes {
        let all = self.0.into_iter();
        all.map(|((level, contiguous), bytes)| (size_name(level, contiguous).to_owned(), bytes))
            .collect()
    }
}

struct Found<'r, P> {
    regime: &'r Regime,
    /// Returns the part that an address belongs to.
    place: P,
    sizes: Vec<Bytes>,
    shown: Shown,
}

impl<'r, P: Fn(u64) -> Option<usize>> Found<'r, P> {
    fn new(regime: &'r Regime, places: usize, place: P) -> Self {
        let sizes = vec![Bytes::default(); places];
        Self {
            regime,
            place,
            sizes,
            shown: Shown::default(),
        }
    }
}

impl<'m, P: Fn(u64) -> Option<usize>> Visitor<'m> for Found<'_, P> {
    /// A table counts once: KASAN's shadow leads to few from everywhere.
    fn table(&mut self, table: &Table<'m>) -> Descend {
        match self.shown.again(table) {
            true => Descend::Skip,
            false => Descend::Into,
        }
    }

    fn entries(&mut self, table: &Table<'m>, range: Range<usize>) {
        let step = self.regime.entry_size(table.level);
        for index in range {
            let word = table.words[index];
            let descriptor = Descriptor::new(word, table.level, self.regime);
            if word == 0 || !matches!(descriptor.kind(), Kind::Page | Kind::Block) {
                continue;
            }
            if let Some(place) = (self.place)(table.va_of(index, self.regime).0) {
                let name = (table.level.number(), Pte(word).valid_cont());
                *self.sizes[place].0.entry(name).or_default() += step;
            }
        }
    }
}

impl KernelMap {
    /// Writes it for people.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(
            out,
            "Linux {}, pages of {}",
            self.kernel.as_deref().unwrap_or("of an unknown release"),
            map::bytes(self.page_size)
        )?;
        for part in &self.parts {
            let range = part.range.map_or(String::new(), |(start, end)| {
                format!("{:016x}-{:016x}", start.0, end.0)
            });
            let mapped = text(&part.mapped);
            let line = format!("{:<13} {range:<33} {mapped}", part.name);
            writeln!(out, "{}", line.trim_end())?;
        }
        if let Some(areas) = &self.areas {
            writeln!(
                out,
                "\n{} areas of vmalloc, modules and ioremap",
                areas.len()
            )?;
            for area in areas {
                let size = area.end.0.saturating_sub(area.start.0);
                let kinds = match area.order {
                    Some(order) if order > 0 => {
                        format!("{} of order {order}", area.kinds.join(" "))
                    }
                    _ => area.kinds.join(" "),
                };
                let line = format!(
                    "{:016x}-{:016x} {:>6}  {:<24} {kinds:<16} {}",
                    area.start.0,
                    area.end.0,
                    map::bytes(size),
                    text(&area.mapped),
                    area.caller.as_deref().unwrap_or("")
                );
                writeln!(out, "{}", line.trim_end())?;
            }
        }
        for note in &self.notes {
            writeln!(out, "note: {note}")?;
        }
        Ok(())
    }
}

/// The largest first.
fn text(sizes: &Sizes) -> String {
    let mut all: Vec<(&String, u64)> = sizes.iter().map(|(name, size)| (name, *size)).collect();
    all.sort_by_key(|(_, size)| std::cmp::Reverse(*size));
    let all = all.iter();
    let all = all.map(|(name, size)| format!("{} {name}", map::bytes(*size)));
    match all.collect::<Vec<_>>().join(" + ") {
        text if text.is_empty() => "nothing mapped".to_owned(),
        text => text,
    }
}

/// The JSON schema of [`KernelMap`].
pub fn kernel_map_schema() -> serde_json::Value {
    schema_for!(KernelMap).to_value()
}
