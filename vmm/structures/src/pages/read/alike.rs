//! Pages that are alike, told by the words of their `struct page` and without reading each into a [`Page`].

use linux::folio::Page;
use stage1::PhysMemory;

use super::{Pages, Place, Places};
use crate::pages::Layout;

/// Words of a `struct page` that is compared whole; another size is not.
const WORDS: usize = 8;

/// In which bits two pages have to be equal, for [`Pages::page`] to say the same of both.
#[derive(Clone, Copy, Debug)]
pub(super) struct Alike {
    /// Of two folios of one page, of which the second has the next index.
    single: [u64; WORDS],
    /// Of two pages of one large folio, of which the second is no first one.
    tail: [u64; WORDS],
    /// The word of the index.
    index: usize,
    /// The word of the link to the first page.
    link: usize,
}

impl Alike {
    /// `None` where a `struct page` is not laid out as this expects it.
    pub fn new(layout: &Layout, at: &Places) -> Option<Alike> {
        let bits = layout.bits;
        let own = bits.anon_exclusive | bits.hwpoison.unwrap_or(0);
        let folio = bits.head | bits.swapbacked | bits.swapcache;
        let all = u64::MAX;
        let single = [
            (at.flags, own | folio),
            // Without it a page is no tail; what else is in the word is another member's.
            (at.compound_head, 1),
            (at.mapcount, all),
            (at.refcount, all),
            (at.mapping, all),
            (at.index, all),
        ];
        let tail = [(at.flags, own), (at.compound_head, all), (at.mapcount, all)];
        let is_whole = |place: Place| place.shift == 0 && place.mask == all;
        if layout.size as usize != 8 * WORDS || !is_whole(at.index) || !is_whole(at.compound_head) {
            return None;
        }
        Some(Alike {
            single: masks(&single)?,
            tail: masks(&tail)?,
            index: at.index.word,
            link: at.compound_head.word,
        })
    }
}

fn masks(members: &[(Place, u64)]) -> Option<[u64; WORDS]> {
    let mut masks = [0; WORDS];
    for (place, bits) in members {
        if place.page != 0 {
            return None;
        }
        *masks.get_mut(place.word)? |= (place.mask & bits) << place.shift;
    }
    Some(masks)
}

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

#[cfg(test)]
pub(crate) mod tests;
