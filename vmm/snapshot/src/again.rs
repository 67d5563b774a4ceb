//! A copy of tables that is made from the last one and a record of what was written to since.

use stage1::Regime;

use crate::copies::Copies;
use crate::tree::{ReadAgain, TableTree};
use crate::{Memory, MemoryError, Range, RangeSet, Region};

/// The last copy of some regimes' tables, from which the next one is made.
///
/// Each copy holds what a walk of the regimes reads, and nothing of the last one that no walk reads any more:
/// of that no record of writes would be kept. So it equals a copy that was made from nothing.
#[derive(Debug, Default)]
pub struct LastCopy {
    trees: Vec<TableTree>,
    copies: Copies,
    /// What else was wanted.
    others: RangeSet,
    unit: u64,
    /// What there was to read: RAM, and the regions that it was read from.
    layout: (Vec<Range>, Vec<Range>),
}

/// What is to be in a copy.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Their tables.
    pub regimes: &'a [Regime],
    /// Pages besides, which the caller found by reading.
    pub others: &'a RangeSet,
    /// The largest granule of the regimes, and of whatever else will be read from the copy, in bytes: no table
    /// and no page that is read lies on both sides of a multiple of it.
    pub unit: u64,
}

impl LastCopy {
    /// Copies what is wanted of `memory`.
    ///
    /// `written` are all pages that anybody wrote to since the last copy was made; without it everything
    /// is read. After an error the next copy has to do without.
    ///
    /// # Errors
    /// Where pages do not lie in the memory.
    pub fn copy_again(
        &mut self,
        memory: &Memory,
        wanted: &Wanted<'_>,
        written: Option<&RangeSet>,
    ) -> Result<(Memory, ReadAgain), MemoryError> {
        // After an error nothing is left of it.
        let mut last = std::mem::take(self);
        let regions = memory.regions().iter().map(Region::range).collect();
        let layout = (memory.ram().to_vec(), regions);
        let written = written.filter(|_| last.layout == layout);
        let mut read_again = ReadAgain::default();
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
