// SPDX-License-Identifier: GPL-2.0-only
//! The model of a cell's memory: what each page of each process must hold, and which accesses it must refuse.
//!
//! It knows nothing of folios, entries and swap: whatever the kernel does to memory, these answers stay the same.
//! Sources: madvise(2), mmap(2), mremap(2), fork(2), ioctl_userfaultfd(2), and for what they leave open the functions of
//! mm/ that are named.

use std::ops::Range;

/// Words of a page that are written and compared: they are equally far from each other.
pub const WORDS: usize = 8;

/// The compared words of a page.
pub type Words = [Content; WORDS];

/// Content of one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Zero.
    Zero,
    /// The pattern of a write. `origin` is the word's address, or its offset in the file, at the write.
    Written {
        /// See above.
        origin: u64,
        /// The salt of that write.
        salt: u64,
    },
    /// That pattern, or zero: `MADV_FREE` leaves the choice to the kernel until the page is written to. It is the same for
    /// all words of a page that were not written since.
    Freed {
        /// As of [`Content::Written`].
        origin: u64,
        /// As of [`Content::Written`].
        salt: u64,
    },
}

impl Content {
    /// Returns the same after `MADV_FREE`.
    fn freed(self) -> Self {
        match self {
            Self::Written { origin, salt } => Self::Freed { origin, salt },
            other => other,
        }
    }

    /// Returns whether it may be gone.
    pub fn is_freed(self) -> bool {
        matches!(self, Self::Freed { .. })
    }
}

const ZERO: Words = [Content::Zero; WORDS];

/// The word of a page that is written where it is one alone: neither the first nor the last.
pub const ONE: usize = 3;

/// The word that a second thread writes.
pub const OTHER: usize = 5;

/// Words of each page that an access stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// All that are compared.
    All,
    /// One of them.
    One,
}

impl Store {
    /// Their places in the page.
    pub fn words(self) -> Range<usize> {
        match self {
            Self::All => 0..WORDS,
            Self::One => ONE..ONE + 1,
        }
    }
}

/// One page of a process's view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// The process's own copy, where it has one.
    pub own: Option<Words>,
    /// Covered by a VMA.
    pub mapped: bool,
    /// `PROT_READ`.
    pub read: bool,
    /// `PROT_WRITE`.
    pub write: bool,
    /// `mlock()`.
    pub locked: bool,
    /// `MADV_GUARD_INSTALL`.
    pub guard: bool,
    /// `UFFDIO_POISON`, or a page that was lost (`MADV_HWPOISON`).
    pub poison: bool,
    /// `UFFDIO_WRITEPROTECT`.
    pub write_protected: bool,
    /// Registered with a userfaultfd.
    pub registered: bool,
    /// Registered so that an access to a page that is not there is refused (`UFFD_FEATURE_SIGBUS`).
    pub asks: bool,
    /// Pinned for a device, which reads and writes the page that the process has here.
    pub pinned: bool,
    /// `MADV_DONTFORK`.
    pub not_forked: bool,
    /// `MADV_WIPEONFORK`.
    pub wiped_on_fork: bool,
    /// `mseal()`.
    pub sealed: bool,
    /// There, as a page or in swap, when its writes began to be watched.
    pub there: bool,
    /// Written since then.
    pub stored: bool,
    /// Locked in the parent when it forked: a lock is not inherited, and the VMAs that it has split stay two.
    pub was_locked: bool,
}

impl Page {
    const NEW: Self = Self {
        own: None,
        mapped: true,
        read: true,
        write: true,
        locked: false,
        guard: false,
        poison: false,
        write_protected: false,
        registered: false,
        asks: false,
        pinned: false,
        not_forked: false,
        wiped_on_fork: false,
        sealed: false,
        there: false,
        stored: false,
        was_locked: false,
    };
    const HOLE: Self = Self {
        mapped: false,
        read: false,
        write: false,
        ..Self::NEW
    };

    /// Flags that split a VMA: pages that differ in these lie in different VMAs.
    pub fn vma(&self) -> [bool; 9] {
        [
            self.mapped,
            self.read,
            self.write,
            self.locked,
            self.registered,
            self.not_forked,
            self.wiped_on_fork,
            self.sealed,
            self.was_locked,
        ]
    }
}

/// One process's view of an area.
#[derive(Clone, Debug)]
pub struct View {
    /// The address of its first page.
    pub start: u64,
    /// Its pages.
    pub pages: Vec<Page>,
}

/// Memory below a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Below {
    /// Private anonymous memory.
    Nothing,
    /// A file or shmem, mapped shared.
    Shared,
    /// A file, mapped private.
    Private,
}

/// An area of memory, as up to two processes see it.
#[derive(Clone, Debug)]
pub struct Memory {
    /// Memory below.
    pub below: Below,
    /// The file's pages, from the mapping's first; pages beyond its end are not there.
    pub file: Vec<Words>,
    /// The acting process's view, and the other one's, where a fork made one.
    pub views: Vec<View>,
    /// Bytes per page.
    pub page: u64,
    /// A process that has it has forked: to the kernel its pages may still be shared.
    pub forked: bool,
    /// The file had a hole punched into it, or was truncated.
    pub punched: bool,
}

impl Memory {
    /// A new mapping of `pages` pages at `start`; of a file the first `file` pages are there, and are zero.
    pub fn new(below: Below, start: u64, pages: usize, file: usize, page: u64) -> Self {
        Self {
            below,
            file: vec![ZERO; file],
            views: vec![View {
                start,
                pages: vec![Page::NEW; pages],
            }],
            page,
            forked: false,
            punched: false,
        }
    }

    /// Returns the words of a view's page; `None` beyond the file's end.
    pub fn content(&self, view: usize, at: usize) -> Option<Words> {
        let page = &self.views[view].pages[at];
        match (self.below, page.own) {
            (Below::Nothing, own) => Some(own.unwrap_or(ZERO)),
            (Below::Private, Some(own)) => Some(own),
            _ => self.file.get(at).copied(),
        }
    }

    /// Returns whether a load of the page completes.
    pub fn can_read(&self, view: usize, at: usize) -> bool {
        let page = &self.views[view].pages[at];
        page.mapped && page.read && !page.guard && !page.poison && self.is_found(view, at)
    }

    /// Returns whether a fault on the page finds what it is to map: it is not behind the file's end, and no userfaultfd would
    /// be asked for it (`userfaultfd_missing()`).
    fn is_found(&self, view: usize, at: usize) -> bool {
        let page = &self.views[view].pages[at];
        self.content(view, at).is_some() && !(page.asks && page.own.is_none())
    }

    /// Returns whether a store to the page completes.
    pub fn can_write(&self, view: usize, at: usize) -> bool {
        let page = &self.views[view].pages[at];
        self.can_read(view, at) && page.write && !page.write_protected
    }

    /// Returns whether a write by `/proc/self/mem` completes: protection does not keep a private page from it
    /// (`check_vma_flags()`), and shared ones it does.
    pub fn can_force(&self, view: usize, at: usize) -> bool {
        let page = &self.views[view].pages[at];
        let shared = self.below == Below::Shared;
        page.mapped
            && !page.guard
            && !page.poison
            && !page.write_protected
            && self.is_found(view, at)
            && (page.write || !shared)
    }

    /// Returns whether a process has a page of its own for what it wrote: not the zero page, nor one of KSM.
    pub fn is_certain(&self, view: usize, at: usize) -> bool {
        let own = |at: usize| self.views[view].pages[at].own;
        let mut others = (0..self.views[view].pages.len()).filter(|other| *other != at);
        !self.may_be_zero_page(view, at) && !others.any(|other| own(other) == own(at))
    }

    /// Returns whether the zero page may stand for an anonymous page: nothing was written to it, or it may be gone.
    pub fn may_be_zero_page(&self, view: usize, at: usize) -> bool {
        let own = self.views[view].pages[at].own;
        own.is_none_or(|own| own == ZERO || own.iter().any(|word| word.is_freed()))
    }

    /// Returns whether it is not known if a store to the page completes: of an anonymous page that `MADV_FREE` has given
    /// up, and that may have been reclaimed since, no userfaultfd's protection is left (`try_to_unmap_one()`).
    pub fn is_open(&self, view: usize, at: usize) -> bool {
        let page = &self.views[view].pages[at];
        let freed = |own: &Words| own.iter().any(|word| word.is_freed());
        page.write_protected && page.own.as_ref().is_some_and(freed)
    }

    /// Watches the writes to these pages from now on; `there` says which are there.
    pub fn watch(&mut self, view: usize, pages: Range<usize>, there: impl Fn(usize) -> bool) {
        for at in pages {
            let page = &mut self.views[view].pages[at];
            (page.registered, page.stored, page.there) = (page.mapped, false, there(at));
        }
    }

    /// Returns whether a watched page counts as written; `None` where that is open. A page that came later is not
    /// protected; one that `MADV_FREE` gave up may be gone, and entries of files may go at any time, with their bit where a
    /// PMD is split (`__split_huge_pmd_locked()`).
    pub fn is_written(&self, view: usize, at: usize) -> Option<bool> {
        let page = &self.views[view].pages[at];
        let freed = |own: &Words| own.iter().any(|word| word.is_freed());
        let stays = self.below == Below::Nothing && !page.own.as_ref().is_some_and(freed);
        match page.stored {
            true => Some(true),
            false => (page.there && stays).then_some(false),
        }
    }

    /// The same of pages that are mapped together.
    pub fn is_any_written(&self, view: usize, pages: Range<usize>) -> Option<bool> {
        let mut all = pages.map(|at| self.is_written(view, at));
        let first = all.next()?;
        all.fold(first, |any, it| match (any, it) {
            (Some(true), _) | (_, Some(true)) => Some(true),
            (any, it) => any.and(it),
        })
    }

    /// A write of these words of each of the pages. A private page is copied first, with its other words.
    pub fn write(&mut self, view: usize, pages: Range<usize>, words: Range<usize>, salt: u64) {
        for page in &mut self.views[view].pages[pages.clone()] {
            page.stored = true;
        }
        self.write_by_child(view, pages, words, salt);
    }

    /// The same by a child of this view's process, which maps shared memory at the same addresses: this process has not
    /// stored to it.
    pub fn write_by_child(
        &mut self,
        view: usize,
        pages: Range<usize>,
        words: Range<usize>,
        salt: u64,
    ) {
        let distance = self.distance();
        for at in pages {
            let origin = self.address(view, at);
            self.change(view, at, words.clone(), |word| Content::Written {
                origin: origin + word as u64 * distance,
                salt,
            });
        }
    }

    /// A write of the same words to each of these pages: those of the pattern for a page at address 0.
    pub fn write_equal(&mut self, view: usize, pages: &[usize], salt: u64) {
        let distance = self.distance();
        for at in pages.iter().copied() {
            self.change(view, at, 0..WORDS, |word| Content::Written {
                origin: word as u64 * distance,
                salt,
            });
        }
    }

    /// `UFFDIO_COPY` of the agent: the first word has the pattern, the others are zero.
    pub fn fill(&mut self, view: usize, pages: Range<usize>, salt: u64) {
        for at in pages {
            let origin = self.address(view, at);
            self.change(view, at, 0..WORDS, |word| match word {
                0 => Content::Written { origin, salt },
                _ => Content::Zero,
            });
        }
    }

    /// `UFFDIO_ZEROPAGE`.
    pub fn zero(&mut self, view: usize, pages: Range<usize>) {
        for at in pages {
            self.change(view, at, 0..WORDS, |_| Content::Zero);
        }
    }

    /// `UFFDIO_MOVE`: what a page had is another's, and it has nothing.
    pub fn exchange(&mut self, view: usize, from: usize, to: usize) {
        let pages = &mut self.views[view].pages;
        pages[to].own = pages[from].own.take();
    }

    fn change(
        &mut self,
        view: usize,
        at: usize,
        words: Range<usize>,
        content: impl Fn(usize) -> Content,
    ) {
        let before = self.content(view, at).unwrap_or(ZERO);
        let place = match self.below {
            Below::Shared => &mut self.file[at],
            _ => self.views[view].pages[at].own.insert(before),
        };
        for word in words {
            place[word] = content(word);
        }
    }

    /// Returns how a page is like a neighbour that can be compared with it at once, if it can be read: by word its content
    /// without an origin, and how far the origin is away from the word's address; and of a page that `MADV_FREE` has given
    /// up which one it is, as it may be gone and its neighbour not.
    #[must_use]
    pub fn likeness(&self, view: usize, at: usize) -> Option<([(Content, u64); WORDS], usize)> {
        let words = self.content(view, at).filter(|_| self.can_read(view, at))?;
        let freed = words.iter().any(|word| word.is_freed());
        let alike = self.alike(&words, self.address(view, at));
        Some((alike, if freed { at } else { 0 }))
    }

    /// The same of a page of the file, as it is read by its offset.
    #[must_use]
    pub fn file_likeness(&self, at: usize) -> [(Content, u64); WORDS] {
        self.alike(&self.file[at], at as u64 * self.page)
    }

    /// By word its content without an origin, and how far the origin is away from the word's place in a page at `start`.
    fn alike(&self, words: &Words, start: u64) -> [(Content, u64); WORDS] {
        let of = |word: usize| {
            let away = |origin: u64| origin.wrapping_sub(start + word as u64 * self.distance());
            match words[word] {
                Content::Zero => (Content::Zero, 0),
                Content::Written { origin, salt } => {
                    (Content::Written { origin: 0, salt }, away(origin))
                }
                Content::Freed { origin, salt } => {
                    (Content::Freed { origin: 0, salt }, away(origin))
                }
            }
        };
        std::array::from_fn(of)
    }

    /// The words of all pages of a view.
    pub fn all_words(&self, view: usize) -> impl Iterator<Item = Words> + '_ {
        (0..self.views[view].pages.len()).filter_map(move |at| self.content(view, at))
    }

    /// Bytes from one compared word to the next.
    pub fn distance(&self) -> u64 {
        self.page / WORDS as u64
    }

    /// The address of a page.
    pub fn address(&self, view: usize, at: usize) -> u64 {
        self.views[view].start + at as u64 * self.page
    }

    /// Changes the mapped pages of a range.
    pub fn each(&mut self, view: usize, pages: Range<usize>, change: impl Fn(&mut Page)) {
        for page in &mut self.views[view].pages[pages] {
            if page.mapped {
                change(page);
            }
        }
    }

    /// `MADV_DONTNEED`: a private copy goes, and with it a marker (`zap_nonpresent_ptes()`); a guard stays.
    pub fn drop_pages(&mut self, view: usize, pages: Range<usize>) {
        self.each(view, pages, |page| {
            page.own = None;
            page.poison = false;
            page.write_protected = false;
            page.pinned = false;
            page.there = false;
        });
    }

    /// `MADV_FREE` of private anonymous memory. A poison marker goes (`madvise_free_pte_range()`).
    pub fn free(&mut self, view: usize, pages: Range<usize>) {
        self.each(view, pages, |page| {
            page.poison = false;
            page.own = page.own.map(|own| own.map(Content::freed));
        });
    }

    /// `MADV_POPULATE_WRITE`: a private page is the process's own from there on.
    pub fn populate(&mut self, view: usize, pages: Range<usize>) {
        for at in pages {
            if self.below != Below::Shared && self.can_write(view, at) {
                let own = self.content(view, at);
                self.views[view].pages[at].own = own;
            }
        }
    }

    /// `MADV_HWPOISON` of private anonymous memory: who shares a page loses it too. One that is pinned is not shared.
    pub fn lose(&mut self, view: usize, pages: Range<usize>) {
        for at in pages {
            let own = self.views[view].pages[at].own;
            for view in &mut self.views {
                let page = &mut view.pages[at];
                page.poison |= page.mapped && !page.pinned && page.own == own;
            }
        }
    }

    /// `munmap()`.
    pub fn unmap(&mut self, view: usize, pages: Range<usize>) {
        self.views[view].pages[pages].fill(Page::HOLE);
    }

    /// `mremap()` to more pages: new ones are of the VMA of the page before them (`vma_expand()`).
    pub fn extend(&mut self, view: usize, pages: Range<usize>) {
        let all = &mut self.views[view].pages;
        let new = Page {
            own: None,
            guard: false,
            poison: false,
            write_protected: false,
            pinned: false,
            there: false,
            stored: false,
            ..all[pages.start - 1]
        };
        all[pages].fill(new);
    }

    /// `mremap()` of the whole area. A userfaultfd without `UFFD_FEATURE_EVENT_REMAP` lets go of it
    /// (`mremap_userfaultfd_prep()`).
    pub fn moved(&mut self, view: usize, to: u64) {
        self.views[view].start = to;
        self.let_go(view);
    }

    fn let_go(&mut self, view: usize) {
        for page in &mut self.views[view].pages {
            (page.registered, page.asks, page.write_protected) = (false, false, false);
        }
    }

    /// `fork()`: the child's view is added, and the number of it returned. A pinned page stays the parent's
    /// (`folio_needs_cow_for_dma()`). Pages of `MADV_DONTFORK` are not there, those of
    /// `MADV_WIPEONFORK` are empty. Locks and a userfaultfd without
    /// `UFFD_FEATURE_EVENT_FORK` are not inherited (`dup_mmap()`, `dup_userfaultfd()`); guards and poison are.
    pub fn fork(&mut self) -> usize {
        let mut child = self.views[0].clone();
        for page in &mut child.pages {
            (page.was_locked, page.locked) = (page.locked || page.was_locked, false);
            page.pinned = false;
            if page.wiped_on_fork {
                (page.own, page.guard, page.poison) = (None, false, false);
            }
            if page.not_forked {
                *page = Page::HOLE;
            }
        }
        self.forked = true;
        self.views.push(child);
        let child = self.views.len() - 1;
        self.let_go(child);
        child
    }

    /// `MADV_GUARD_INSTALL` and `MADV_GUARD_REMOVE`: what was there is gone.
    pub fn guard(&mut self, view: usize, pages: Range<usize>, on: bool) {
        self.each(view, pages, |page| {
            if on {
                page.own = None;
                (page.poison, page.write_protected, page.pinned) = (false, false, false);
                page.there = false;
            }
            page.guard = on;
        });
    }

    /// `fallocate(FALLOC_FL_PUNCH_HOLE)` and `MADV_REMOVE`, of words of the file: private copies stay
    /// (`unmap_mapping_range()`, `even_cows` 0).
    pub fn punch(&mut self, words: Range<usize>) {
        self.punched = true;
        for word in words {
            if let Some(page) = self.file.get_mut(word / WORDS) {
                page[word % WORDS] = Content::Zero;
            }
        }
    }

    /// `truncate()` behind this word: private copies of pages beyond the end go as well (`truncate_pagecache()`,
    /// `even_cows` 1).
    pub fn truncate(&mut self, words: usize) {
        let pages = words.div_ceil(WORDS);
        self.file.resize(pages, ZERO);
        self.punch(words..pages * WORDS);
        for view in 0..self.views.len() {
            let all = self.views[view].pages.len();
            self.each(view, pages.min(all)..all, |page| page.own = None);
        }
    }

    /// `pwrite()` of whole pages of the file, by offset.
    pub fn write_file(&mut self, pages: Range<usize>, salt: u64) {
        let distance = self.distance();
        for at in pages {
            let origin = at as u64 * self.page;
            self.file[at] = std::array::from_fn(|word| Content::Written {
                origin: origin + word as u64 * distance,
                salt,
            });
        }
    }

    /// Runs of neighbours of these pages that agree in what `key` says.
    pub fn runs<K: PartialEq>(
        pages: Range<usize>,
        key: impl Fn(usize) -> K,
    ) -> Vec<(Range<usize>, K)> {
        let mut runs: Vec<(Range<usize>, K)> = Vec::new();
        for at in pages {
            let found = key(at);
            match runs.last_mut() {
                Some((run, last)) if *last == found => run.end = at + 1,
                _ => runs.push((at..at + 1, found)),
            }
        }
        runs
    }
}

/// Pages that KSM may have one page map (`ksm_max_page_sharing`).
const SHARED_BY: u64 = 256;

/// Returns how many of these pages have the page of another one once KSM has merged all that are equal, and how many the zero
/// page.
pub fn mergeable(pages: impl Iterator<Item = Words>) -> (u64, u64) {
    let mut equal: Vec<(Words, u64)> = Vec::new();
    for words in pages {
        match equal.iter_mut().find(|(known, _)| *known == words) {
            Some((_, count)) => *count += 1,
            None => equal.push((words, 1)),
        }
    }
    let (empty, others): (Vec<_>, Vec<_>) = equal.into_iter().partition(|it| it.0 == ZERO);
    let shared = others.iter().map(|it| it.1 - it.1.div_ceil(SHARED_BY));
    (shared.sum(), empty.iter().map(|it| it.1).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    fn written(origin: u64, salt: u64) -> Option<Words> {
        let words = (0..8).map(|word| origin + word * PAGE / 8);
        let words: Vec<_> = words
            .map(|origin| Content::Written { origin, salt })
            .collect();
        words.try_into().ok()
    }

    fn anonymous() -> Memory {
        let mut memory = Memory::new(Below::Nothing, 0x10000, 8, 0, PAGE);
        memory.write(0, 0..8, 0..WORDS, 0);
        memory
    }

    #[test]
    fn a_fork_parts_private_pages_and_not_shared_ones() {
        let mut memory = anonymous();
        assert_eq!(memory.fork(), 1);
        memory.write(1, 2..3, 0..WORDS, 7);
        assert_eq!(memory.content(0, 2), written(0x12000, 0));
        assert_eq!(memory.content(1, 2), written(0x12000, 7));

        let mut memory = Memory::new(Below::Shared, 0x10000, 4, 4, PAGE);
        memory.fork();
        memory.write(1, 2..3, 0..WORDS, 7);
        assert_eq!(memory.content(0, 2), written(0x12000, 7));
    }

    #[test]
    fn a_move_keeps_what_was_written_elsewhere() {
        let mut memory = anonymous();
        memory.moved(0, 0x90000);
        assert_eq!(memory.content(0, 3), written(0x13000, 0));
        memory.write(0, 3..4, 0..WORDS, 1);
        assert_eq!(memory.content(0, 3), written(0x93000, 1));
    }

    #[test]
    fn pages_that_a_vma_is_extended_by_are_empty_and_of_its_kind() {
        let mut memory = anonymous();
        memory.each(0, 3..8, |page| {
            (page.locked, page.poison) = (true, page.own.is_none())
        });
        memory.unmap(0, 4..8);
        memory.extend(0, 4..8);
        assert_eq!(memory.content(0, 3), written(0x13000, 0));
        assert_eq!(memory.content(0, 7), Some(ZERO));
        assert!(memory.can_write(0, 7) && memory.views[0].pages[7].locked);
    }

    #[test]
    fn dropped_pages_show_what_lies_below() {
        let mut memory = anonymous();
        memory.drop_pages(0, 1..2);
        assert_eq!(memory.content(0, 1), Some(ZERO));

        let mut memory = Memory::new(Below::Private, 0x10000, 4, 3, PAGE);
        memory.write_file(0..3, 5);
        memory.write(0, 1..2, 0..WORDS, 6);
        assert_eq!(memory.content(0, 1), written(0x11000, 6));
        memory.drop_pages(0, 0..4);
        assert_eq!(memory.content(0, 1), written(0x1000, 5));
        assert!(memory.content(0, 3).is_none() && !memory.can_read(0, 3));
    }

    #[test]
    fn a_hole_leaves_private_copies_and_the_end_of_a_file_does_not() {
        let mut memory = Memory::new(Below::Private, 0x10000, 4, 4, PAGE);
        memory.write_file(0..4, 5);
        memory.write(0, 1..3, 0..WORDS, 6);
        memory.punch(0..2 * WORDS);
        assert_eq!(memory.content(0, 0), Some(ZERO));
        assert_eq!(memory.content(0, 1), written(0x11000, 6));
        memory.truncate(2 * WORDS);
        assert!(memory.can_read(0, 1) && !memory.can_read(0, 2));
        memory.truncate(4 * WORDS);
        assert_eq!(memory.content(0, 2), Some(ZERO));
    }

    #[test]
    fn what_is_populated_is_the_process_s_own() {
        let mut memory = Memory::new(Below::Private, 0x10000, 4, 4, PAGE);
        memory.write_file(0..4, 5);
        memory.each(0, 2..3, |page| page.write = false);
        memory.populate(0, 1..3);
        memory.write_file(0..4, 6);
        let file = |at: u64, salt| written(at * PAGE, salt);
        assert_eq!(memory.content(0, 0), file(0, 6));
        assert_eq!(memory.content(0, 1), file(1, 5));
        assert_eq!(memory.content(0, 2), file(2, 6));
        // Empty pages are there, too.
        let mut memory = Memory::new(Below::Nothing, 0x10000, 2, 0, PAGE);
        memory.populate(0, 0..1);
        assert!(memory.views[0].pages[0].own.is_some() && memory.views[0].pages[1].own.is_none());
    }

    #[test]
    fn freed_pages_may_be_zero_until_they_are_written() {
        let mut memory = anonymous();
        memory.free(0, 0..8);
        let freed = written(0x11000, 0).map(|words| words.map(Content::freed));
        assert_eq!(memory.content(0, 1), freed);
        memory.write(0, 1..2, 0..WORDS, 3);
        assert_eq!(memory.content(0, 1), written(0x11000, 3));
        // With them a userfaultfd's protection may go.
        assert!(!memory.is_open(0, 2));
        memory.each(0, 0..8, |page| page.write_protected = true);
        assert!(memory.is_open(0, 2) && !memory.is_open(0, 1));
    }

    #[test]
    fn a_userfaultfd_is_asked_for_what_is_not_there() {
        let mut memory = anonymous();
        memory.drop_pages(0, 0..4);
        memory.each(0, 0..8, |page| (page.registered, page.asks) = (true, true));
        let found = |memory: &Memory, view| [3, 4].map(|at| memory.can_read(view, at));
        assert_eq!(found(&memory, 0), [false, true]);
        assert!(!memory.can_force(0, 3) && !memory.can_write(0, 3) && memory.can_force(0, 4));
        // Neither a child has it, nor a VMA that was moved.
        memory.fork();
        assert_eq!(found(&memory, 1), [true, true]);
        memory.moved(0, 0x90000);
        assert_eq!(found(&memory, 0), [true, true]);
    }

    #[test]
    fn accesses_are_refused_where_something_is_in_the_way() {
        let mut memory = anonymous();
        memory.unmap(0, 0..1);
        memory.guard(0, 1..2, true);
        memory.each(0, 2..3, |page| page.poison = true);
        memory.each(0, 3..4, |page| page.write_protected = true);
        memory.each(0, 4..5, |page| page.write = false);
        let read: Vec<bool> = (0..6).map(|at| memory.can_read(0, at)).collect();
        let write: Vec<bool> = (0..6).map(|at| memory.can_write(0, at)).collect();
        assert_eq!(read, [false, false, false, true, true, true]);
        assert_eq!(write, [false, false, false, false, false, true]);
        // A child has no userfaultfd, and the markers.
        let child = memory.fork();
        assert!(
            memory.can_write(child, 3) && !memory.can_read(child, 1) && !memory.can_read(child, 2)
        );
    }

    #[test]
    fn a_word_that_is_written_leaves_the_others_of_its_page() {
        let mut memory = anonymous();
        let child = memory.fork();
        memory.write(child, 2..3, 3..4, 9);
        let mut expected = written(0x12000, 0).unwrap();
        assert_eq!(memory.content(0, 2), Some(expected));
        let origin = 0x12000 + 3 * PAGE / 8;
        expected[3] = Content::Written { origin, salt: 9 };
        assert_eq!(memory.content(child, 2), Some(expected));
    }

    #[test]
    fn holes_and_ends_may_lie_inside_a_page() {
        let mut memory = Memory::new(Below::Private, 0x10000, 4, 4, PAGE);
        memory.write_file(0..4, 5);
        memory.write(0, 2..4, 0..WORDS, 6);
        memory.punch(3..WORDS + 5);
        let zeroes = |page: &Words| page.map(|word| word == Content::Zero);
        assert_eq!(
            memory
                .file
                .iter()
                .map(zeroes)
                .map(|it| it.iter().filter(|it| **it).count())
                .collect::<Vec<_>>(),
            [5, 5, 0, 0]
        );
        memory.truncate(2 * WORDS + 3);
        assert_eq!(memory.content(0, 2), written(0x12000, 6));
        assert_eq!(
            zeroes(&memory.file[2]),
            [false, false, false, true, true, true, true, true]
        );
        assert!(memory.content(0, 3).is_none());
    }

    #[test]
    fn a_child_lacks_what_advice_keeps_from_it() {
        let mut memory = anonymous();
        memory.each(0, 1..2, |page| page.not_forked = true);
        memory.each(0, 2..3, |page| page.wiped_on_fork = true);
        let child = memory.fork();
        assert!(!memory.can_read(child, 1) && memory.can_read(0, 1));
        assert_eq!(memory.content(child, 2), Some(ZERO));
        assert_eq!(memory.content(0, 2), written(0x12000, 0));
    }

    #[test]
    fn a_device_has_what_its_process_maps_until_that_lets_it_go() {
        let mut memory = anonymous();
        memory.each(0, 1..4, |page| page.pinned = true);
        let child = memory.fork();
        memory.drop_pages(0, 2..3);
        memory.guard(0, 3..4, true);
        memory.write(0, 1..2, 0..WORDS, 4);
        memory.moved(0, 0x90000);
        let pinned = |view: usize| {
            memory.views[view]
                .pages
                .iter()
                .filter(|it| it.pinned)
                .count()
        };
        assert_eq!((pinned(0), pinned(child)), (1, 0));
        assert!(memory.views[0].pages[1].pinned);
    }

    #[test]
    fn neighbours_are_alike_where_one_rule_has_their_words() {
        let mut memory = anonymous();
        let runs = |memory: &Memory| {
            let runs = Memory::runs(0..8, |at| memory.likeness(0, at));
            runs.into_iter().map(|(run, _)| run).collect::<Vec<_>>()
        };
        assert_eq!((runs(&memory).len(), runs(&memory)[0].end), (1, 8));
        // One word of each page, and no access to one page.
        memory.write(0, 2..5, 3..4, 9);
        assert_eq!(runs(&memory), [0..2, 2..5, 5..8]);
        memory.unmap(0, 3..4);
        assert_eq!(runs(&memory), [0..2, 2..3, 3..4, 4..5, 5..8]);
        assert!(memory.likeness(0, 3).is_none());
        // A page that was given up may be gone alone.
        memory.free(0, 5..8);
        assert_eq!(runs(&memory)[4..], [5..6, 6..7, 7..8]);
        // Equal pages go on from no page.
        memory.write_equal(0, &[0, 1], 1);
        assert_eq!(runs(&memory)[..2], [0..1, 1..2]);
    }

    #[test]
    fn a_watched_page_is_written_if_it_was_stored_to() {
        let mut memory = anonymous();
        memory.drop_pages(0, 6..8);
        memory.watch(0, 0..8, |at| at < 6);
        memory.write(0, 2..3, 3..4, 9);
        memory.write(0, 7..8, 0..WORDS, 9);
        memory.free(0, 4..5);
        let found = (0..8).map(|at| memory.is_written(0, at));
        let (no, yes) = (Some(false), Some(true));
        assert_eq!(
            found.collect::<Vec<_>>(),
            [no, no, yes, no, None, no, None, yes]
        );
        // Pages that are mapped together are written together.
        let any = |pages| memory.is_any_written(0, pages);
        assert_eq!((any(0..2), any(0..4), any(4..6)), (no, yes, None));
        // What a child stores is its own, and what goes is not there any more.
        let child = memory.fork();
        memory.write(child, 0..1, 0..WORDS, 9);
        assert_eq!(memory.is_written(0, 0), no);
        memory.drop_pages(0, 0..1);
        assert_eq!(memory.is_written(0, 0), None);

        let mut memory = Memory::new(Below::Shared, 0x10000, 4, 4, PAGE);
        memory.watch(0, 0..4, |_| true);
        memory.write(0, 1..2, 0..WORDS, 9);
        memory.write_by_child(0, 2..3, 0..WORDS, 9);
        let found = (0..4).map(|at| memory.is_written(0, at));
        assert_eq!(found.collect::<Vec<_>>(), [None, yes, None, None]);
        assert_eq!(memory.content(0, 2), written(0x12000, 9));
    }

    #[test]
    fn a_page_is_lost_by_all_who_share_it() {
        let mut memory = anonymous();
        memory.each(0, 1..2, |page| page.pinned = true);
        let child = memory.fork();
        memory.write(child, 2..3, 0..WORDS, 7);
        memory.lose(child, 1..4);
        let lost = |view: usize| {
            (0..5)
                .map(|at| !memory.can_read(view, at))
                .collect::<Vec<_>>()
        };
        assert_eq!(lost(child), [false, true, true, true, false]);
        assert_eq!(lost(0), [false, false, false, true, false]);
    }

    #[test]
    fn pages_that_others_may_have_are_not_certain() {
        let mut memory = anonymous();
        memory.write_equal(0, &[1, 2], 1);
        memory.drop_pages(0, 3..4);
        memory.zero(0, 4..5);
        memory.free(0, 5..6);
        let certain = (0..7).map(|at| memory.is_certain(0, at));
        assert_eq!(
            certain.collect::<Vec<_>>(),
            [true, false, false, false, false, false, true]
        );
        let zero = (0..7).map(|at| memory.may_be_zero_page(0, at));
        assert_eq!(
            zero.collect::<Vec<_>>(),
            [false, false, false, true, true, true, false]
        );
    }

    #[test]
    fn equal_pages_are_counted() {
        let mut memory = anonymous();
        assert_eq!(mergeable(memory.all_words(0)), (0, 0));
        memory.write_equal(0, &[1, 2, 3, 4], 1);
        memory.drop_pages(0, 5..7);
        assert_eq!(mergeable(memory.all_words(0)), (3, 2));
        let many = (0..600).map(|_| memory.content(0, 1).unwrap());
        assert_eq!(mergeable(many), (597, 0));
    }

    #[test]
    fn runs_are_as_long_as_they_can_be() {
        let runs = Memory::runs(0..7, |at| at / 3);
        assert_eq!(runs, [(0..3, 0), (3..6, 1), (6..7, 2)]);
    }
}
