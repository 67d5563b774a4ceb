// SPDX-License-Identifier: GPL-2.0-only
//! L17, page by page: pagemap, PAGEMAP_SCAN, kpageflags and kpagecount.

use linux::folio::{Kind as Memory, Page, Type};
use linux::getters::{category, kpf, pagemap};
use linux::pte::{Kind, Pte, SwapKind};
use linux::release::Release;
use linux::vma::{Backing, Vma};
use stage1::Level;

/// The first release that may count large folios as a whole alone (`CONFIG_NO_PAGE_MAPCOUNT`).
const BY_FOLIO: Release = Release::new(6, 15, 0);

/// The first release that is known to have KPF_KSM for KSM's pages alone: 6.12 and 6.18 have it for all that are
/// anonymous.
const KSM_TOLD_APART: Release = Release::new(7, 2, 0);

/// The getters' values for one page.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Said {
    pub entry: u64,
    pub flags: u64,
    pub count: u64,
    /// None where the kernel has no PAGEMAP_SCAN.
    pub scan: Option<u64>,
}

/// One page of an entry, from outside.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub pte: Pte,
    pub level: Level,
    pub vma: &'a Vma,
    /// The page frame, where the entry is present.
    pub pfn: u64,
    /// Its page, where that counts as one and is known.
    pub page: Option<&'a Page>,
    /// Bits of kpageflags that are copied of its folio's flags: which, and those that are set.
    pub copied: Option<(u64, u64)>,
    /// True if the process that has asked maps it as well, and is counted with the others.
    pub readers: bool,
    pub release: Option<Release>,
}

impl Place<'_> {
    pub fn hugetlb(&self) -> bool {
        self.vma.hugetlb() == Some(true)
    }

    /// The huge zero page, or memory of a driver's: kernels differ in what they say of it.
    pub fn unowned_block(&self) -> bool {
        let unowned = self.page.is_none_or(|page| page.kind == Memory::Unowned);
        self.level != Level::L3 && unowned && !self.hugetlb()
    }

    /// How often this very page is mapped, where that is counted (`folio_precise_page_mapcount()`).
    pub fn mapcount(&self) -> Option<i64> {
        let page = self.page.filter(|_| !self.readers)?;
        if page.hugetlb {
            let by_page = self.release.is_some_and(|release| release < BY_FOLIO);
            return by_page.then_some(page.entire);
        }
        // From 6.15 on each getter asks another page of a block, and some the folio; where pages count, it is what an
        // entry of level 3 maps that they all ask.
        let by_page = self.level == Level::L3
            || page.order == 0
            || self.release.is_none_or(|release| release < BY_FOLIO);
        let single = page.mapcount.filter(|_| by_page)?;
        Some(single + page.entire)
    }
}

/// The bits of a word that are compared, and their expected values.
#[derive(Clone, Copy, Debug, Default)]
struct Bits {
    asked: u64,
    set: u64,
}

impl Bits {
    fn expect(&mut self, bits: u64, set: bool) {
        self.asked |= bits;
        self.set |= if set { bits } else { 0 };
    }

    fn expect_all(&mut self, mask: u64, value: u64) {
        self.asked |= mask;
        self.set |= value & mask;
    }

    /// The names of what is said otherwise: each with what it says.
    fn wrong(&self, said: u64, names: &[(u64, &str)]) -> Vec<String> {
        let differ = (said ^ self.set) & self.asked;
        let named = names.iter().filter(|(bit, _)| differ & bit != 0);
        let mut wrong: Vec<String> = named
            .map(|(bit, name)| match said & bit {
                0 => format!("not {name}"),
                _ => (*name).to_owned(),
            })
            .collect();
        let named = names.iter().fold(0, |all, (bit, _)| all | bit);
        let other = differ & !named;
        if other != 0 {
            wrong.push(format!("0x{:x} in bits 0x{other:x}", said & other));
        }
        wrong
    }
}

const PAGEMAP: [(u64, &str); 5] = [
    (pagemap::PRESENT, "PRESENT"),
    (pagemap::SWAP, "SWAP"),
    (pagemap::FILE, "FILE"),
    (pagemap::UFFD_WP, "UFFD_WP"),
    (pagemap::EXCLUSIVE, "EXCLUSIVE"),
];
const SCAN: [(u64, &str); 5] = [
    (category::PRESENT, "PRESENT"),
    (category::SWAPPED, "SWAPPED"),
    (category::FILE, "FILE"),
    (category::ZERO, "PFNZERO"),
    (category::HUGE, "HUGE"),
];
const FLAGS: [(u64, &str); 26] = [
    (1 << 0, "LOCKED"),
    (kpf::REFERENCED, "REFERENCED"),
    (1 << 3, "UPTODATE"),
    (1 << 4, "DIRTY"),
    (kpf::LRU, "LRU"),
    (kpf::ACTIVE, "ACTIVE"),
    (kpf::SLAB, "SLAB"),
    (1 << 8, "WRITEBACK"),
    (1 << 9, "RECLAIM"),
    (kpf::BUDDY, "BUDDY"),
    (kpf::MMAP, "MMAP"),
    (kpf::ANON, "ANON"),
    (kpf::SWAPCACHE, "SWAPCACHE"),
    (1 << 14, "SWAPBACKED"),
    (kpf::COMPOUND_HEAD, "COMPOUND_HEAD"),
    (kpf::COMPOUND_TAIL, "COMPOUND_TAIL"),
    (kpf::HUGE, "HUGE"),
    (1 << 18, "UNEVICTABLE"),
    (kpf::HWPOISON, "HWPOISON"),
    (kpf::NOPAGE, "NOPAGE"),
    (kpf::KSM, "KSM"),
    (kpf::THP, "THP"),
    (kpf::ZERO_PAGE, "ZERO_PAGE"),
    (kpf::PGTABLE, "PGTABLE"),
    (1 << 32, "RESERVED"),
    (1 << 33, "MLOCKED"),
];

/// Returns the values of a page that are wrong, with both sides.
pub(super) fn said_of(place: &Place<'_>, said: Said) -> Option<String> {
    let mut wrong = Vec::new();
    let mut tell = |getter: &str, said: u64, expected: Bits, names: &[(u64, &str)]| {
        let differ = expected.wrong(said, names);
        if !differ.is_empty() {
            wrong.push(format!(
                "{getter} says 0x{said:x} ({}), and 0x{:x} is so of bits 0x{:x}",
                differ.join(", "),
                expected.set,
                expected.asked
            ));
        }
    };
    let there = of_pagemap(place);
    tell("pagemap", said.entry, there, &PAGEMAP);
    if let Some(scan) = said.scan {
        tell("PAGEMAP_SCAN", scan, of_scan(place), &SCAN);
    }
    // What is said of another page is not about this one.
    let same = (said.entry ^ there.set) & (pagemap::FRAME | pagemap::PRESENT) == 0;
    if same && place.pte.present() {
        tell("kpageflags", said.flags, of_flags(place), &FLAGS);
        let count = place.mapcount().filter(|count| *count as u64 != said.count);
        if let Some(count) = count {
            wrong.push(format!("kpagecount says {}, and it is {count}", said.count));
        }
    }
    (!wrong.is_empty()).then(|| wrong.join("; "))
}

/// The counts of how often the pages of one block are mapped, where the kernel may not count them one by one.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pages: u64,
    first: u64,
    /// They are not all said to be mapped alike often: so they are counted one by one, and no average is told.
    differ: bool,
    /// The first page of which EXCLUSIVE and its count do not go together, and what is said of it.
    contradicted: Option<(u64, Said)>,
}

impl Counts {
    /// Adds the next page of the block.
    pub fn add(&mut self, place: &Place<'_>, said: Said) {
        let (at, block) = (self.pages, place.level != Level::L3 && !place.hugetlb());
        self.pages += 1;
        if !block || place.unowned_block() || place.mapcount().is_some() || place.readers {
            return;
        }
        if at == 0 {
            self.first = said.count;
        }
        self.differ |= said.count != self.first;
        let exclusive = said.entry & pagemap::EXCLUSIVE != 0;
        if exclusive != (said.count == 1) && self.contradicted.is_none() {
            self.contradicted = Some((at, said));
        }
    }

    /// The place of the first page that is wrong.
    pub fn wrong(&self) -> Option<u64> {
        let (at, _) = self.contradicted.filter(|_| self.differ)?;
        Some(at)
    }

    /// Returns the difference, if there is one.
    pub fn text(&self) -> Option<String> {
        let (_, said) = self.contradicted?;
        let not = if said.entry & pagemap::EXCLUSIVE == 0 {
            "not "
        } else {
            ""
        };
        Some(format!(
            "pagemap says 0x{:x} ({not}EXCLUSIVE), and kpagecount {}, of a page of a block whose pages are counted one by one",
            said.entry, said.count
        ))
    }
}

/// `pte_to_pagemap_entry()`, `pagemap_pmd_range()`, `pagemap_hugetlb_range()`.
fn of_pagemap(place: &Place<'_>) -> Bits {
    let mut bits = Bits::default();
    let present = place.pte.present();
    bits.expect(pagemap::PRESENT, present);
    if !present {
        let Kind::Swap(entry) = place.pte.kind() else {
            return bits;
        };
        // Of hugetlb pagemap tells only what is present.
        bits.expect(pagemap::SWAP, !place.hugetlb());
        if entry.kind() == SwapKind::Swapped && place.level == Level::L3 {
            let slot = entry.offset << pagemap::OFFSET_SHIFT | u64::from(entry.swap_type);
            bits.expect_all(pagemap::FRAME, slot);
            bits.expect(pagemap::UFFD_WP, entry.uffd_wp);
        }
        return bits;
    }
    bits.expect(pagemap::SWAP, false);
    bits.expect_all(pagemap::FRAME, place.pfn);
    bits.expect(pagemap::UFFD_WP, place.pte.uffd_wp());
    if place.pte.special() && place.level == Level::L3 {
        bits.expect(pagemap::FILE | pagemap::EXCLUSIVE, false);
    }
    if let Some(page) = place.page.filter(|_| !place.unowned_block()) {
        bits.expect(pagemap::FILE, !page.kind.anonymous());
        let count = place.mapcount().filter(|_| !page.hugetlb);
        if let Some(count) = count {
            bits.expect(pagemap::EXCLUSIVE, count == 1);
        }
    }
    bits
}

/// `pagemap_page_category()`, `pagemap_thp_category()`, `pagemap_hugetlb_category()`.
fn of_scan(place: &Place<'_>) -> Bits {
    let mut bits = Bits::default();
    let present = place.pte.present();
    bits.expect(category::PRESENT, present);
    bits.expect(category::SWAPPED, !present);
    bits.expect(category::HUGE, place.hugetlb() || place.level != Level::L3);
    if !present {
        return bits;
    }
    if let Some(page) = place.page.filter(|_| !place.unowned_block()) {
        bits.expect(category::FILE, !page.kind.anonymous());
        bits.expect(category::ZERO, false);
    }
    if place.pte.special() && place.level == Level::L3 && is_anonymous(place.vma) {
        bits.expect(category::FILE, false);
        bits.expect(category::ZERO, true);
    }
    bits
}

/// `stable_page_flags()`; for those of age, `zap_present_folio_ptes()` and `folio_activate()`.
fn of_flags(place: &Place<'_>) -> Bits {
    let mut bits = Bits::default();
    let Some(page) = place.page else {
        if place.pte.special() && is_anonymous(place.vma) {
            bits.expect(kpf::ZERO_PAGE, true);
        }
        return bits;
    };
    if let Some((asked, set)) = place.copied {
        // A process that maps a file's pages marks them as used when it ends, also the one that has just read these
        // flags.
        let used = match page.kind.anonymous() {
            true => 0,
            false => kpf::REFERENCED | kpf::LRU | kpf::ACTIVE,
        };
        bits.expect_all(asked & !used, set);
    }
    bits.expect(kpf::NOPAGE, false);
    bits.expect(kpf::ANON, page.kind.anonymous());
    let told_apart = place
        .release
        .is_some_and(|release| release >= KSM_TOLD_APART);
    if told_apart || page.kind != Memory::Anonymous {
        bits.expect(kpf::KSM, page.kind == Memory::Ksm);
    }
    bits.expect(kpf::HUGE, page.hugetlb);
    bits.expect(kpf::COMPOUND_HEAD, page.order > 0 && page.subpage() == 0);
    bits.expect(kpf::COMPOUND_TAIL, page.subpage() != 0);
    bits.expect(kpf::BUDDY, page.kind_of_page == Some(Type::Buddy));
    bits.expect(kpf::SLAB, page.kind_of_page == Some(Type::Slab));
    bits.expect(kpf::PGTABLE, page.kind_of_page == Some(Type::Table));
    if page.kind != Memory::Unowned {
        // A driver's folio of several pages need not be one of those that are mapped by reverse mapping.
        bits.expect(kpf::THP, page.order > 0 && !page.hugetlb);
        bits.expect(kpf::ZERO_PAGE, false);
        bits.expect(kpf::SWAPCACHE, page.swapcache);
    }
    if let Some(count) = page.folio_mapcount() {
        bits.expect(kpf::MMAP, count > 0);
    }
    if !page.hugetlb {
        bits.expect(kpf::HWPOISON, page.poisoned);
    }
    bits
}

/// Where an entry that is special can only be the zero page's.
fn is_anonymous(vma: &Vma) -> bool {
    vma.backing() == Backing::Anonymous
}
