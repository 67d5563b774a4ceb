//! A group's part of a VMA as rows of blocks.

use std::ops::Range;

use linux::pte::Pte;

use super::Seen;
use crate::blocks::{self, BlockRow, BlockState, Context, Reason};
use crate::group::Group;
use crate::Hex;

impl Seen<'_> {
    pub(super) fn pages(
        &mut self,
        group: &Group<'_>,
        members: Range<usize>,
        index: usize,
        inside: bool,
    ) {
        let context = Context {
            inside,
            orders: Some(self.newest),
            contpte: self.input.contpte,
            folios: self.input.structures.ok().map(|it| it.folios),
        };
        let (state, reason) = blocks::classify(group, members.clone(), &context);
        let mut row = BlockRow {
            va: Hex(group.va),
            end: Hex(group.end()),
            blocks: 1,
            state,
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
                    (BlockState::NotEligible, Some(Reason::NotAccessible), 'n')
                }
                (false, _) => (BlockState::Away, None, blocks::page_character(pte, leaf)),
            };
            let row = BlockRow {
                va: Hex(va),
                end: Hex(end),
                blocks: (end - va) / self.block,
                state,
                reason,
                pages: page.to_string().repeat(self.members),
                rules: Vec::new(),
            };
            blocks::push(&mut self.vmas[index].rows, row);
        }
    }
}
