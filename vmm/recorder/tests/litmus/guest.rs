// SPDX-License-Identifier: GPL-2.0-only
//! A synthetic guest whose CPUs do the steps of a line of text, which are recorded and then judged from the trace.
//!
//! A step is `CPU:what`. `3=b` writes word `b` to the page descriptor of VA 3, `t=inv` to the descriptor of their
//! table. `folio=80000/4` sets a folio of order 4 there, `folio=80000/4/7` with index 7. `run=p`, `run=q` and
//! `run=idle` load an address space, `pid=7` sets the running thread, `to=el0` returns. TLBIs are `op`, `op,VA`,
//! `op,FIRST+PAGES`, each with `/asid=`, `/ttl=`, `/tg=` if they differ from the right ones. Barriers have their own
//! names.

use std::collections::BTreeMap;

use recorder::trace::Reader;
use recorder::{
    Barrier, Domain, Event, Folio, FolioKind, Judge, Limits, Recorder, Register, Types, What,
};
use stage1::testing::Layout;
use stage1::{BbmLevel, Granule, Half, Level, Regime};

pub const ASID: u64 = 5;
const ROOTS: [u64; 3] = [0x4000_0000, 0x4010_0000, 0x4020_0000];
const OTHER_TABLE: u64 = 0x4200_0000;

pub struct Guest {
    memory: BTreeMap<u64, u64>,
    recorder: Recorder<Vec<u8>>,
    layout: Layout,
    regime: Regime,
    /// The table of pages, and the physical address of the descriptor that leads to it.
    pages: u64,
    link: u64,
    pub bbm: BbmLevel,
}

fn set(at: u32, value: u64) -> u64 {
    value << at
}

impl Guest {
    /// Creates `cpus` CPUs that run `p`, whose first table of pages is linked and empty.
    pub fn new(layout: Layout, cpus: u16) -> Self {
        let regime = Regime::new(&layout.registers(ROOTS[0]), layout.half).unwrap();
        let recorder = Recorder::new(Vec::new(), Limits::default()).unwrap();
        let mut guest = Self {
            memory: BTreeMap::new(),
            recorder,
            layout,
            regime,
            pages: 0,
            link: 0,
            bbm: BbmLevel::Zero,
        };
        let (mut table, mut level) = (ROOTS[0], regime.root_level);
        let mut free = 0x4100_0000;
        while level != Level::L3 {
            guest.link = table;
            guest.memory.insert(table, free | 3);
            (table, level) = (free, level.next().unwrap());
            free += 0x1_0000;
        }
        guest.pages = table;
        for cpu in 0..cpus {
            guest.boot(cpu);
        }
        guest
    }

    fn boot(&mut self, cpu: u16) {
        let registers = self.layout.registers(ROOTS[0]);
        let ids = registers.id_aa64mmfr.map(Option::unwrap);
        let mut values = vec![
            (Register::Mmfr0, ids[0]),
            (Register::Mmfr1, ids[1]),
            (Register::Mmfr2, ids[2]),
            (Register::Mmfr3, ids[3]),
            (Register::Mair, registers.mair_el1),
            (Register::Tcr, registers.tcr_el1),
        ];
        values.push((self.ttbr(), ROOTS[0] | set(48, ASID)));
        values.push((Register::Sctlr, registers.sctlr_el1));
        for (register, value) in values {
            self.event(cpu, What::Register { register, value });
        }
    }

    fn ttbr(&self) -> Register {
        match self.layout.half {
            Half::Lower => Register::Ttbr0,
            Half::Upper => Register::Ttbr1,
        }
    }

    fn event(&mut self, cpu: u16, what: What) {
        let pc = 0xffff_8000_0001_0000 + u64::from(cpu) * 0x100;
        let memory = &self.memory;
        let mut read = |address: u64, count: usize| {
            let word = |index: usize| *memory.get(&(address + index as u64 * 8)).unwrap_or(&0);
            Some((0..count).map(word).collect())
        };
        let event = Event { cpu, pc, what };
        self.recorder.event(&event, &mut read).unwrap();
    }

    pub fn store(&mut self, cpu: u16, address: u64, word: u64) {
        self.memory.insert(address, word);
        if self.recorder.watches(address) {
            self.event(cpu, What::Store { address, word });
        }
    }

    /// Returns the word that a name stands for, of the page with this number.
    fn word(&self, name: &str, number: u64) -> u64 {
        let page =
            |base: u64| (base + number * self.regime.granule.bytes()) | 0x0060_0000_0000_0c43;
        match name {
            "inv" => 0,
            "a" => page(0x8000_0000),
            // The page of number 3, wherever that is mapped.
            "a3" => (0x8000_0000 + 3 * self.regime.granule.bytes()) | 0x0060_0000_0000_0c43,
            "b" => page(0x9000_0000),
            "ro" => page(0x8000_0000) | 1 << 7,
            "rob" => page(0x9000_0000) | 1 << 7,
            "cont" => page(0x8000_0000) | 1 << 52,
            "contro" => page(0x8000_0000) | 1 << 52 | 1 << 7,
            "contb" => page(0x9000_0000) | 1 << 52,
            "dev" => page(0x8000_0000) | 2 << 2,
            "tagged" => page(0x8000_0000) | 1 << 2,
            "aged" => page(0x8000_0000) & !(1 << 10),
            "agedb" => page(0x9000_0000) & !(1 << 10),
            "glob" => page(0x8000_0000) & !(1 << 11),
            "globb" => page(0x9000_0000) & !(1 << 11),
            "sw" => page(0x8000_0000) | 1 << 55,
            "swap" => 0x1234_5678_9ab0,
            "table" => self.pages | 3,
            "other" => OTHER_TABLE | 3,
            "block" => 0x2_0000_0000_0000 >> 12 | 0x0060_0000_0000_0c41,
            _ => panic!("no word {name}"),
        }
    }

    /// The word is in memory before the guest runs.
    pub fn has(&mut self, index: u64, name: &str) {
        let word = self.word(name, index);
        self.store(0, self.pages + index * 8, word);
    }

    /// A page in the table that is not linked.
    pub fn other_has(&mut self, index: u64, name: &str) {
        let word = self.word(name, index);
        self.memory.insert(OTHER_TABLE + index * 8, word);
    }

    pub fn entries(&self) -> u64 {
        self.regime.contiguous_entries(Level::L3).unwrap() as u64
    }

    /// Lets all CPUs leave `p` and come back, so that they may have cached all earlier words.
    pub fn settled(&mut self, cpus: u16) {
        for cpu in 0..cpus {
            self.step(cpu, "run=idle");
            self.step(cpu, "run=p");
        }
    }

    pub fn steps(&mut self, text: &str) {
        for step in text.split_whitespace() {
            let (cpu, step) = step.split_once(':').expect("CPU:step");
            self.step(cpu.parse().unwrap(), step);
        }
    }

    fn step(&mut self, cpu: u16, step: &str) {
        if let Some(barrier) = barrier(step) {
            self.event(cpu, What::Barrier(barrier));
        } else if let Some((place, word)) = step.split_once('=').filter(|_| !step.contains("e1")) {
            match place {
                "run" => self.run(cpu, word),
                "pid" => {
                    let (register, value) = (Register::Contextidr, word.parse().unwrap());
                    self.event(cpu, What::Register { register, value });
                }
                "folio" => {
                    let mut parts = word.split('/');
                    let first = parts.next().unwrap();
                    let folio = Folio {
                        first: u64::from_str_radix(first, 16).unwrap(),
                        order: parts.next().unwrap().parse().unwrap(),
                        kind: FolioKind::Anonymous,
                        index: parts.next().map_or(0, |index| index.parse().unwrap()),
                    };
                    self.event(cpu, What::Folio(folio));
                }
                // EL0, or EL1 with its own stack.
                "to" => {
                    let value = if word == "el0" { 0x1000 } else { 0x1005 };
                    let register = Register::Spsr;
                    self.event(cpu, What::Register { register, value });
                }
                "t" => {
                    let word = self.word(word, 0);
                    self.store(cpu, self.link, word);
                }
                // All of the group.
                "g" => (0..self.entries()).for_each(|index| {
                    let word = self.word(word, index);
                    self.store(cpu, self.pages + index * 8, word);
                }),
                index => {
                    let index: u64 = index.parse().unwrap();
                    let word = self.word(word, index);
                    self.store(cpu, self.pages + index * 8, word);
                }
            }
        } else {
            self.tlbi(cpu, step);
        }
    }

    fn run(&mut self, cpu: u16, which: &str) {
        let (root, asid) = match which {
            "p" => (0, ASID),
            "p6" => (0, 6),
            "q" => (1, 9),
            "idle" => (2, 0),
            _ => panic!("no address space {which}"),
        };
        let value = ROOTS[root] | set(48, asid);
        let register = self.ttbr();
        self.event(cpu, What::Register { register, value });
    }

    fn tlbi(&mut self, cpu: u16, step: &str) {
        let mut parts = step.split('/');
        let head = parts.next().unwrap();
        let (name, va) = head.split_once(',').unwrap_or((head, ""));
        let (mut asid, mut ttl, mut tg) = (ASID, None, None);
        for part in parts {
            let (key, value) = part.split_once('=').unwrap();
            let value: u64 = value.parse().unwrap();
            match key {
                "asid" => asid = value,
                "ttl" => ttl = Some(value),
                "tg" => tg = Some(value),
                _ => panic!("no option {key}"),
            }
        }
        let (crm, stem) = match (name.strip_suffix("is"), name.strip_suffix("os")) {
            (Some(stem), _) => (3, stem),
            (_, Some(stem)) => (1, stem),
            _ => (7, name),
        };
        let op2 = |stem: &str| match stem {
            "vmalle1" => 0,
            "vae1" => 1,
            "aside1" => 2,
            "vaae1" => 3,
            "vale1" => 5,
            "vaale1" => 7,
            _ => panic!("no TLBI {name}"),
        };
        let granule = match self.regime.granule {
            Granule::K4 => 1,
            Granule::K16 => 2,
            Granule::K64 => 3,
        };
        let mut operand = set(48, asid);
        let opcode;
        if let Some(stem) = stem.strip_prefix('r') {
            let crm = match crm {
                3 => 2,
                1 => 5,
                _ => 6,
            };
            opcode = 0xd508_8000 | crm << 8 | op2(stem) << 5;
            let (first, pages) = va.split_once('+').unwrap();
            let unit = if self.regime.ds {
                16
            } else {
                self.regime.granule.shift()
            };
            let base = (self.va(first.parse().unwrap()) >> unit) & ((1 << 37) - 1);
            // Of scale 0: two pages, four, ...
            let num = pages.parse::<u64>().unwrap() / 2 - 1;
            operand |= base | set(39, num) | set(37, ttl.unwrap_or(0));
            operand |= set(46, tg.unwrap_or(granule));
        } else {
            opcode = 0xd508_8000 | crm << 8 | op2(stem) << 5;
            if !va.is_empty() {
                operand |= (self.va(va.parse().unwrap()) >> 12) & ((1 << 44) - 1);
            }
            if let Some(ttl) = ttl {
                operand |= set(46, tg.unwrap_or(granule)) | set(44, ttl);
            }
        }
        self.event(cpu, What::Tlbi { opcode, operand });
    }

    fn va(&self, index: u64) -> u64 {
        self.regime.first.0 + index * self.regime.granule.bytes()
    }

    /// Returns the judge's verdict on the trace: the rules in order, and the judge itself.
    pub fn verdict(self) -> (Vec<&'static str>, Judge) {
        self.verdict_following(None)
    }

    /// Returns the verdict of a judge that follows the page with this number.
    pub fn verdict_following(self, index: Option<u64>) -> (Vec<&'static str>, Judge) {
        let va = index.map(|index| self.va(index));
        let trace = self.recorder.finish().unwrap();
        let mut judge = Judge::new(Limits::default(), self.bbm);
        if let Some(va) = va {
            judge.follow(va);
        }
        let mut reader = Reader::new(&trace[..]).unwrap();
        while let Some(event) = reader.next().unwrap() {
            judge.event(&event);
        }
        let rules = judge.findings().kept().iter().map(|it| it.rule.id());
        (rules.collect(), judge)
    }
}

fn barrier(name: &str) -> Option<Barrier> {
    let dsb = |domain, types| Some(Barrier::Dsb { domain, types });
    match name {
        "isb" => Some(Barrier::Isb),
        "ish" => dsb(Domain::InnerShareable, Types::All),
        "ishst" => dsb(Domain::InnerShareable, Types::Stores),
        "ishld" => dsb(Domain::InnerShareable, Types::Loads),
        "nsh" => dsb(Domain::NonShareable, Types::All),
        "nshst" => dsb(Domain::NonShareable, Types::Stores),
        "osh" => dsb(Domain::OuterShareable, Types::All),
        "sy" => dsb(Domain::System, Types::All),
        _ => None,
    }
}
