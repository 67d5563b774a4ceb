// SPDX-License-Identifier: GPL-2.0-only
//! Lists on which the kernel has pages: of free blocks, of folios that wait to be split. They are followed no further than
//! they can be long, and what leads nowhere is said.

use std::ops::Range;

use linux::folio::{NoPage, Split};
use stage1::PhysMemory;

use super::super::Field;
use super::{signed, Pages, Place};

/// The pages of one zone, of which free ones are on its lists.
pub(crate) struct Free<'f, 'p, M: ?Sized> {
    pub pages: &'f Pages<'p, M>,
    /// The zone's page frame numbers.
    pub span: Range<u64>,
}

impl<M: PhysMemory + ?Sized> Free<'_, '_, M> {
    /// Follows the list of free blocks with this head and this first node: how many it has.
    ///
    /// # Errors
    /// The first that is no free block of this order, or where the list cannot be followed.
    pub fn blocks(&self, ends: (u64, u64), order: u8) -> Result<u64, String> {
        let layout = self.pages.layout;
        let mut count = 0;
        self.follow(ends, order, |pfn, words| {
            count += 1;
            let kind = self.pages.kind_of(field(words, layout.mapcount));
            if kind != Some(layout.types.buddy) {
                return Err(format!(
                    "page frame 0x{pfn:x} is on it and is no free block"
                ));
            }
            let own = layout.private.map(|private| field(words, private));
            match own.filter(|own| *own != u64::from(order)) {
                Some(own) => Err(format!("page frame 0x{pfn:x} is on it and has order {own}")),
                None => Ok(()),
            }
        })?;
        Ok(count)
    }

    /// The same of a list of a CPU's, whose blocks go to `blocks`.
    ///
    /// # Errors
    /// As [`Free::blocks`].
    pub fn kept(
        &self,
        ends: (u64, u64),
        order: u8,
        blocks: &mut Vec<(u64, u8)>,
    ) -> Result<(), String> {
        let layout = self.pages.layout;
        self.follow(ends, order, |pfn, words| {
            blocks.push((pfn, order));
            let references = signed(field(words, layout.refcount));
            let kind = self.pages.kind_of(field(words, layout.mapcount));
            match (kind == Some(layout.types.buddy), references) {
                (true, _) => Err(format!(
                    "page frame 0x{pfn:x} is on it and in the buddy allocator as well"
                )),
                (_, 0) => Ok(()),
                (_, some) => Err(format!(
                    "page frame 0x{pfn:x} is on it and has {some} references"
                )),
            }
        })
    }

    fn follow(
        &self,
        ends: (u64, u64),
        order: u8,
        mut see: impl FnMut(u64, &[u64]) -> Result<(), String>,
    ) -> Result<(), String> {
        let list = self.pages.layout.list.ok_or("pages have no lists")?;
        let most = (self.span.end - self.span.start) >> order;
        self.pages.follow(list, ends, most, |pfn, words| {
            if !self.span.contains(&pfn) || pfn % (1 << order) != 0 {
                return Err(format!(
                    "page frame 0x{pfn:x} is on it, which is no block of order {order} of the zone"
                ));
            }
            see(pfn, words)
        })
    }
}

impl<M: PhysMemory + ?Sized> Pages<'_, M> {
    /// Returns whether a large anonymous folio is mapped in part, and whether it is on a list of those that wait to be split.
    pub(super) fn split(
        &self,
        head: u64,
        order: u8,
        anonymous: bool,
    ) -> Result<Option<Split>, NoPage> {
        let layout = self.layout;
        let known = layout.deferred.zip(layout.bits.partially_mapped);
        // A folio of two pages has no room for it.
        let Some((list, bit)) = known.filter(|_| anonymous && order > 1) else {
            return Ok(None);
        };
        let second = field(self.structure(head + 1)?, layout.flags);
        let next = Place::new(Field(list.0, 8), layout.size);
        let next = self.in_folio(head, &[], next)?;
        Ok(Some(Split {
            partially_mapped: second & bit != 0,
            queued: next != layout.address(head).wrapping_add(list.0),
        }))
    }

    /// Follows the list of folios that wait to be split which has this head and this first node; the page frame numbers
    /// of their first pages go to `folios`. Reads them too, so that a copy holds them.
    ///
    /// # Errors
    /// Where the list cannot be followed.
    pub(crate) fn follow_deferred(
        &self,
        ends: (u64, u64),
        most: u64,
        folios: &mut Vec<u64>,
    ) -> Result<(), String> {
        let list = self.layout.deferred.ok_or("folios have no such list")?;
        self.follow(list, ends, most, |pfn, _| {
            let _ = self.page(pfn);
            folios.push(pfn);
            Ok(())
        })
    }

    /// Follows a list whose nodes are this member of a folio's first pages.
    fn follow(
        &self,
        list: Field,
        (head, first): (u64, u64),
        most: u64,
        mut see: impl FnMut(u64, &[u64]) -> Result<(), String>,
    ) -> Result<(), String> {
        let size = self.layout.size;
        let (mut before, mut at, mut count) = (head, first, 0);
        while at != head {
            if count == most {
                return Err(format!(
                    "it does not come back to its head after {count} nodes"
                ));
            }
            count += 1;
            let first = self.layout.pfn_of(at.wrapping_sub(list.0));
            let pfn = first.ok_or_else(|| format!("it leads to 0x{at:016x}, which is no page"))?;
            let words = self.structure(pfn).map_err(|why| why.why().to_owned())?;
            // The node is in whichever of the folio's first pages the member is.
            let inner = match list.0 / size {
                0 => words,
                page => self
                    .structure(pfn + page)
                    .map_err(|why| why.why().to_owned())?,
            };
            let link = |offset| field(inner, Field(list.0 % size + offset, 8));
            if link(8) != before {
                return Err(format!(
                    "page frame 0x{pfn:x} is on it, and names another node as the one before it"
                ));
            }
            see(pfn, words)?;
            (before, at) = (at, link(0));
        }
        Ok(())
    }
}

/// A member of up to 8 bytes, of these words of a `struct page`.
fn field(words: &[u64], member: Field) -> u64 {
    Place::new(member, u64::MAX).of(words)
}
