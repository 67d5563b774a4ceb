//! What the judge and the recorder both have to know: the tables, and which CPU can have cached them for which ASID.

use std::collections::HashMap;

use stage1::{Half, Regime, SystemRegisters};

use crate::cover::{Asids, Cover};
use crate::shadow::{alike, Filled, Root, Shadow};
use crate::{Event, Register, What};

/// How much may be kept.
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

/// The most CPUs that are told apart.
pub(crate) const MOST_CPUS: usize = 512;

/// One CPU with one ASID that walks, or walked, an address space, so that its TLB may hold some of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Context {
    pub(crate) cpu: u16,
    pub(crate) asid: u16,
    /// When it ceased to; `None` while it does.
    pub(crate) until: Option<u64>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Space {
    pub(crate) contexts: Vec<Context>,
    /// The ASIDs in use: one, or two with KPTI, each with the upper half's first table.
    current: Vec<(u64, u16)>,
    used: u64,
}

impl Space {
    pub(crate) fn uses(&self, asid: u16) -> bool {
        self.current.iter().any(|(_, one)| *one == asid)
    }

    fn set_asid(&mut self, upper: u64, asid: u16) {
        // KPTI has pairs, of which the kernel's is even.
        self.current
            .retain(|(other, old)| *other != upper && (old ^ asid) & !1 == 0);
        self.current.push((upper, asid));
    }
}

#[derive(Clone, Debug, Default)]
struct Cpu {
    registers: SystemRegisters,
    /// Its registers describe no translation that can be judged, as they may on the way from one to the next.
    strange: bool,
    /// What it walks, by half.
    walks: [Option<(Root, u16)>; 2],
    /// The last regime of each half that could be read.
    regimes: [Option<Regime>; 2],
}

/// Which pages are tables, and who can have cached what.
#[derive(Clone, Debug, Default)]
pub struct Tracker {
    pub(crate) shadow: Shadow,
    pub(crate) spaces: HashMap<Root, Space>,
    cpus: Vec<Cpu>,
    ids: [Option<u64>; 4],
    /// Counts what separates "before" from "after": loads of a root, and stores.
    now: u64,
    limits: Limits,
    /// Address spaces forgotten to stay within the limit.
    pub(crate) forgotten: u64,
    /// Registers that no regime could be made of, while the MMU is on.
    pub(crate) no_regime: u64,
    /// Tables whose words were known and are not so in memory, but for what the PE may have written itself.
    pub(crate) out_of_step: u64,
    pub(crate) dropped: Vec<Root>,
}

impl Tracker {
    /// One that has seen nothing.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let mut tracker = Self {
            limits,
            ..Self::default()
        };
        // One step may add what the next takes away again.
        tracker.shadow.most = limits.table_bytes / 2 * 3;
        tracker
    }

    /// Whether a store to the page of `address` may be one to a table.
    #[must_use]
    pub fn watches(&self, address: u64) -> bool {
        self.shadow.watches(address)
    }

    /// A table whose words are needed next: its physical address and how many descriptors it has.
    pub fn wanted(&mut self) -> Option<(u64, usize)> {
        self.shadow.wanted()
    }

    /// Bytes that the shadow takes.
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

    /// The same, and what was forgotten stays in `dropped`.
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
                    self.invalidated(event.cpu, &cover);
                }
            }
            What::Barrier(_) | What::Late { .. } => (),
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

    /// Whether what memory holds is what the shadow has, but for AF and the dirty state where the PE may write them.
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

    /// What a TLBI of `cpu` covers; `None` if it does not concern what is judged.
    pub(crate) fn cover(&self, cpu: u16, opcode: u32, operand: u64) -> Option<Cover> {
        // A CPU that has not translated yet goes by the others' formats.
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

    /// Forgets the contexts that a TLBI has emptied.
    pub(crate) fn invalidated(&mut self, own: u16, cover: &Cover) {
        if cover.vas.is_some() {
            return;
        }
        let mut emptied = Vec::new();
        for (root, space) in &mut self.spaces {
            space.contexts.retain(|context| {
                let asid = match cover.asids {
                    Asids::All => true,
                    Asids::OneOrGlobal(asid) | Asids::One(asid) => context.asid == asid,
                };
                context.until.is_none() || !asid || !cover.reaches(own, context.cpu)
            });
            if space.contexts.is_empty() {
                emptied.push(*root);
            }
        }
        // No TLB holds any of it: there is nothing to judge until it is loaded and read again, and its pages may be
        // anything meanwhile.
        emptied.sort_unstable();
        for root in emptied {
            self.forget(root);
        }
    }

    /// A CPU whose translation is not known stores to a table.
    pub(crate) fn stores_without_regime(&mut self, cpu: u16) {
        let strange = self
            .cpus
            .get(usize::from(cpu))
            .is_some_and(|cpu| cpu.strange);
        self.no_regime += u64::from(strange);
    }

    /// The word at `address`, if it is a descriptor that is known.
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
                    // Without an ASID of their own: the upper half is one address space under all of them.
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

    fn is_known(&self, root: Root, regime: &Regime) -> bool {
        let format = self.shadow.format(root);
        format.is_some_and(|format| alike(format, regime))
    }

    fn enters(&mut self, cpu: u16, root: Root, asid: u16, regime: &Regime, upper: u64) {
        if self.shadow.format(root).is_some() && !self.is_known(root, regime) {
            self.forget(root);
        }
        let now = self.now();
        if self.shadow.format(root).is_none() {
            self.shadow.add_root(root, regime);
        }
        self.forget_evicted();
        self.shadow.load(root, true);
        let space = self.spaces.entry(root).or_default();
        space.used = now;
        space.set_asid(upper, asid);
        let same = |context: &&mut Context| context.cpu == cpu && context.asid == asid;
        match space.contexts.iter_mut().find(same) {
            Some(context) => context.until = None,
            None => space.contexts.push(Context {
                cpu,
                asid,
                until: None,
            }),
        }
    }

    fn leaves(&mut self, cpu: u16, root: Root, asid: u16) {
        let now = self.now();
        let Some(space) = self.spaces.get_mut(&root) else {
            return;
        };
        space.used = now;
        for context in &mut space.contexts {
            if context.cpu == cpu && context.asid == asid && context.until.is_none() {
                context.until = Some(now);
            }
        }
        let idle = space.contexts.iter().all(|context| context.until.is_some());
        if idle {
            self.shadow.load(root, false);
        }
        // The process has gone, or it is the table that stands for none: its page may be anything next.
        if idle && self.shadow.is_void(root) {
            self.forget(root);
        }
    }

    /// Address spaces that had to make way for another's tables.
    fn forget_evicted(&mut self) {
        for root in self.shadow.evicted() {
            self.spaces.remove(&root);
            self.dropped.push(root);
        }
    }

    fn forget(&mut self, root: Root) {
        self.shadow.drop_root(root);
        self.spaces.remove(&root);
        self.dropped.push(root);
    }

    /// Forgets address spaces that no CPU walks, the longest unused first, down to three quarters of the limit.
    fn shrink(&mut self) {
        let idle = |space: &Space| space.contexts.iter().all(|context| context.until.is_some());
        let mut roots: Vec<(u64, Root)> = self
            .spaces
            .iter()
            .filter(|(_, space)| idle(space))
            .map(|(root, space)| (space.used, *root))
            .collect();
        roots.sort_unstable();
        for (_, root) in roots {
            if self.shadow.bytes() <= self.limits.table_bytes / 4 * 3 {
                return;
            }
            self.forget(root);
            self.forgotten += 1;
        }
        if self.shadow.bytes() > self.limits.table_bytes {
            // Those that run are too large: begin anew. What they hold is asked for again when they are loaded.
            let all: Vec<Root> = self.spaces.keys().copied().collect();
            for root in all {
                self.forget(root);
                self.forgotten += 1;
            }
            for cpu in &mut self.cpus {
                cpu.walks = [None; 2];
            }
        }
    }
}
