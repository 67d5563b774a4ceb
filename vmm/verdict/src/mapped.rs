// SPDX-License-Identifier: GPL-2.0-only
//! One entry with the page that it maps, how many behind it are like it, and what entries map by the order of their
//! folios.

use std::collections::BTreeMap;

use linux::folio::{Kind, Page};
use linux::pte::Pte;
use linux::vma::{Backing, Vma};

use crate::group::Group;
use linux::structures::Folios;

/// One entry that maps memory, with its page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mapped<'g> {
    pub group: &'g Group<'g>,
    /// Its place in the group.
    pub at: usize,
    pub pte: Pte,
    /// Page frame number of its first page.
    pub pfn: u64,
    /// Pages that it maps.
    pub pages: u64,
    /// The first of them.
    pub page: &'g Page,
    /// The first page frame from it on that a CPU keeps for itself, free.
    pub kept: u64,
}

impl Mapped<'_> {
    pub fn va(&self) -> u64 {
        self.group.va_of(self.at)
    }

    /// Memory of a driver's, or the huge zero page: in no mapping, and mapped without being counted.
    pub fn uncounted(&self) -> bool {
        self.pages > 1 && self.page.kind == Kind::Unowned && !self.page.hugetlb
    }

    /// How many entries behind this one, before the `until`th, the rules say the same of, where they say nothing of
    /// this one: their words are equal but for the next addresses, their pages are alike, and no CPU keeps any. What a
    /// rule holds against each other goes up alike, address and page frame, number in the VMA and in the folio.
    pub fn alike(&self, until: usize, folios: &dyn Folios) -> usize {
        let run = self.group.run(self.at, until) as u64 - 1;
        let most = run.min(self.kept.saturating_sub(self.pfn + 1));
        folios.alike(self.page, most) as usize
    }
}

/// Returns whether entries of this VMA may map page frames as a driver likes, or the kernel's own.
pub(crate) fn of_frames(vma: &Vma) -> bool {
    vma.pfn_mapped() == Some(true) || vma.backing() == Backing::Special
}

/// Bytes that the entries of a group map, by their folios' order; most groups have one.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    one: Option<(u8, u64)>,
    more: Vec<(u8, u64)>,
}

impl Orders {
    pub fn add(&mut self, order: u8, bytes: u64) {
        match &mut self.one {
            Some((known, sum)) if *known == order => *sum += bytes,
            None => self.one = Some((order, bytes)),
            Some(_) => self.more.push((order, bytes)),
        }
    }

    pub fn add_to(&self, all: &mut BTreeMap<u8, u64>) {
        for (order, bytes) in self.one.iter().chain(&self.more) {
            *all.entry(*order).or_default() += bytes;
        }
    }
}
