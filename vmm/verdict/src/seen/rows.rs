// SPDX-License-Identifier: GPL-2.0-only
//! A group's part of a VMA as rows of blocks.

use std::ops::Range;

use linux::absent::SwapTypes;
use linux::pte::Pte;

use super::Seen;
use crate::blocks::{self, BlockRow, BlockState, Context, Reason};
use crate::group::Group;
use crate::Hex;

/// The meaning of swap types if nothing is known of the kernel.
static OPEN: SwapTypes = SwapTypes::OPEN;

impl Seen<'_> {
    pub(super) fn pages(
        &mut self,
        group: &Group<'_>,
        members: Range<usize>,
        index: usize,
        inside: bool,
    ) {
        let vma = &self.input.vmas[index];
        let accessible = blocks::accessible(vma);
        let context = Context {
            inside,
            accessible: Some(accessible),
            orders: Some(self.newest),
            contpte: self.input.contpte,
            folios: self.input.structures.ok().map(|it| it.folios),
        };
        let (state, reason) = blocks::classify(group, members.clone(), &context);
        let words = &group.words[members.clone()];
        let mut row = BlockRow {
            va: Hex(group.va),
            end: Hex(group.end()),
            blocks: 1,
            state,
            absent: blocks::absent(words, (self.names(), 1), accessible, reason.as_ref()),
            reason,
            pages: std::mem::take(&mut self.pages),
            rules: Vec::new(),
        };
        row.pages.clear();
        let mut at = 0;
        while at < group.words.len() {
            let word = group.words[at];
            let (character, count) = match members.contains(&at) {
                true => {
                    let character = blocks::page_character(Pte(word), group.is_leaf(word));
                    (character, group.alike(at, members.end))
                }
                false => (' ', 1),
            };
            row.pages.extend(std::iter::repeat_n(character, count));
            at += count;
        }
        if let Some(row) = blocks::push(&mut self.vmas[index].rows, row) {
            self.pages = row.pages;
        }
    }

    /// The names of entries that are not present.
    fn names(&self) -> &'_ SwapTypes {
        self.input.structures.map_or(&OPEN, |it| it.swap)
    }

    /// Blocks, and entries above level 3 that are not present.
    pub(super) fn upper(&mut self, group: &Group<'_>, members: Range<usize>, index: usize) {
        let vma = &self.input.vmas[index];
        let end = vma.end.next_multiple_of(self.block);
        for at in members {
            let (pte, leaf) = (Pte(group.words[at]), group.is_leaf(group.words[at]));
            if pte.none() || group.is_table(pte.0) {
                continue;
            }
            let va = group.va_of(at).max(vma.start / self.block * self.block);
            let end = (group.va_of(at) + group.step()).min(end);
            let (state, reason, page) = match (leaf, pte.valid_cont()) {
                (true, true) => (BlockState::ContiguousBlock, None, '='),
                (true, false) => (BlockState::Block, None, '#'),
                (false, _) if pte.present_invalid() => {
                    let accessible = Some(blocks::accessible(vma));
                    let reason = Reason::NotAccessible { accessible };
                    (BlockState::NotEligible, Some(reason), 'n')
                }
                (false, _) => (BlockState::Away, None, blocks::page_character(pte, leaf)),
            };
            let row = BlockRow {
                va: Hex(va),
                end: Hex(end),
                blocks: (end - va) / self.block,
                state,
                absent: blocks::absent(
                    &group.words[at..=at],
                    (self.names(), self.members as u32),
                    blocks::accessible(vma),
                    reason.as_ref(),
                ),
                reason,
                pages: page.to_string().repeat(self.members),
                rules: Vec::new(),
            };
            blocks::push(&mut self.vmas[index].rows, row);
        }
    }
}
