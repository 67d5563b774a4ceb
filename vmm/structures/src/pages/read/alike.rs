// SPDX-License-Identifier: GPL-2.0-only
//! Pages that are alike, told by the words of their `struct page` and without reading each into a [`linux::folio::Page`].

use super::places::{Place, Places};
use crate::pages::Layout;

/// Words of a `struct page` that is compared whole; another size is not.
pub(super) const WORDS: usize = 8;

/// In which bits two pages have to be equal, for [`super::Pages::page`] to say the same of both.
#[derive(Clone, Copy, Debug)]
pub(super) struct Alike {
    /// Masks for two folios of one page, of which the second has the next index.
    pub(super) single: [u64; WORDS],
    /// Masks for two pages of one large folio, of which the second is no first one.
    pub(super) tail: [u64; WORDS],
    /// The word of the index.
    pub(super) index: usize,
    /// The word of the link to the first page.
    pub(super) link: usize,
}

impl Alike {
    /// `None` where a `struct page` is not laid out as this expects it.
    pub fn new(layout: &Layout, at: &Places) -> Option<Alike> {
        let bits = layout.bits;
        let own = bits.anon_exclusive | bits.hwpoison.unwrap_or(0);
        let of_lists = [bits.mlocked, bits.lru, bits.unevictable];
        let of_lists = of_lists.iter().flatten().fold(0, |all, bit| all | bit);
        let folio = bits.head | bits.swapbacked | bits.swapcache | of_lists;
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

#[cfg(test)]
pub(crate) mod tests;
