// SPDX-License-Identifier: GPL-2.0-only
//! Where the members of `struct page` are, ready for use.

use crate::pages::Field;

/// Where members are: what [`crate::pages::Layout`] says, ready to be used for each of a million pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    pub(super) flags: Place,
    pub(super) compound_head: Place,
    pub(super) mapcount: Place,
    pub(super) refcount: Place,
    pub(super) mapping: Place,
    pub(super) index: Place,
    pub(super) flags_1: Place,
    pub(super) large_mapcount: Place,
    pub(super) entire_mapcount: Place,
    pub(super) pincount: Option<Place>,
    pub(super) swap: Option<Place>,
    pub(super) memcg: Option<Place>,
    pub(super) private: Option<Place>,
}

/// A member of up to 8 bytes: in which page of its folio, in which word of the `struct page`, and which bits of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) page: u64,
    pub(super) word: usize,
    pub(super) shift: u32,
    pub(super) mask: u64,
}

impl Place {
    pub(super) fn new(Field(offset, size): Field, page_size: u64) -> Place {
        let own = offset % page_size;
        Place {
            page: offset / page_size,
            word: (own / 8) as usize,
            shift: (own % 8 * 8) as u32,
            mask: match size {
                8.. => u64::MAX,
                size => (1 << (8 * size)) - 1,
            },
        }
    }

    /// Reads from the words of the right `struct page`, in the guest's order.
    #[inline]
    pub(super) fn of(self, words: &[u64]) -> u64 {
        words
            .get(self.word)
            .map_or(0, |word| word >> self.shift & self.mask)
    }
}
