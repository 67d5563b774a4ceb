// SPDX-License-Identifier: GPL-2.0-only
//! L10: hugetlb pages are mapped whole, by the entry of their size, and nowhere else.

use linux::folio::{Kind, Numbering, Page};
use linux::pte::{bits, Pte};
use linux::vma::Vma;
use stage1::Level;

use crate::check::{Check, Unheld, UnheldSeen};
use crate::group::Group;
use crate::mapped::{of_frames, Mapped};
use crate::placement::{vma_at, Placement};
use crate::rules::rule::{Identity, Need, OnBreak, Releases, Rule, Tier};

pub(crate) static RULE: Rule = Rule {
    name: "L10",
    title: "a hugetlb page is mapped by an entry of its size",
    asserts: "A valid entry in a hugetlb VMA maps a hugetlb folio, and no other VMA's does. The folio is as large as what maps it: \
              a contiguous group of level 3 or 2, a block of level 2 or (4K granule) of level 1; it is aligned there in VA, so that \
              all entries of a group map one folio from its start. Where VmFlags are not known, only what hugetlb folios are mapped by is judged. That a group has no hole is L1's, that its entries are \
              alike A5's and L5's, the counts are L9's. Special entries, and VMAs of page frames, are left alone. \
              All entries of one hugetlb page that are not valid are the same (none, a marker, migration, hardware poison), or go up by a page each where they are present \
              without access; not judged of contiguous entries of level 2 where the size of the VMA's pages is not known. \
              An anonymous hugetlb folio that is mapped may be migrated (HPG_migratable), and so may a file's in ranges that the checkpoint calls `unheld` \
              (memfd_alloc_folio() fills files without it); not asked of one with a reference too many, which a task may have isolated, nor of broken memory.",
    tier: Tier::Linux,
    sources: &[
        "arch/arm64/mm/hugetlbpage.c, __hugetlb_valid_size(), num_contig_ptes(), arch_make_huge_pte(), set_huge_pte_at()",
        "mm/hugetlb.c, hugetlb_no_page(), hugetlb_wp(), folio_isolate_hugetlb()",
    ],
    needs: &[
        Need::Vmas.all(),
        Need::VmFlags.less(),
        Need::Folios.all(),
        Need::Expectations.part("files' hugetlb pages"),
    ],
    releases: Releases::WIDELY,
    known: &[],
    identity: Identity::Words,
    on_break: OnBreak::VoidsCounts,
    checks: &[Check::Entry(check), Check::Placement(absent), Check::Unheld(of_files)],
    synthetic: &[
        "l10_hugetlb",
        "l10_entries_that_are_not_valid",
        "l10_a_folio_that_cannot_be_migrated",
    ],
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
        return match page.kind {
            kind if kind.anonymous() => stuck(page, 0).map(|why| format!("VA 0x{va:016x}: {why}")),
            _ => None,
        };
    }
    wrong(format!(
        "which is its page {}, where page {expected} belongs",
        page.subpage()
    ))
}

/// Returns the error in a hugetlb folio that migration cannot have, if it should. A folio with more references than its entries
/// and these of the page cache may be isolated, which clears the flag.
fn stuck(page: &Page, cached: i64) -> Option<String> {
    let known = page.large? + cached;
    let stuck = page.migratable == Some(false) && !page.poisoned && page.refcount <= known;
    stuck.then(|| {
        format!(
            "the hugetlb folio of order {} at page frame 0x{:x} is mapped, and its flag HPG_migratable is clear: it must be set where the folio is not isolated",
            page.order, page.head
        )
    })
}

/// On a file's folio that nothing else holds.
fn of_files(seen: &UnheldSeen<'_>) -> Unheld {
    let page = &seen.page;
    if page.kind != Kind::File {
        return Unheld::Right;
    }
    match stuck(page, page.pages() as i64) {
        Some(why) => Unheld::Wrong(format!("VA 0x{:016x}: {why}", seen.va)),
        None => Unheld::Right,
    }
}

/// On a group of which no entry is valid: the place and the sentence where it is one hugetlb page's, and its entries differ.
fn absent(group: &Group<'_>, _: &Placement, vmas: &[Vma]) -> Vec<(usize, String)> {
    differing(group, vmas).into_iter().collect()
}

fn differing(group: &Group<'_>, vmas: &[Vma]) -> Option<(usize, String)> {
    let valid = |word: &u64| word & bits::VALID != 0;
    if group.words.iter().any(valid) {
        return None;
    }
    let vma = &vmas[vma_at(vmas, group.va)?];
    if vma.hugetlb() != Some(true) || group.end() > vma.end {
        return None;
    }
    let entries = group.regime.contiguous_entries(group.level)?;
    let bytes = entries as u64 * group.step();
    // No hugetlb page is smaller than a contiguous group of level 3.
    let is_one = group.level == Level::L3 || vma.hugetlb_page == Some(bytes);
    if !is_one || group.words.len() != entries {
        return None;
    }
    // Where there is a page, its entries may differ in what the CPU sets.
    let of = |at: usize, word: u64| match Pte(word).present_invalid() {
        true => {
            (word & !(bits::AF | bits::RDONLY | bits::DIRTY)).wrapping_sub(at as u64 * group.step())
        }
        false => word,
    };
    let first = group.words[0];
    let all = group.words.iter().enumerate();
    let (at, word) = all
        .into_iter()
        .find(|(at, word)| of(*at, **word) != of(0, first))?;
    let message = format!(
        "the {entries} entries from VA 0x{:016x} on are one hugetlb page's and not valid: the first is {first:#018x}, and that for \
         VA 0x{:016x} is {word:#018x}: all must be the same",
        group.va,
        group.va_of(at)
    );
    Some((at, message))
}
