// SPDX-License-Identifier: GPL-2.0-only
//! Pages and folios read, by a kernel's layout.

mod alike;
mod cached;
mod census;
mod claimed;
mod free;
#[cfg(test)]
mod kinds_tests;
mod lists;
mod places;
mod runs;

use std::cell::Cell;

use linux::folio::{Kind, NoPage, Page, Split, Type};
use stage1::{lookup, Lookup, PhysMemory, PhysicalAddress, VirtualAddress};

use super::{Field, Layout};
use crate::kernel::View;
use crate::types::Member;

#[cfg(test)]
pub(crate) use alike::tests as made_up;
use alike::Alike;
pub(crate) use cached::Passed;
pub(crate) use lists::Free;
use places::{Place, Places};

/// `PAGE_TYPE_MASK` and its shift: a type is in the top byte, and everything else in the word says nothing.
const TYPE_SHIFT: u32 = 24;
/// The low byte of `_flags_1` is the folio's order (`folio_large_order()`, include/linux/mm.h).
const ORDER: u64 = 0xff;
/// No folio is larger: 16 GiB of 4K pages. What says so is no folio.
const LARGEST: u64 = 22;
/// Pages without memory that are looked at within one range.
const MOST_GONE: u64 = 1 << 16;
/// Bits of a slot's number in a `swp_entry_t`, above which there is that of its area (`SWP_TYPE_SHIFT`: `BITS_PER_XA_VALUE`
/// less `MAX_SWAPFILES_SHIFT`).
const SLOT_BITS: u32 = 63 - 5;
/// The low bits of `mapping` (`FOLIO_MAPPING_FLAGS`).
const MAPPING_FLAGS: u64 = 3;

/// The pages of a kernel at one instant.
#[derive(Debug)]
pub struct Pages<'p, M: ?Sized> {
    layout: &'p Layout,
    view: View<'p, M>,
    /// The last page of the array that was looked for: its virtual address, and its words.
    last: Cell<(u64, &'p [u64])>,
    /// The last folio that was asked for.
    folio: Cell<Option<Folio>>,
    at: Places,
    alike: Option<Alike>,
    /// True if each page of a large folio is known to count its own entries.
    per_page: bool,
}

/// Fields that a folio keeps as a whole.
#[derive(Clone, Copy, Debug)]
struct Folio {
    head: u64,
    order: u8,
    flags: u64,
    refcount: i64,
    mapping: u64,
    index: u64,
    entire: i64,
    large: Option<i64>,
    /// Each of its pages counts its own entries.
    by_page: bool,
    kind_of_page: Option<Type>,
    hugetlb: bool,
    migratable: Option<bool>,
    split: Option<Split>,
    swapcache: bool,
    /// The `swp_entry_t` of its first page.
    swap: Option<u64>,
}

impl<'p, M: PhysMemory + ?Sized> Pages<'p, M> {
    /// Those of `layout`'s kernel.
    pub fn new(layout: &'p Layout, view: View<'p, M>) -> Self {
        let last = Cell::new((1, [].as_slice()));
        let folio = Cell::new(None);
        let place = |field| Place::new(field, layout.size);
        let at = Places {
            flags: place(layout.flags),
            compound_head: place(layout.compound_head),
            mapcount: place(layout.mapcount),
            refcount: place(layout.refcount),
            mapping: place(layout.mapping),
            index: place(layout.index),
            flags_1: place(layout.flags_1),
            large_mapcount: place(layout.large_mapcount),
            entire_mapcount: place(layout.entire_mapcount),
            pincount: layout.pincount.map(place),
            swap: layout.swap.map(place),
            memcg: layout.memcg.map(place),
            private: layout.private.map(place),
        };
        Self {
            layout,
            view,
            last,
            folio,
            at,
            alike: Alike::new(layout, &at),
            per_page: layout.per_page,
        }
    }

    /// Where all pages together have told that each page of a large folio counts its own entries
    /// ([`linux::counted::Census::counts_pages`]), which the types of a kernel do not tell from 6.15 on.
    #[must_use]
    pub fn counting(mut self, counts_pages: bool) -> Self {
        self.per_page |= counts_pages;
        self
    }

    /// The page with this page frame number, and its folio.
    ///
    /// # Errors
    /// Where it has none, or that makes no sense.
    pub fn page(&self, pfn: u64) -> Result<Page, NoPage> {
        let layout = self.layout;
        let own = self.structure(pfn)?;
        let link = self.at.compound_head.of(own);
        let head = match link & 1 {
            0 => pfn,
            _ => layout.pfn_of(link - 1).ok_or_else(|| {
                NoPage::Wild(format!(
                    "its compound_head is 0x{link:x}, which is no page's"
                ))
            })?,
        };
        let folio = match self.folio.get().filter(|folio| folio.head == head) {
            Some(folio) => folio,
            None => self.folio(head, self.structure(head)?)?,
        };
        if head > pfn || pfn - head >= 1 << folio.order {
            return Err(NoPage::Wild(format!(
                "its compound_head leads to page frame 0x{head:x}, whose folio has order {} and ends before it",
                folio.order
            )));
        }
        let flags = self.at.flags.of(own);
        let raw = self.at.mapcount.of(own);
        // What hugetlb's first page says holds of the whole folio (`PageAnonExclusive()`, `stable_page_flags()`).
        let of_whole = if folio.hugetlb { folio.flags } else { flags };
        // A slab has its lists and its counters there, a table its lock, a free block its order.
        let mapping = if folio.kind_of_page.is_some() {
            0
        } else {
            folio.mapping
        };
        let kind = Kind::of(mapping);
        Ok(Page {
            pfn,
            head,
            order: folio.order,
            flags,
            folio_flags: folio.flags,
            refcount: folio.refcount,
            mapcount: folio.by_page.then(|| count(raw)),
            entire: folio.entire,
            large: folio.large,
            kind_of_page: folio.kind_of_page,
            hugetlb: folio.hugetlb,
            kind,
            mapping: mapping & !MAPPING_FLAGS,
            index: folio.index,
            // Of a file's page the bit is its file system's (`PG_owner_2`, `PG_mappedtodisk`).
            exclusive: kind.anonymous() && of_whole & layout.bits.anon_exclusive != 0,
            swapbacked: folio.kind_of_page.is_none() && folio.flags & layout.bits.swapbacked != 0,
            // So is this one (`PG_owner_priv_1`, `PG_checked`), but for what is to be swapped.
            swapcache: folio.swapcache,
            slot: folio.swap.map(|entry| {
                let entry = entry.wrapping_add(pfn - head);
                ((entry >> SLOT_BITS) as u8, entry & ((1 << SLOT_BITS) - 1))
            }),
            split: folio.split,
            poisoned: layout.bits.hwpoison.is_some_and(|bit| of_whole & bit != 0),
            on_lru: layout.bits.lru.map(|bit| folio.flags & bit != 0),
            unevictable: layout.bits.unevictable.map(|bit| folio.flags & bit != 0),
            mlocked: layout.bits.mlocked.map(|bit| folio.flags & bit != 0),
            migratable: folio.migratable,
        })
    }

    /// Reads the fields that the first page of a folio, `first`, and those behind it keep of it.
    fn folio(&self, head: u64, first: &[u64]) -> Result<Folio, NoPage> {
        let layout = self.layout;
        let flags = self.at.flags.of(first);
        let order = self.order(head, flags)?;
        let kind_of_page = self.kind_of(self.at.mapcount.of(first));
        let hugetlb = kind_of_page == Some(layout.types.hugetlb);
        let in_folio = |member| self.in_folio(head, first, member);
        // A typed page is in no process's table: hugetlb's alone count who maps them.
        let (entire, large) = if order == 0 || kind_of_page.is_some() && !hugetlb {
            (0, None)
        } else {
            let large = count(in_folio(self.at.large_mapcount)?);
            (count(in_folio(self.at.entire_mapcount)?), Some(large))
        };
        let mapping = self.at.mapping.of(first);
        // The bit of the swap cache means something else in a file's page cache (`folio_test_swapcache()`).
        let cached = layout.bits.swapbacked | layout.bits.swapcache;
        let swapcache = kind_of_page.is_none() && flags & cached == cached;
        let swap = self.at.swap.filter(|_| swapcache);
        let swap = swap.map(&in_folio).transpose()?;
        let splits = Kind::of(mapping) == Kind::Anonymous && kind_of_page.is_none();
        let folio = Folio {
            head,
            order,
            flags,
            refcount: signed(self.at.refcount.of(first)),
            mapping,
            index: in_folio(self.at.index)?,
            entire,
            large,
            by_page: !hugetlb && kind_of_page.is_none() && (order == 0 || self.per_page),
            kind_of_page: kind_of_page.filter(|_| !hugetlb).map(|kind| match kind {
                kind if kind == layout.types.buddy => Type::Buddy,
                kind if kind == layout.types.table => Type::Table,
                kind if kind == layout.types.slab => Type::Slab,
                kind => Type::Other(kind as u8),
            }),
            hugetlb,
            migratable: (self.at.private.zip(layout.bits.migratable))
                .filter(|_| hugetlb)
                .map(|(private, bit)| private.of(first) & bit != 0),
            split: self.split(head, order, splits)?,
            swapcache,
            swap,
        };
        self.folio.set(Some(folio));
        Ok(folio)
    }

    /// Reads what [`Pages::page`] will read of the pages from `first` to before `end`, or to where it is given up: at the
    /// page frame that is returned. `charged` is told of each folio's `memcg_data`, and may be of other pages' word there.
    pub fn touch(&self, first: u64, end: u64, mut charged: impl FnMut(u64)) -> u64 {
        // The link of the tail pages of the folio at hand.
        let mut tail = None;
        let mut gone = 0;
        for pfn in first..end {
            let Ok(own) = self.structure(pfn) else {
                // A block of a wrong table may be larger than all memory.
                gone += 1;
                if gone == MOST_GONE {
                    return pfn;
                }
                continue;
            };
            let link = self.at.compound_head.of(own);
            if let Some(place) = self.at.memcg.filter(|_| link & 1 == 0) {
                charged(place.of(own));
            }
            let single = link & 1 == 0 && self.at.flags.of(own) & self.layout.bits.head == 0;
            if single || tail == Some(link) {
                continue;
            }
            // A folio's first page may lie before what is mapped of it, and what it keeps in its second one behind.
            let head = self.page(pfn).map_or(pfn, |page| page.head);
            tail = Some(self.layout.address(head) | 1);
            charged(self.memcg_data(head).unwrap_or(0));
        }
        end
    }

    /// Returns whether a task holds the lock of the table in this page frame, or waits for it; `None` if that is not known.
    #[must_use]
    pub fn table_is_locked(&self, pfn: u64) -> Option<bool> {
        let of = |field| {
            let place = Place::new(field, self.layout.size);
            Some(place.of(self.structure(pfn).ok()?))
        };
        let Some((pointer, Field(offset, size))) = self.layout.table_lock_at else {
            return Some(of(self.layout.table_lock?)? != 0);
        };
        match of(pointer)? {
            // Tables above those of level 2 have none: theirs is the address space's.
            0 => Some(false),
            lock => {
                let word = Member {
                    offset,
                    size,
                    elements: 1,
                };
                Some(self.view.number("the lock of a table", lock, word).ok()? != 0)
            }
        }
    }

    /// Returns the word that leads to the memory cgroup of the folio that begins at this page frame; `None` if the kernel has none.
    #[must_use]
    pub fn memcg_data(&self, head: u64) -> Option<u64> {
        Some(self.at.memcg?.of(self.structure(head).ok()?))
    }

    /// Returns whether the page's folio is in the page cache of a file that is written back to a device; `None` where that is not
    /// known.
    #[must_use]
    pub fn written_back(&self, page: &Page) -> Option<bool> {
        if page.kind != Kind::File {
            return Some(false);
        }
        self.layout
            .written?
            .is_written_back(self.view, page.mapping)
    }

    /// Returns the address of the `struct page` of a page frame.
    #[must_use]
    pub fn address(&self, pfn: u64) -> u64 {
        self.layout.address(pfn)
    }

    fn order(&self, head: u64, flags: u64) -> Result<u8, NoPage> {
        if flags & self.layout.bits.head == 0 {
            return Ok(0);
        }
        let order = self.in_folio(head, &[], self.at.flags_1)? & ORDER;
        if order == 0 || order > LARGEST || head % (1 << order) != 0 {
            return Err(NoPage::Wild(format!(
                "page frame 0x{head:x} is the first of a folio of order {order}, which cannot begin there"
            )));
        }
        Ok(order as u8)
    }

    /// The type in the word that is `_mapcount` elsewhere (`page_type_has_type()`).
    fn kind_of(&self, word: u64) -> Option<u64> {
        let kind = word as u32 >> TYPE_SHIFT;
        let types = self.layout.types;
        // As a signed number it is below that of the last one.
        (kind >= 0x80 && u64::from(kind) < types.underflow).then_some(u64::from(kind))
    }

    /// A member of the folio that begins at page frame `head`: in whichever of its first pages it is, of which `first` may
    /// be known.
    fn in_folio(&self, head: u64, first: &[u64], member: Place) -> Result<u64, NoPage> {
        match member.page {
            0 if !first.is_empty() => Ok(member.of(first)),
            page => Ok(member.of(self.structure(head + page)?)),
        }
    }

    /// The words of a `struct page`.
    fn structure(&self, pfn: u64) -> Result<&'p [u64], NoPage> {
        self.structures(pfn, 1)
    }

    /// Those of `most` that follow one another, or of as many of them as lie in one page.
    fn structures(&self, pfn: u64, most: u64) -> Result<&'p [u64], NoPage> {
        let layout = self.layout;
        let no = |why: String| {
            NoPage::Unreadable(format!("the struct page of page frame 0x{pfn:x} {why}"))
        };
        let va = layout.address(pfn);
        if !(layout.start..layout.end).contains(&va) {
            return Err(NoPage::Wild(format!(
                "page frame 0x{pfn:x} is no memory of the guest's: its struct page would lie outside the array of pages"
            )));
        }
        let bytes = self.view.upper.granule.bytes();
        let base = va & !(bytes - 1);
        let (known, mut words) = self.last.get();
        if known != base {
            let pa = match lookup(self.view.memory, self.view.upper, VirtualAddress(base)) {
                Lookup::Mapped { pa, .. } => pa.0,
                Lookup::NotMapped { .. } => {
                    return Err(NoPage::Wild(format!(
                        "page frame 0x{pfn:x} is no memory of the guest's: where its struct page would be, nothing is mapped"
                    )))
                }
                _ => return Err(no(format!("is at 0x{va:x}, where nothing can be read"))),
            };
            let memory: &'p M = self.view.memory;
            let page = memory.words(PhysicalAddress(pa), (bytes / 8) as usize);
            words = page.ok_or_else(|| {
                no(format!(
                    "is at physical 0x{:x}, which cannot be read",
                    pa + (va - base)
                ))
            })?;
            self.last.set((base, words));
        }
        // arm64's are of 64 bytes (`HAVE_ALIGNED_STRUCT_PAGE`), so none does.
        let here = base.saturating_add(bytes).min(layout.end) - va;
        let count = here
            .checked_div(layout.size)
            .map_or(1, |here| here.min(most).max(1));
        let count = count * layout.size;
        let (first, count) = ((va - base) as usize / 8, count as usize / 8);
        words
            .get(first..first + count)
            .ok_or_else(|| no("lies in two pages".into()))
    }
}

/// A 32-bit count as it is.
fn signed(word: u64) -> i64 {
    i64::from(word as u32 as i32)
}

/// A count that starts from -1.
fn count(word: u64) -> i64 {
    signed(word) + 1
}
