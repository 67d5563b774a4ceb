// SPDX-License-Identifier: GPL-2.0-only
//! L19: the reverse mapping finds every entry.

use linux::folio::{Kind, Numbering};
use linux::vma::Vma;

use crate::check::Check;
use crate::mapped::{of_frames, Mapped};
use crate::rules::rule::{Identity, Need, OnBreak, Releases, Rule, Tier};

pub(crate) static RULE: Rule = Rule {
    name: "L19",
    title: "the reverse mapping finds every entry",
    asserts: "From the folio of an entry a search of its tree finds the entry's VMA: of an anonymous folio in its anon_vma, by a \
              link that is in the VMA's list too; of a folio of the VMA's regular file in i_mmap. The nodes on the way are in the \
              tree's order, and each knows the last number below it. KSM's pages and page frames excepted. What is not found is \
              neither reclaimed nor migrated, and stays mapped when its file is cut.",
    tier: Tier::Linux,
    sources: &[
        "mm/rmap.c, rmap_walk_anon(), rmap_walk_file(), anon_vma_clone(), anon_vma_fork()",
        "mm/vma.c, vma_prepare(), vma_complete(), unlink_file_vma()",
        "include/linux/interval_tree_generic.h",
    ],
    needs: &[Need::Vmas.all(), Need::VmFlags.all(), Need::Reverse.all(), Need::Folios.all()],
    releases: Releases::WIDELY,
    known: &[],
    identity: Identity::Words,
    on_break: OnBreak::GoOn,
    checks: &[Check::Entry(check)],
    synthetic: &["l19_anonymous_pages_that_are_not_found", "l19_pages_of_a_file_that_are_not_found", "l19_what_is_not_known"],
    live: &["test_l19_anonymous", "test_l19_of_a_file"],
};

/// On one entry: the sentence where its folio does not lead to its VMA.
fn check(mapped: &Mapped<'_>, vma: &Vma, numbering: Option<&Numbering>) -> Option<String> {
    if vma.pfn_mapped() != Some(false) || of_frames(vma) {
        return None;
    }
    let (page, numbering) = (mapped.page, numbering?);
    let found_by = numbering.found_by.as_ref()?.as_ref().ok()?;
    let tree = match page.kind {
        Kind::Anonymous => "anon_vma",
        Kind::File if numbering.of?.mapping == page.mapping => "address_space",
        _ => return None,
    };
    (!found_by.contains(&page.mapping)).then(|| {
        format!(
            "VA 0x{:016x} maps page frame 0x{:x}, and a search of its folio's {tree} at 0x{:x} must find the VMA from 0x{:x} to 0x{:x} and does not",
            mapped.va(),
            mapped.pfn,
            page.mapping,
            numbering.start,
            numbering.end
        )
    })
}
