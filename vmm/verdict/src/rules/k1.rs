//! K1: where the kernel's own memory is contiguous. Its check is [`crate::judge_kernel`]'s.

use super::{Need, Releases, Rule, RuleId, Tier};

pub(super) const RULE: Rule = Rule {
    id: RuleId::K1,
    title: "kernel memory is contiguous only where Linux makes it so",
    asserts: "No Contiguous bit on vmalloc, vmemmap and fixmap (before 6.16), and at level 3 only in the kernel image. \
              On the linear map none with rodata=full, else one on every aligned run that does not touch the image's \
              alias; from 6.18 on only where a CPU has no BBML2 (ID_AA64MMFR2_EL1.BBM below 2). Only where the layout \
              is known.",
    tier: Tier::Linux,
    sources: &["arch/arm64/mm/mmu.c, alloc_init_cont_pte(), alloc_init_cont_pmd(), map_mem(), map_kernel()"],
    needs: &[Need::Layout],
    releases: Releases::PINNED,
    known: &[],
    synthetic: &[
        "k1_on_vmalloc_image_and_linear_map",
        "k1_each_run_of_the_linear_map",
        "rodata_full_since_6_18",
    ],
    live: &[
        "test_k1_linear_map_run_without_the_bit",
        "test_k1_vmalloc_with_the_bit",
    ],
};
