//! The tables of one regime, remembered from one walk to the next.

use std::collections::{HashMap, HashSet};

use stage1::{
    tables_below, Descend, Level, PhysMemory, PhysicalAddress, Regime, Table, Visitor,
    DEFAULT_BUDGET,
};

use crate::{Range, RangeSet};

/// How many tables were read, and how many there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reread {
    /// Tables that are new or whose pages were written to.
    pub tables: u64,
    /// All tables, each once.
    pub of: u64,
}

impl std::ops::AddAssign for Reread {
    fn add_assign(&mut self, other: Self) {
        self.tables += other.tables;
        self.of += other.of;
    }
}

/// Which tables a regime's walk visits, kept from one walk to the next so that a table to which nobody wrote
/// is not read again.
///
/// The walk of `stage1` goes down every path anew, and its answer depends on the path: a table that is among
/// its own ancestors is a loop, one with two parents counts twice for the budget. Where each table is
/// reached by one path none of this can be, and the tables visited are just those that can be reached.
/// Everything else is left to that walk.
#[derive(Debug)]
pub struct TableTree {
    /// Without what does not change where a walk goes.
    regime: Regime,
    /// By address. Empty where the last walk met a table twice.
    tables: HashMap<PhysicalAddress, Known>,
    /// Number of the walk.
    turn: u64,
}

/// A table as it was when it was last read.
#[derive(Debug)]
struct Known {
    level: Level,
    /// Where its descriptors lead.
    below: Box<[PhysicalAddress]>,
    /// The last walk that came here.
    turn: u64,
}

/// A table has two parents, or there are more than a walk may read.
struct NoTree;

impl TableTree {
    /// The tables of `regime`, none of which was read yet.
    pub fn new(regime: &Regime) -> Self {
        Self {
            regime: walked_as(regime),
            tables: HashMap::new(),
            turn: 0,
        }
    }

    /// Whether a walk by `regime` goes where this one went, tables being equal.
    pub fn is_of(&self, regime: &Regime) -> bool {
        self.regime == walked_as(regime)
    }

    /// Appends to `ranges` where every table is that a walk of the regime visits now. Tables known and outside
    /// `written` are not read; with `written` unknown all are.
    pub fn update<M: PhysMemory + ?Sized>(
        &mut self,
        memory: &M,
        written: Option<&RangeSet>,
        ranges: &mut Vec<Range>,
    ) -> Reread {
        if self.regime.epd {
            return Reread::default();
        }
        if written.is_none() {
            self.tables.clear();
        }
        let start = ranges.len();
        if let Ok(reread) = self.climb(memory, written, ranges) {
            return reread;
        }
        self.tables.clear();
        ranges.truncate(start);
        let mut visited = Visited::default();
        let regime = &self.regime;
        stage1::walk(memory, regime, regime.first, regime.last, &mut visited);
        let tables = visited.tables.len() as u64;
        ranges.extend(visited.tables);
        Reread { tables, of: tables }
    }

    fn climb<M: PhysMemory + ?Sized>(
        &mut self,
        memory: &M,
        written: Option<&RangeSet>,
        ranges: &mut Vec<Range>,
    ) -> Result<Reread, NoTree> {
        self.turn += 1;
        let Self {
            regime,
            tables,
            turn,
        } = self;
        let mut reread = Reread::default();
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
            reread.of += 1;
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
                    reread.tables += 1;
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
        if tables.len() as u64 != reread.of {
            tables.retain(|_, known| known.turn == *turn);
        }
        Ok(reread)
    }
}

/// The regime without what names a process or says what a leaf means: a walk is the same for any.
fn walked_as(regime: &Regime) -> Regime {
    Regime {
        asid: 0,
        cnp: false,
        mair: 0,
        ..*regime
    }
}

/// Every table of a walk, each once.
#[derive(Default)]
struct Visited {
    tables: HashSet<Range>,
}

impl<'m> Visitor<'m> for Visited {
    fn table(&mut self, table: &Table<'m>) -> Descend {
        let bytes = table.words.len() as u64 * 8;
        self.tables.extend(Range::new(table.address, bytes));
        Descend::Into
    }
}
