// SPDX-License-Identifier: GPL-2.0-only
//! A process's page tables, counted as the kernel does.

use linux::folio::{Kind, Page};
use linux::vma::{Backing, Vma};
use stage1::{Level, Regime, Table};

use crate::mapped::of_frames;

/// A process's tables, as the kernel counts them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tables {
    /// Those that were walked, of levels 1 to 3 and without the first one.
    pub walked: u64,
    /// Those that lie ready for when a block of anonymous memory is split.
    pub ready: u64,
    /// The VA that the first one of level 3 maps in whose range no VMA is.
    pub unused: Option<u64>,
    /// Blocks of which it is not known whether one lies ready, and tables that could not be read.
    pub unsure: u64,
}

impl Tables {
    /// One that was walked, of a process with these VMAs by address.
    pub fn table(&mut self, table: &Table<'_>, regime: &Regime, vmas: &[Vma]) {
        let counted = table.level >= Level::L1 && table.address != regime.root;
        self.walked += u64::from(counted);
        let (start, end) = (table.va.0, table.va_of(table.words.len(), regime).0);
        let next = vmas.get(vmas.partition_point(|vma| vma.end <= start));
        if table.level == Level::L3 && next.is_none_or(|vma| end <= vma.start) {
            self.unused.get_or_insert(start);
        }
    }

    /// `pgtable_trans_huge_deposit()`, which on arm64 only anonymous memory has (`arch_needs_pgtable_deposit()`); `page` is
    /// that of a block in `vma`, where the block is not special.
    pub fn block(&mut self, vma: &Vma, page: Option<&Page>) {
        let hugetlb = vma.hugetlb() == Some(true) || page.is_some_and(|page| page.hugetlb);
        if hugetlb || of_frames(vma) {
            return;
        }
        match page
            .map(|page| page.kind)
            .filter(|kind| *kind != Kind::Unowned)
        {
            Some(kind) => self.ready += u64::from(kind.anonymous()),
            // The huge zero page, where no file (DAX) can have put it.
            None if vma.backing() == Backing::Anonymous => self.ready += 1,
            None => self.unsure += 1,
        }
    }
}
