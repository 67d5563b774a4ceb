// SPDX-License-Identifier: GPL-2.0-only
//! L17, in sums: smaps of each VMA, and the counters of sizes in sysfs.

use linux::counted::Size;
use linux::folio::Kind as Memory;
use linux::getters::{SizeCounted, Totals, TOTALS};
use linux::pte::{Kind, SwapKind};
use linux::vma::{Backing, Vma};
use stage1::Level;

use super::l17_pages::Place;

/// Places in [`TOTALS`].
const RSS: usize = 0;
const ANONYMOUS: usize = 1;
const KSM: usize = 2;
const BLOCKS: [usize; 3] = [3, 4, 5];
const SHARED: usize = 6;
const HUGETLB: usize = 7;
const SWAP: usize = 8;

/// The values that smaps should have for a VMA, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    of: [u64; TOTALS.len()],
    /// A page is there of which it is not known how often it is mapped.
    uncounted: bool,
}

impl Sums {
    /// Adds a page of so many bytes; gives whether it is known what smaps makes of it.
    pub fn add(&mut self, place: &Place<'_>, bytes: u64) -> bool {
        if !place.pte.present() {
            let swapped =
                matches!(place.pte.kind(), Kind::Swap(entry) if entry.kind() == SwapKind::Swapped);
            self.of[SWAP] += if swapped { bytes } else { 0 };
            return true;
        }
        if place.pte.special() && place.level == Level::L3 {
            return true;
        }
        let Some(page) = place.page.filter(|_| !place.unowned_block()) else {
            return false;
        };
        if place.hugetlb() {
            self.of[HUGETLB] += bytes;
            return true;
        }
        self.of[RSS] += bytes;
        self.of[ANONYMOUS] += if page.kind.anonymous() { bytes } else { 0 };
        self.of[KSM] += if page.kind == Memory::Ksm { bytes } else { 0 };
        if place.level != Level::L3 {
            let of = match page.kind {
                kind if kind.anonymous() => BLOCKS[0],
                _ if page.swapbacked => BLOCKS[1],
                _ => BLOCKS[2],
            };
            self.of[of] += bytes;
        }
        match place.mapcount() {
            Some(count) => self.of[SHARED] += if count > 1 { bytes } else { 0 },
            None => self.uncounted = true,
        }
        true
    }
}

/// The sentence where smaps says something else of a VMA.
pub(super) fn check(smaps: &[((u64, u64), Totals)], vma: &Vma, sums: &Sums) -> Option<String> {
    let mut all = smaps.iter();
    // One that was changed meanwhile is not this one.
    let (_, said) = all.find(|(range, _)| *range == (vma.start, vma.end))?;
    let mut wrong = Vec::new();
    for (at, (name, _)) in TOTALS.iter().enumerate() {
        let unknown = match at {
            SHARED => sums.uncounted,
            // Of shmem smaps counts what is swapped of the file.
            SWAP => vma.backing() != Backing::Anonymous,
            _ => false,
        };
        if !unknown && said.0[at] != sums.of[at] {
            wrong.push(format!(
                "{name} are {} KiB, and {} KiB are so",
                said.0[at] >> 10,
                sums.of[at] >> 10
            ));
        }
    }
    (!wrong.is_empty()).then(|| {
        format!(
            "smaps of VMA 0x{:016x}-0x{:016x} is not what its entries are: {}",
            vma.start,
            vma.end,
            wrong.join("; ")
        )
    })
}

/// The sentence for each counter of a size that sysfs has otherwise.
pub(super) fn sizes(said: &[SizeCounted], counted: &[Size]) -> Vec<String> {
    let mut wrong = Vec::new();
    for said in said {
        let Some(size) = counted.iter().find(|size| size.order == said.order) else {
            continue;
        };
        let pairs = [
            ("nr_anon", said.anonymous, size.anonymous),
            ("nr_anon_partially_mapped", said.partial, size.partial),
        ];
        let differ = pairs
            .into_iter()
            .filter(|(_, said, counted)| said != counted);
        wrong.extend(differ.map(|(name, said_of_it, counted)| {
            format!(
                "sysfs says {name} of order {} is {said_of_it}, and the kernel's counters are {counted} over all CPUs",
                said.order
            )
        }));
    }
    wrong
}
