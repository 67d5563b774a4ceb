// SPDX-License-Identifier: GPL-2.0-only
//! The judge: events in, findings out.

use std::collections::HashMap;

use stage1::{may_be_cached, transition, BbmLevel, Cause, Descriptor, Half, Kind, Maintenance};

use crate::chains::Chains;
use crate::finding::Scene;
use crate::folio::{mapped, Folios};
use crate::follow::Follow;
use crate::given::{leads_to, Given};
use crate::history::History;
use crate::moment::Did;
use crate::shadow::{Filled, Root, State};
use crate::stale::{Holder, Stale, Stales};
use crate::tracker::Limits;
use crate::Cover;
use crate::{
    Barrier, Done, Event, Finding, Findings, Folio, NotJudged, Register, Rule, Stored, Tracker,
    What,
};

/// Judges a stream of events.
#[derive(Debug)]
pub struct Judge {
    pub(crate) tracker: Tracker,
    pub(crate) stales: Stales,
    pub(crate) findings: Findings,
    pub(crate) not_judged: NotJudged,
    pub(crate) bbm: BbmLevel,
    events: u64,
    stores: u64,
    tlbis: u64,
    barriers: u64,
    pub(crate) overtaken: u64,
    chains: Chains,
    pub(crate) history: History,
    /// The store that linked a table, whose words come next.
    pub(crate) linked: Option<Stored>,
    /// The followed VA, and its sequences.
    pub(crate) follow: Option<Follow>,
    /// The folios of page frames, as far as they were recorded.
    pub(crate) folios: Folios,
    /// Pages that now belong to another address space, by the one that they were taken from.
    pub(crate) given: HashMap<Root, Vec<Given>>,
    /// The VAs whose actions are counted; `None` for all.
    counted: Option<[u64; 2]>,
}

/// Counts of a judge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Events.
    pub events: u64,
    /// Stores to descriptors.
    pub stores: u64,
    /// TLBIs.
    pub tlbis: u64,
    /// Barriers.
    pub barriers: u64,
    /// Findings.
    pub findings: u64,
    /// Pages mapped by one thread before another thread's TLBI for the old entry, which Linux allows.
    pub overtaken: u64,
    /// Words that are no longer in memory and may still be in a TLB.
    pub stale: usize,
    /// Bytes that the shadow of the tables takes.
    pub table_bytes: usize,
}

impl Judge {
    /// Creates a judge with empty state. `bbm` is the level of FEAT_BBM that the kernel relies on.
    #[must_use]
    pub fn new(limits: Limits, bbm: BbmLevel) -> Self {
        Self {
            tracker: Tracker::new(limits),
            stales: Stales::new(limits.stale),
            findings: Findings::new(limits.findings),
            not_judged: NotJudged::default(),
            bbm,
            events: 0,
            stores: 0,
            tlbis: 0,
            barriers: 0,
            overtaken: 0,
            chains: Chains::default(),
            history: History::default(),
            linked: None,
            follow: None,
            folios: Folios::default(),
            counted: None,
            given: HashMap::new(),
        }
    }

    /// Returns the return addresses of a call chain, the innermost first: the link register, then those of the frame
    /// records.
    #[must_use]
    pub fn chain(&self, by: &Stored) -> &[u64] {
        self.chains.frames(by.chain)
    }

    /// Returns the counts of each call chain since counting began anew. The first is that of unknown chains.
    pub fn done(&self) -> impl Iterator<Item = (&[u64], Done)> {
        self.chains.all_done()
    }

    /// Begins to count anew and drops its findings, so that each cause is reported again.
    pub fn anew(&mut self) {
        self.count_within(None);
        self.findings = Findings::new(self.findings.most());
    }

    /// Begins to count anew, and counts only actions on these VAs, first and last: stores to their leaves, TLBIs that
    /// touch them, and all DSBs.
    pub fn count_within(&mut self, vas: Option<[u64; 2]>) {
        self.chains.count_anew();
        self.counted = vas;
    }

    /// Returns the coverage of a TLBI of `cpu`; `None` if it does not concern the judged tables.
    #[must_use]
    pub fn cover(&self, cpu: u16, opcode: u32, operand: u64) -> Option<Cover> {
        self.tracker.cover(cpu, opcode, operand)
    }

    /// Returns what was found so far.
    #[must_use]
    pub fn findings(&self) -> &Findings {
        &self.findings
    }

    /// Returns what could not be judged.
    #[must_use]
    pub fn not_judged(&self) -> NotJudged {
        NotJudged {
            out_of_step: self.tracker.out_of_step,
            forgotten: self.tracker.forgotten + self.tracker.shadow.refused,
            stale: self.stales.dropped,
            registers: self.tracker.no_regime,
            ..self.not_judged
        }
    }

    /// Returns the counts.
    #[must_use]
    pub fn summary(&self) -> Summary {
        Summary {
            events: self.events,
            stores: self.stores,
            tlbis: self.tlbis,
            barriers: self.barriers,
            findings: self.findings.total,
            overtaken: self.overtaken,
            stale: self.stales.len(),
            table_bytes: self.tracker.table_bytes(),
        }
    }

    /// Takes an event in.
    pub fn event(&mut self, event: &Event) {
        self.events += 1;
        let (chain, pid) = self.chains.of(event.cpu);
        let by = Stored {
            cpu: event.cpu,
            pc: event.pc,
            event: self.events,
            chain,
            pid,
        };
        match &event.what {
            What::Store { address, word } => self.store(*address, *word, by),
            What::Table { address, words } => {
                if self.tracker.fill(*address, words) == Filled::First {
                    self.made_table(*address, self.linked.unwrap_or(by));
                }
            }
            What::Tlbi { opcode, operand } => self.tlbi(*opcode, *operand, by),
            What::Barrier(barrier) => {
                self.barriers += 1;
                if let Barrier::Dsb { domain, types } = *barrier {
                    self.chains.done(chain).dsbs += 1;
                    self.history.push(by, Did::Dsb { domain, types });
                }
                if let Some(follow) = &mut self.follow {
                    follow.dsb(*barrier, by);
                }
                self.stales.barrier(event.cpu, *barrier, self.events);
                self.tracker.waited(event.cpu, *barrier);
            }
            What::Late { .. } => self.not_judged.late += 1,
            What::Chain { frames } => self.chains.enter(event.cpu, frames),
            What::Folio(folio) => self.folios.insert(*folio),
            What::Mark { .. } => (),
            What::Register {
                register: Register::Contextidr,
                value,
            } => self.chains.runs(event.cpu, *value as u32),
            What::Register {
                register: Register::Spsr,
                value,
            } => self.goes_on(*value, by),
            What::Unknown { .. } | What::NoTable { .. } | What::Register { .. } => {
                self.linked = None;
                self.tracker.apply_keeping(event);
            }
        }
        for root in std::mem::take(&mut self.tracker.dropped) {
            self.stales.forget(root);
            self.given.remove(&root);
            if let Some(follow) = &mut self.follow {
                follow.forget(root);
            }
        }
        // The trace has the tables itself.
        while self.tracker.wanted().is_some() {}
        self.tracker.shadow.turned();
    }

    fn tlbi(&mut self, opcode: u32, operand: u64, by: Stored) {
        self.tlbis += 1;
        let cover = self.tracker.cover(by.cpu, opcode, operand);
        let counts = match (self.counted, &cover) {
            (None, _) => true,
            (Some([first, last]), Some(cover)) => cover.touches(first, last),
            (Some(_), None) => false,
        };
        self.chains.done(by.chain).tlbis += u64::from(counts);
        let Some(cover) = cover else {
            self.not_judged.tlbi += u64::from(!self.tracker.spaces.is_empty());
            return;
        };
        let did = Did::Tlbi {
            opcode,
            operand,
            cover,
        };
        self.history.push(by, did);
        self.followed_tlbi(&cover, did, by);
        let shadow = &self.tracker.shadow;
        let roots = self.tracker.spaces.keys().copied();
        self.stales
            .tlbi(&cover, by, roots, |root| shadow.format(root));
        self.tracker.invalidated(by.cpu, &cover, by.event);
    }

    fn store(&mut self, address: u64, word: u64, by: Stored) {
        let Some((base, index)) = self.tracker.shadow.place(address) else {
            self.written_over(address, word, by);
            return;
        };
        self.stores += 1;
        let counts = self.counts(base, index);
        self.chains.done(by.chain).stores += u64::from(counts);
        self.tracker.stores_without_regime(by.cpu);
        let Some(table) = self.tracker.shadow.table(base) else {
            return;
        };
        match table.state {
            State::Known => (),
            State::Empty | State::Ambiguous => {
                self.not_judged.ambiguous += 1;
                self.tracker.write(base, index, word);
                return;
            }
        }
        let old = table.words[index];
        self.linked = Some(by);
        if old != word {
            let (entry, new) = (address, word);
            self.history.push(by, Did::Store { entry, old, new });
            let roots = table.roots.clone();
            self.followed_store(base, index, word, by);
            for root in roots {
                self.changed(root, base, index, word, by);
            }
            self.group(base, index, word, by);
        }
        self.tracker.write(base, index, word);
    }

    /// Returns whether the stores to a descriptor are counted: its memory lies within the VAs.
    fn counts(&self, base: u64, index: usize) -> bool {
        let Some([first, last]) = self.counted else {
            return true;
        };
        let shadow = &self.tracker.shadow;
        shadow.table(base).is_some_and(|table| {
            table.roots.iter().any(|root| {
                let va = shadow.va(*root, base, index);
                let size = shadow.format(*root).map(|it| it.entry_size(table.level));
                let end = size.and_then(|size| va.checked_add(size - 1));
                va >= first && end.is_some_and(|end| end <= last)
            })
        })
    }

    /// Judges the change of one descriptor of one address space to `word`.
    fn changed(&mut self, root: Root, base: u64, index: usize, word: u64, by: Stored) {
        let shadow = &self.tracker.shadow;
        let (Some(table), Some(regime)) = (shadow.table(base), shadow.format(root)) else {
            return;
        };
        let (level, va) = (table.level, shadow.va(root, base, index));
        let regime = *regime;
        let old = Descriptor::new(table.words[index], level, &regime);
        let new = Descriptor::new(word, level, &regime);
        let holders = self.holders(root, &old, table.since[index]);
        let entry = base + index as u64 * 8;

        if matches!(new.kind(), Kind::Page | Kind::Block | Kind::Table) {
            self.made(root, va, entry, &new, by);
            self.used_as(root, va, entry, &new, by);
        }
        let change = transition(&old, &new, self.bbm);
        let mut told = false;
        if !holders.is_empty() && change.need == Maintenance::BreakBeforeMake {
            match change.cause {
                Cause::ReadOnlyOutputAddress => self.not_judged.read_only += 1,
                Cause::NextTable => self.not_judged.tables += 1,
                cause => {
                    told = true;
                    self.found(Finding {
                        rule: Rule::S1,
                        made: by,
                        broken: None,
                        tlbi: None,
                        root: root.base(),
                        va,
                        level,
                        entry,
                        old: old.word,
                        new: word,
                        cause,
                        block: None,
                        scene: Scene::default(),
                        sentence: format!(
                        "{}, and no invalid word was written between; CPU {} may hold the old one",
                        cause.phrase(),
                        holders[0].cpu
                    ),
                    });
                }
            }
        }
        if old.kind() == Kind::Table
            && (new.kind() != Kind::Table || change.cause == Cause::NextTable)
        {
            self.unlinked(root, old.next_table().0, by);
        }
        // A change that was reported is not reported again for the pages of a table that come with it.
        if !holders.is_empty() && change.need >= Maintenance::Tlbi && !told {
            let stale = Stale {
                old: old.word,
                entry,
                stored: by,
                own: self.runs(root, by.cpu),
                overtaken: false,
                folio: self.folio(&old),
                holders,
                miss: None,
            };
            self.stales.insert((root, va, level), stale, leads_to(&old));
        }
    }

    /// Returns the folio that a descriptor of user space maps, as far as it was recorded.
    pub(crate) fn folio(&self, descriptor: &Descriptor<'_>) -> Option<Folio> {
        self.folios.at(mapped(descriptor)?)
    }

    /// Returns which CPUs may hold a descriptor that was written at `since`: those that have walked its address space
    /// afterwards.
    pub(crate) fn holders(&self, root: Root, old: &Descriptor<'_>, since: u64) -> Vec<Holder> {
        if !may_be_cached(old) {
            return Vec::new();
        }
        let Some(space) = self.tracker.spaces.get(&root) else {
            return Vec::new();
        };
        let upper = old.regime().half == Half::Upper;
        let global = upper || old.kind().is_leaf() && !old.ng();
        let mut holders: Vec<Holder> = Vec::new();
        for context in &space.contexts {
            if context.until.is_some_and(|until| until <= since) {
                continue;
            }
            let holder = Holder {
                cpu: context.cpu,
                asid: (!global).then_some(context.asid),
                gone: if upper {
                    Vec::new()
                } else {
                    context.gone.clone()
                },
            };
            let same = |other: &Holder| (other.cpu, other.asid) == (holder.cpu, holder.asid);
            if !holders.iter().any(same) {
                holders.push(holder);
            }
        }
        holders
    }
}
