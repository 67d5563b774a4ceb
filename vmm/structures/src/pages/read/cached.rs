// SPDX-License-Identifier: GPL-2.0-only
//! The first page of a folio that a file's page cache leads to, looked at in passing.

use linux::folio::Kind;
use stage1::PhysMemory;

use super::{signed, Pages, LARGEST, MAPPING_FLAGS, ORDER};

/// The page of the array that was looked at last: the page frame number of its first `struct page`, and its words.
#[derive(Debug, Default)]
pub(crate) struct Passed<'p>(Option<(u64, &'p [u64])>);

/// Fields of a folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cached {
    /// The page frame number of its first page.
    pub pfn: u64,
    /// The page is not the first of its folio.
    pub is_tail: bool,
    pub order: u8,
    /// The address of the file's `struct address_space`, with the low bits that say otherwise.
    pub mapping: u64,
    pub index: u64,
    pub refcount: i64,
    pub is_locked: bool,
    /// A type that no page of a file has.
    pub kind_of_page: Option<u64>,
}

impl<'p, M: PhysMemory + ?Sized> Pages<'p, M> {
    /// The folio whose first `struct page` is said to be at `va`.
    pub(crate) fn cached(&self, va: u64, passed: &mut Passed<'p>) -> Result<Cached, String> {
        let pfn = self.layout.pfn_of(va);
        self.cached_at(
            pfn.ok_or_else(|| format!("0x{va:x}, which is no page's"))?,
            passed,
        )
    }

    /// The folio that begins at this page frame.
    pub(crate) fn cached_at(&self, pfn: u64, passed: &mut Passed<'p>) -> Result<Cached, String> {
        let (layout, at) = (self.layout, &self.at);
        let va = layout.address(pfn);
        let bytes = self.view.upper.granule.bytes();
        if !self.in_pages() {
            return Err(format!(
                "0x{va:x}, and a struct page has {} bytes",
                layout.size
            ));
        }
        let each = (layout.size / 8) as usize;
        // All that are in one page of the array.
        let first = pfn.saturating_sub(va % bytes / layout.size);
        let known = passed.0.filter(|(known, _)| *known == first);
        let words = match known {
            Some((_, words)) => words,
            None => {
                let words = self.passed(first, bytes / layout.size)?;
                let words = words.ok_or_else(|| format!("0x{va:x}, where there is no page"))?;
                passed.0 = Some((first, words));
                words
            }
        };
        let words = words.get((pfn - first) as usize * each..);
        let words = words.ok_or_else(|| format!("0x{va:x}, where there is no page"))?;
        let flags = at.flags.of(words);
        let kind = self.kind_of(at.mapcount.of(words));
        let order = match flags & layout.bits.head {
            0 => 0,
            _ => words.get(each..).map_or(0, |second| at.flags_1.of(second)) & ORDER,
        };
        let mapping = at.mapping.of(words);
        Ok(Cached {
            pfn,
            is_tail: at.compound_head.of(words) & 1 == 1,
            order: order.min(LARGEST) as u8,
            mapping: match Kind::of(mapping) {
                Kind::File => mapping & !MAPPING_FLAGS,
                _ => mapping,
            },
            index: at.index.of(words),
            refcount: signed(at.refcount.of(words)),
            is_locked: layout.bits.locked.is_none_or(|bit| flags & bit != 0),
            kind_of_page: kind.filter(|kind| *kind != layout.types.hugetlb),
        })
    }
}
