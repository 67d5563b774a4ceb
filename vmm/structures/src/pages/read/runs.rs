// SPDX-License-Identifier: GPL-2.0-only
//! How many pages behind one are like it.

use linux::folio::Page;
use stage1::PhysMemory;

use super::alike::WORDS;
use super::Pages;

impl<M: PhysMemory + ?Sized> Pages<'_, M> {
    /// How many of the `most` pages behind `page`, which [`Pages::page`] has given, it would say to be
    /// [`Page::nth_behind`] it, but for `flags` and `folio_flags`. It may be more than are told.
    pub fn alike(&self, page: &Page, most: u64) -> u64 {
        // Where slots are is not compared, and what is like this one is in no slot either.
        if page.slot.is_some() {
            return 0;
        }
        let (Some(alike), Ok(own)) = (&self.alike, self.structure(page.pfn)) else {
            return 0;
        };
        let Ok(mut expected) = <[u64; WORDS]>::try_from(own) else {
            return 0;
        };
        let (masks, step, most) = if page.order == 0 {
            expected[alike.link] = 0;
            (&alike.single, 1, most)
        } else {
            expected[alike.link] = self.layout.address(page.head) | 1;
            let behind = page.head + page.pages() - page.pfn - 1;
            (&alike.tail, 0, most.min(behind))
        };
        let mut count = 0;
        while count < most {
            let Ok(words) = self.structures(page.pfn + count + 1, most - count) else {
                return count;
            };
            for words in words.chunks_exact(WORDS) {
                expected[alike.index] = expected[alike.index].wrapping_add(step);
                let all = words.iter().zip(&expected).zip(masks);
                let differing = all.fold(0, |so_far, ((word, expected), mask)| {
                    so_far | (word ^ expected) & mask
                });
                if differing != 0 {
                    return count;
                }
                count += 1;
            }
        }
        count
    }
}
