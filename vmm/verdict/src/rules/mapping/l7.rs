// SPDX-License-Identifier: GPL-2.0-only
//! L7: an entry points to the right page of the right folio.

use linux::folio::{Kind, Numbering, Page};
use linux::vma::Vma;

use crate::check::Check;
use crate::mapped::{of_frames, Mapped};
use crate::rules::rule::{Identity, Need, OnBreak, Releases, Rule, Tier};

pub(crate) static RULE: Rule = Rule {
    name: "L7",
    title: "an entry points to the right page",
    asserts: "The page's number in its folio's numbering (`index`, and its place in the folio) is the one that the VMA has at this \
              address: by vm_pgoff, for anonymous folios from 7.3 on by their own offset. KSM's pages, page frames, \
              and pages of no mapping excepted. In private memory without a file every folio is anonymous. A page of a regular \
              file is of the file that its VMA maps; where that file is in memory alone (shmem, ramfs, hugetlbfs), and nobody \
              holds its lock, the page is not behind the file's end. Large folios of shmem and hugetlb are mapped as a whole, \
              so there it is the folio that may not begin behind it.",
    tier: Tier::Linux,
    sources: &[
        "include/linux/pagemap.h, linear_page_index()",
        "mm/rmap.c, __folio_set_anon(), __page_check_anon_rmap()",
        "mm/truncate.c, truncate_setsize(); mm/memory.c, finish_fault()",
    ],
    needs: &[Need::Vmas.all(), Need::VmFlags.all(), Need::Numbering.all(), Need::Folios.all()],
    releases: Releases::WIDELY,
    known: &[],
    identity: Identity::Words,
    on_break: OnBreak::VoidsCounts,
    checks: &[Check::Entry(check),
        Check::Alike(alike)],
    synthetic: &["l7_a_page_of_another_place", "l7_a_file_s_page_in_anonymous_memory", "l7_a_page_of_another_file", "l7_a_page_behind_the_end"],
    live: &["test_l7_page_of_another_place", "test_l7_page_of_a_file", "test_l7_page_of_another_file", "test_l7_page_behind_the_end"],
};

/// On one entry: the sentence where another page belongs there.
fn check(mapped: &Mapped<'_>, vma: &Vma, numbering: Option<&Numbering>) -> Option<String> {
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
    if found != expected {
        return Some(format!(
            "VA 0x{va:016x} maps page frame 0x{:x}, page {} of the folio at 0x{:x} with index 0x{:x}, so number 0x{found:x}: it must be number 0x{expected:x}",
            mapped.pfn,
            page.subpage(),
            page.head,
            page.index
        ));
    }
    let of = numbering.of.filter(|_| page.kind == Kind::File)?;
    if page.mapping != of.mapping {
        return Some(format!(
            "VA 0x{va:016x} maps page frame 0x{:x} of a folio of another file: its mapping is 0x{:x}, and the file of the VMA ({}) has 0x{:x}",
            mapped.pfn, page.mapping, vma.name, of.mapping
        ));
    }
    let (pages, number) = (of.pages?, first_number(page));
    (number >= pages).then(|| {
        format!(
            "VA 0x{va:016x} maps page frame 0x{:x}, number 0x{number:x} of a file ({}) that has 0x{pages:x} pages",
            mapped.pfn, vma.name
        )
    })
}

/// The number that has to be before the file's end: the page's own, or that of its folio's first page where faults map whole
/// folios: of shmem, whose blocks always did so across the end, and of hugetlb.
fn first_number(page: &Page) -> u64 {
    if page.shmem() || page.hugetlb {
        page.index
    } else {
        page.index_of_page()
    }
}

/// How many entries from this one on, at most `most`, this rule says the same of: a file's end may come in between.
fn alike(mapped: &Mapped<'_>, numbering: Option<&Numbering>, most: usize) -> usize {
    let of = numbering
        .and_then(|it| it.of)
        .filter(|_| mapped.page.kind == Kind::File);
    let Some(pages) = of.and_then(|of| of.pages) else {
        return most;
    };
    let left = pages.saturating_sub(mapped.page.index_of_page());
    if left == 0 {
        return most;
    }
    usize::try_from(left.div_ceil(mapped.pages)).map_or(most, |left| left.min(most))
}
