// SPDX-License-Identifier: GPL-2.0-only
//! The tables of one regime, remembered from one walk to the next.

use std::collections::{HashMap, HashSet};

use stage1::{
    tables_below, Descend, Level, Overlays, PhysMemory, PhysicalAddress, Regime, Shown, Table,
    Visitor, DEFAULT_BUDGET,
};

use crate::{Range, RangeSet};

/// Number of tables that were read, and of all tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TablesRead {
    /// Number of tables that are new or whose pages were written to.
    pub tables: u64,
    /// All tables, each once.
    pub of: u64,
}

/// Tables that a regime's walk visits, kept from one walk to the next, so that a table without a write is not read
/// again.
///
/// The walk of `stage1` goes down every path anew, and its result depends on the path: a table among its own ancestors
/// is a loop, and one with two parents counts twice for the budget. If each table has one path, neither occurs, and the
/// tables visited are exactly the reachable ones. All other cases are left to that walk.
#[derive(Debug)]
pub(crate) struct TableTree {
    /// The regime, without fields that do not change the path of a walk.
    regime: Regime,
    /// Tables by address. Empty if the last walk met a table twice.
    tables: HashMap<PhysicalAddress, Known>,
    /// Places of the tables of the last walk, in rising order.
    ranges: Vec<Range>,
    /// Number of the walk.
    turn: u64,
}

/// A table as it was when it was last read.
#[derive(Debug)]
struct Known {
    level: Level,
    /// The tables to which its descriptors lead.
    below: Box<[PhysicalAddress]>,
    /// Number of the last walk that visited it.
    turn: u64,
}

/// An error: a table has two parents, or there are more than a walk may read.
struct NoTree;

impl TableTree {
    /// Creates a tree of `regime`, no table of which was read yet.
    pub fn new(regime: &Regime) -> Self {
        Self {
            regime: walked_as(regime),
            tables: HashMap::new(),
            ranges: Vec::new(),
            turn: 0,
        }
    }

    /// Returns whether a walk by `regime` goes where this one went, tables being equal.
    pub fn is_of(&self, regime: &Regime) -> bool {
        self.regime == walked_as(regime)
    }

    /// Returns where every table is that the last walk visited.
    pub fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    /// Walks again. Known tables outside `written` are not read; with `written` unknown all are. Also returns whether
    /// [`TableTree::ranges`] may have changed.
    ///
    /// If `written` is known, the memory must have the same regions as last time.
    pub fn update<M: PhysMemory + ?Sized>(
        &mut self,
        memory: &M,
        written: Option<&RangeSet>,
    ) -> (TablesRead, bool) {
        if self.regime.epd {
            return (TablesRead::default(), false);
        }
        match written {
            None => self.tables.clear(),
            Some(written) => {
                if let Some(tables) = self.leads_as_before(memory, written) {
                    let of = self.ranges.len() as u64;
                    return (TablesRead { tables, of }, false);
                }
            }
        }
        let read_again = self.descend(memory, written).unwrap_or_else(|NoTree| {
            self.tables.clear();
            let mut visited = Visited::default();
            let regime = &self.regime;
            stage1::walk(memory, regime, regime.first, regime.last, &mut visited);
            self.ranges = visited.tables.into_iter().collect();
            let of = self.ranges.len() as u64;
            TablesRead { tables: of, of }
        });
        self.ranges.sort_unstable();
        if self
            .ranges
            .windows(2)
            .any(|pair| pair[0].end() > pair[1].base.0)
        {
            // A first table may be smaller than a page, with another table around it: next time from the top.
            self.tables.clear();
        }
        (read_again, true)
    }

    /// Returns the number of tables that were written to, if all of them lead to the same tables as before. Then no
    /// other table need be read.
    fn leads_as_before<M: PhysMemory + ?Sized>(
        &self,
        memory: &M,
        written: &RangeSet,
    ) -> Option<u64> {
        if self.tables.is_empty() {
            return None;
        }
        let touched = written.touched(&self.ranges, |range| *range);
        for &at in &touched {
            let address = self.ranges[at].base;
            let known = self.tables.get(&address)?;
            if known.level == Level::L3 {
                continue;
            }
            let words = memory.words(address, self.regime.entries(known.level))?;
            let below = tables_below(&self.regime, known.level, words);
            if !below.eq(known.below.iter().copied()) {
                return None;
            }
        }
        Some(touched.len() as u64)
    }

    /// Goes down from the first table, and uses what is known of each table without a write.
    fn descend<M: PhysMemory + ?Sized>(
        &mut self,
        memory: &M,
        written: Option<&RangeSet>,
    ) -> Result<TablesRead, NoTree> {
        self.turn += 1;
        self.ranges.clear();
        let Self {
            regime,
            tables,
            ranges,
            turn,
        } = self;
        let mut read = 0;
        let mut descriptors = 0;
        let mut open = vec![(regime.root_level, regime.root)];
        while let Some((level, address)) = open.pop() {
            let entries = regime.entries(level);
            let Some(range) = Range::new(address, entries as u64 * 8) else {
                continue;
            };
            let Some(words) = memory.words(address, entries) else {
                continue;
            };
            descriptors += entries as u64;
            if descriptors > DEFAULT_BUDGET {
                return Err(NoTree);
            }
            let known = tables.get_mut(&address);
            if known.as_ref().is_some_and(|known| known.turn == *turn) {
                return Err(NoTree);
            }
            ranges.push(range);
            let unwritten = |known: &&mut Known| {
                known.level == level && !written.is_none_or(|written| written.touches(&range))
            };
            let below = match known.filter(unwritten) {
                Some(known) => {
                    known.turn = *turn;
                    &known.below
                }
                None => {
                    read += 1;
                    let below = tables_below(regime, level, words).collect();
                    let known = Known {
                        level,
                        below,
                        turn: *turn,
                    };
                    let known = tables.entry(address).insert_entry(known);
                    &known.into_mut().below
                }
            };
            if let Some(next) = level.next() {
                open.extend(below.iter().map(|address| (next, *address)));
            }
        }
        // Tables that were not met are dropped: later writes to them are not recorded.
        if tables.len() != ranges.len() {
            tables.retain(|_, known| known.turn == *turn);
        }
        Ok(TablesRead {
            tables: read,
            of: ranges.len() as u64,
        })
    }
}

/// Returns the regime without fields that identify a process or give a leaf its meaning. They do not change a walk.
fn walked_as(regime: &Regime) -> Regime {
    Regime {
        asid: 0,
        cnp: false,
        mair: 0,
        indirection: None,
        overlays: Overlays::default(),
        ..*regime
    }
}

/// Every table of a walk, each once.
#[derive(Default)]
struct Visited {
    tables: HashSet<Range>,
    shown: Shown,
}

impl<'m> Visitor<'m> for Visited {
    fn table(&mut self, table: &Table<'m>) -> Descend {
        // KASAN's shadow leads to few tables from everywhere.
        if self.shown.again(table) {
            return Descend::Skip;
        }
        let bytes = table.words.len() as u64 * 8;
        self.tables.extend(Range::new(table.address, bytes));
        Descend::Into
    }
}
