// SPDX-License-Identifier: GPL-2.0-only
//! A made-up process: tables by `stage1::testing`, VMAs by the text of `/proc/PID/maps`.

use linux::order::{OrderRecord, OrderRecords, Path, Policy, Reason, ORDERS};
use linux::release::Release;
use linux::vma::{parse_maps, parse_smaps, Vma};
use stage1::testing::{Attributes, Layout, SparseMemory, TableBuilder};
use stage1::{Granule, Half, Regime};

use crate::{
    judge, judge_plainly, AddressSpace, Basis, Expectation, Expected, Hex, NotKnown, Process,
    ProcessInput, ProcessVerdict, RuleId, Severity, Structures,
};

/// Bit 7 of a descriptor and others, written down a second time from pgtable-prot.h.
pub const RDONLY: u64 = 1 << 7;
pub const AF: u64 = 1 << 10;
pub const WRITE: u64 = 1 << 51;
pub const CONT: u64 = 1 << 52;
pub const DIRTY: u64 = 1 << 55;
pub const SPECIAL: u64 = 1 << 56;
pub const UFFD_WP: u64 = 1 << 58;

/// `_PAGE_SHARED`, dirty: what a write fault on private anonymous memory leaves.
pub fn written() -> Attributes {
    Attributes::default()
}

/// `_PAGE_READONLY`: AP 0b11, no DBM, clean.
pub fn read_only() -> Attributes {
    Attributes {
        ap: 0b11,
        dbm: false,
        software: 0,
        ..Attributes::default()
    }
}

/// PAGE_NONE with a page frame: AF, SH, RDONLY, NG, PXN, UXN, bit 1 of the type; bit 0 clear.
pub fn prot_none(pa: u64) -> u64 {
    pa | 1 << 54 | 1 << 53 | 1 << 11 | 1 << 10 | 0b11 << 8 | RDONLY | 0b10
}

/// A basis that lacks nothing.
pub fn all_known() -> Basis {
    Basis {
        judged: vec![AddressSpace {
            pid: 42,
            name: "made-up".into(),
            root: Hex(0x8000_0000),
        }],
        ..Basis::default()
    }
}

/// A guest without a kernel says nothing of folios.
static MADE_UP: NotKnown = NotKnown::never("it is made up");

#[derive(Clone, Debug)]
pub struct Guest {
    pub tables: TableBuilder,
    pub vmas: Vec<Vma>,
    pub orders: Option<OrderRecords>,
    pub expectations: Vec<Expectation>,
    pub process: Process,
    pub release: Option<Release>,
    /// The kernel's structures of its pages; `None` if nothing is known.
    pub kernel: Option<super::folios::Kernel>,
    /// Pages of a block.
    pub members: u64,
    pub page: u64,
    pub block: u64,
}

/// Where tests map things: start of the VMA, a multiple of every block size.
pub const VA: u64 = 0x4000_0000;
pub const PA: u64 = 0x1_0000_0000;

impl Default for Guest {
    fn default() -> Self {
        Self::new()
    }
}

impl Guest {
    /// 4K pages, no hardware management, one private anonymous VMA of four blocks at [`VA`].
    pub fn new() -> Guest {
        Guest::of(Layout::new(Granule::K4, Half::Lower, 48))
    }

    pub fn of(layout: Layout) -> Guest {
        let page = layout.granule.bytes();
        let members = layout.group(3);
        let block = page * members;
        let end = VA + 4 * block;
        let vmas = parse_maps(&format!("{VA:x}-{end:x} rw-p 00000000 00:00 0 ")).unwrap();
        Guest {
            tables: TableBuilder::at(layout, 0x8000_0000),
            vmas,
            orders: None,
            expectations: Vec::new(),
            process: Process {
                pid: 42,
                name: "made-up".into(),
            },
            release: Release::parse("6.12.117"),
            kernel: None,
            members,
            page,
            block,
        }
    }

    /// One guest per granule, with and without hardware management, and with LPA2.
    pub fn all() -> Vec<Guest> {
        let plain = Granule::ALL.map(|granule| Layout::new(granule, Half::Lower, 48));
        let hardware = plain.map(Layout::hardware_dirty);
        let wide = plain.map(Layout::wide);
        [plain, hardware, wide]
            .into_iter()
            .flatten()
            .map(Guest::of)
            .collect()
    }

    pub fn maps(mut self, text: &str) -> Guest {
        self.vmas = parse_maps(text).unwrap();
        self
    }

    pub fn smaps(mut self, text: &str) -> Guest {
        self.vmas = parse_smaps(text).unwrap();
        self
    }

    /// A folded block, the `n`th of the VMA.
    pub fn fold(&mut self, n: u64, attributes: Attributes) {
        let at = n * self.block;
        self.tables.map_group(VA + at, PA + at, 3, attributes);
    }

    /// The same, not folded.
    pub fn spread(&mut self, n: u64, attributes: Attributes) {
        for at in 0..self.members {
            let at = n * self.block + at * self.page;
            self.tables.map_page(VA + at, PA + at, attributes, false);
        }
    }

    /// Changes page `at` of the VMA.
    pub fn change(&mut self, at: u64, change: impl FnOnce(u64) -> u64) {
        self.tables.change(VA + at * self.page, 3, change);
    }

    /// Writes these words at the start of a page frame, which holds zeroes otherwise.
    pub fn page_words(&mut self, pfn: u64, words: &[u64]) {
        let memory = self.tables.memory_mut();
        let base = pfn * self.page;
        if memory.word(base).is_none() {
            memory.add(base, vec![0; (self.page / 8) as usize]);
        }
        for (at, word) in words.iter().enumerate() {
            assert!(memory.poke(base + 8 * at as u64, *word));
        }
    }

    pub fn expect(&mut self, what: Expected, start: u64, end: u64) {
        self.expectations.push(Expectation { start, end, what });
    }

    /// Adds an order record for a fault at `address`.
    pub fn record(&mut self, address: u64, chosen: u8) {
        let records = &mut self.orders.get_or_insert_with(Default::default).records;
        let mut reasons = [Reason::NotConsidered; ORDERS];
        reasons[usize::from(chosen)] = Reason::Chosen;
        let seq = records.len() as u64 + 1;
        records.push(OrderRecord {
            seq,
            cpu: 0,
            time_ns: seq,
            address,
            vm_start: VA,
            vm_end: VA + 4 * self.block,
            mm: 1,
            tgid: self.process.pid,
            tid: self.process.pid,
            policy: Policy::Variable,
            preferred: Some(chosen),
            chosen: Some(chosen),
            hinted: false,
            userfaultfd: false,
            reasons,
            path: Path::Anonymous,
            pfn: None,
            allowed: None,
            overlap: None,
            adapted: None,
            free: None,
        });
    }

    pub fn regime(&self) -> Regime {
        Regime::new(&self.tables.registers(), Half::Lower).unwrap()
    }

    fn structures(&self) -> Result<Structures<'_>, &NotKnown> {
        let kernel = self.kernel.as_ref().ok_or(&MADE_UP)?;
        Ok(Structures {
            folios: kernel,
            numbering: (!kernel.changing).then_some(&kernel.numbering[..]),
            table_locked: kernel.table_locked,
            rss: kernel.rss,
            tables_bytes: kernel.tables_bytes,
            vm_pages: kernel.vm_pages,
            huge_zero: kernel.huge_zero,
            hugetlb: kernel.hugetlb,
            kept: &kernel.kept,
            swap: &kernel.swap,
        })
    }

    pub fn judge(&self) -> ProcessVerdict {
        self.judged(judge)
    }

    /// Entry by entry.
    pub fn judge_plainly(&self) -> ProcessVerdict {
        self.judged(judge_plainly)
    }

    pub fn judged(
        &self,
        judge: impl Fn(&SparseMemory, &ProcessInput<'_>) -> ProcessVerdict,
    ) -> ProcessVerdict {
        let regime = self.regime();
        judge(
            self.tables.memory(),
            &ProcessInput {
                process: &self.process,
                regime: &regime,
                vmas: &self.vmas,
                orders: self.orders.as_ref(),
                expectations: &self.expectations,
                release: self.release,
                contpte: Some(true),
                structures: self.structures(),
            },
        )
    }

    /// The rules of all error findings, once per finding.
    pub fn errors(&self) -> Vec<RuleId> {
        let verdict = self.judge();
        assert!(verdict.not_judged.is_empty(), "{:?}", verdict.not_judged);
        let errors = verdict.findings.iter();
        errors
            .filter(|finding| finding.severity == Severity::Error)
            .map(|finding| finding.rule)
            .collect()
    }

    /// No error, and why not if there is one.
    #[track_caller]
    pub fn assert_legal(&self) {
        let verdict = self.judge();
        let errors: Vec<_> = verdict
            .findings
            .iter()
            .filter(|finding| finding.severity == Severity::Error)
            .map(|finding| format!("{}: {}", finding.rule, finding.message))
            .collect();
        assert!(errors.is_empty(), "{errors:#?}");
        assert!(verdict.not_judged.is_empty(), "{:?}", verdict.not_judged);
    }
}

/// Six blocks: folded, and single pages of which some differ.
pub fn scene() -> Guest {
    let mut guest = Guest::new().maps("40000000-400c0000 rw-p 00000000 00:00 0 [anon:scene]");
    guest.record(VA, 4);
    guest.record(VA + 0x5_0000, 2);
    for block in [0, 1, 2, 4] {
        guest.fold(block, written());
    }
    guest.spread(3, written());
    guest.spread(5, read_only());
    guest.change(80, |word| word | 1 << 51);
    guest.change(83, |_| 0);
    guest.change(84, |_| 3 << 6 | 9 << 12);
    guest.change(68, |_| 0);
    guest
}
