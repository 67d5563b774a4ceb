//! K2: writable kernel memory is dirty. Its check is [`crate::judge_kernel`]'s.

use linux::release::Release;

use super::{Known, Need, Releases, Rule, RuleId, Tier};

pub(super) const RULE: Rule = Rule {
    id: RuleId::K2,
    title: "writable kernel memory is dirty",
    asserts: "Read-write entries of linear map and kernel image carry the software dirty bit.",
    tier: Tier::Linux,
    sources: &["arch/arm64/include/asm/pgtable-prot.h, _PAGE_KERNEL"],
    needs: &[Need::Layout],
    releases: Releases::WIDELY,
    known: &[Known {
        mark: "lacks the software dirty bit",
        commit: "arm64: mm: Add PTE_DIRTY back to PAGE_KERNEL* to fix kexec/hibernation",
        mended: &[Release::new(6, 12, 85), Release::new(7, 0, 0)],
    }],
    synthetic: &["k2_a_writable_entry_that_is_clean"],
    live: &["test_k2_clean_linear_map"],
};
