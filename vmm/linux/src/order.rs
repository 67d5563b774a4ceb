// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's record of why it chose the order of each anonymous folio.
//!
//! Our patch keeps a ring of records per CPU: `anon_order_ring`, a per-CPU pointer, or on older kernels
//! `anon_order_rings`, a per-CPU variable. It is read from outside, through the kernel half of the tables, without the
//! guest's help. Contents that differ from the patch's format are an error: a record that is only partly understood
//! explains nothing.

pub mod adaptive;
pub mod counts;
mod decode;
mod left_out;
mod rings;

use schemars::JsonSchema;
use serde::Serialize;

pub use decode::{decode_ring, touch_ring, MAGIC, MAX_RECORDS};
pub use rings::RingAddresses;

/// Orders that a record has a reason for: 0 to 15.
pub const ORDERS: usize = 16;

/// One choice of an order, `struct anon_order_record`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct OrderRecord {
    /// Number of the record, from 1, counting per CPU.
    pub seq: u64,
    /// The CPU whose ring holds it.
    pub cpu: u32,
    /// Kernel clock, in nanoseconds.
    pub time_ns: u64,
    /// Faulting address.
    pub address: u64,
    /// First byte of the VMA.
    pub vm_start: u64,
    /// First byte behind it.
    pub vm_end: u64,
    /// Kernel address of the `mm_struct`, which only tells processes apart.
    pub mm: u64,
    /// Process (thread group) id, in the initial PID namespace.
    pub tgid: u32,
    /// Thread id, which only tells threads apart.
    pub tid: u32,
    /// The policy that chose: the one in force, or `sysfs` where controls choose under every policy (shmem, swap-in, folios of a
    /// PMD's size).
    pub policy: Policy,
    /// The order that the architecture prefers for this VMA; `None` if the policy asks for none.
    pub preferred: Option<u8>,
    /// The order that was allocated; `None` where the fault ended without a folio.
    pub chosen: Option<u8>,
    /// The VMA was hinted (`VM_HUGEPAGE`).
    pub hinted: bool,
    /// The VMA is armed with userfaultfd.
    pub userfaultfd: bool,
    /// The result for each order.
    pub reasons: [Reason; ORDERS],
    /// The kernel path that chose the order.
    pub path: Path,
    /// The first page frame of the folio that was mapped; `None` without a folio, and if the kernel does not record it.
    pub pfn: Option<u64>,
    /// The orders that VMA, process, policy and controls allowed, before the check whether they fit; `None` if the
    /// kernel does not record them.
    pub allowed: Option<Vec<u8>>,
    /// The address of the first populated entry in the range of the largest order that an entry was in the way of;
    /// `None` without one, and if the kernel does not record it.
    pub overlap: Option<u64>,
    /// The input of policy `adaptive`; `None` for other policies, and if the kernel does not record it.
    pub adapted: Option<adaptive::Adapted>,
    /// Number of free blocks of each order on the CPU's node when an order could not be allocated, at most 255; `None`
    /// if all could, and if the kernel does not record it.
    pub free: Option<[u8; ORDERS]>,
}

/// The place where the order of a folio is chosen, by its number in the record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Path {
    /// A first write to anonymous memory. A kernel whose records have no path records only these.
    #[default]
    Anonymous,
    /// A write to the zero page, where a large folio may take its place.
    ZeroPage,
    /// Copy on write of a large anonymous folio, or of a part of it.
    Copy,
    /// A write to an exclusive large folio, of which a part is made writable. The order is that part's.
    Reuse,
    /// A fault on shmem that found no folio.
    Shmem,
    /// The mapping of a file's folio.
    FinishFault,
    /// A folio of ramfs.
    Ramfs,
    /// A swap-in past the swap cache.
    SwapIn,
}

/// `anon_order` policies of the patch, by their number in the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)] // the policies are explained in kernel-patches/
pub enum Policy {
    Sysfs,
    Baseline,
    Simple,
    Variable,
    Retry,
    Adaptive,
}

/// The result for one order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The order was not considered.
    NotConsidered,
    /// The order was chosen.
    Chosen,
    /// THP has no such order, or the restriction has no reason of its own. The first kernels with records, which have
    /// eleven reasons, use it for every order that the policy or sysfs does not allow.
    NotAllowed,
    /// The naturally aligned range would start before the VMA.
    CrossesStart,
    /// The folio would end behind the VMA.
    CrossesEnd,
    /// The folio would reach beyond the page table.
    CrossesPmd,
    /// An entry in the range is populated.
    Overlap,
    /// No folio of this order could be allocated.
    AllocationFailed,
    /// The memory cgroup refused the charge.
    ChargeFailed,
    /// Another thread populated the range meanwhile.
    Raced,
    /// userfaultfd forces order 0.
    Userfaultfd,
    /// The VMA has `MADV_NOHUGEPAGE`.
    Nohugepage,
    /// The process has `PR_SET_THP_DISABLE`.
    ThpDisabled,
    /// The control of its size is `never`.
    SizeNever,
    /// The control of its size is `madvise`, and the VMA is not hinted.
    SizeMadvise,
    /// The control of its size is `inherit`, and the top-level one `never`.
    TopNever,
    /// The control of its size is `inherit`, the top-level one `madvise`, and the VMA is not hinted.
    TopMadvise,
    /// The order is allowed, and the policy leaves it out.
    Policy,
    /// The control of its size is `within_size`, and the folio would reach beyond the end of the file.
    WithinSize,
    /// The range in the file or in the swap area is not aligned as it is in the VMA.
    Misaligned,
    /// The range is not swapped out in one piece.
    SwapEntries,
}

/// The rings of all CPUs, merged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct OrderRecords {
    /// Records by time.
    pub records: Vec<OrderRecord>,
    /// Number of records that were overwritten before they could be read.
    pub lost: u64,
    /// Records that were being written at that instant, and skipped.
    pub being_written: u64,
}

/// The reason why a ring was not judged.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum OrderError {
    /// The kernel's memory could not be read there.
    #[error("order records of CPU {cpu}: kernel memory at 0x{va:016x} cannot be read ({why})")]
    Unreadable {
        /// The CPU.
        cpu: u32,
        /// The kernel address.
        va: u64,
        /// The reader's error.
        why: String,
    },
    /// The kernel can keep records, and does not.
    #[error("the guest's kernel keeps no order records: write 1 to /sys/kernel/mm/transparent_hugepage/anon_order/record in the guest before the faults that you ask about")]
    Off,
    /// A value that the patch never writes.
    #[error("order records of CPU {cpu}: {field} is {value:#x}, {expected} expected: the kernel and this program do not agree on the record's layout")]
    Unexpected {
        /// The CPU.
        cpu: u32,
        /// The field.
        field: &'static str,
        /// The value found.
        value: u64,
        /// The values expected.
        expected: &'static str,
    },
}

/// A function that reads `buffer.len()` bytes of kernel memory at a virtual address. Its error is the reason why not.
pub type KernelReader<'a> = dyn FnMut(u64, &mut [u8]) -> Result<(), String> + 'a;

impl OrderRecords {
    /// Returns the newest record of process `tgid` whose choice decided the mapping of `address`.
    pub fn last_for(&self, tgid: u32, address: u64, page_size: u64) -> Option<&OrderRecord> {
        self.records
            .iter()
            .rev()
            .find(|record| record.tgid == tgid && record.covers(address, page_size))
    }
}

impl OrderRecord {
    /// Returns the range of the folio: start and length in bytes. `None` without a folio, and where its place does not
    /// follow from its size: anonymous ones are naturally aligned in virtual addresses, and large ones of shmem, which
    /// a fault allocates only where file and VMA are aligned alike. How much of those the fault has mapped is another
    /// matter.
    pub fn folio(&self, page_size: u64) -> Option<(u64, u64)> {
        if !self.path.is_mapped_whole() && !matches!(self.path, Path::Shmem | Path::SwapIn) {
            return None;
        }
        let size = page_size << self.chosen?;
        Some((self.address & !(size - 1), size))
    }

    /// Returns whether the folio, or the faulting page if there is none, covers `address`.
    pub fn covers(&self, address: u64, page_size: u64) -> bool {
        let (start, size) = self
            .folio(page_size)
            .unwrap_or((self.address & !(page_size - 1), page_size));
        address >= start && address - start < size
    }

    /// Returns the choice in one sentence, for people.
    pub fn sentence(&self) -> String {
        let chosen = match self.chosen {
            Some(order) => format!("order {order} was mapped"),
            None => "no folio was mapped".to_owned(),
        };
        let preferred = match self.preferred {
            Some(order) => format!("order {order} was preferred"),
            None => "no order was preferred".to_owned(),
        };
        let rejected: Vec<String> = (0..ORDERS)
            .rev()
            .filter_map(|order| {
                Some(format!(
                    "order {order} {}",
                    self.reasons[order].rejection()?
                ))
            })
            .collect();
        let rejected = if rejected.is_empty() {
            String::new()
        } else {
            format!(": {}", rejected.join(", "))
        };
        format!(
            "{}policy {}, {preferred}, {chosen}{rejected}",
            match self.path {
                Path::Anonymous => String::new(),
                path => format!("{}, ", path.words()),
            },
            self.policy.name()
        )
    }
}

impl Path {
    /// Returns whether the fault maps all of a new anonymous folio, which is naturally aligned.
    pub fn is_mapped_whole(self) -> bool {
        matches!(self, Path::Anonymous | Path::ZeroPage | Path::Copy)
    }

    /// Returns the reason in words, for people.
    pub fn words(self) -> &'static str {
        match self {
            Path::Anonymous => "a first write to anonymous memory",
            Path::ZeroPage => "a write to the zero page",
            Path::Copy => "copy on write",
            Path::Reuse => "a write to an exclusive folio",
            Path::Shmem => "shared memory",
            Path::FinishFault => "the mapping of a file's folio",
            Path::Ramfs => "ramfs",
            Path::SwapIn => "swap-in",
        }
    }
}

impl Policy {
    /// Returns the path as the kernel's knob spells it.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Sysfs => "sysfs",
            Policy::Baseline => "baseline",
            Policy::Simple => "simple",
            Policy::Variable => "variable",
            Policy::Retry => "retry",
            Policy::Adaptive => "adaptive",
        }
    }
}

impl Reason {
    /// Returns how an order of this reason was rejected; `None` for those that were not.
    pub fn rejection(self) -> Option<&'static str> {
        Some(match self {
            Reason::NotConsidered | Reason::Chosen => return None,
            Reason::NotAllowed => "is not allowed",
            Reason::CrossesStart => "would start before the VMA",
            Reason::CrossesEnd => "would end behind the VMA",
            Reason::CrossesPmd => "would leave the page table",
            Reason::Overlap => "overlaps a populated entry",
            Reason::AllocationFailed => "could not be allocated",
            Reason::ChargeFailed => "was refused by the memory cgroup",
            Reason::Raced => "lost a race with another thread",
            Reason::Userfaultfd => "is ruled out by userfaultfd",
            Reason::Nohugepage => "is forbidden by MADV_NOHUGEPAGE",
            Reason::ThpDisabled => "is forbidden by PR_SET_THP_DISABLE",
            Reason::SizeNever => "is switched off for its size",
            Reason::SizeMadvise => "needs MADV_HUGEPAGE, by the control of its size",
            Reason::TopNever => "is switched off by the top-level control, which its size inherits",
            Reason::TopMadvise => {
                "needs MADV_HUGEPAGE, by the top-level control, which its size inherits"
            }
            Reason::Policy => "is left out by the policy",
            Reason::WithinSize => "would reach beyond the end of the file",
            Reason::Misaligned => "is aligned otherwise in the file or the swap area",
            Reason::SwapEntries => "is not swapped out in one piece",
        })
    }
}

#[cfg(test)]
mod tests;
