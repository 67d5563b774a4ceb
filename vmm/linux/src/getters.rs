// SPDX-License-Identifier: GPL-2.0-only
//! Decodes the kernel's own interfaces for a process's memory: `/proc/PID/pagemap`, `/proc/kpageflags`,
//! `/proc/kpagecount`, `PAGEMAP_SCAN`, `/proc/PID/smaps` and the counters of folio sizes, as the agent has read them.

pub use protocol::{category, pagemap, Getters, Packed, PageRun, SizeCounted};

/// Bits of `/proc/kpageflags` (`KPF_*`, include/uapi/linux/kernel-page-flags.h) that are not bits of `flags`.
pub mod kpf {
    /// Was used: by `folio_mark_accessed()`.
    pub const REFERENCED: u64 = 1 << 2;
    /// On an LRU list, and not in transit from one to another.
    pub const LRU: u64 = 1 << 5;
    /// Was used more than once.
    pub const ACTIVE: u64 = 1 << 6;
    /// A page of the slab allocator.
    pub const SLAB: u64 = 1 << 7;
    /// Free.
    pub const BUDDY: u64 = 1 << 10;
    /// Mapped at all, it or another page of its folio.
    pub const MMAP: u64 = 1 << 11;
    /// Anonymous.
    pub const ANON: u64 = 1 << 12;
    /// In the swap cache.
    pub const SWAPCACHE: u64 = 1 << 13;
    /// The first page of a folio of several.
    pub const COMPOUND_HEAD: u64 = 1 << 15;
    /// A tail page of a compound page.
    pub const COMPOUND_TAIL: u64 = 1 << 16;
    /// A page of hugetlb.
    pub const HUGE: u64 = 1 << 17;
    /// Broken.
    pub const HWPOISON: u64 = 1 << 19;
    /// There is no such page.
    pub const NOPAGE: u64 = 1 << 20;
    /// Merged by KSM.
    pub const KSM: u64 = 1 << 21;
    /// A page of a large folio that does not belong to hugetlb.
    pub const THP: u64 = 1 << 22;
    /// The zero page.
    pub const ZERO_PAGE: u64 = 1 << 24;
    /// A page table.
    pub const PGTABLE: u64 = 1 << 26;
}

/// Bits of `flags` by their names in the kernel (`PG_*`), and their number in `/proc/kpageflags`: the folio's bits,
/// which `stable_page_flags()` (fs/proc/page.c) copies unchanged.
pub const COPIED: [(&str, u32); 12] = [
    ("locked", 0),
    ("referenced", 2),
    ("uptodate", 3),
    ("dirty", 4),
    ("lru", 5),
    ("active", 6),
    ("writeback", 8),
    ("reclaim", 9),
    ("swapbacked", 14),
    ("unevictable", 18),
    ("reserved", 32),
    ("mlocked", 33),
];

/// The counts of smaps for one VMA, in bytes, by the places of [`TOTALS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals(pub [u64; TOTALS.len()]);

/// The sums over smaps: our name, and the lines that add up to it.
pub const TOTALS: [(&str, &[&str]); 9] = [
    ("Rss", &["Rss"]),
    ("Anonymous", &["Anonymous"]),
    ("KSM", &["KSM"]),
    ("AnonHugePages", &["AnonHugePages"]),
    ("ShmemPmdMapped", &["ShmemPmdMapped"]),
    ("FilePmdMapped", &["FilePmdMapped"]),
    (
        "Shared_Clean and Shared_Dirty",
        &["Shared_Clean", "Shared_Dirty"],
    ),
    (
        "Shared_Hugetlb and Private_Hugetlb",
        &["Shared_Hugetlb", "Private_Hugetlb"],
    ),
    ("Swap", &["Swap"]),
];

/// Returns the totals of a text of smaps, by start and end of each VMA.
#[must_use]
pub fn totals(smaps: &str) -> Vec<((u64, u64), Totals)> {
    let mut all: Vec<((u64, u64), Totals)> = Vec::new();
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else {
            continue;
        };
        let Some(key) = first.strip_suffix(':') else {
            let address = |text| u64::from_str_radix(text, 16).ok();
            let range = first.split_once('-');
            let range = range.and_then(|(start, end)| Some((address(start)?, address(end)?)));
            all.extend(range.map(|range| (range, Totals::default())));
            continue;
        };
        let kilobytes = words.next().and_then(|number| number.parse::<u64>().ok());
        let (Some((_, totals)), Some(kilobytes)) = (all.last_mut(), kilobytes) else {
            continue;
        };
        for ((_, lines), total) in TOTALS.iter().zip(&mut totals.0) {
            *total += if lines.contains(&key) {
                kilobytes << 10
            } else {
                0
            };
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_of_each_vma() {
        let smaps = "1000-3000 rw-p 00000000 00:00 0 \nSize: 8 kB\nRss: 4 kB\nShared_Clean: 1 kB\nShared_Dirty: 2 kB\n\
                     Swap: 4 kB\nTHPeligible: 0\nVmFlags: rd wr \n4000-5000 r--p 0 00:00 0 a: b\nRss: 0 kB\n";
        let found = totals(smaps);
        assert_eq!(found[0].0, (0x1000, 0x3000));
        assert_eq!(found[0].1 .0, [4096, 0, 0, 0, 0, 0, 3072, 0, 4096]);
        assert_eq!(found[1], ((0x4000, 0x5000), Totals::default()));
        assert_eq!(found.len(), 2);
    }
}
