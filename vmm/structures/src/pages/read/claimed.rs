// SPDX-License-Identifier: GPL-2.0-only
//! Folios that count mappings and that no entry maps: looked for among the pages of all memory.

use std::collections::BTreeSet;
use std::ops::Range;

use stage1::{lookup, Lookup, PhysMemory, PhysicalAddress, VirtualAddress};

use super::{count, Pages, ORDER};
use crate::pages::Frames;

/// No block of the buddy allocator is larger (`MAX_PAGE_ORDER`, 64K granule).
const LARGEST_FREE: u64 = 13;

impl<M: PhysMemory + ?Sized> Pages<'_, M> {
    /// The first pages of folios of `span` none of whose pages is `mapped`, and that count mappings all the same; no more than
    /// `most`. They are read, so that a copy holds them; what is looked at for them is not.
    ///
    /// `None` where a `struct page` that is there cannot be read: what was not seen is not passed.
    #[must_use]
    pub fn claimed(&self, span: Range<u64>, mapped: &Frames, most: usize) -> Option<BTreeSet<u64>> {
        let mut found = BTreeSet::new();
        let bytes = self.view.upper.granule.bytes();
        let (size, array) = (self.layout.size, self.layout.start..self.layout.end);
        if size == 0 || size % 8 != 0 || bytes % size != 0 {
            return None;
        }
        let mut pfn = span.start;
        while pfn < span.end {
            // What is mapped is judged by its entries.
            pfn += mapped.run(pfn);
            let va = self.layout.address(pfn);
            let behind = (bytes - va % bytes) / size;
            let here = pfn..span.end.min(pfn + behind);
            pfn = here.end.max(pfn + 1);
            if here.is_empty() {
                break;
            }
            if !array.contains(&va) {
                return None;
            }
            let pa = match lookup(self.view.memory, self.view.upper, VirtualAddress(va)) {
                Lookup::Mapped { pa, .. } => pa,
                // A hole in memory has no pages of the array.
                Lookup::NotMapped { .. } => continue,
                _ => return None,
            };
            let words = ((here.end - here.start) * size / 8) as usize;
            let words = self.view.memory.passing(PhysicalAddress(pa.0), words)?;
            let next = self.claimed_here(here, words, mapped, &mut |head| {
                found.insert(head);
            });
            pfn = pfn.max(next);
            if found.len() >= most {
                break;
            }
        }
        Some(found)
    }

    /// The same of pages whose `words` follow each other; gives the page frame behind the last free block of them.
    fn claimed_here(
        &self,
        here: Range<u64>,
        words: &[u64],
        mapped: &Frames,
        tell: &mut dyn FnMut(u64),
    ) -> u64 {
        let (layout, at) = (self.layout, &self.at);
        let each = (layout.size / 8) as usize;
        let mut next = here.start;
        for (pfn, own) in here.clone().zip(words.chunks_exact(each)) {
            if pfn < next {
                continue;
            }
            let word = at.mapcount.of(own);
            // Where there is a type the word is below 0.
            let by_itself = word as u32 as i32 >= 0;
            let kind = self.kind_of(word);
            if kind == Some(layout.types.buddy) {
                let order = layout
                    .private
                    .map(|it| super::Place::new(it, layout.size).of(own));
                let order = order.filter(|order| *order <= LARGEST_FREE && pfn % (1 << order) == 0);
                next = pfn + order.map_or(1, |order| 1 << order);
                continue;
            }
            let is_head = at.flags.of(own) & layout.bits.head != 0;
            let second = || {
                // A folio of several pages begins at an even one, so they are in one page of the array.
                let from = ((pfn + 1 - here.start) as usize) * each;
                words.get(from..from + each)
            };
            let by_folio = is_head
                && (kind.is_none() || kind == Some(layout.types.hugetlb))
                && second().is_some_and(|second| {
                    let counted =
                        |place: super::Place| place.page == 1 && count(place.of(second)) > 0;
                    at.flags_1.of(second) & ORDER != 0
                        && (counted(at.large_mapcount) || counted(at.entire_mapcount))
                });
            // What was never set up (`CONFIG_DEFERRED_STRUCT_PAGE_INIT`) is all 0.
            if !(by_itself || by_folio) || mapped.any(pfn, 1) || own.iter().all(|word| *word == 0) {
                continue;
            }
            let page = self.page(pfn);
            let alone = page
                .ok()
                .filter(|page| !mapped.any(page.head, page.pages()));
            alone.into_iter().for_each(|page| tell(page.head));
        }
        next
    }
}
