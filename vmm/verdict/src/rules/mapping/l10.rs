// SPDX-License-Identifier: GPL-2.0-only
//! L10: hugetlb pages are mapped whole, by the entry of their size, and nowhere else.

use linux::folio::Numbering;
use linux::pte::bits;
use linux::vma::Vma;
use stage1::Level;

use crate::check::Check;
use crate::mapped::{of_frames, Mapped};
use crate::rules::rule::{Identity, Need, OnBreak, Releases, Rule, Tier};

pub(crate) static RULE: Rule = Rule {
    name: "L10",
    title: "a hugetlb page is mapped by an entry of its size",
    asserts: "A valid entry in a hugetlb VMA maps a hugetlb folio, and no other VMA's does. The folio is as large as what maps it: \
              a contiguous group of level 3 or 2, a block of level 2 or (4K granule) of level 1; it is aligned there in VA, so that \
              all entries of a group map one folio from its start. Where VmFlags are not known, only what hugetlb folios are mapped by is judged. That a group has no hole is L1's, that its entries are \
              alike A5's and L5's, the counts are L9's. Entries that are not valid, special, or in VMAs of page frames are left alone.",
    tier: Tier::Linux,
    sources: &["arch/arm64/mm/hugetlbpage.c, __hugetlb_valid_size(), num_contig_ptes(), arch_make_huge_pte()"],
    needs: &[Need::Vmas.all(), Need::VmFlags.less(), Need::Folios.all()],
    releases: Releases::WIDELY,
    known: &[],
    identity: Identity::Words,
    on_break: OnBreak::VoidsCounts,
    checks: &[Check::Entry(check)],
    synthetic: &["l10_hugetlb"],
    live: &["test_l10_hugetlb"],
};

/// On one entry: the sentence where it, its VMA and its folio do not belong together.
fn check(mapped: &Mapped<'_>, vma: &Vma, _: Option<&Numbering>) -> Option<String> {
    if mapped.pte.0 & bits::VALID == 0 || of_frames(vma) {
        return None;
    }
    let (page, va) = (mapped.page, mapped.va());
    let wrong = |what: String| {
        Some(format!(
            "VA 0x{va:016x} maps page frame 0x{:x}, of the folio of order {} at 0x{:x}, {what}",
            mapped.pfn, page.order, page.head
        ))
    };
    match (vma.hugetlb(), page.hugetlb) {
        (Some(true), false) => return wrong("which is not hugetlb's, in a hugetlb VMA".into()),
        (Some(false), true) => {
            return wrong("which is hugetlb's, in a VMA that is none of hugetlb".into())
        }
        (_, false) => return None,
        (_, true) => {}
    }
    let (group, regime) = (mapped.group, mapped.group.regime);
    let contiguous = mapped.pte.valid_cont();
    let entries = match contiguous {
        true => regime.contiguous_entries(group.level)? as u64,
        false => 1,
    };
    let reach = group.step() * entries;
    let size = page.pages() * regime.granule.bytes();
    let by = if contiguous {
        "a contiguous group"
    } else {
        "an entry"
    };
    let level = group.level.number();
    let legal = match group.level {
        Level::L3 => contiguous,
        Level::L2 => true,
        _ => !contiguous,
    };
    if !legal || reach != size {
        return wrong(format!(
            "which is hugetlb's, by {by} of level {level} that maps {reach:#x} bytes: it must be one that maps the folio's {size:#x}"
        ));
    }
    let expected = va % size / regime.granule.bytes();
    if page.subpage() == expected {
        return None;
    }
    wrong(format!(
        "which is its page {}, where page {expected} belongs",
        page.subpage()
    ))
}
