// SPDX-License-Identifier: GPL-2.0-only
//! The kinds of memory that areas of states are of: their backing, hint and size.

/// PMDs of a contiguous group at 4K (`CONT_PMDS`).
pub const PMDS: u64 = 16;

/// Backing and hint of an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Map {
    /// Private anonymous memory, hinted for huge pages: two blocks.
    Hinted,
    /// The same, starting half a block into one.
    HintedHalfIn,
    /// Private anonymous memory with `MADV_NOHUGEPAGE`: two blocks.
    Small,
    /// Private anonymous memory of one PMD's range, hinted.
    Pmd,
    /// The same, where that range is small enough for many of them.
    PmdToo,
    /// The same, and two blocks behind it.
    PmdAndBlocks,
    /// Private anonymous memory with `MADV_NOHUGEPAGE`: two PMDs' ranges, and two blocks behind them.
    Far,
    /// Anonymous shared memory: two blocks.
    Shared,
    /// A file of tmpfs, mapped shared.
    Tmpfs,
    /// A file of tmpfs, mapped private.
    TmpfsPrivate,
    /// A file of tmpfs that ends a page into the second block, mapped shared.
    TmpfsShort,
    /// A file of a tmpfs with `huge=always`, mapped shared.
    TmpfsHuge,
    /// The same, of which half a block is left until a last-level table ends.
    TmpfsHugeAcross,
    /// A file of a tmpfs with `huge=always` that ends a page into the second block, mapped shared.
    TmpfsHugeShort,
    /// A file of a tmpfs with `huge=always`, mapped private.
    TmpfsHugePrivate,
    /// A file of a PMD's range on a tmpfs with `huge=always`, mapped shared.
    TmpfsPmd,
    /// The same, mapped private.
    TmpfsPmdPrivate,
    /// A file of a PMD's range on a tmpfs without huge pages, mapped shared.
    TmpfsSpan,
    /// A file of ramfs, mapped shared.
    Ramfs,
    /// A file of ramfs, mapped private.
    RamfsPrivate,
    /// A file of a file system on a disk, mapped shared.
    Disk,
    /// The same, mapped private.
    DiskPrivate,
    /// A file of a read-only file system on a disk, which is read ahead, mapped private.
    ReadAhead,
    /// Two private hugetlb pages of a PMD's size.
    Hugetlb,
    /// Two shared ones.
    HugetlbShared,
    /// Two private hugetlb pages of a block's size.
    HugetlbBlock,
    /// Two shared ones.
    HugetlbBlockShared,
    /// Private ones of a block's size: two PMDs' ranges, and two blocks behind them.
    HugetlbBlockFar,
    /// A private hugetlb page of the size of a group of PMDs.
    HugetlbSpan,
}

impl Map {
    /// Returns whether it is of hugetlb pages.
    pub fn is_hugetlb(self) -> bool {
        matches!(
            self,
            Self::Hugetlb
                | Self::HugetlbShared
                | Self::HugetlbBlock
                | Self::HugetlbBlockShared
                | Self::HugetlbBlockFar
                | Self::HugetlbSpan
        )
    }

    /// Returns whether its files are stored on a disk, which the page cache is written back to.
    pub fn is_stored(self) -> bool {
        matches!(self, Self::Disk | Self::DiskPrivate)
    }
}
