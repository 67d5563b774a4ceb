//! Named arguments of operations: the memory and place of a mapping, flags, advice, kinds of access.

use serde::{Deserialize, Serialize};

/// The memory behind a mapping.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Backing {
    /// Anonymous memory; shared anonymous memory (shmem) with the flag `shared`.
    #[default]
    Anonymous,
    /// A file, opened as the protection and the flags need. `/dev/zero` works as well.
    File {
        /// Its path.
        path: String,
        /// The offset of the mapping's first byte.
        #[serde(default)]
        offset: u64,
    },
    /// Anonymous huge pages of hugetlb.
    Hugetlb {
        /// Their size in KiB.
        size_kib: u64,
    },
    /// A file of `memfd_create(2)` that this mapping alone refers to.
    Memfd {
        /// Its size; the mapping's when left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        size: Option<u64>,
        /// Makes it a hugetlb file with pages of this size in KiB.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hugetlb_kib: Option<u64>,
    },
}

/// The place of a mapping.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Placement {
    /// At an address of a given alignment with nothing mapped on either side, so that it never shares a VMA with a
    /// neighbour. The agent chooses; without randomization the address repeats.
    Isolated {
        /// The alignment, a power of two. When left out, it is the span of one level-2 descriptor (512 pages at 4K: 2
        /// MiB) or the size of a hugetlb page.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        align: Option<u64>,
        /// The distance of the address from that alignment, a multiple of the page size.
        #[serde(default)]
        offset: u64,
        /// Minimum gap that stays unmapped on either side; 512 pages when left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gap: Option<u64>,
    },
    /// Where the kernel puts a mapping whose address is 0.
    Kernel,
    /// The address that is given: a hint, or final with the flag `fixed` or `fixed_noreplace`.
    At {
        /// The address.
        address: u64,
    },
}

impl Default for Placement {
    fn default() -> Self {
        Self::Isolated {
            align: None,
            offset: 0,
            gap: None,
        }
    }
}

/// One bit of a mapping's protection, `PROT_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)] // the names are the kernel's own
pub enum Protection {
    Read,
    Write,
    Exec,
    Bti,
    Mte,
}

/// A flag of `mmap(2)`, `MAP_*`. `MAP_ANONYMOUS` and the hugetlb flags come from the backing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)] // the names are the kernel's own
pub enum MapFlag {
    Private,
    Shared,
    SharedValidate,
    Fixed,
    FixedNoreplace,
    Populate,
    Nonblock,
    Noreserve,
    Growsdown,
    Locked,
    Stack,
    Sync,
}

/// A flag of `mremap(2)`, `MREMAP_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)] // the names are the kernel's own
pub enum MoveFlag {
    Maymove,
    Fixed,
    Dontunmap,
}

/// A flag of `mlock2(2)`, `MLOCK_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)] // the names are the kernel's own
pub enum LockFlag {
    Onfault,
}

/// Registration modes of a range with userfaultfd, `UFFDIO_REGISTER_MODE_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum UffdMode {
    /// Accesses to pages that are not there.
    Missing,
    /// Writes to pages that `uffd_writeprotect` has protected.
    WriteProtect,
    /// Accesses to pages of a file that are in its page cache, and not mapped.
    Minor,
}

/// An advice of `madvise(2)`, `MADV_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)] // the names are the kernel's own
pub enum Advice {
    Normal,
    Random,
    Sequential,
    Willneed,
    Dontneed,
    Free,
    Remove,
    Dontfork,
    Dofork,
    Hwpoison,
    SoftOffline,
    Mergeable,
    Unmergeable,
    Hugepage,
    Nohugepage,
    Dontdump,
    Dodump,
    Wipeonfork,
    Keeponfork,
    Cold,
    Pageout,
    PopulateRead,
    PopulateWrite,
    DontneedLocked,
    Collapse,
    GuardInstall,
    GuardRemove,
}

/// The accesses to its word by a step of a touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// One load.
    Read,
    /// One store.
    Write,
    /// One load, then one store.
    ReadWrite,
}

/// The contents that a verification expects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Expect {
    /// The pattern that a touch wrote.
    Pattern {
        /// The salt of that touch.
        #[serde(default)]
        salt: u64,
        /// The address at which it was written, or the offset in a file, where that is not the
        /// address at which it is read: after `mremap`, or in a second mapping.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        origin: Option<u64>,
    },
    /// Zeroes.
    Zero,
}
