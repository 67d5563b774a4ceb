//! What the kernel's own getters say of a process's memory, packed: millions of pages fit in a line.

use base64::engine::general_purpose::STANDARD;
use base64::Engine;
use serde::{Deserialize, Serialize};

/// The most pages of a process whose `/proc/PID/pagemap` entries one [`Command::Getters`](crate::Command::Getters) reads.
pub const MAX_GETTER_PAGES: u64 = 1 << 20;
/// Runs of pages that are enough: once there are so many, no more are read.
pub const ENOUGH_RUNS: usize = 1 << 16;

/// Bits of an entry of `/proc/PID/pagemap` (`PM_*`, fs/proc/task_mmu.c).
pub mod pagemap {
    /// The page frame number of a present page; of a swapped one type and offset.
    pub const FRAME: u64 = (1 << 55) - 1;
    /// The page is mapped once.
    pub const EXCLUSIVE: u64 = 1 << 56;
    /// Write-protected by userfaultfd.
    pub const UFFD_WP: u64 = 1 << 57;
    /// A page of a file, or shared anonymous memory.
    pub const FILE: u64 = 1 << 61;
    /// Swapped out, or on its way, or a marker.
    pub const SWAP: u64 = 1 << 62;
    /// Present.
    pub const PRESENT: u64 = 1 << 63;
    /// Where the offset of a swapped page begins in [`FRAME`]; its type is below.
    pub const OFFSET_SHIFT: u32 = 5;
}

/// Categories of `PAGEMAP_SCAN` (`PAGE_IS_*`, include/uapi/linux/fs.h).
pub mod category {
    /// Of a file, or shared anonymous memory.
    pub const FILE: u64 = 1 << 2;
    /// Present.
    pub const PRESENT: u64 = 1 << 3;
    /// Not present, and not nothing.
    pub const SWAPPED: u64 = 1 << 4;
    /// The zero page.
    pub const ZERO: u64 = 1 << 5;
    /// Mapped by a block, or of hugetlb.
    pub const HUGE: u64 = 1 << 6;
    /// All that are asked for.
    pub const ALL: u64 = FILE | PRESENT | SWAPPED | ZERO | HUGE;
}

/// What the kernel says of a process, in the process's own words and in those of its pages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Getters {
    /// What is not nothing in `/proc/PID/pagemap`, with `/proc/kpageflags` and `/proc/kpagecount` of what is present:
    /// [`PageRun`]s by address.
    pub pages: Packed<5>,
    /// Page frames of these that the process that has read them maps itself, which `/proc/kpagecount` counts, and what hangs
    /// on how often a page is mapped: in order.
    pub reader: Packed<1>,
    /// What `PAGEMAP_SCAN` finds present or swapped: start, end and [`category`]; none before 6.7.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scan: Option<Packed<3>>,
    /// `/proc/PID/smaps`.
    pub smaps: String,
    /// What sysfs counts of folios by order; empty before 6.12.
    pub sizes: Vec<SizeCounted>,
    /// Where it was too much: the address from which on `pages` and `scan` say nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<u64>,
}

/// `stats` of one size in /sys/kernel/mm/transparent_hugepage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SizeCounted {
    /// The order.
    pub order: u8,
    /// `nr_anon`.
    pub anonymous: i64,
    /// `nr_anon_partially_mapped`.
    pub partial: i64,
}

/// Pages one behind the other of which the same is said, but for their page frames or slots, which follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageRun {
    /// The first page's virtual address.
    pub address: u64,
    /// How many.
    pub pages: u64,
    /// The first one's entry of `/proc/PID/pagemap`.
    pub entry: u64,
    /// What `/proc/kpageflags` says of each; 0 where none is present.
    pub flags: u64,
    /// What `/proc/kpagecount` says of each; 0 where none is present.
    pub count: u64,
}

impl PageRun {
    /// The entry of its `n`th page.
    #[must_use]
    pub fn entry_of(&self, n: u64) -> u64 {
        let frames = match self.entry & pagemap::PRESENT {
            0 => n << pagemap::OFFSET_SHIFT,
            _ => n,
        };
        self.entry.wrapping_add(frames)
    }
}

impl From<[u64; 5]> for PageRun {
    fn from([address, pages, entry, flags, count]: [u64; 5]) -> Self {
        Self {
            address,
            pages,
            entry,
            flags,
            count,
        }
    }
}

impl From<PageRun> for [u64; 5] {
    fn from(run: PageRun) -> Self {
        [run.address, run.pages, run.entry, run.flags, run.count]
    }
}

/// Records of `N` words, which travel as base64 of little-endian bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(into = "String", try_from = "String")]
#[cfg_attr(feature = "schema", schemars(with = "String"))]
pub struct Packed<const N: usize>(
    /// The records.
    pub Vec<[u64; N]>,
);

impl<const N: usize> From<Packed<N>> for String {
    fn from(packed: Packed<N>) -> String {
        let words = packed.0.iter().flatten();
        STANDARD.encode(
            words
                .flat_map(|word| word.to_le_bytes())
                .collect::<Vec<u8>>(),
        )
    }
}

impl<const N: usize> TryFrom<String> for Packed<N> {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let bytes = STANDARD.decode(text).map_err(|error| error.to_string())?;
        let (records, rest) = (bytes.chunks_exact(8 * N), bytes.len() % (8 * N));
        if rest != 0 {
            return Err(format!(
                "{} bytes are not records of {N} words: {rest} are left",
                bytes.len()
            ));
        }
        let record = |bytes: &[u8]| {
            let mut words = [0; N];
            for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
                *word = u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
            }
            words
        };
        Ok(Self(records.map(record).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_survive_and_what_is_none_is_refused() {
        let packed = Packed(vec![[1, u64::MAX], [1 << 63, 0]]);
        let text = String::from(packed.clone());
        assert_eq!(Packed::<2>::try_from(text.clone()), Ok(packed));
        assert!(Packed::<3>::try_from(text)
            .unwrap_err()
            .contains("32 bytes are not records of 3 words"));
        assert!(Packed::<2>::try_from("*".to_owned()).is_err());
    }

    #[test]
    fn a_run_counts_frames_or_slots() {
        let run = |entry| PageRun::from([0x1000, 4, entry, 0, 0]);
        let present = run(pagemap::PRESENT | pagemap::FILE | 0x41200);
        assert_eq!(present.entry_of(3), present.entry + 3);
        let swapped = run(pagemap::SWAP | 7 << 5 | 2);
        assert_eq!(swapped.entry_of(3), pagemap::SWAP | 10 << 5 | 2);
    }
}
