//! The half of L9 that counts: the entries of all address spaces against the counts of the pages that they map.

use linux::counted::Known;
use linux::folio::{Kind, NoPage, Page};
use stage1::{PhysMemory, Regime};

use super::all_mapped::AllMapped;
use super::l9_entries::{Cover, Entries};
use super::l9_judged::Judged;
use super::l9_unmapped::{self, Unmapped};
use super::rule::Rule;
use super::tell::tell;
use super::unread::why_not;
use super::{l8, l8_exclusive, l9};
use crate::structures::Folios;
use crate::{NotJudged, ProcessVerdict};

/// All address spaces of the guest.
#[derive(Clone, Debug)]
pub struct Everyone<'a> {
    /// Physical addresses of their first tables.
    pub tables: &'a [u64],
    /// Why these may not be all, if so.
    pub incomplete: Option<&'a str>,
    /// The same but for a fork() that may be under way, whose child maps what its parent does; and why entries and what counts
    /// them may be apart just now.
    pub busy: Option<&'a str>,
    /// Folios that count mappings, and that none of them was seen to map; or why they were not looked for.
    pub unmapped: Known<&'a [Unmapped]>,
}

/// Holds the counts of every page that one of the judged processes maps to the entries of all address spaces. The
/// findings go to the first process that maps it. Gives what they map.
///
/// All must be of one instant. `regimes` are those of the verdicts, in the same order. A page that an entry maps in which
/// another rule is broken is left alone.
pub fn judge_counts<M: PhysMemory + ?Sized>(
    memory: &M,
    regimes: &[Regime],
    everyone: Everyone<'_>,
    folios: &dyn Folios,
    verdicts: &mut [ProcessVerdict],
) -> AllMapped {
    let mut mapped = AllMapped::none();
    let Some(regime) = regimes.first() else {
        return mapped;
    };
    let entries = Entries::of(memory, regime, everyone.tables);
    let incomplete = everyone
        .incomplete
        .map(str::to_owned)
        .or(entries.problem.clone());
    let page_size = regime.granule.bytes();
    let mut judged = Judged::new(verdicts, regimes, page_size, &entries);
    (mapped.anonymous, mapped.shmem, mapped.file) = judged.well_of;
    let mut found: Vec<(&Rule, usize, u64, String)> = Vec::new();
    let (mut unread, mut uncounted, mut wild) = (0u64, 0u64, 0u64);
    let mut last_folio = None;
    while let Some((pfn, va, owner)) = judged.next() {
        let page = match folios.page(pfn) {
            Ok(page) => page,
            Err(NoPage::Wild(_)) => {
                // Told of at its entry; a block of a wrong table may be larger than all memory.
                wild += 1;
                if wild > MOST_WILD {
                    break;
                }
                continue;
            }
            Err(NoPage::Unreadable(_)) => {
                unread += 1;
                continue;
            }
        };
        mapped.add(page, last_folio != Some(page.head), &entries);
        let mut says = Vec::new();
        let uncounted_before = uncounted;
        compare(
            &entries,
            page,
            last_folio != Some(page.head),
            |what, counted, entries| {
                // Entries that nobody counted are wrong whoever else there is.
                if counted > entries && incomplete.is_some() {
                    uncounted += 1;
                } else if counted != entries {
                    says.push(format!("{what} {counted}, entries {entries}"));
                }
            },
        );
        if last_folio != Some(page.head) {
            says.extend(references(&entries, page));
        }
        last_folio = Some(page.head);
        if !says.is_empty() {
            let message = format!(
                "page frame 0x{pfn:x}, of the folio of order {} at 0x{:x}, is mapped at VA 0x{va:016x}, and its counts are not its entries in all address spaces: {}",
                page.order,
                page.head,
                says.join("; ")
            );
            found.push((&l9::RULE, owner, va, message));
            continue;
        }
        let here = pfn..pfn + 1;
        let (single, blocks) = (entries.pages.within(&here), entries.blocks.within(&here));
        let once = l8_exclusive::once(page, single, blocks);
        let slot = || l8_exclusive::slot(page, entries.swapped(page.slot?));
        if let Some(why) = once.or_else(slot) {
            let message = format!("page frame 0x{pfn:x}, mapped at VA 0x{va:016x}, {why}");
            found.push((&l8::RULE, owner, va, message));
        } else if page.order > 0 && page.slot.is_none() && uncounted == uncounted_before {
            // All is well with it, and so with those of its folio that are counted alike and mapped as often.
            let same = |cover: &Cover| cover.changes_behind(pfn) - pfn - 1;
            let most = same(&entries.pages).min(same(&entries.blocks));
            let alike = folios.alike(&page, most.min(judged.rest()));
            mapped.pages(page, alike);
            judged.skip(alike);
        }
    }
    tell(memory, regimes, verdicts, found);
    if let Some(first) = verdicts.first_mut() {
        let of_unmapped = "L9, of folios that no table maps,";
        why_not(first, (of_unmapped, &[]), &everyone.unmapped);
    }
    let busy = everyone.busy.map(str::to_owned);
    let busy = busy.or_else(|| Some(everyone.unmapped.as_ref().err()?.why.clone()));
    let open = l9_unmapped::judge(
        &entries,
        everyone.unmapped.unwrap_or_default(),
        folios,
        verdicts,
    );
    let busy = busy.or_else(|| (open > 0).then(|| "some folios may be mapped elsewhere".into()));
    mapped.more = busy.or_else(|| entries.problem.clone());
    let all = entries.pages.covered() + entries.blocks.covered();
    mapped.others = all as i64 - mapped.anonymous - mapped.file;
    let Some(first) = verdicts.first_mut() else {
        return mapped;
    };
    if unread > 0 {
        let reason =
            format!("L9 was not judged for {unread} pages whose struct page could not be read");
        first.not_judged.push(NotJudged { reason });
    }
    if uncounted > 0 {
        let why = incomplete.unwrap_or_default();
        let reason = format!("{uncounted} counts of pages are above their entries, and L9 was not judged for them: {why}");
        first.not_judged.push(NotJudged { reason });
    }
    mapped.swapped = entries.swapped;
    mapped.unwalked = entries.problem;
    mapped.uncounted = uncounted + open;
    mapped
}

/// Pages that make no sense, of which the first are told of: after so many nothing is counted any more.
const MOST_WILD: u64 = 1 << 20;

/// Each count of a page and, where it is the first seen of it, of its folio.
fn compare(entries: &Entries, page: Page, first: bool, mut differ: impl FnMut(&str, i64, i64)) {
    let folio = page.head..page.head + page.pages();
    // The huge zero page, and what a driver maps by blocks, is not counted.
    let blocks = entries.blocks.within(&folio);
    if page.kind == Kind::Unowned && blocks > 0 && !page.hugetlb {
        return;
    }
    if let Some(counted) = page.mapcount {
        let single = entries.pages.within(&(page.pfn..page.pfn + 1));
        differ("mapcount", counted, single as i64);
    }
    let (Some(large), true) = (page.large, first) else {
        return;
    };
    let pages = entries.pages.within(&folio);
    if page.hugetlb {
        let whole = (pages + blocks) / page.pages();
        differ("mapcount of the hugetlb folio", large, whole as i64);
        differ("entire mapcount", page.entire, whole as i64);
        return;
    }
    // A block maps the folio, or as much of it as a block can.
    let whole = entries.block_maps(&folio);
    differ("mapcount of the folio", large, (pages + whole) as i64);
    differ("entire mapcount", page.entire, whole as i64);
}

/// Each entry has a reference of its folio, which is taken before it is set and given back after it is cleared. Of what
/// has no mapping it is not known who counts it.
fn references(entries: &Entries, page: Page) -> Option<String> {
    let counted = page.hugetlb || page.kind.anonymous() || page.kind == Kind::File;
    // Told of at its entry.
    if !counted || page.refcount <= 0 {
        return None;
    }
    let folio = page.head..page.head + page.pages();
    let pages = entries.pages.within(&folio);
    let all = if page.hugetlb {
        (pages + entries.blocks.within(&folio)) / page.pages()
    } else {
        pages + entries.block_maps(&folio)
    };
    (page.refcount < all as i64).then(|| {
        format!(
            "references of the folio {}, entries {all}, each of which has to have one",
            page.refcount
        )
    })
}
