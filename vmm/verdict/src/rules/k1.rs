//! K1: where the kernel's own memory is contiguous. Its check is [`crate::judge_kernel`]'s.

use super::{Need, Releases, Rule, RuleId, Tier};

pub(super) const RULE: Rule = Rule {
    id: RuleId::K1,
    title: "kernel memory is contiguous only where Linux makes it so",
    asserts: "No Contiguous bit on vmalloc, vmemmap and fixmap (before 6.16), at level 3 only in the kernel image, \
              and none on the linear map with rodata=full. Only where the layout is known.",
    tier: Tier::Linux,
    sources: &["arch/arm64/mm/mmu.c, alloc_init_cont_pte(), map_mem(), map_kernel()"],
    needs: &[Need::Layout],
    releases: Releases::PINNED,
    known: &[],
    synthetic: &["k1_on_vmalloc_image_and_linear_map"],
    live: &[],
};
