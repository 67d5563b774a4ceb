//! The kernel's own interfaces for a process's memory, packed: millions of pages fit in a line.

use base64::engine::general_purpose::STANDARD;
use base64::Engine;
use serde::{Deserialize, Serialize};

/// Maximum number of a process's pages whose `/proc/PID/pagemap` entries one
/// [`Command::Getters`](crate::Command::Getters) reads.
pub const MAX_GETTER_PAGES: u64 = 1 << 20;
/// Number of runs of pages after which no more are read.
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
    /// Shift of the offset of a swapped page in [`FRAME`]; its type is below.
    pub const OFFSET_SHIFT: u32 = 5;
}

/// Categories of `PAGEMAP_SCAN` (`PAGE_IS_*`, include/uapi/linux/fs.h).
pub mod category {
    /// Memory of a file, or shared anonymous memory.
    pub const FILE: u64 = 1 << 2;
    /// Present.
    pub const PRESENT: u64 = 1 << 3;
    /// Not present, and not empty.
    pub const SWAPPED: u64 = 1 << 4;
    /// The zero page.
    pub const ZERO: u64 = 1 << 5;
    /// Mapped by a block, or of hugetlb.
    pub const HUGE: u64 = 1 << 6;
    /// All categories that are requested.
    pub const ALL: u64 = FILE | PRESENT | SWAPPED | ZERO | HUGE;
}

/// The kernel's data on a process: by `/proc/PID` and by its pages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Getters {
    /// Entries of `/proc/PID/pagemap` that are not empty, with `/proc/kpageflags` and `/proc/kpagecount` of the present
    /// ones: [`PageRun`]s by address.
    pub pages: Packed<5>,
    /// Those of the page frames that the reading process itself maps, in order. `/proc/kpagecount` and all that depends
    /// on the number of mappings include it.
    pub reader: Packed<1>,
    /// Ranges that `PAGEMAP_SCAN` finds present or swapped: start, end and [`category`]; none before 6.7.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scan: Option<Packed<3>>,
    /// `/proc/PID/smaps`.
    pub smaps: String,
    /// Counts of folios by order in sysfs; empty before 6.12.
    pub sizes: Vec<SizeCounted>,
    /// The address from which on `pages` and `scan` are incomplete, if it was too much.
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

/// Successive pages with the same data, and page frames or slots that follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageRun {
    /// The first page's virtual address.
    pub address: u64,
    /// Number of pages.
    pub pages: u64,
    /// The first one's entry of `/proc/PID/pagemap`.
    pub entry: u64,
    /// `/proc/kpageflags` of each; 0 if none is present.
    pub flags: u64,
    /// `/proc/kpagecount` of each; 0 if none is present.
    pub count: u64,
}

impl PageRun {
    /// Returns the entry of its `n`th page.
    #[must_use]
    pub fn entry_of(&self, n: u64) -> u64 {
        let frames = if self.entry & pagemap::PRESENT == 0 {
            n << pagemap::OFFSET_SHIFT
        } else {
            n
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
