//! Operations of a workload process.

use serde::{Deserialize, Serialize};

use crate::{
    Access, Advice, Backing, Expect, LockFlag, MapFlag, MoveFlag, Order, Placement, Protection,
    UffdMode,
};

/// One operation inside a workload process. Addresses and lengths are in bytes. Each names its reply if it succeeds;
/// the default is [`Outcome::Done`](crate::Outcome::Done).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Operation {
    /// `mmap(2)`: [`Outcome::Mapped`](crate::Outcome::Mapped).
    Mmap {
        /// The length.
        length: u64,
        /// The memory behind it.
        #[serde(default)]
        backing: Backing,
        /// Read and write when left out; an empty list is `PROT_NONE`.
        #[serde(default = "read_write")]
        prot: Vec<Protection>,
        /// `private` is added if neither `private` nor `shared` is among them.
        #[serde(default)]
        flags: Vec<MapFlag>,
        /// The place.
        #[serde(default)]
        place: Placement,
    },
    /// Accesses one 64-bit word per step of a range: [`Outcome::Touched`](crate::Outcome::Touched).
    /// A write stores [`pattern(address, salt)`](crate::pattern()).
    Touch {
        /// The first word's address, a multiple of 8.
        address: u64,
        /// The length; a part of a stride at its end counts as a step.
        length: u64,
        /// The distance of two steps, a multiple of 8; a page when left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stride: Option<u64>,
        /// The kind of access.
        access: Access,
        /// The order of the steps.
        #[serde(default)]
        order: Order,
        /// A number that changes the pattern, so that two writes to one address differ.
        #[serde(default)]
        salt: u64,
    },
    /// Two threads access a range at once, from its start on: one a word per step, the other the word `beside` bytes
    /// further. A write stores the pattern of its address.
    Race {
        /// The first word's address, a multiple of 8.
        address: u64,
        /// The length; a part of a stride at its end counts as a step.
        length: u64,
        /// The distance of two steps, a multiple of 8; a page when left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stride: Option<u64>,
        /// The distance of the other thread's words, a multiple of 8.
        beside: u64,
        /// The kind of access.
        access: Access,
        /// That of the other thread.
        other: Access,
        /// As of `touch`.
        #[serde(default)]
        salt: u64,
    },
    /// A second thread accesses a word per step of a range over and over, on another CPU where there is one, until
    /// `stop_accessing`. Each time it compares the word with what it stored or loaded there before.
    KeepAccessing {
        /// The first word's address, a multiple of 8.
        address: u64,
        /// The length; a part of a stride at its end counts as a step.
        length: u64,
        /// The distance of two steps, a multiple of 8; a page when left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stride: Option<u64>,
        /// The kind of access. All but `read` store words that are equal in a pass.
        access: Access,
        /// A word may be zero as well, until `stop_accessing`: other operations drop its page.
        #[serde(default)]
        may_drop: bool,
    },
    /// Ends this after another pass, compares the words from the first thread, and stores the pattern of its address to each
    /// that was stored to: [`Outcome::Verified`](crate::Outcome::Verified), of all passes.
    StopAccessing {
        /// The first word's address.
        address: u64,
        /// As of `touch`.
        #[serde(default)]
        salt: u64,
    },
    /// Reads the same words as a forward touch would, and compares them:
    /// [`Outcome::Verified`](crate::Outcome::Verified).
    Verify {
        /// The first word's address, a multiple of 8.
        address: u64,
        /// The length.
        length: u64,
        /// The distance of two words; a page when left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stride: Option<u64>,
        /// The expected contents.
        expect: Expect,
    },
    /// Reads words: [`Outcome::Words`](crate::Outcome::Words).
    Peek {
        /// The first word's address, a multiple of 8.
        address: u64,
        /// Number of successive 64-bit words.
        words: u64,
    },
    /// Writes words.
    Poke {
        /// The first word's address, a multiple of 8.
        address: u64,
        /// The words.
        words: Vec<u64>,
    },
    /// Writes the same words as a touch, by `/proc/self/mem`, as a debugger does: `get_user_pages()` with `FOLL_FORCE`,
    /// which copies a private page that may not be written to.
    ForceWrite {
        /// The first word's address, a multiple of 8.
        address: u64,
        /// The length.
        length: u64,
        /// The distance of two words; a page when left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stride: Option<u64>,
        /// Goes into the pattern.
        #[serde(default)]
        salt: u64,
    },
    /// `madvise(2)`.
    Madvise {
        /// The start.
        address: u64,
        /// The length.
        length: u64,
        /// The advice.
        advice: Advice,
    },
    /// `mprotect(2)`.
    Mprotect {
        /// The start.
        address: u64,
        /// The length.
        length: u64,
        /// The new protection; an empty list is `PROT_NONE`.
        prot: Vec<Protection>,
    },
    /// `mremap(2)`: [`Outcome::Mapped`](crate::Outcome::Mapped).
    Mremap {
        /// The old start.
        address: u64,
        /// The old length.
        length: u64,
        /// The new length.
        new_length: u64,
        /// The flags.
        #[serde(default)]
        flags: Vec<MoveFlag>,
        /// The new start, for `fixed`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        new_address: Option<u64>,
    },
    /// `munmap(2)`.
    Munmap {
        /// The start.
        address: u64,
        /// The length.
        length: u64,
    },
    /// `mlock2(2)`.
    Mlock {
        /// The start.
        address: u64,
        /// The length.
        length: u64,
        /// The flags.
        #[serde(default)]
        flags: Vec<LockFlag>,
    },
    /// `munlock(2)`.
    Munlock {
        /// The start.
        address: u64,
        /// The length.
        length: u64,
    },
    /// `mseal(2)`: calls that would change these mappings are refused from here on.
    Mseal {
        /// The start.
        address: u64,
        /// The length.
        length: u64,
    },
    /// `fork(2)`: [`Outcome::Spawned`](crate::Outcome::Spawned) with the child's number. The child
    /// waits for operations like any other workload process, and is the agent's child too.
    Fork {
        /// A name for people; the parent's when empty.
        #[serde(default)]
        name: String,
    },
    /// Ends the process: [`Outcome::Ended`](crate::Outcome::Ended) once it is gone.
    Exit {
        /// The exit status, 0 to 255.
        #[serde(default)]
        status: i32,
    },
    /// Pins the process to a CPU.
    Pin {
        /// Its number.
        cpu: u32,
    },
    /// Calls `prctl(PR_SET_THP_DISABLE)`: switches every transparent huge page, of any size, off or on for the process.
    ThpDisable {
        /// True to disable them.
        on: bool,
    },
    /// Calls `move_pages(2)`: moves the pages of a range, whole folios each, to a NUMA node, or only reads their nodes:
    /// [`Outcome::Nodes`](crate::Outcome::Nodes).
    MovePages {
        /// The start, a multiple of the page size.
        address: u64,
        /// The length.
        length: u64,
        /// The node; nothing is moved when left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<i32>,
    },
    /// `mbind(2)` with `MPOL_BIND` and `MPOL_MF_MOVE`: pages of a range belong on a NUMA node from now on, and those that lie
    /// elsewhere are moved. Without a node the range gets the process's own policy back, and nothing is moved.
    Mbind {
        /// The start, a multiple of the page size.
        address: u64,
        /// The length.
        length: u64,
        /// The node.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<u32>,
    },
    /// `migrate_pages(2)`: moves all pages of the process that are on one node to another.
    MigratePages {
        /// The node that they are on.
        from: u32,
        /// The other node.
        to: u32,
    },
    /// Runs until NUMA balancing has made hints of the process's memory twice (`task_numa_work()`), with a second task
    /// in its memory, so that memory of the process's own node gets them too (`change_pte_range()`). The guest has to have
    /// `kernel.numa_balancing` on.
    NumaHints {},
    /// `process_madvise(2)`: gives advice on a range of another process.
    ProcessMadvise {
        /// The other process.
        pid: i32,
        /// The start, in that process.
        address: u64,
        /// The length.
        length: u64,
        /// The advice: `cold`, `pageout`, `willneed` or `collapse`.
        advice: Advice,
    },
    /// Several operations, one after the other, whatever becomes of each: [`Outcome::Several`](crate::Outcome::Several). A
    /// fork, an exit, a pin to a CPU and another list are none of them.
    Several {
        /// The operations.
        ops: Vec<Operation>,
    },
    /// Pins a range for a long time, as a device's driver does (`gup_test` of debugfs, `FOLL_LONGTERM | FOLL_WRITE`). The
    /// kernel has one such range at a time; it is let go by `gup_unpin`, or when this process and its children have ended.
    GupPin {
        /// The start, a multiple of the page size.
        address: u64,
        /// The length.
        length: u64,
        /// For a device that reads alone: without `FOLL_WRITE`, and by `pin_user_pages_fast()`.
        #[serde(default)]
        read_only: bool,
    },
    /// Lets the pinned range go, also one that a parent has pinned.
    GupUnpin {},
    /// Compares what the pinned pages hold with what the process finds at addresses of its own:
    /// [`Outcome::Verified`](crate::Outcome::Verified).
    GupVerify {
        /// The first address.
        address: u64,
        /// The length.
        length: u64,
        /// Where it begins in the pinned range, in bytes.
        offset: u64,
    },
    /// Copies the process's page tables into a secondary MMU for tests (`mmu_mirror` of debugfs, `CONFIG_MMU_MIRROR_TEST`).
    /// It replaces an earlier copy; a child has none.
    Mirror {},
    /// Compares the rest of that copy with the page tables:
    /// [`Outcome::Mirrored`](crate::Outcome::Mirrored).
    MirrorVerify {},
    /// Registers a range with the process's userfaultfd, which the first use opens. An access that it would have to
    /// resolve ends in SIGBUS (`UFFD_FEATURE_SIGBUS`), so that one thread is enough. A child does not inherit it.
    UffdRegister {
        /// The start.
        address: u64,
        /// The length.
        length: u64,
        /// The accesses that it covers.
        modes: Vec<UffdMode>,
    },
    /// Watches the writes to a range: registers it with a userfaultfd of its own that resolves them by itself
    /// (`UFFD_FEATURE_WP_ASYNC`), and protects the pages that are there (`PAGEMAP_SCAN` with `PM_SCAN_WP_MATCHING`):
    /// [`Outcome::Pages`](crate::Outcome::Pages).
    WatchWrites {
        /// The start.
        address: u64,
        /// The length.
        length: u64,
    },
    /// Pages of such a range that were written since (`PAGEMAP_SCAN` with `PAGE_IS_WRITTEN`):
    /// [`Outcome::Pages`](crate::Outcome::Pages).
    WrittenPages {
        /// The start.
        address: u64,
        /// The length.
        length: u64,
    },
    /// `UFFDIO_UNREGISTER`.
    UffdUnregister {
        /// The start.
        address: u64,
        /// The length.
        length: u64,
    },
    /// Calls `UFFDIO_COPY`: fills missing pages, each with the pattern in its first word and else zeros, as a touch
    /// leaves a fresh page.
    UffdCopy {
        /// The start, a multiple of the page size.
        address: u64,
        /// The length.
        length: u64,
        /// Goes into the pattern.
        #[serde(default)]
        salt: u64,
        /// Protects the pages against writes at once (`UFFDIO_COPY_MODE_WP`).
        #[serde(default)]
        write_protect: bool,
    },
    /// `UFFDIO_ZEROPAGE`: maps the zero page.
    UffdZeropage {
        /// The start.
        address: u64,
        /// The length.
        length: u64,
    },
    /// `UFFDIO_WRITEPROTECT`.
    UffdWriteprotect {
        /// The start.
        address: u64,
        /// The length.
        length: u64,
        /// True if writes are caught from now on.
        on: bool,
    },
    /// `UFFDIO_CONTINUE`: maps the pages of a file's range that are in its page cache.
    UffdContinue {
        /// The start.
        address: u64,
        /// The length.
        length: u64,
    },
    /// `UFFDIO_POISON`: an access to these pages, which are not there yet, raises SIGBUS.
    UffdPoison {
        /// The start.
        address: u64,
        /// The length.
        length: u64,
    },
    /// `UFFDIO_MOVE` (6.8): the pages of a range take the place of missing ones.
    UffdMove {
        /// The start of the missing ones.
        address: u64,
        /// The start of those that are moved.
        source: u64,
        /// The length.
        length: u64,
    },
    /// Moves a range's pages to another, which is empty and of the same kind, by `UFFDIO_MOVE` (6.8), and unmaps the first.
    /// Pages that it refuses (EBUSY) are moved by `mremap(2)`, each alone: [`Outcome::Pages`](crate::Outcome::Pages), by
    /// their new addresses.
    UffdRelocate {
        /// The start.
        source: u64,
        /// The length.
        length: u64,
        /// The start of the range that they are moved to.
        address: u64,
    },
    /// Makes a file, or empties the one that is there, and gives it a size without writing to it.
    FileCreate {
        /// Its path. tmpfs is on `/tmp` and `/dev/shm`.
        path: String,
        /// Its size.
        length: u64,
    },
    /// `truncate(2)`.
    FileTruncate {
        /// Its path.
        path: String,
        /// The new size.
        length: u64,
    },
    /// Writes the pattern of each 8 bytes' offset in the file, by `pwrite(2)`.
    FileWrite {
        /// Its path.
        path: String,
        /// The first byte, a multiple of 8.
        offset: u64,
        /// The length, a multiple of 8.
        length: u64,
        /// Goes into the pattern.
        #[serde(default)]
        salt: u64,
        /// The bytes per `pwrite(2)`, a multiple of 8 up to 4 MiB; 64 KiB when left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        chunk: Option<u64>,
    },
    /// Reads by `pread(2)` into a buffer that is thrown away, which brings the range into the page
    /// cache: [`Outcome::Read`](crate::Outcome::Read).
    FileRead {
        /// Its path.
        path: String,
        /// The first byte.
        offset: u64,
        /// The length.
        length: u64,
    },
    /// Compares words of a file, as `pread(2)` has them: [`Outcome::Verified`](crate::Outcome::Verified),
    /// whose addresses are offsets. Beyond the file's end all bits are 1.
    FileVerify {
        /// Its path.
        path: String,
        /// The first byte.
        offset: u64,
        /// The length.
        length: u64,
        /// Bytes between compared words; a page where it is not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stride: Option<u64>,
        /// The expected contents; a pattern's origin is an offset where it is not given.
        expect: Expect,
        /// Reads what is stored below the page cache (`O_DIRECT`).
        #[serde(default)]
        direct: bool,
    },
    /// `fsync(2)`.
    FileSync {
        /// Its path.
        path: String,
        /// Then also drops pages that are not mapped from the page cache (`POSIX_FADV_DONTNEED`).
        #[serde(default)]
        evict: bool,
    },
    /// `fallocate(2)`: punches a hole, or allocates when `punch` is false.
    FileAllocate {
        /// Its path.
        path: String,
        /// The first byte.
        offset: u64,
        /// The length.
        length: u64,
        /// Punches a hole.
        #[serde(default)]
        punch: bool,
    },
    /// `unlink(2)`.
    FileUnlink {
        /// Its path.
        path: String,
    },
}

impl Operation {
    /// Returns the operation's name, as in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Mmap { .. } => "mmap",
            Self::Touch { .. } => "touch",
            Self::Race { .. } => "race",
            Self::KeepAccessing { .. } => "keep_accessing",
            Self::StopAccessing { .. } => "stop_accessing",
            Self::Verify { .. } => "verify",
            Self::Peek { .. } => "peek",
            Self::Poke { .. } => "poke",
            Self::ForceWrite { .. } => "force_write",
            Self::Madvise { .. } => "madvise",
            Self::Mprotect { .. } => "mprotect",
            Self::Mremap { .. } => "mremap",
            Self::Munmap { .. } => "munmap",
            Self::Mlock { .. } => "mlock",
            Self::Munlock { .. } => "munlock",
            Self::Mseal { .. } => "mseal",
            Self::Fork { .. } => "fork",
            Self::Exit { .. } => "exit",
            Self::Pin { .. } => "pin",
            Self::ThpDisable { .. } => "thp_disable",
            Self::MovePages { .. } => "move_pages",
            Self::Mbind { .. } => "mbind",
            Self::MigratePages { .. } => "migrate_pages",
            Self::NumaHints {} => "numa_hints",
            Self::ProcessMadvise { .. } => "process_madvise",
            Self::Several { .. } => "several",
            Self::GupPin { .. } => "gup_pin",
            Self::GupUnpin {} => "gup_unpin",
            Self::GupVerify { .. } => "gup_verify",
            Self::Mirror {} => "mirror",
            Self::MirrorVerify {} => "mirror_verify",
            Self::UffdRegister { .. } => "uffd_register",
            Self::WatchWrites { .. } => "watch_writes",
            Self::WrittenPages { .. } => "written_pages",
            Self::UffdUnregister { .. } => "uffd_unregister",
            Self::UffdCopy { .. } => "uffd_copy",
            Self::UffdZeropage { .. } => "uffd_zeropage",
            Self::UffdWriteprotect { .. } => "uffd_writeprotect",
            Self::UffdContinue { .. } => "uffd_continue",
            Self::UffdPoison { .. } => "uffd_poison",
            Self::UffdMove { .. } => "uffd_move",
            Self::UffdRelocate { .. } => "uffd_relocate",
            Self::FileCreate { .. } => "file_create",
            Self::FileTruncate { .. } => "file_truncate",
            Self::FileWrite { .. } => "file_write",
            Self::FileRead { .. } => "file_read",
            Self::FileVerify { .. } => "file_verify",
            Self::FileSync { .. } => "file_sync",
            Self::FileAllocate { .. } => "file_allocate",
            Self::FileUnlink { .. } => "file_unlink",
        }
    }
}

fn read_write() -> Vec<Protection> {
    vec![Protection::Read, Protection::Write]
}
