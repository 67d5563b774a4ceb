// SPDX-License-Identifier: GPL-2.0-only
//! State that judge and recorder share: the tables, and the CPUs that can have cached them for each ASID.

use std::collections::{BTreeSet, HashMap};

use stage1::{Half, Regime, SystemRegisters};

use crate::cover::Cover;
use crate::shadow::{alike, Filled, Root, Shadow};
use crate::space::Space;
use crate::{Event, Register, What};

/// Limits of the state that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the shadow. Address spaces that no CPU runs are forgotten first.
    pub table_bytes: usize,
    /// Words that may still be in a TLB.
    pub stale: usize,
    /// Findings that are kept whole; all are counted.
    pub findings: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            table_bytes: 256 << 20,
            stale: 1 << 17,
            findings: 256,
        }
    }
}

/// Maximum number of CPUs that are kept apart.
pub(crate) const MOST_CPUS: usize = 512;

#[derive(Clone, Debug, Default)]
pub(crate) struct Cpu {
    registers: SystemRegisters,
    /// True if its registers describe no translation that can be judged, as happens while they are changed.
    strange: bool,
    /// The address spaces that it walks, by half.
    pub(crate) walks: [Option<(Root, u16)>; 2],
    /// The last regime of each half that could be read.
    regimes: [Option<Regime>; 2],
}

/// The pages that are tables, and the CPUs that can have cached them.
#[derive(Clone, Debug, Default)]
pub struct Tracker {
    pub(crate) shadow: Shadow,
    pub(crate) spaces: HashMap<Root, Space>,
    pub(crate) cpus: Vec<Cpu>,
    ids: [Option<u64>; 4],
    /// A counter of the events that separate "before" from "after": loads of a root, and stores.
    pub(crate) now: u64,
    pub(crate) limits: Limits,
    /// Address spaces forgotten to stay within the limit.
    pub(crate) forgotten: u64,
    /// Registers that no regime could be made of, while the MMU is on.
    pub(crate) no_regime: u64,
    /// Number of tables whose known words differ from memory, apart from bits that the PE may have written itself.
    pub(crate) out_of_step: u64,
    pub(crate) dropped: Vec<Root>,
    /// Address spaces with a context that a TLBI has emptied whose DSB has not come.
    pub(crate) emptied: BTreeSet<Root>,
}

impl Tracker {
    /// Creates a tracker with empty state.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let mut tracker = Self {
            limits,
            ..Self::default()
        };
        // One step may add tables that the next removes again.
        tracker.shadow.most = limits.table_bytes / 2 * 3;
        tracker
    }

    /// Returns whether a store to the page of `address` may be one to a table.
    #[must_use]
    pub fn watches(&self, address: u64) -> bool {
        self.shadow.watches(address)
    }

    /// Returns a table whose words are needed next: its physical address and its number of descriptors.
    pub fn wanted(&mut self) -> Option<(u64, usize)> {
        self.shadow.wanted()
    }

    /// Returns the bytes of a table below the first, which are those of a page; `None` before any regime is known.
    pub(crate) fn table_size(&self) -> Option<u64> {
        let mut regimes = self.cpus.iter().flat_map(|cpu| &cpu.regimes).flatten();
        Some(regimes.next()?.granule.bytes())
    }

    /// Returns the first and the last VA of the contiguous group of pages that `va` is in.
    pub(crate) fn block(&self, va: u64) -> [u64; 2] {
        let mut regimes = self.cpus.iter().flat_map(|cpu| &cpu.regimes).flatten();
        let bytes = regimes.next().map_or(1, |regime| {
            let members = regime.contiguous_entries(stage1::Level::L3).unwrap_or(1);
            regime.entry_size(stage1::Level::L3) * members as u64
        });
        [va & !(bytes - 1), va | (bytes - 1)]
    }

    /// Returns the bytes that the shadow takes.
    #[must_use]
    pub fn table_bytes(&self) -> usize {
        self.shadow.bytes()
    }

    pub(crate) fn now(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    /// Takes an event in.
    pub fn apply(&mut self, event: &Event) {
        self.apply_keeping(event);
        self.dropped.clear();
    }

    /// Applies an event; dropped address spaces stay in `dropped`.
    pub(crate) fn apply_keeping(&mut self, event: &Event) {
        match &event.what {
            What::Store { address, word } => {
                if let Some((base, index)) = self.shadow.place(*address) {
                    self.write(base, index, *word);
                }
            }
            What::Unknown { address } => self.lose(*address),
            What::Table { address, words } => drop(self.fill(*address, words)),
            What::NoTable { address } => self.lose(*address),
            What::Register { register, value } => self.register(event.cpu, *register, *value),
            What::Tlbi { opcode, operand } => {
                if let Some(cover) = self.cover(event.cpu, *opcode, *operand) {
                    self.invalidated(event.cpu, &cover, 0);
                }
            }
            What::Barrier(barrier) => self.waited(event.cpu, *barrier),
            What::Late { .. } | What::Chain { .. } | What::Folio(_) | What::Mark { .. } => (),
        }
    }

    pub(crate) fn write(&mut self, base: u64, index: usize, word: u64) {
        let now = self.now();
        self.shadow.write(base, index, word, now);
        self.forget_evicted();
        if self.shadow.bytes() > self.limits.table_bytes {
            self.shrink();
        }
    }

    pub(crate) fn fill(&mut self, address: u64, words: &[u64]) -> Filled {
        let now = self.now();
        let filled = self.shadow.fill(address, words, now);
        self.forget_evicted();
        if filled == Filled::Again && !self.agrees(address, words) {
            self.out_of_step += 1;
            self.shadow.lose(address);
        }
        if self.shadow.bytes() > self.limits.table_bytes {
            self.shrink();
        }
        filled
    }

    /// Returns whether memory equals the shadow, apart from AF and the dirty state where the PE may write them.
    fn agrees(&self, address: u64, words: &[u64]) -> bool {
        let Some(table) = self.shadow.table(address) else {
            return true;
        };
        let regime = table
            .roots
            .first()
            .and_then(|root| self.shadow.format(*root));
        let by_itself = match regime {
            Some(regime) if regime.hd => 1 << 10 | 1 << 7,
            Some(regime) if regime.ha => 1 << 10,
            _ => 0,
        };
        let same = |(one, two): (&u64, &u64)| (one ^ two) & !by_itself == 0;
        table.words.iter().zip(words).all(same)
    }

    pub(crate) fn lose(&mut self, address: u64) {
        if let Some((base, _)) = self.shadow.place(address) {
            self.shadow.lose(base);
        }
    }

    /// Returns the coverage of a TLBI of `cpu`; `None` if it does not concern the judged tables.
    pub(crate) fn cover(&self, cpu: u16, opcode: u32, operand: u64) -> Option<Cover> {
        // For a CPU that has not translated yet the formats of the others are used.
        let translates = |cpu: &&Cpu| cpu.regimes.iter().any(Option::is_some);
        let own = self.cpus.get(usize::from(cpu)).filter(translates);
        let cpu = own.or_else(|| self.cpus.iter().find(translates))?;
        // The granule is that of the half that the VA is in; both have the same under Linux.
        let upper = operand >> 43 & 1 != 0;
        let [lower, higher] = &cpu.regimes;
        let regime = if upper {
            higher.as_ref().or(lower.as_ref())
        } else {
            lower.as_ref().or(higher.as_ref())
        };
        Cover::new(opcode, operand, regime?)
    }

    /// Counts a store to a table by a CPU whose translation is unknown.
    pub(crate) fn stores_without_regime(&mut self, cpu: u16) {
        let strange = self
            .cpus
            .get(usize::from(cpu))
            .is_some_and(|cpu| cpu.strange);
        self.no_regime += u64::from(strange);
    }

    /// Returns the word at `address`, if it is a descriptor that is known.
    #[must_use]
    pub fn word(&self, address: u64) -> Option<u64> {
        let (base, index) = self.shadow.place(address)?;
        self.shadow.table(base)?.words.get(index).copied()
    }

    fn register(&mut self, cpu: u16, register: Register, value: u64) {
        let index = usize::from(cpu);
        if index >= MOST_CPUS {
            self.no_regime += 1;
            return;
        }
        if self.cpus.len() <= index {
            self.cpus.resize(index + 1, Cpu::default());
        }
        let registers = &mut self.cpus[index].registers;
        match register {
            Register::Sctlr => registers.sctlr_el1 = value,
            Register::Ttbr0 => registers.ttbr0_el1 = value,
            Register::Ttbr1 => registers.ttbr1_el1 = value,
            Register::Tcr => registers.tcr_el1 = value,
            Register::Tcr2 => registers.tcr2_el1 = Some(value),
            Register::Mair => registers.mair_el1 = value,
            Register::Contextidr | Register::Spsr => return,
            Register::Mmfr0 => self.ids[0] = Some(value),
            Register::Mmfr1 => self.ids[1] = Some(value),
            Register::Mmfr2 => self.ids[2] = Some(value),
            Register::Mmfr3 => self.ids[3] = Some(value),
        }
        self.cpus[index].registers.id_aa64mmfr = self.ids;
        self.walks_now(cpu);
    }

    fn walks_now(&mut self, cpu: u16) {
        let index = usize::from(cpu);
        let mut walks = [None; 2];
        let mut upper = 0;
        self.cpus[index].strange = false;
        for half in [Half::Upper, Half::Lower] {
            let which = half.number() as usize;
            match Regime::new(&self.cpus[index].registers, half) {
                Ok(regime) if !regime.epd => {
                    let root = Root::new(regime.root.0, half);
                    // Global entries have no ASID of their own: the upper half is one address space under all of them.
                    let asid = if half == Half::Upper { 0 } else { regime.asid };
                    if half == Half::Upper {
                        upper = root.base();
                    }
                    walks[which] = Some((root, asid, regime, upper));
                    self.cpus[index].regimes[which] = Some(regime);
                }
                Ok(_) | Err(stage1::RegimeError::MmuOff { .. }) => (),
                Err(_) => self.cpus[index].strange = true,
            }
        }
        for (which, walk) in walks.into_iter().enumerate() {
            let now = walk.map(|(root, asid, _, _)| (root, asid));
            let before = self.cpus[index].walks[which];
            let known = walk.is_none_or(|(root, _, regime, _)| self.is_known(root, &regime));
            if before == now && known {
                continue;
            }
            self.cpus[index].walks[which] = now;
            if let Some((root, asid)) = before {
                self.leaves(cpu, root, asid);
            }
            if let Some((root, asid, regime, upper)) = walk {
                self.enters(cpu, root, asid, &regime, upper);
            }
        }
    }

    pub(crate) fn is_known(&self, root: Root, regime: &Regime) -> bool {
        let format = self.shadow.format(root);
        format.is_some_and(|format| alike(format, regime))
    }
}
