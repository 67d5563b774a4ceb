// SPDX-License-Identifier: GPL-2.0-only
//! The free block that a page lies in.

use stage1::PhysMemory;

use super::{Pages, Place};

/// No block of the buddy allocator is larger (`MAX_PAGE_ORDER`, 64K granule).
const LARGEST_FREE: u8 = 13;

impl<M: PhysMemory + ?Sized> Pages<'_, M> {
    /// The free block of the buddy allocator that a page lies in: its first page frame, and its order
    /// (`is_free_buddy_page()`, mm/page_alloc.c). Only the block's first page has the type, and its order in `private`.
    #[must_use]
    pub fn free_block(&self, pfn: u64) -> Option<(u64, u8)> {
        let private = Place::new(self.layout.private?, self.layout.size);
        (0..=LARGEST_FREE).find_map(|order| {
            let first = pfn >> order << order;
            let words = self.structure(first).ok()?;
            let is_free = self.kind_of(self.at.mapcount.of(words)) == Some(self.layout.types.buddy);
            let found = private.of(words);
            let holds = u64::from(order) <= found && found <= u64::from(LARGEST_FREE);
            (is_free && holds).then_some((first, found as u8))
        })
    }
}
