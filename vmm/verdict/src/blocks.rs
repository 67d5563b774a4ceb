// SPDX-License-Identifier: GPL-2.0-only
//! Naturally aligned blocks of a group's size: what became of each, and why it is not folded.

use linux::absent::SwapTypes;
use linux::pte::{bits, Kind, Pte, SwapKind};
use linux::vma::Vma;
use schemars::JsonSchema;
use serde::Serialize;
use stage1::Level;

use crate::group::{field_names, Group};
use crate::orders::Newest;
use crate::{Hex, RuleId};
use linux::structures::Folios;

/// The state of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BlockState {
    /// A rule is broken here.
    Broken,
    /// All entries carry the Contiguous bit.
    Folded,
    /// Could carry the bit and does not: legal.
    Eligible,
    /// Fully present, and cannot carry the bit.
    NotEligible,
    /// Some pages are present and some are not.
    Partial,
    /// Nothing present; something is swapped out, moved, or marked.
    Away,
    /// Mapped by a block descriptor.
    Block,
    /// Mapped by a contiguous group of block descriptors.
    ContiguousBlock,
    /// Nothing there.
    Empty,
}

impl BlockState {
    /// In the order in which a map counts them.
    pub const COUNTED: [BlockState; 9] = [
        BlockState::Broken,
        BlockState::Folded,
        BlockState::ContiguousBlock,
        BlockState::Block,
        BlockState::Eligible,
        BlockState::NotEligible,
        BlockState::Partial,
        BlockState::Away,
        BlockState::Empty,
    ];

    /// Returns its name, as it stands behind a number.
    pub fn name(self) -> &'static str {
        match self {
            BlockState::Broken => "broken",
            BlockState::Folded => "folded",
            BlockState::ContiguousBlock => "in contiguous blocks",
            BlockState::Block => "in larger blocks",
            BlockState::Eligible => "could be folded",
            BlockState::NotEligible => "cannot be",
            BlockState::Partial => "in part",
            BlockState::Away => "away",
            BlockState::Empty => "empty",
        }
    }
}

/// The reason that a block is not folded.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "why")]
pub enum Reason {
    /// Pages are missing.
    Holes {
        /// How many are present.
        present: u32,
    },
    /// The block lies in more than one VMA, or reaches beyond one.
    CrossesVma,
    /// The zero page or a page frame without a folio.
    Special,
    /// PROT_NONE or a NUMA hint: present for Linux, not for the CPU.
    NotAccessible {
        /// True if the VMA allows access, so that it is a hint; absent if that is not known.
        #[serde(skip_serializing_if = "Option::is_none")]
        accessible: Option<bool>,
    },
    /// Output addresses are not consecutive.
    NotConsecutive,
    /// Output addresses are consecutive, but not aligned to the block.
    Misaligned,
    /// Fields differ.
    Differs {
        /// Their names in the notation of the Arm ARM, software bits by Linux's names.
        fields: String,
    },
    /// The kernel's record says that the folio is smaller than the block.
    SmallFolio {
        /// Its order.
        order: u8,
    },
    /// The folio of the block's first page ends within the block.
    FolioBoundary {
        /// The page of the block at which the next folio begins.
        page: u32,
        /// The order of the one before.
        order: u8,
    },
    /// The kernel is built without `CONFIG_ARM64_CONTPTE`.
    NoContpte,
    /// All match. Linux folds when it maps a whole aligned block at once, or when the last page of
    /// a block is mapped last; or, where folios are not known, the pages are of several that happen to be consecutive.
    FilledOtherwise,
}

/// Consecutive blocks that look the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct BlockRow {
    /// First address of the first block.
    pub va: Hex,
    /// First address behind the last.
    pub end: Hex,
    /// How many blocks.
    pub blocks: u64,
    /// The state of each.
    pub state: BlockState,
    /// The reason that it is not folded, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// One character per page of one block; see [`crate::map::LEGEND`].
    pub pages: String,
    /// The kinds of those entries of each block that are not valid and not empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<Absent>,
    /// The rules that are broken here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleId>,
}

/// Entries of a block that are not valid, of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Absent {
    /// Their name, as in a dump: `swap`, `hwpoison`, `migration (write)`, `poison marker`, `PROT_NONE`.
    pub what: String,
    /// How many pages of the block have such an entry.
    pub pages: u32,
}

impl BlockRow {
    /// Returns its state and the reason, for people.
    pub fn text(&self) -> String {
        let name = self.state.name();
        match self.why() {
            why if why.is_empty() => name.to_owned(),
            why => format!("{name}: {why}"),
        }
    }

    /// The broken rules; else the reason, and what is in entries that are not valid. Empty where there is neither.
    pub fn why(&self) -> String {
        if !self.rules.is_empty() {
            let rules: Vec<String> = self.rules.iter().map(ToString::to_string).collect();
            return rules.join(" ");
        }
        let mut all: Vec<String> = self.reason.iter().map(Reason::text).collect();
        all.extend(self.absent_text());
        all.join("; ")
    }

    /// Returns the kinds of entries that are not valid, for people.
    pub fn absent_text(&self) -> Option<String> {
        let each = self.absent.iter().map(|absent| match absent.pages {
            1 => format!("1 page: {}", absent.what),
            pages => format!("{pages} pages: {}", absent.what),
        });
        let each: Vec<String> = each.collect();
        (!each.is_empty()).then(|| each.join(", "))
    }
}

/// Returns whether a VMA allows any access (`vma_is_accessible()`, include/linux/mm.h).
pub fn accessible(vma: &Vma) -> bool {
    let allowed = vma.permissions;
    allowed.read || allowed.write || allowed.execute
}

/// Counts those of `words` that are neither valid nor empty, by name; each is of `pages` pages. Entries without access
/// are left out where `reason` is theirs.
pub(crate) fn absent(
    words: &[u64],
    (names, pages): (&SwapTypes, u32),
    accessible: bool,
    reason: Option<&Reason>,
) -> Vec<Absent> {
    let told = matches!(reason, Some(Reason::NotAccessible { .. }));
    let mut all: Vec<Absent> = Vec::new();
    for &word in words
        .iter()
        .filter(|&&word| word != 0 && !Pte(word).valid())
    {
        let pte = Pte(word);
        if told && pte.present_invalid() {
            continue;
        }
        let Some(what) = names.kind(pte, Some(accessible)) else {
            continue;
        };
        match all.iter_mut().find(|absent| absent.what == what) {
            Some(absent) => absent.pages += pages,
            None => all.push(Absent { what, pages }),
        }
    }
    all
}

impl Reason {
    /// For people, as the end of a sentence.
    pub fn text(&self) -> String {
        match self {
            Reason::Holes { present: 1 } => "only 1 page is present".into(),
            Reason::Holes { present } => format!("only {present} pages are present"),
            Reason::CrossesVma => "the block reaches beyond the VMA".into(),
            Reason::Special => "special entries (zero page or page frames without a folio)".into(),
            Reason::NotAccessible { accessible } => match accessible {
                Some(true) => "NUMA hint".into(),
                Some(false) => "PROT_NONE".into(),
                None => "PROT_NONE or NUMA hint".into(),
            },
            Reason::NotConsecutive => "output addresses are not consecutive".into(),
            Reason::Misaligned => "output addresses are not aligned to the block".into(),
            Reason::Differs { fields } => format!("{fields} differ"),
            Reason::SmallFolio { order } => format!("the order record says order {order}"),
            Reason::FolioBoundary { page, order } => {
                format!("a folio of order {order} ends before page {page}")
            }
            Reason::NoContpte => "the kernel has no CONTPTE".into(),
            Reason::FilledOtherwise => "all match; not mapped at once, nor last page last".into(),
        }
    }
}

/// One character for an entry of a level-3 group.
pub(crate) fn page_character(pte: Pte, leaf: bool) -> char {
    match pte.kind() {
        Kind::None => '.',
        // Bits [1:0] of 0b01: reserved at level 3.
        Kind::Valid if !leaf => '?',
        Kind::Valid if pte.valid_cont() => '=',
        Kind::Valid if pte.special() => 'z',
        Kind::Valid if pte.write() => '-',
        Kind::Valid => 'r',
        Kind::ProtNone | Kind::PresentInvalid => 'n',
        Kind::Swap(entry) => match entry.kind() {
            SwapKind::Swapped => 's',
            SwapKind::Marker | SwapKind::Special => 'm',
        },
    }
}

/// Facts known besides the entries.
pub(crate) struct Context<'a> {
    /// The whole group lies in one VMA.
    pub inside: bool,
    /// The VMA allows access.
    pub accessible: Option<bool>,
    pub orders: Option<&'a Newest<'a>>,
    pub contpte: Option<bool>,
    pub folios: Option<&'a dyn Folios>,
}

/// Classifies a level-3 group of which at least one word is not 0; `members` are the places that
/// belong to the VMA at hand.
pub(crate) fn classify(
    group: &Group<'_>,
    members: std::ops::Range<usize>,
    context: &Context<'_>,
) -> (BlockState, Option<Reason>) {
    debug_assert_eq!(group.level, Level::L3);
    let words = &group.words[members];
    fn among(words: &[u64], of: impl Fn(Pte) -> bool) -> usize {
        words.iter().filter(|&&word| of(Pte(word))).count()
    }
    let valid = among(words, Pte::valid);
    let contiguous = among(words, Pte::valid_cont);
    if valid == words.len() && contiguous == valid {
        // Also where the block goes on in the next VMA: it stays folded after a VMA split.
        return (BlockState::Folded, None);
    }
    if words.iter().all(|&word| word == 0) {
        return (BlockState::Empty, None);
    }
    // What no CPU may use is present all the same.
    let present = among(words, Pte::present);
    if present == 0 {
        return (BlockState::Away, None);
    }
    if present < words.len() {
        let present = present as u32;
        return (BlockState::Partial, Some(Reason::Holes { present }));
    }
    let no = |reason| (BlockState::NotEligible, Some(reason));
    if !context.inside {
        return no(Reason::CrossesVma);
    }
    if valid < words.len() {
        let accessible = context.accessible;
        return no(Reason::NotAccessible { accessible });
    }
    if among(words, Pte::special) > 0 {
        return no(Reason::Special);
    }
    if !group.consecutive() {
        return no(Reason::NotConsecutive);
    }
    if !group.aligned() {
        return no(Reason::Misaligned);
    }
    let differing = group.differing() & !bits::VALID;
    if differing != 0 {
        return no(Reason::Differs {
            fields: field_names(differing),
        });
    }
    if context.contpte == Some(false) {
        return no(Reason::NoContpte);
    }
    if let Some(folio) = context.folios.and_then(|folios| first_folio(group, folios)) {
        return match folio {
            Ok(()) => (BlockState::Eligible, Some(Reason::FilledOtherwise)),
            Err(boundary) => no(boundary),
        };
    }
    let record = context.orders.and_then(|orders| orders.at(group.va));
    if let Some(order) = record.and_then(|record| record.chosen) {
        if 1usize << order < group.words.len() {
            return no(Reason::SmallFolio { order });
        }
    }
    (BlockState::Eligible, Some(Reason::FilledOtherwise))
}

/// Checks that one folio covers a block whose entries are valid, consecutive and aligned; `None` if that is not known.
fn first_folio(group: &Group<'_>, folios: &dyn Folios) -> Option<Result<(), Reason>> {
    let pfn = group.output(group.words[0]) / group.step();
    let page = folios.page(pfn).ok()?;
    let end = page.head + page.pages();
    let members = group.words.len() as u64;
    let boundary = Reason::FolioBoundary {
        page: (end - pfn) as u32,
        order: page.order,
    };
    Some(
        (end - pfn < members)
            .then_some(boundary)
            .map_or(Ok(()), Err),
    )
}

/// Adds a row, or lengthens the last one where it goes on in the same way and gives it back.
pub(crate) fn push(rows: &mut Vec<BlockRow>, row: BlockRow) -> Option<BlockRow> {
    if let Some(last) = rows.last_mut() {
        let same = last.state == row.state && last.reason == row.reason && last.pages == row.pages;
        if same && last.end == row.va && last.rules == row.rules && last.absent == row.absent {
            last.end = row.end;
            last.blocks += row.blocks;
            return Some(row);
        }
    }
    rows.push(row);
    None
}

/// Sorts rows and fills what lies between them with empty blocks of `size` bytes; `start..end` is
/// the VMA.
pub(crate) fn complete(
    mut rows: Vec<BlockRow>,
    (start, end): (u64, u64),
    size: u64,
    pages: usize,
) -> Vec<BlockRow> {
    rows.sort_by_key(|row| row.va);
    let mut all = Vec::with_capacity(rows.len());
    let mut at = start / size * size;
    let fill = |all: &mut Vec<BlockRow>, from: u64, to: u64| {
        if from < to {
            push(
                all,
                BlockRow {
                    va: Hex(from),
                    end: Hex(to),
                    blocks: (to - from) / size,
                    state: BlockState::Empty,
                    reason: None,
                    pages: ".".repeat(pages),
                    absent: Vec::new(),
                    rules: Vec::new(),
                },
            );
        }
    };
    for row in rows {
        fill(&mut all, at, row.va.0);
        at = row.end.0;
        push(&mut all, row);
    }
    fill(&mut all, at, end.next_multiple_of(size));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(va: u64, end: u64, state: BlockState) -> BlockRow {
        BlockRow {
            va: Hex(va),
            end: Hex(end),
            blocks: (end - va) / 0x1_0000,
            state,
            reason: None,
            pages: String::new(),
            absent: Vec::new(),
            rules: Vec::new(),
        }
    }

    #[test]
    fn gaps_are_empty_and_equal_rows_are_one() {
        let mut rows = Vec::new();
        push(&mut rows, row(0x2_0000, 0x3_0000, BlockState::Folded));
        push(&mut rows, row(0x3_0000, 0x4_0000, BlockState::Folded));
        assert_eq!(rows.len(), 1);
        let all = complete(rows, (0x1_1000, 0x5_8000), 0x1_0000, 16);
        let seen: Vec<_> = all.iter().map(|r| (r.va.0, r.blocks, r.state)).collect();
        assert_eq!(
            seen,
            [
                (0x1_0000, 1, BlockState::Empty),
                (0x2_0000, 2, BlockState::Folded),
                (0x4_0000, 2, BlockState::Empty),
            ]
        );
    }
}
