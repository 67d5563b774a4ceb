// SPDX-License-Identifier: GPL-2.0-only
//! Counts all pages of memory by their own `struct page`, whatever process maps them.

use std::collections::BTreeMap;
use std::ops::Range;

use linux::counted::{Amount, Census, Known, Large, Lists, Lost, NotRead, Written};
use linux::folio::Kind;
use stage1::{lookup, Lookup, PhysMemory, PhysicalAddress, VirtualAddress};

use super::{count, signed, Pages, Place, LARGEST, ORDER};

/// No block of the buddy allocator is larger (`MAX_PAGE_ORDER`, 64K granule).
const LARGEST_FREE: u64 = 13;
/// References of a pin of a folio of one page.
const PIN: i64 = 1 << 10;
/// More page frames than are looked through: 256 GiB of 4K pages.
const MOST: u64 = 1 << 26;

/// Sums; how large folios are counted is known at the end.
#[derive(Debug, Default)]
struct Sums {
    census: Census,
    /// Pages without an owner, where they are looked for.
    lost: Option<Lost>,
    /// Free pages that CPUs keep for themselves, in order.
    kept: Vec<Range<u64>>,
    /// Pages before this one may belong to an allocation of several that is no compound one: its first page alone has
    /// references.
    tails: u64,
    /// Pages of large folios that are mapped, anonymous ones and others, one by one.
    by_page: [i64; 2],
    /// All pages of large folios of which any part is mapped.
    whole: [i64; 2],
    /// Large folios of which not only blocks map anything: those of which any page counts an entry, and those of which none
    /// does.
    counting: u64,
    silent: u64,
    /// Page caches, and whether each is written back.
    written: BTreeMap<u64, Option<bool>>,
}

/// The first page of a folio, or a folio of one page.
#[derive(Clone, Copy, Debug)]
struct First<'w> {
    pfn: u64,
    order: u8,
    /// Its words, and those of the pages behind it.
    words: &'w [u64],
    flags: u64,
    kind: Kind,
}

impl<'p, M: PhysMemory + ?Sized> Pages<'p, M> {
    /// Counts the pages of all memory, `spans`, which may overlap. `kept` are the free pages that CPUs keep for themselves, if
    /// all others are on lists of zones.
    ///
    /// # Errors
    /// Why not all could be looked at.
    pub fn census(
        &self,
        mut spans: Vec<Range<u64>>,
        kept: Known<Vec<Range<u64>>>,
    ) -> Result<Census, String> {
        let (layout, bits) = (self.layout, &self.layout.bits);
        if bits.locked.is_none() || bits.lru.is_none() || !self.in_pages() {
            return Err(
                "enum pageflags has no PG_locked or no PG_lru, or struct page an odd size".into(),
            );
        }
        let mut pages = spans.iter().map(|span| span.end.saturating_sub(span.start));
        let pages = pages.try_fold(0u64, u64::checked_add);
        if pages.is_none_or(|pages| pages > MOST) {
            return Err("there is more memory than is looked through".into());
        }
        spans.sort_unstable_by_key(|span| span.start);
        let (mut sums, mut next) = (Sums::default(), 0);
        sums.census.large = Some(Large::default());
        let is_known = layout.written.is_some() && bits.dirty.is_some() && bits.writeback.is_some();
        sums.census.written = is_known.then(Written::default);
        sums.census.lists = bits.unevictable.map(|_| Lists::default());
        sums.census.pinned = self.at.pincount.map(|_| Amount::default());
        sums.census.poisoned = bits.hwpoison.map(|_| Amount::default());
        let kept = kept.and_then(|kept| match (bits.any, layout.private) {
            (Some(_), Some(_)) => Ok(kept),
            _ => Err(NotRead {
                why: "enum pageflags has no __NR_PAGEFLAGS, or struct page no private".into(),
                later: false,
                not_built: false,
            }),
        });
        let not_looked_for = match kept {
            Ok(kept) => {
                (sums.kept, sums.lost) = (kept, Some(Lost::default()));
                None
            }
            Err(why) => Some(why),
        };
        for span in spans {
            next = span.start.max(next);
            while next < span.end {
                next = self.some(next, span.end, &mut sums)?;
            }
        }
        // From 6.15 on a folio may be counted whole once any of it is mapped (`CONFIG_NO_PAGE_MAPCOUNT`). No page of a large
        // folio counts its entries then; otherwise all do, but for one that is just being mapped or is wrong.
        let mut census = sums.census;
        census.lost = sums.lost.map(Ok).or(not_looked_for.map(Err));
        census.counts_pages = self.layout.per_page || sums.counting > sums.silent;
        let large = match census.counts_pages {
            true => sums.by_page,
            false => sums.whole,
        };
        census.anonymous += large[0];
        census.file += large[1];
        Ok(census)
    }

    /// Counts pages from `from` on that follow each other in the array, before `end`; gives the one behind them.
    fn some(&self, from: u64, end: u64, sums: &mut Sums) -> Result<u64, String> {
        let (layout, at) = (self.layout, &self.at);
        let behind = end.min(self.page_behind(from));
        // A hole in memory has no pages of the array.
        let Some(all) = self.passed(from, behind - from)? else {
            return Ok(behind);
        };
        let each = (layout.size / 8) as usize;
        let mut next = from;
        for (pfn, n) in (from..behind).zip(0..) {
            if pfn < next {
                continue;
            }
            next = pfn + 1;
            let words = &all[n * each..];
            let own = &words[..each];
            let flags = at.flags.of(own);
            let tails = std::mem::take(&mut sums.tails);
            // A tail page, whose first one is elsewhere or broken; what was never set up
            // (`CONFIG_DEFERRED_STRUCT_PAGE_INIT`), and what is no memory, is all 0 or all 1.
            if at.compound_head.of(own) & 1 == 1
                || flags == u64::MAX
                || own.iter().all(|word| *word == 0)
            {
                continue;
            }
            let kind = self.kind_of(at.mapcount.of(own));
            if kind == Some(layout.types.buddy) {
                let order = layout
                    .private
                    .map(|it| Place::new(it, layout.size).of(own))
                    .filter(|order| *order <= LARGEST_FREE && pfn % (1 << order) == 0);
                next = pfn + order.map_or(1, |order| 1 << order);
                continue;
            }
            let mut first = First {
                pfn,
                order: 0,
                words,
                flags,
                kind: Kind::of(at.mapping.of(own)),
            };
            if flags & layout.bits.head != 0 {
                let order = self.of_first(&first, at.flags_1).unwrap_or(0) & ORDER;
                if order == 0 || order > LARGEST || pfn % (1 << order) != 0 {
                    // Between free_pages_prepare()'s first lines and its last ones no order is there any more.
                    let anonymous = kind.is_none() && first.kind == Kind::Anonymous;
                    sums.census.unknown += i64::from(anonymous);
                    continue;
                }
                first.order = order as u8;
                next = pfn + (1 << order);
            }
            if kind.is_none() || kind == Some(layout.types.hugetlb) {
                self.held(&first, kind.is_some(), &mut sums.census);
            }
            if kind.is_none() {
                self.add(&first, sums)?;
                if first.order == 0 {
                    self.lost(&first, tails, sums);
                }
            }
        }
        Ok(next.max(behind))
    }

    /// Adds a page that has no owner to those that are lost, if no list of free memory has it. Pages before `tails` may belong
    /// to an allocation.
    fn lost(&self, page: &First<'_>, tails: u64, sums: &mut Sums) {
        let (bits, at, own, pfn) = (&self.layout.bits, &self.at, page.words, page.pfn);
        let (Some(lost), Some(any)) = (&mut sums.lost, bits.any) else {
            return;
        };
        let references = signed(at.refcount.of(own));
        let mapcount = at.mapcount.of(own) as u32;
        let has_no_owner = references == 0
            && mapcount == u32::MAX
            && page.flags & any == 0
            && at.mapping.of(own) == 0;
        if has_no_owner {
            let next = sums.kept.partition_point(|range| range.end <= pfn);
            let is_kept = sums.kept.get(next).is_some_and(|it| it.start <= pfn);
            if !is_kept && pfn >= tails {
                lost.add(pfn);
            }
            sums.tails = if is_kept { 0 } else { tails };
            return;
        }
        // A process's memory, and a folio of a page cache on a list of the LRU, are allocated as a page or as a compound one.
        let is_single =
            page.kind.anonymous() || self.on_lru(page) || page.flags & bits.swapbacked != 0;
        if !is_single {
            let most = u64::from(pfn.trailing_zeros()).min(LARGEST_FREE);
            sums.tails = tails.max(pfn + (1 << most));
        }
    }

    /// Returns whether each `struct page` is in one page of the array, in words (`HAVE_ALIGNED_STRUCT_PAGE`).
    pub(super) fn in_pages(&self) -> bool {
        let (size, bytes) = (self.layout.size, self.view.upper.granule.bytes());
        size != 0 && size % 8 == 0 && bytes % size == 0 && self.layout.vmemmap % size == 0
    }

    /// The first page frame whose `struct page` is in another page of the array.
    fn page_behind(&self, pfn: u64) -> u64 {
        let bytes = self.view.upper.granule.bytes();
        let left = bytes - self.layout.address(pfn) % bytes;
        pfn + left / self.layout.size
    }

    /// The words of so many pages in one page of the array, without keeping them; `None` where it has none.
    pub(super) fn passed(&self, pfn: u64, pages: u64) -> Result<Option<&'p [u64]>, String> {
        let (layout, va) = (self.layout, self.layout.address(pfn));
        let no = |why: &str| format!("the struct page of page frame 0x{pfn:x}, at 0x{va:x}, {why}");
        if !(layout.start..layout.end).contains(&va) {
            return Err(no("lies outside the array of pages"));
        }
        let pa = match lookup(self.view.memory, self.view.upper, VirtualAddress(va)) {
            Lookup::Mapped { pa, .. } => PhysicalAddress(pa.0),
            Lookup::NotMapped { .. } => return Ok(None),
            _ => return Err(no("cannot be read")),
        };
        let words = (pages * layout.size / 8) as usize;
        let memory: &'p M = self.view.memory;
        let words = memory.passing(pa, words);
        words.map(Some).ok_or_else(|| no("cannot be read"))
    }

    /// A member of a folio, wherever among its first pages it is; `None` where it has not so many.
    fn of_first(&self, first: &First<'_>, member: Place) -> Option<u64> {
        let each = (self.layout.size / 8) as usize;
        let at = member.page as usize * each;
        let is_its = member.page < 1 << first.order || member.page == 1;
        first
            .words
            .get(at..at + each)
            .filter(|_| is_its)
            .map(|words| member.of(words))
    }

    /// Adds a folio that has no type.
    fn add(&self, first: &First<'_>, sums: &mut Sums) -> Result<(), String> {
        let (bits, at, own) = (&self.layout.bits, &self.at, first.words);
        let pages = 1i64 << first.order;
        let anonymous = first.kind.anonymous();
        let other = usize::from(!anonymous);
        let mut by_block = false;
        let is_mapped = if first.order == 0 {
            let mapped = i64::from(count(at.mapcount.of(own)) > 0);
            match anonymous {
                true => sums.census.anonymous += mapped,
                false => sums.census.file += mapped,
            }
            mapped > 0
        } else {
            let of = |place| self.of_first(first, place).map_or(0, count);
            let (entire, large) = (of(at.entire_mapcount), of(at.large_mapcount));
            if large > entire {
                let (mapped, entries) = self.by_page(first.pfn, pages as u64)?;
                match entries {
                    0 => sums.silent += 1,
                    _ => sums.counting += 1,
                }
                sums.by_page[other] += if entire > 0 { pages } else { mapped };
            } else if large > 0 {
                sums.by_page[other] += pages;
            }
            sums.whole[other] += if large > 0 { pages } else { 0 };
            by_block = entire > 0;
            sums.census.blocks += if anonymous && by_block { pages } else { 0 };
            large > 0
        };
        if bits.mlocked.is_some_and(|bit| first.flags & bit != 0) {
            sums.census.mlocked += pages;
            sums.census.largest_mlocked = sums.census.largest_mlocked.max(pages);
        }
        self.lists(first, pages, &mut sums.census);
        self.written(first, pages, sums);
        let locked = bits.locked.is_some_and(|bit| first.flags & bit != 0);
        let coming = locked && !is_mapped;
        if first.kind == Kind::Anonymous && first.order > 0 {
            let held = signed(at.refcount.of(own)) > 0;
            let of_order = sums.census.folios.entry(first.order).or_default();
            // Frozen ones are split or given back, and one that no process maps yet may be a page's that moves.
            of_order.add(1, held && !coming);
        }
        let swapbacked = first.flags & bits.swapbacked != 0;
        if first.kind == Kind::File {
            if swapbacked {
                sums.census.shmem.add(pages, !coming);
            }
            // A driver's page may lead to a mapping that it is not in.
            let is_there = !coming && (swapbacked || self.on_lru(first));
            sums.census.cache.add(pages, self.on_lru(first) && !coming);
            let is_large = first.order >= self.pmd_order();
            let census = &mut sums.census;
            for large in census.large.iter_mut().filter(|_| is_large) {
                let (all, mapped) = match swapbacked {
                    true => (&mut large.shmem, &mut large.shmem_mapped),
                    false => (&mut large.file, &mut large.file_mapped),
                };
                all.add(pages, is_there);
                mapped.add(if by_block { pages } else { 0 }, true);
            }
        }
        if swapbacked && first.flags & bits.swapcache != 0 {
            sums.census.cache.add(pages, !locked);
        }
        Ok(())
    }

    /// Adds a folio's pins and what of it is broken. A folio of one page has its pins in its references, each as many as
    /// `GUP_PIN_COUNTING_BIAS` (include/linux/mm.h), so that others may look like some.
    fn held(&self, first: &First<'_>, is_hugetlb: bool, census: &mut Census) {
        let at = &self.at;
        if let Some((pinned, place)) = census.pinned.as_mut().zip(at.pincount) {
            if first.order > 0 {
                let pins = self.of_first(first, place).unwrap_or(0);
                pinned.add(pins as u32 as i32 as i64, true);
            } else {
                let references = signed(at.refcount.of(first.words));
                let entries = count(at.mapcount.of(first.words)).max(0);
                pinned.add((references - entries).max(0) / PIN, false);
            }
        }
        let is_broken = |bit: u64| first.flags & bit != 0;
        if let Some((poisoned, bit)) = census.poisoned.as_mut().zip(self.layout.bits.hwpoison) {
            // hugetlb has one flag for all its pages.
            match (is_broken(bit), is_hugetlb) {
                (false, _) => {}
                (true, false) => poisoned.add(1, true),
                (true, true) => {
                    poisoned.least += 1;
                    poisoned.most += 1 << first.order;
                }
            }
        }
    }

    /// The order of a folio that a PMD maps.
    fn pmd_order(&self) -> u8 {
        let pages = self.view.upper.granule.bytes() / 8;
        pages.trailing_zeros() as u8
    }

    fn on_lru(&self, first: &First<'_>) -> bool {
        let bit = self.layout.bits.lru;
        bit.is_some_and(|bit| first.flags & bit != 0)
    }

    /// Adds a folio to the list that it is on (`folio_lru_list()`, include/linux/mm_inline.h).
    fn lists(&self, first: &First<'_>, pages: i64, census: &mut Census) {
        let (bits, on_lru) = (&self.layout.bits, self.on_lru(first));
        let (Some(lists), Some(unevictable)) = (&mut census.lists, bits.unevictable) else {
            return;
        };
        if !on_lru {
            return;
        }
        let list = match first.flags {
            flags if flags & unevictable != 0 => &mut lists.unevictable,
            flags if flags & bits.swapbacked != 0 => &mut lists.anonymous,
            _ => &mut lists.file,
        };
        *list += pages;
        census.largest_listed = census.largest_listed.max(pages);
    }

    /// Adds a folio that is dirty, or under writeback (`folio_account_dirtied()`, `__folio_start_writeback()`,
    /// mm/page-writeback.c).
    fn written(&self, first: &First<'_>, pages: i64, sums: &mut Sums) {
        let (bits, census) = (&self.layout.bits, &mut sums.census);
        let (Some(written), Some(layout)) = (&mut census.written, self.layout.written) else {
            return;
        };
        let has = |bit: Option<u64>| bit.is_some_and(|bit| first.flags & bit != 0);
        let swapbacked = first.flags & bits.swapbacked != 0;
        if has(bits.writeback) {
            written.under_way.add(pages, true);
            written.pending.add(pages, true);
            census.largest_written = census.largest_written.max(pages);
        }
        if first.kind != Kind::File || swapbacked || !has(bits.dirty) {
            return;
        }
        let mapping = self.at.mapping.of(first.words);
        let known = sums.written.entry(mapping);
        let is_written = *known.or_insert_with(|| layout.is_written_back(self.view, mapping));
        if is_written != Some(false) {
            written.dirty.add(pages, is_written.is_some());
            written.pending.add(pages, is_written.is_some());
            census.largest_written = census.largest_written.max(pages);
        }
    }

    /// How many pages of a large folio count entries of their own, and how many entries.
    fn by_page(&self, head: u64, pages: u64) -> Result<(i64, i64), String> {
        let each = (self.layout.size / 8) as usize;
        let (mut mapped, mut entries, mut next) = (0, 0, head);
        while next < head + pages {
            let behind = self.page_behind(next).min(head + pages);
            let words = self.passed(next, behind - next)?.unwrap_or_default();
            for own in words.chunks_exact(each) {
                let counted = count(self.at.mapcount.of(own)).max(0);
                mapped += i64::from(counted > 0);
                entries += counted;
            }
            next = behind;
        }
        Ok((mapped, entries))
    }
}

#[cfg(test)]
mod tests;
