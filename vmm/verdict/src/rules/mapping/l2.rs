// SPDX-License-Identifier: GPL-2.0-only
//! L2: one folio covers a contiguous group.

use linux::folio::Numbering;
use linux::vma::Vma;

use crate::check::Check;
use crate::mapped::Mapped;
use crate::rules::rule::{Identity, Need, OnBreak, Releases, Rule, Tier};

pub(crate) static RULE: Rule = Rule {
    name: "L2",
    title: "one folio covers a contiguous group",
    asserts: "Every page of a contiguous group is of the same folio, which is naturally aligned in physical memory: folios that merely \
              lie next to each other are never folded. What an entry maps has a struct page, whose compound_head \
              leads to the first page of a folio that holds it.",
    tier: Tier::Linux,
    sources: &[
        "arch/arm64/mm/contpte.c, __contpte_try_fold(): \"the folio must cover the range\"",
        "include/linux/page-flags.h, _compound_head()",
    ],
    needs: &[Need::Vmas.all(), Need::Folios.all()],
    releases: Releases::WIDELY,
    known: &[],
    identity: Identity::Words,
    on_break: OnBreak::VoidsCounts,
    checks: &[Check::Entry(check)],
    synthetic: &[
        "l2_a_group_of_two_folios",
        "l2_a_page_whose_head_is_nowhere",
    ],
    live: &["test_l2_folio_cut_short", "test_l2_head_that_leads_nowhere"],
};

/// On one entry: the sentence where its group reaches beyond its folio.
fn check(mapped: &Mapped<'_>, _: &Vma, _: Option<&Numbering>) -> Option<String> {
    if !mapped.pte.valid_cont() {
        return None;
    }
    let group = mapped.group;
    let members = group.words.len() as u64;
    // A group that is not aligned or not consecutive is the architecture's.
    let first = mapped.pfn.checked_sub(mapped.at as u64 * mapped.pages)?;
    let end = first + members * mapped.pages;
    let (head, after) = (mapped.page.head, mapped.page.head + mapped.page.pages());
    (first < head || end > after).then(|| {
        format!(
            "the contiguous group at VA 0x{:016x} maps page frames 0x{first:x} to 0x{:x}, and 0x{:x} is of a folio of order {} from 0x{head:x} to 0x{:x}: one folio must cover the group",
            group.va,
            end - 1,
            mapped.pfn,
            mapped.page.order,
            after - 1
        )
    })
}
