// SPDX-License-Identifier: GPL-2.0-only
//! Memory that is read page by page on demand: the file holds it at no word's boundary, or packed.

use std::fmt::Debug;
use std::io;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use stage1::PhysicalAddress;

use crate::{Mapping, Range, PAGE};

/// A source of pages.
pub(crate) trait Pages: Debug + Send + Sync {
    /// Reads the start of the page at `page` into `to`, which is at most a page long. Returns `false` if the source
    /// lacks the page.
    fn read(&self, page: PhysicalAddress, to: &mut [u8]) -> bool;

    /// Returns the first part of `range`, which is made of pages, that may hold anything but zeros; `None` if all are
    /// zeros.
    fn data(&self, range: Range) -> Option<Range> {
        Some(range)
    }
}

/// Initial state of a page, which is the value of fresh memory: not read yet.
const NOT_ASKED: u8 = 0;
const HERE: u8 = 1;
const NOT_THERE: u8 = 2;

/// A range of memory, of which each page is read once, on first use.
///
/// Only pages that were read take memory, whatever the length of the range.
#[derive(Debug)]
pub(crate) struct Fetched {
    range: Range,
    words: Mapping,
    /// A byte for each page.
    states: Mapping,
    pages: Arc<dyn Pages>,
    /// Held while a page is read.
    bringing: Mutex<()>,
}

impl Fetched {
    /// # Errors
    /// If the system has no addresses left for so much.
    pub(crate) fn new(range: Range, pages: Arc<dyn Pages>) -> io::Result<Self> {
        let bytes = usize::try_from(range.bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let count = (range.bytes / PAGE).next_multiple_of(PAGE) as usize;
        Ok(Self {
            range,
            words: Mapping::zeros(bytes)?,
            states: Mapping::zeros(count)?,
            pages,
            bringing: Mutex::new(()),
        })
    }

    pub(crate) fn range(&self) -> Range {
        self.range
    }

    /// Returns `count` words at byte `offset` of the range, in which they must lie; `None` if the source lacks one of
    /// their pages.
    pub(crate) fn words(&self, offset: u64, count: usize) -> Option<&[u64]> {
        let end = offset + count as u64 * 8;
        let pages = offset / PAGE..end.div_ceil(PAGE);
        pages.clone().all(|page| self.is_here(page)).then(|| {
            // SAFETY: each page was written before its state became HERE, which `is_here` has loaded (Acquire), and
            // is never written again.
            unsafe { self.words.words(offset as usize, count) }
        })
    }

    /// Reads the first bytes of the page at `address`, without keeping the page.
    pub(crate) fn peek(&self, address: PhysicalAddress, to: &mut [u8]) -> bool {
        self.pages.read(address, to)
    }

    /// Returns the result of [`Pages::data`].
    pub(crate) fn data(&self, range: Range) -> Option<Range> {
        self.pages.data(range)
    }

    fn state(&self, page: u64) -> &AtomicU8 {
        assert!(page < self.range.bytes / PAGE, "a page of the range");
        // SAFETY: the byte lies in the mapping, which is zeroed, lives as long as `self`, and is accessed only here,
        // as atomics; an AtomicU8 has the size and alignment of a byte.
        unsafe { &*self.states.start().as_ptr().add(page as usize).cast() }
    }

    fn is_here(&self, page: u64) -> bool {
        let state = self.state(page);
        if state.load(Ordering::Acquire) == NOT_ASKED {
            let guard = self.bringing.lock();
            if state.load(Ordering::Acquire) == NOT_ASKED {
                state.store(self.bring(page), Ordering::Release);
            }
            drop(guard);
        }
        state.load(Ordering::Acquire) == HERE
    }

    fn bring(&self, page: u64) -> u8 {
        let mut bytes = [0; PAGE as usize];
        let address = PhysicalAddress(self.range.base.0 + page * PAGE);
        if !self.pages.read(address, &mut bytes) {
            return NOT_THERE;
        }
        // SAFETY: no slice of this page exists, as its state is not HERE, and the caller holds the lock.
        unsafe { self.words.write((page * PAGE) as usize, &bytes) };
        HERE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages that each hold their number; every third is absent.
    #[derive(Debug, Default)]
    struct Numbered(Mutex<Vec<u64>>);

    impl Pages for Numbered {
        fn read(&self, page: PhysicalAddress, to: &mut [u8]) -> bool {
            let number = page.0 / PAGE;
            self.0.lock().unwrap().push(number);
            for word in to.chunks_exact_mut(8) {
                word.copy_from_slice(&number.to_le_bytes());
            }
            number % 3 != 0
        }
    }

    #[test]
    fn each_page_is_read_once_and_alone() {
        let numbered = Arc::new(Numbered::default());
        // Far more than any machine has: a page that is not read takes no memory.
        let range = Range::new(PhysicalAddress(0x10 * PAGE), 1 << 40).unwrap();
        let fetched = Fetched::new(range, numbered.clone()).unwrap();
        // Pages 0x10, 0x11 are there, 0x12 is not.
        let two = fetched.words(0, 1024).unwrap();
        assert_eq!((two[0], two[1023]), (0x10, 0x11));
        assert!(fetched.words(PAGE + 8, 512).is_none());
        assert_eq!(fetched.words(2 * PAGE - 8, 1), Some(&[0x11][..]));
        assert!(fetched.words(2 * PAGE, 1).is_none());
        assert_eq!(*numbered.0.lock().unwrap(), [0x10, 0x11, 0x12]);
    }
}
