//! A copy of tables that is made from the last one and a record of what was written to since.

use stage1::Regime;

use crate::copies::Copies;
use crate::tree::{Reread, TableTree};
use crate::{Memory, MemoryError, Range, RangeSet};

/// The last copy of some regimes' tables, from which the next one is made.
///
/// Each copy holds what a walk of the regimes reads, and nothing of the last one that no walk reads any more:
/// of that no record of writes would be kept. So it equals a copy that was made from nothing.
#[derive(Debug, Default)]
pub struct LastCopy {
    trees: Vec<TableTree>,
    copies: Copies,
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
    pub fn renew(
        &mut self,
        memory: &Memory,
        wanted: &Wanted<'_>,
        written: Option<&RangeSet>,
    ) -> Result<(Memory, Reread), MemoryError> {
        let Self {
            mut trees,
            mut copies,
        } = std::mem::take(self);
        let mut reread = Reread::default();
        let mut ranges: Vec<Range> = wanted.others.iter().collect();
        let mut climbed = Vec::with_capacity(wanted.regimes.len());
        for regime in wanted.regimes {
            let known = trees.iter().position(|tree| tree.is_of(regime));
            let mut tree = known.map_or_else(|| TableTree::new(regime), |at| trees.swap_remove(at));
            reread += tree.update(memory, written, &mut ranges);
            climbed.push(tree);
        }
        let regions = copies.renew(memory, ranges, wanted.unit, written)?;
        let copy = Memory::new(regions, memory.ram().to_vec())?;
        *self = Self {
            trees: climbed,
            copies,
        };
        Ok((copy, reread))
    }
}
