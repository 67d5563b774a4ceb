// SPDX-License-Identifier: GPL-2.0-only
//! Copies tables again from the last copy and a record of the writes since.

use stage1::Regime;

use crate::copies::Copies;
use crate::tree::{TableTree, TablesRead};
use crate::{Memory, MemoryError, Range, RangeSet, Region};

/// The last copy of some regimes' tables, from which the next one is made.
///
/// Each copy holds the memory that a walk of the regimes reads. Memory of the last copy that no walk reads any more is
/// dropped, since no record of writes to it would be kept. The copy thus equals one made from scratch.
#[derive(Debug, Default)]
pub struct LastCopy {
    trees: Vec<TableTree>,
    copies: Copies,
    /// Further pages that were wanted.
    others: RangeSet,
    unit: u64,
    /// The readable memory: RAM, and the regions that hold it.
    layout: (Vec<Range>, Vec<Range>),
}

/// Contents of a copy.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Their tables.
    pub regimes: &'a [Regime],
    /// Further pages, which the caller found by reading.
    pub others: &'a RangeSet,
    /// The largest granule of the regimes, and of all else that is read from the copy, in bytes. No table and no page
    /// that is read crosses a multiple of it.
    pub unit: u64,
}

impl LastCopy {
    /// Copies the wanted pages of `memory`.
    ///
    /// `written` are all pages written to since the last copy was made. Without it everything is read. After an error
    /// the next copy needs `written` to be `None`.
    ///
    /// # Errors
    /// If pages do not lie in the memory.
    pub fn copy_again(
        &mut self,
        memory: &Memory,
        wanted: &Wanted<'_>,
        written: Option<&RangeSet>,
    ) -> Result<(Memory, TablesRead), MemoryError> {
        // After an error nothing is left of it.
        let mut last = std::mem::take(self);
        let regions = memory.regions().iter().map(Region::range).collect();
        let layout = (memory.ram().to_vec(), regions);
        let written = written.filter(|_| last.layout == layout);
        let mut read_again = TablesRead::default();
        let mut moved = last.trees.len() != wanted.regimes.len()
            || last.unit != wanted.unit
            || last.others != *wanted.others;
        let mut trees = Vec::with_capacity(wanted.regimes.len());
        for regime in wanted.regimes {
            let known = last.trees.iter().position(|tree| tree.is_of(regime));
            moved |= known.is_none();
            let mut tree = match known {
                Some(at) => last.trees.swap_remove(at),
                None => TableTree::new(regime),
            };
            let (read, elsewhere) = tree.update(memory, written);
            read_again.tables += read.tables;
            read_again.of += read.of;
            moved |= elsewhere;
            trees.push(tree);
        }
        let mut copies = last.copies;
        let regions = match written {
            Some(written) if !moved => copies.patch(memory, written)?,
            _ => {
                let tables = trees.iter().flat_map(|tree| tree.ranges().iter().copied());
                let ranges = wanted.others.iter().chain(tables).collect();
                copies.copy_again(memory, ranges, wanted.unit, written)?
            }
        };
        *self = Self {
            trees,
            copies,
            others: wanted.others.clone(),
            unit: wanted.unit,
            layout,
        };
        Ok((Memory::part_of(memory, regions), read_again))
    }
}
