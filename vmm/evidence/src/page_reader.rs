// SPDX-License-Identifier: GPL-2.0-only
//! The pages of a snapshot, as rules ask for them.

use linux::counted::{Known, Queues};
use linux::folio::{NoPage, Page};
use linux::getters::COPIED;
use linux::structures::{Folios, NotKnown};
use snapshot::Snapshot;
use stage1::{PhysMemory, Regime};
use structures::lru_batches::LruBatches;
use structures::pages::{Layout, Pages};
use structures::View;

use crate::cpus::kernel_half;
use crate::gathered::NO_KERNEL;
use crate::Gathered;

/// The pages of a snapshot, or why they are not known.
pub fn folios<'g, M: PhysMemory + ?Sized>(
    memory: &'g M,
    upper: Option<&'g Regime>,
    gathered: &'g Result<Gathered, NotKnown>,
) -> Result<PageReader<'g, M>, NotKnown> {
    let gathered = gathered.as_ref().map_err(Clone::clone)?;
    let upper = upper.ok_or(NO_KERNEL)?;
    let queues = gathered.counted.as_ref().map(|counted| &counted.queues);
    let view = View { memory, upper };
    let mut read = PageReader::new(&gathered.layout, view, taken_off(queues));
    read.pages = read.pages.counting(gathered.counts_pages());
    read.batches = gathered.structure();
    Ok(read)
}

/// Asks something of the pages of a snapshot, where they are known.
pub fn with_folios<T>(snapshot: &Snapshot, ask: impl FnOnce(Option<&dyn Folios>) -> T) -> T {
    let gathered = Gathered::of(snapshot);
    let upper = kernel_half(&snapshot.cpus);
    let read = folios(&snapshot.memory, upper.as_ref(), &gathered).ok();
    ask(read.as_ref().map(|read| read as &dyn Folios))
}

/// Returns whether a folio that waits to be split may be on no list: a task that splits folios takes them off theirs before, later kernels one
/// by one (`deferred_split_scan()` in mm/huge_memory.c), and where the queues cannot be read it is not known.
fn taken_off(queues: Option<&Known<Queues>>) -> bool {
    !matches!(queues, Some(Ok(queues)) if !queues.is_scanned)
}

/// The pages of a snapshot.
#[derive(Debug)]
pub struct PageReader<'g, M: ?Sized> {
    /// Reads `struct page`.
    pub pages: Pages<'g, M>,
    /// True if it is not known which folios wait to be split.
    taken_off: bool,
    /// Folios in batches of the LRU lists.
    batches: Result<LruBatches, NotKnown>,
    /// Bits of `flags` that `/proc/kpageflags` copies: theirs there, and ours.
    copied: Vec<(u8, u32)>,
}

impl<'g, M: PhysMemory + ?Sized> PageReader<'g, M> {
    /// Creates a reader. `taken_off`: folios that wait to be split may be on no list.
    pub fn new(layout: &'g Layout, view: View<'g, M>, taken_off: bool) -> Self {
        let of = |name: &str| COPIED.iter().find(|(known, _)| *known == name);
        let bits = layout.names.iter().flat_map(|(bit, names)| {
            let names = names.split('|').filter_map(of);
            names.map(|(_, copy)| (*bit, *copy))
        });
        PageReader {
            pages: Pages::new(layout, view),
            taken_off,
            batches: Err(NotKnown::from("they were not asked for")),
            copied: bits.collect(),
        }
    }
}

impl<M: PhysMemory + ?Sized + std::fmt::Debug> Folios for PageReader<'_, M> {
    fn page(&self, pfn: u64) -> Result<Page, NoPage> {
        let mut page = self.pages.page(pfn)?;
        page.split = page.split.filter(|_| !self.taken_off);
        Ok(page)
    }

    fn alike(&self, page: &Page, most: u64) -> u64 {
        self.pages.alike(page, most)
    }

    fn copied(&self, page: &Page) -> (u64, u64) {
        let each = self.copied.iter();
        each.fold((0, 0), |(known, set), (bit, copy)| {
            let bit = page.folio_flags >> bit & 1;
            (known | 1 << copy, set | bit << copy)
        })
    }

    fn charged(&self, page: &Page) -> Option<bool> {
        self.pages.memcg_data(page.head).map(|data| data != 0)
    }

    fn written_back(&self, page: &Page) -> Option<bool> {
        self.pages.written_back(page)
    }

    fn batched(&self, page: &Page) -> Result<u64, NotKnown> {
        let batches = self.batches.as_ref().map_err(Clone::clone)?;
        Ok(batches.of(self.pages.address(page.head)))
    }
}

#[cfg(test)]
mod tests {
    use linux::counted::{NotRead, Queues};

    use super::taken_off;

    #[test]
    fn a_folio_is_on_a_list_while_nobody_splits() {
        let queues = |is_scanned| Queues {
            is_scanned,
            ..Queues::default()
        };
        assert!(!taken_off(Some(&Ok(queues(false)))));
        assert!(taken_off(Some(&Ok(queues(true)))));
        let not_read = NotRead {
            why: "queued by list_lru".into(),
            later: false,
            not_built: false,
        };
        assert!(taken_off(Some(&Err(not_read))) && taken_off(None));
    }
}
