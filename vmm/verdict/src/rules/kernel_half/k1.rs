// SPDX-License-Identifier: GPL-2.0-only
//! K1: where the kernel's own memory is contiguous.

use std::ops::Range;

use linux::pte::bits;

use crate::check::{Check, KernelSeen};
use crate::group::Group;
use crate::kernel_layout::{KernelLayout, LinearBit, Region};
use crate::rules::rule::{Identity, Need, OnBreak, Releases, Rule, Tier};

pub(crate) static RULE: Rule = Rule {
    name: "K1",
    title: "kernel memory is contiguous only where Linux makes it so",
    asserts: "No Contiguous bit on vmalloc, vmemmap and fixmap (before 6.16), and at level 3 only in the kernel image. \
              On the linear map none with rodata=full, else one on every aligned run that does not touch the image's \
              alias; from 6.18 on only where the kernel does not split blocks (BBML2_NOABORT, BBML3), and the image's \
              alias may have it. Only where the layout is known.",
    tier: Tier::Linux,
    sources: &["arch/arm64/mm/mmu.c, alloc_init_cont_pte(), alloc_init_cont_pmd(), map_mem(), map_kernel()"],
    needs: &[Need::Layout.all()],
    releases: Releases::WIDELY,
    known: &[],
    identity: Identity::Words,
    on_break: OnBreak::GoOn,
    checks: &[Check::Kernel(misplaced),
        Check::Kernel(lacking)],
    synthetic: &[
        "k1_on_vmalloc_image_and_linear_map",
        "k1_each_run_of_the_linear_map",
        "rodata_full_since_6_18",
    ],
    live: &[
        "test_k1_linear_map_run_without_the_bit",
        "test_k1_vmalloc_with_the_bit",
        "test_k1_without_a_vmlinux",
        "test_linear_map_that_is_split",
    ],
};

/// The first entry of a group that has the bit where it must not.
fn misplaced(group: &Group<'_>, &KernelSeen { layout, image }: &KernelSeen<'_>) -> Option<String> {
    let is_alias = |pte| {
        layout.alias_may_be_contiguous() && image.is_none_or(|image| touches(group, pte, image))
    };
    let found = group
        .leaves()
        .filter(|(_, pte)| pte.valid_cont())
        .find_map(|(at, pte)| {
            let va = group.va_of(at);
            let region = layout.region(va);
            let why = forbidden(layout, region, group.level.number())?;
            (region != Region::Linear || !is_alias(pte.0)).then_some((va, why))
        });
    found.map(|(va, why)| format!("the entry for VA 0x{va:016x} has the Contiguous bit: {why}"))
}

/// Returns whether the run that a member's entry leads to has pages of the image.
fn touches(group: &Group<'_>, word: u64, image: &Range<u64>) -> bool {
    let bytes = group.step() * group.words.len() as u64;
    let start = group.output(word) & bytes.wrapping_neg();
    start < image.end && image.start < start + bytes
}

/// Returns the reason that a contiguous entry must not be there; `None` if it may.
fn forbidden(layout: &KernelLayout, region: Region, level: i8) -> Option<&'static str> {
    match region {
        Region::Linear if layout.linear_bit == LinearBit::None => {
            Some("with rodata=full the linear map must be changeable page by page, and have none")
        }
        Region::Image if level != 3 => Some("the kernel image must have it at level 3 only"),
        Region::Rest if layout.vmalloc_plain => {
            Some("vmalloc, modules, vmemmap and fixmap must have none")
        }
        _ => None,
    }
}

/// A run of the linear map that must have the bit, of which no member has it.
fn lacking(group: &Group<'_>, &KernelSeen { layout, image }: &KernelSeen<'_>) -> Option<String> {
    let image = image?;
    let lacks = layout.linear_bit == LinearBit::EveryRun
        && group.regime.contiguous_entries(group.level) == Some(group.words.len())
        && layout.linear.contains(&group.va)
        && group.leaves().count() == group.words.len()
        && !group.leaves().any(|(_, pte)| pte.valid_cont())
        && group.consecutive()
        && group.aligned()
        && group.differing_in(!(bits::AF | group.address_bits())) == 0
        && !group
            .leaves()
            .next()
            .is_some_and(|(_, pte)| touches(group, pte.0, image));
    lacks.then(|| {
        format!(
            "the {} entries from VA 0x{:016x} on are one aligned run of the linear map and lack the Contiguous bit: \
             without rodata=full every such run must have it",
            group.words.len(),
            group.va
        )
    })
}
