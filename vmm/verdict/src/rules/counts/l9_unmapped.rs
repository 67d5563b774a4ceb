// SPDX-License-Identifier: GPL-2.0-only
//! The half of L9 on folios that no table maps: what counts a mapping has to have an entry.

use std::ops::Range;

use linux::folio::Page;

use crate::check::{UnmappedFound, UnmappedSeen};
use linux::structures::Folios;
use linux::unmapped::MayBe;

/// Pages of one folio that are told of.
const MOST: usize = 4;

/// Looks at each such folio.
pub(super) fn check(seen: &UnmappedSeen<'_>) -> UnmappedFound {
    let UnmappedSeen {
        entries, folios, ..
    } = *seen;
    let mut found = UnmappedFound::default();
    // What cannot be walked may map anything, and its own rule has told of it.
    if entries.problem.is_some() {
        return found;
    }
    let mut told: Vec<(usize, Range<u64>)> = Vec::new();
    for unmapped in seen.all {
        let Ok(page) = folios.page(unmapped.head) else {
            continue;
        };
        let folio = page.head..page.head + page.pages();
        if entries.pages.within(&folio) + entries.blocks.within(&folio) > 0 {
            continue;
        }
        let counted = counted(&page, folios);
        if counted.is_empty() {
            continue;
        }
        if let Some(why) = &unmapped.open {
            found.open.push(why.clone());
            continue;
        }
        let of = |place: &MayBe| seen.roots.iter().position(|root| *root == place.table);
        let mut judged = unmapped
            .places
            .iter()
            .filter_map(|place| Some((of(place)?, place)));
        let (owner, va) = judged
            .next()
            .map_or((0, 0), |(owner, place)| (owner, place.va));
        let there = va..va.saturating_add(page.pages() * seen.page_size);
        let is_told = |(of, at): &(usize, Range<u64>)| {
            *of == owner && at.start < there.end && at.end > there.start
        };
        if va != 0 && ((seen.is_broken)(owner, &there) || told.iter().any(is_told)) {
            continue;
        }
        let places = match unmapped.places.as_slice() {
            [] => String::new(),
            [place, more @ ..] => {
                let more = match more.len() {
                    0 => String::new(),
                    more => format!(", or at {more} other places"),
                };
                let MayBe { va, process, .. } = place;
                format!("; by its reverse mapping it would be at VA 0x{va:016x} of process {process}{more}")
            }
        };
        let message = format!(
            "no entry of any address space maps the folio of order {} at page frame 0x{:x}, and it counts mappings: {}{places}",
            page.order,
            page.head,
            counted.join("; ")
        );
        let end = va + if va == 0 { 0 } else { seen.page_size };
        told.push((owner, va..end));
        found.broken.push((owner, va, message));
    }
    found
}

/// The counts of a folio that are above none, in words.
fn counted(page: &Page, folios: &dyn Folios) -> Vec<String> {
    let pages = (page.head..page.head + page.pages()).filter_map(|pfn| {
        let count = folios.page(pfn).ok()?.mapcount.filter(|count| *count > 0)?;
        Some(format!("mapcount of page frame 0x{pfn:x} {count}"))
    });
    let mut counted: Vec<String> = pages.take(MOST).collect();
    let of_folio = [
        ("mapcount of the folio", page.large.unwrap_or(0)),
        ("entire mapcount", page.entire),
    ];
    let of_folio = of_folio.iter().filter(|(_, count)| *count > 0);
    counted.extend(of_folio.map(|(what, count)| format!("{what} {count}")));
    counted
}
