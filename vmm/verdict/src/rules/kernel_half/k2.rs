// SPDX-License-Identifier: GPL-2.0-only
//! K2: writable kernel memory is dirty.

use linux::pte::bits;
use linux::release::Release;

use crate::check::{Check, KernelSeen};
use crate::group::Group;
use crate::kernel_layout::Region;
use crate::rules::rule::{Identity, KnownFault, Need, OnBreak, Releases, Rule, Tier};

pub(crate) static RULE: Rule = Rule {
    name: "K2",
    title: "writable kernel memory is dirty",
    asserts: "Read-write entries of linear map and kernel image carry the software dirty bit.",
    tier: Tier::Linux,
    sources: &["arch/arm64/include/asm/pgtable-prot.h, _PAGE_KERNEL"],
    needs: &[Need::Layout.all()],
    releases: Releases::WIDELY,
    known: &[KnownFault {
        mark: "lacks the software dirty bit",
        commit: "arm64: mm: Add PTE_DIRTY back to PAGE_KERNEL* to fix kexec/hibernation",
        mended: &[Release::new(6, 12, 85), Release::new(7, 0, 0)],
    }],
    identity: Identity::Words,
    on_break: OnBreak::GoOn,
    checks: &[Check::Kernel(check)],
    synthetic: &["k2_a_writable_entry_that_is_clean"],
    live: &["test_k2_clean_linear_map"],
};

/// The first entry of a group that may be written and is clean, where the linear map or the image is.
fn check(group: &Group<'_>, seen: &KernelSeen<'_>) -> Option<String> {
    let known = |at| {
        matches!(
            seen.layout.region(group.va_of(at)),
            Region::Linear | Region::Image
        )
    };
    let (at, pte) = group
        .leaves()
        .find(|(at, pte)| pte.hw_dirty() && !pte.sw_dirty() && known(*at))?;
    Some(format!(
        "the writable kernel entry for VA 0x{:016x} ({:#018x}) lacks the software dirty bit (bit {}): it must have it",
        group.va_of(at),
        pte.0,
        bits::DIRTY.trailing_zeros()
    ))
}
