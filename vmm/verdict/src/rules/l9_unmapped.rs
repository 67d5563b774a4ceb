//! The half of L9 on folios that no table maps: what counts a mapping has to have an entry.

use std::ops::Range;

use linux::folio::Page;

use super::l9;
use super::l9_entries::Entries;
use crate::structures::Folios;
use crate::{Finding, Hex, NotJudged, ProcessVerdict, RuleId, Severity};

/// A folio that counts mappings, and that no table was seen to map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmapped {
    /// The page frame number of its first page.
    pub head: u64,
    /// Where it may be mapped, by its reverse mapping.
    pub places: Vec<MayBe>,
    /// Why there may be entries all the same, if so.
    pub open: Option<String>,
}

/// A place at which a folio may be mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MayBe {
    /// The physical address of the process's first table.
    pub table: u64,
    /// The virtual address.
    pub va: u64,
    /// The process in words: its id, and its name in brackets.
    pub process: String,
}

/// Pages of one folio that are told of.
const MOST: usize = 4;

/// Findings go to a process that may map the folio, or to the first. Gives how many were not judged.
pub(super) fn judge(
    entries: &Entries,
    all: &[Unmapped],
    folios: &dyn Folios,
    verdicts: &mut [ProcessVerdict],
) -> u64 {
    // What cannot be walked may map anything, and its own rule has told of it.
    if entries.problem.is_some() {
        return 0;
    }
    let mut open = Vec::new();
    for unmapped in all {
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
            open.push(why);
            continue;
        }
        let of = |place: &MayBe| verdicts.iter().position(|it| it.root.0 == place.table);
        let mut judged = unmapped
            .places
            .iter()
            .filter_map(|place| Some((of(place)?, place)));
        let (owner, va) = judged
            .next()
            .map_or((0, 0), |(owner, place)| (owner, place.va));
        let Some(verdict) = verdicts.get_mut(owner) else {
            return 0;
        };
        let there = va..va.saturating_add(page.pages() * verdict.page_size);
        if va != 0 && is_broken(verdict, &there) {
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
        verdict.findings.push(Finding {
            process: (va != 0).then(|| verdict.process.clone()),
            va: Hex(va),
            end: Hex(va + if va == 0 { 0 } else { verdict.page_size }),
            remarks: l9::RULE.remark(&message, verdict.release),
            ..Finding::new(RuleId::L9, message)
        });
    }
    let (Some(why), Some(first)) = (open.first(), verdicts.first_mut()) else {
        return 0;
    };
    let reason = format!(
        "{} folios count mappings and no entry was seen to map them, and L9 was not judged for them: {why}",
        open.len()
    );
    first.not_judged.push(NotJudged { reason });
    open.len() as u64
}

/// Whether a rule has told of an entry there: with it the folio's has gone.
fn is_broken(verdict: &ProcessVerdict, there: &Range<u64>) -> bool {
    let errors = verdict.findings.iter();
    let mut errors = errors.filter(|finding| finding.severity == Severity::Error);
    errors.any(|finding| finding.va.0 < there.end && finding.end.0 > there.start)
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
