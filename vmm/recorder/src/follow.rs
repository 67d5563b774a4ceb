// SPDX-License-Identifier: GPL-2.0-only
//! Follows one VA: the last sequences of its block in each address space, however long ago.
//!
//! A sequence is the stores that remove or change words of the block, the TLBIs and DSBs for them, and the stores of
//! new words after that. It ends when the CPU has returned to user space, or when another CPU begins one.

mod judged;

use std::collections::{BTreeSet, HashMap, VecDeque};

use crate::moment::{Did, Moment};
use crate::shadow::Root;
use crate::{Barrier, Folio, Stored, Types};

/// Maximum number of address spaces that are kept: the most recently used.
const MOST_SPACES: usize = 256;
/// Maximum number of sequences of one space that are kept: the last ones.
const MOST_SEQUENCES: usize = 16;
/// Maximum number of steps of a sequence that are kept: the first ones. Blocks of 128 entries, page by page and
/// unfolded before, fit.
const MOST_STEPS: usize = 2048;
/// Maximum number of DSBs without a store or a TLBI between them that are kept.
const MOST_DSBS: usize = 4;

/// A sequence of the block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sequence {
    /// The steps, in order.
    pub steps: Vec<Moment>,
    /// Number of steps that did not fit.
    pub left_out: u64,
    /// The physical address of the block's first descriptor of level 3; 0 where no page of it was written.
    pub entries: u64,
    /// The words of these descriptors before the first store to them.
    pub before: Vec<u64>,
}

/// The state of the VA in a followed address space at the end of the trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Now {
    /// Its descriptor, or the lowest that is known.
    pub text: String,
    /// The words of the block around it.
    pub words: Vec<u64>,
    /// Its folio, in the kernel's state at the time the descriptor was written.
    pub folio: Option<Folio>,
}

/// An address space in which the block has had sequences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Followed {
    root: Root,
    /// The thread that last went back to user space in it, by its PID, where the kernel writes that into CONTEXTIDR_EL1.
    pub pid: Option<u32>,
    /// True if it still exists. Otherwise it has ended, or was dropped.
    pub lives: bool,
    /// The last sequences, in order.
    pub sequences: VecDeque<Sequence>,
    /// Number of all sequences.
    pub all: u64,
    /// When the last sequence began: by which CPU, after how many of its returns.
    began: (u16, u64),
    /// True if the sequence has removed a word.
    takes: bool,
    /// The last store wrote a valid word where none was.
    making: bool,
    /// True if a removed word may still be in a TLB.
    open: bool,
    stored: BTreeSet<u16>,
    flushed: BTreeSet<u16>,
    dsbs: usize,
}

impl Followed {
    fn new(root: Root) -> Self {
        Self {
            root,
            pid: None,
            lives: true,
            sequences: VecDeque::new(),
            all: 0,
            began: (0, 0),
            takes: false,
            making: false,
            open: false,
            stored: BTreeSet::new(),
            flushed: BTreeSet::new(),
            dsbs: 0,
        }
    }

    /// Returns the physical address of its first table.
    #[must_use]
    pub fn root(&self) -> u64 {
        self.root.base()
    }

    /// Returns the event of its last step.
    #[must_use]
    pub fn last(&self) -> u64 {
        let last = self.sequences.back().and_then(|one| one.steps.last());
        last.map_or(0, |step| step.by.event)
    }

    fn push(&mut self, by: Stored, did: Did) {
        if let Some(sequence) = self.sequences.back_mut() {
            if sequence.steps.len() < MOST_STEPS {
                sequence.steps.push(Moment { by, did });
            } else {
                sequence.left_out += 1;
            }
        }
    }

    fn store(&mut self, by: Stored, returns: u64, did: Did, group: Option<(u64, &[u64])>) {
        let Did::Store { old, new, .. } = did else {
            return;
        };
        let (takes, entry) = (old & 1 != 0, (by.cpu, returns));
        let next = takes && self.making && (!self.takes || self.began != entry);
        if next || self.sequences.is_empty() {
            if self.sequences.len() == MOST_SEQUENCES {
                self.sequences.pop_front();
            }
            self.sequences.push_back(Sequence::default());
            self.all += 1;
            (self.takes, self.open) = (false, false);
            self.stored.clear();
            self.flushed.clear();
        }
        if takes && !self.takes {
            self.began = entry;
        }
        self.takes |= takes;
        self.open |= takes;
        self.making = !takes && (self.making || new & 1 != 0);
        self.stored.insert(by.cpu);
        self.dsbs = 0;
        if let (Some(sequence), Some((first, words))) = (self.sequences.back_mut(), group) {
            if sequence.before.is_empty() {
                sequence.entries = first;
                sequence.before = words.to_vec();
            }
        }
        self.push(by, did);
    }

    fn tlbi(&mut self, by: Stored, did: Did) {
        if self.open {
            self.flushed.insert(by.cpu);
            self.dsbs = 0;
            self.push(by, did);
        }
    }

    fn dsb(&mut self, by: Stored, did: Did, all: bool) {
        let flushed = all && self.flushed.contains(&by.cpu);
        let concerned = self.stored.contains(&by.cpu) || self.flushed.contains(&by.cpu);
        if !self.open || !concerned || !flushed && self.dsbs == MOST_DSBS {
            return;
        }
        self.dsbs += 1;
        self.push(by, did);
        if flushed {
            self.flushed.remove(&by.cpu);
            self.open = false;
        }
    }
}

/// The followed VA, and its sequences.
#[derive(Clone, Debug)]
pub(crate) struct Follow {
    va: u64,
    spaces: Vec<Followed>,
    /// Number of each CPU's returns to user space.
    returns: HashMap<u16, u64>,
    /// The processes of the address spaces, while they live.
    owners: HashMap<Root, u32>,
    left_out: u64,
}

impl Follow {
    pub(crate) fn new(va: u64) -> Self {
        Self {
            va,
            spaces: Vec::new(),
            returns: HashMap::new(),
            owners: HashMap::new(),
            left_out: 0,
        }
    }

    fn space(&mut self, root: Root) -> &mut Followed {
        let mut found = self.spaces.iter();
        let found = found.rposition(|space| space.lives && space.root == root);
        let at = found.unwrap_or_else(|| {
            if self.spaces.len() == MOST_SPACES {
                let oldest = (0..MOST_SPACES).min_by_key(|at| self.spaces[*at].last());
                self.spaces.remove(oldest.unwrap_or(0));
                self.left_out += 1;
            }
            let mut space = Followed::new(root);
            space.pid = self.owners.get(&root).copied();
            self.spaces.push(space);
            self.spaces.len() - 1
        });
        &mut self.spaces[at]
    }

    /// A CPU goes back to user space.
    pub(crate) fn returns(&mut self, cpu: u16, pid: u32, root: Option<Root>) {
        *self.returns.entry(cpu).or_default() += 1;
        let Some(root) = root.filter(|_| pid != 0) else {
            return;
        };
        self.owners.insert(root, pid);
        let mine = |space: &&mut Followed| space.lives && space.root == root;
        for space in self.spaces.iter_mut().filter(mine) {
            space.pid = Some(pid);
        }
    }

    /// Records that an address space has ended, or is not followed any more.
    pub(crate) fn forget(&mut self, root: Root) {
        self.owners.remove(&root);
        for space in &mut self.spaces {
            space.lives &= space.root != root;
        }
    }

    pub(crate) fn dsb(&mut self, barrier: Barrier, by: Stored) {
        let Barrier::Dsb { domain, types } = barrier else {
            return;
        };
        for space in self.spaces.iter_mut().filter(|space| space.lives) {
            space.dsb(by, Did::Dsb { domain, types }, types == Types::All);
        }
    }
}
