// SPDX-License-Identifier: GPL-2.0-only
//! Entries as rows of JSON, for tests that read raw words.

use std::ops::Range;

use schemars::JsonSchema;
use serde::Serialize;
use stage1::{Kind, PhysMemory, Regime, Table, Visitor};

/// One descriptor that is not zero and leads to no table.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Row {
    /// The first address that it maps.
    pub va: String,
    /// Its lookup level.
    pub level: i8,
    /// The raw word.
    pub word: String,
    /// Its address.
    pub address: String,
    /// Its output address; absent if it is not valid.
    pub output_address: Option<String>,
    /// Bit 52 of a valid descriptor.
    pub contiguous: bool,
}

struct Rows<'r> {
    regime: &'r Regime,
    rows: Vec<Row>,
}

impl<'m> Visitor<'m> for Rows<'_> {
    fn entries(&mut self, table: &Table<'m>, range: Range<usize>) {
        for index in range {
            let word = table.words[index];
            if word == 0 {
                continue;
            }
            let descriptor = stage1::Descriptor::new(word, table.level, self.regime);
            let leaf = matches!(descriptor.kind(), Kind::Page | Kind::Block);
            self.rows.push(Row {
                va: format!("{:#x}", table.va_of(index, self.regime).0),
                level: table.level.number(),
                word: format!("{word:#x}"),
                address: format!("{:#x}", table.address.0 + 8 * index as u64),
                output_address: leaf.then(|| format!("{:#x}", descriptor.output_address().0)),
                contiguous: leaf && descriptor.contiguous(),
            });
        }
    }
}

/// Returns every such descriptor of a half, by address.
pub fn rows<M: PhysMemory + ?Sized>(memory: &M, regime: &Regime) -> Vec<Row> {
    let mut rows = Rows {
        regime,
        rows: Vec::new(),
    };
    stage1::walk(memory, regime, regime.first, regime.last, &mut rows);
    rows.rows
}
