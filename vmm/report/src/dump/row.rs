// SPDX-License-Identifier: GPL-2.0-only
//! One entry as a row, and rows as text, JSON or CSV.

use std::io::{self, Write};

use linux::pte::Pte;
use linux::vma::Vma;
use schemars::JsonSchema;
use serde::Serialize;
use stage1::{Descriptor, Regime, Table};
use untrusted::Text;

use super::options::{DumpOptions, Format};
use verdict::{accessible, BlockState, Hex};

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Row {
    /// First virtual address that it maps.
    pub va: Hex,
    /// Lookup level of its table.
    pub level: i8,
    /// Physical address of its table.
    pub table: Hex,
    /// Its index there.
    pub index: usize,
    /// The raw descriptor.
    pub word: Hex,
    /// Kind and fields in the notation of the Arm ARM.
    pub descriptor: String,
    /// Linux's software bits by name; of a non-present entry, what it is.
    pub software: String,
    /// Virtual address of its contiguous group, where it is in one.
    pub group: Option<Hex>,
    /// State of the block around it (level 3 of user memory only).
    pub block: Option<BlockState>,
    /// Name of the VMA that it lies in: the last column of `maps`, or `anonymous`.
    pub vma: Option<Text>,
}

impl Row {
    pub(super) fn new(
        regime: &Regime,
        table: &Table<'_>,
        index: usize,
        vmas: &[Vma],
        block: Option<BlockState>,
        options: &DumpOptions,
    ) -> Row {
        let (word, va) = (table.words[index], table.va_of(index, regime).0);
        let descriptor = Descriptor::new(word, table.level, regime);
        let leaf = descriptor.kind().is_leaf();
        let pte = Pte(word);
        let next = vmas.partition_point(|vma| vma.end <= va);
        let vma = vmas.get(next).filter(|vma| vma.contains(va));
        let bits = || pte.software_names().collect::<Vec<_>>().join(" ");
        let software = match options.linux {
            false => String::new(),
            true if leaf => bits(),
            true if pte.valid() => String::new(),
            // The kernel keeps no swap entries in its half: what is not valid was taken out of it, or never used.
            true if regime.first.0 != 0 => "not valid".into(),
            true => {
                let name = options.names.name(pte, vma.map(accessible));
                let bits = if pte.present() { bits() } else { String::new() };
                let all = [name.unwrap_or_default(), bits];
                let all = all.iter().filter(|it| !it.is_empty()).map(String::as_str);
                all.collect::<Vec<_>>().join(" ")
            }
        };
        let group = regime.contiguous_entries(table.level).map(|count| {
            let start = index / count * count;
            Hex(table.va_of(start, regime).0)
        });
        Row {
            va: Hex(va),
            level: table.level.number(),
            table: Hex(table.address.0),
            index,
            word: Hex(word),
            descriptor: descriptor.to_string(),
            software,
            group: group.filter(|_| descriptor.contiguous()),
            block,
            vma: vma.map(|vma| match vma.name.raw() {
                "" => "anonymous".into(),
                _ => vma.name.clone(),
            }),
        }
    }
}

/// Where rows go.
pub(super) struct Sink<'a, W: Write> {
    to: To<'a, W>,
    first: bool,
}

enum To<'a, W: Write> {
    Text(&'a mut W),
    Json(&'a mut W),
    Csv(Box<csv::Writer<&'a mut W>>),
}

impl<'a, W: Write> Sink<'a, W> {
    pub fn new(out: &'a mut W, format: Format) -> Sink<'a, W> {
        Sink {
            to: match format {
                Format::Text => To::Text(out),
                Format::Json => To::Json(out),
                Format::Csv => To::Csv(Box::new(csv::Writer::from_writer(out))),
            },
            first: true,
        }
    }

    pub fn begin(&mut self) -> io::Result<()> {
        match &mut self.to {
            To::Text(_) | To::Csv(_) => Ok(()),
            To::Json(out) => write!(out, "["),
        }
    }

    pub fn row(&mut self, row: &Row) -> io::Result<()> {
        let first = std::mem::replace(&mut self.first, false);
        match &mut self.to {
            To::Text(out) => {
                write!(
                    out,
                    "{:016x} L{} {:012x}[{:>4}] {:016x} {}",
                    row.va.0, row.level, row.table.0, row.index, row.word.0, row.descriptor
                )?;
                if !row.software.is_empty() {
                    write!(out, " {{{}}}", row.software)?;
                }
                if let Some(vma) = &row.vma {
                    write!(out, "  {vma}")?;
                }
                writeln!(out)
            }
            To::Json(out) => {
                out.write_all(if first { b"\n" } else { b",\n" })?;
                serde_json::to_writer(&mut **out, row).map_err(io::Error::from)
            }
            To::Csv(csv) => csv.serialize(row).map_err(io::Error::other),
        }
    }

    pub fn end(&mut self) -> io::Result<()> {
        match &mut self.to {
            To::Text(out) => out.flush(),
            To::Json(out) => {
                out.write_all(b"\n]\n")?;
                out.flush()
            }
            To::Csv(csv) => csv.flush(),
        }
    }
}
