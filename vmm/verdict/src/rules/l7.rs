//! L7: an entry points to the right page of the right folio.

use linux::folio::{Kind, Numbering};
use linux::vma::Vma;

use super::{Need, Releases, Rule, RuleId, Tier};
use crate::folios::{of_frames, Mapped};

pub(super) const RULE: Rule = Rule {
    id: RuleId::L7,
    title: "an entry points to the right page",
    asserts: "The page's number in its folio's numbering (`index`, and its place in the folio) is the one that the VMA has at this \
              address: by vm_pgoff, for anonymous folios from 7.3 on by their own offset. KSM's pages, page frames, \
              and pages of no mapping excepted. In private memory without a file every folio is anonymous.",
    tier: Tier::Linux,
    sources: &[
        "include/linux/pagemap.h, linear_page_index()",
        "mm/rmap.c, __folio_set_anon(), __page_check_anon_rmap()",
    ],
    needs: &[Need::VmFlags, Need::Folios],
    releases: Releases::WIDELY,
    known: &[],
    synthetic: &["l7_a_page_of_another_place", "l7_a_file_s_page_in_anonymous_memory"],
    live: &["test_l7_page_of_another_place", "test_l7_page_of_a_file"],
};

/// On one entry: the sentence where another page belongs there.
pub(super) fn check(
    mapped: &Mapped<'_>,
    vma: &Vma,
    numbering: Option<&Numbering>,
) -> Option<String> {
    // Without VmFlags it is not known whether a driver chose the page.
    if vma.pfn_mapped() != Some(false) || of_frames(vma) {
        return None;
    }
    let (page, va) = (mapped.page, mapped.va());
    let file = vma.inode != 0;
    let numbering = numbering?;
    let first = match page.kind {
        Kind::Anonymous => numbering.anonymous,
        Kind::File if file => numbering.file,
        Kind::File if !vma.permissions.shared => {
            return Some(format!(
                "VA 0x{va:016x} maps page frame 0x{:x} of a file's folio, and its VMA is of no file: an anonymous folio must be there",
                mapped.pfn
            ));
        }
        _ => return None,
    };
    let expected = first.wrapping_add((va - numbering.start) / mapped.group.regime.granule.bytes());
    let found = page.index_of_page();
    (found != expected).then(|| {
        format!(
            "VA 0x{va:016x} maps page frame 0x{:x}, page {} of the folio at 0x{:x} with index 0x{:x}, so number 0x{found:x}: it must be number 0x{expected:x}",
            mapped.pfn,
            page.subpage(),
            page.head,
            page.index
        )
    })
}
