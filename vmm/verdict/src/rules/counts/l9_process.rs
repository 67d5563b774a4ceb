// SPDX-License-Identifier: GPL-2.0-only
//! L9 on a process as a whole: its counters of pages and of page tables are what its entries and tables are.

use linux::folio::Rss;

use crate::check::{ProcessSeen, Whole};
use crate::page_tables::Tables;

/// Holds the process's counters to its tables.
pub(super) fn check(seen: &ProcessSeen<'_>, whole: &mut Whole) {
    let structures = seen.structures;
    if seen.not_one_by_one > 0 {
        whole.notes.push(format!(
            "L9 was not judged page by page for {} entries of large folios: the kernel may not count so (CONFIG_NO_PAGE_MAPCOUNT)",
            seen.not_one_by_one
        ));
    }
    // An entry that is wrong is told of by its own rule, and one that could not be read was told of.
    if !seen.is_sound {
        return;
    }
    if seen.moving > 0 {
        whole.notes.push(format!(
            "the process's RSS and bytes of page tables were not judged (L9): {} of its entries may be of pages on their way, or of poison",
            seen.moving
        ));
        return;
    }
    if structures.table_locked {
        whole.not_judged.push(
            "the process's RSS and bytes of page tables were not judged (L9): somebody held the lock of one of its tables"
                .into(),
        );
        return;
    }
    match structures.tables_bytes {
        Some(bytes) if seen.tables.unsure == 0 => {
            let size = seen.regime.granule.bytes();
            whole.broken.extend(tables(bytes, seen.tables, size));
        }
        Some(_) => whole.notes.push(format!(
            "the process's bytes of page tables were not judged (L9): {} of its tables could not be read, or are blocks that a driver or DAX may have made",
            seen.tables.unsure
        )),
        None if structures.numbering.is_some() => {
            let said = "the process's bytes of page tables were not judged (L9): they could not be read";
            whole.notes.push(said.into());
        }
        // As with its RSS.
        None => {}
    }
    hugetlb_pages(seen, whole);
    match structures.rss {
        Some(counted) => whole.broken.extend(rss(counted, seen.entries)),
        // Where its VMAs are known nobody was changing it.
        None if structures.numbering.is_some() => {
            let said = "the process's RSS was not judged (L9): its counters could not be read, or exec() was counting its arguments";
            whole.notes.push(said.into());
        }
        None => whole.not_judged.push(
            "the process's RSS and bytes of page tables were not judged (L9): it was just being changed".into(),
        ),
    }
}

/// Holds what the process counts of hugetlb to the pages of it that its entries map.
fn hugetlb_pages(seen: &ProcessSeen<'_>, whole: &mut Whole) {
    let (structures, pages) = (seen.structures, seen.hugetlb);
    match structures.hugetlb {
        Some(usage) if usage.may_share && (usage.pages != 0 || pages != 0) => {
            let said = "the process's count of hugetlb pages was not judged (L9): it is so large that it may have shared page tables, whose pages are counted of who faulted them in";
            whole.notes.push(said.into());
        }
        Some(usage) => whole.broken.extend(hugetlb(usage.pages, pages)),
        None if structures.numbering.is_some() && pages != 0 => {
            let said =
                "the process's count of hugetlb pages was not judged (L9): it could not be read";
            whole.notes.push(said.into());
        }
        // As with its RSS.
        None => {}
    }
}

/// The bytes of page tables of a process, which the kernel counts, against its tables: the sentence where they differ.
fn tables(counted: i64, tables: Tables, page_size: u64) -> Option<String> {
    let Tables { walked, ready, .. } = tables;
    let bytes = ((walked + ready) * page_size) as i64;
    (counted != bytes).then(|| {
        format!(
            "the process's bytes of page tables (pgtables_bytes) are {counted}, and its tables take {bytes}: {walked} below the first one, and {ready} that lie ready for its anonymous blocks: they must be equal"
        )
    })
}

/// The hugetlb pages that a process counts against those that its entries map: the sentence where they differ.
fn hugetlb(counted: i64, mapped: i64) -> Option<String> {
    (counted != mapped).then(|| {
        format!(
            "the process's count of hugetlb pages (hugetlb_usage) is {counted}, and its entries map {mapped}: they must be equal"
        )
    })
}

/// The counters of a process against what its entries map: the sentence where they differ.
fn rss(kernel: Rss, entries: Rss) -> Option<String> {
    let pairs = [
        ("file", kernel.file, entries.file),
        ("anonymous", kernel.anonymous, entries.anonymous),
        ("swap", kernel.swapped, entries.swapped),
        ("shmem", kernel.shmem, entries.shmem),
    ];
    let wrong: Vec<String> = pairs
        .iter()
        .filter(|(_, kernel, entries)| kernel != entries)
        .map(|(name, kernel, entries)| format!("{name} {kernel}, entries {entries}"))
        .collect();
    (!wrong.is_empty()).then(|| {
        format!(
            "the process's counters of mapped pages (RSS) are not its entries: {}: they must be equal",
            wrong.join("; ")
        )
    })
}
