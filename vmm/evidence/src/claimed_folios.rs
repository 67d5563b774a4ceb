// SPDX-License-Identifier: GPL-2.0-only
//! Folios that count mappings and that no table maps: found among the pages of all memory, and held to what may map them.

use std::collections::BTreeSet;
use std::ops::Range;

use linux::counted::{Known, NotRead};
use linux::folio::Claimed;
use linux::unmapped::{MayBe, Unmapped};
use stage1::{PhysMemory, PhysicalAddress, Regime};
use structures::pages::{Frames, Pages};
use structures::spaces::Space;
use structures::View;

use crate::inside::Inside;
use crate::mapped::MappedPages;

/// So many are told of, and their reverse mapping followed: one is enough to be wrong.
const MOST: usize = 64;
/// VMAs that are followed at one instant, of all their reverse mappings.
const VMAS: usize = 1 << 15;
/// How often address spaces are added that no task has.
const ROUNDS: usize = 8;

/// The mapped pages among all pages.
#[derive(Debug)]
pub struct Search {
    spans: Vec<Range<u64>>,
    mapped: Frames,
}

impl Search {
    /// # Errors
    /// Where the kernel does not tell where its memory is, or there is too much of it.
    pub fn new<M: PhysMemory + ?Sized>(inside: &Inside, view: View<'_, M>) -> Known<Search> {
        let spans = inside.counted.spans(view)?;
        let mapped = Frames::within(&spans)
            .ok_or_else(|| never("there is more memory than is looked through"))?;
        Ok(Search { spans, mapped })
    }

    /// Those that count mappings, and are not mapped; address spaces that no task has and that may map one are walked as
    /// well, and are among `spaces` then. `lower` is any process's half.
    ///
    /// # Errors
    /// Where not all pages of memory could be looked at.
    pub fn claimed<M: PhysMemory + ?Sized>(
        &mut self,
        inside: &Inside,
        view: View<'_, M>,
        (lower, pages): (&Regime, &Pages<'_, M>),
        spaces: &mut Vec<Space>,
    ) -> Known<Vec<Claimed>> {
        let mut found = Vec::new();
        for _ in 0..ROUNDS {
            found = self.look(inside, view, pages)?;
            let places = found
                .iter()
                .flat_map(|it: &Claimed| it.places.iter().flatten());
            let known = |mm: u64| spaces.iter().any(|space| space.mm == mm);
            let new = places.map(|place| place.mm).filter(|mm| !known(*mm));
            let new: BTreeSet<u64> = new.collect();
            let walked = spaces.len();
            for mm in new {
                let layout = inside.layouts.as_ref().ok().map(|(_, spaces)| spaces);
                let space = layout.and_then(|layout| layout.of_no_task(view, mm).ok());
                spaces.extend(space.map(|space| self.add(view, lower, pages, space)));
            }
            if spaces.len() == walked {
                break;
            }
        }
        Ok(found)
    }

    /// Adds what an address space maps.
    fn add<M: PhysMemory + ?Sized>(
        &mut self,
        view: View<'_, M>,
        lower: &Regime,
        pages: &Pages<'_, M>,
        mut space: Space,
    ) -> Space {
        let mut regime = *lower;
        regime.root = PhysicalAddress(space.table);
        let mut mapped = MappedPages::new(regime);
        stage1::walk(view.memory, &regime, regime.first, regime.last, &mut mapped);
        self.take(&mapped.runs);
        self.take(&mapped.uncounted);
        let size = regime.granule.bytes();
        let mut tables = mapped.tables.iter();
        space.table_locked = tables.any(|table| pages.table_is_locked(table / size) == Some(true));
        space
    }

    /// These are mapped: first page frame number, and how many.
    pub fn take(&mut self, runs: &[(u64, u64)]) {
        for (first, count) in runs {
            self.mapped.add(*first, *count);
        }
    }

    fn look<M: PhysMemory + ?Sized>(
        &self,
        inside: &Inside,
        view: View<'_, M>,
        pages: &Pages<'_, M>,
    ) -> Known<Vec<Claimed>> {
        let mut heads = Vec::new();
        for span in &self.spans {
            let most = MOST.saturating_sub(heads.len());
            let found = pages.claimed(span.clone(), &self.mapped, most);
            heads.extend(found.ok_or_else(|| never("a struct page of it cannot be read"))?);
        }
        let mut left = VMAS;
        let mut places = |head| {
            let (page, reverse) = (pages.page(head).ok()?, inside.reverse.as_ref().ok()?);
            reverse.places(view, &page, &mut left).ok()
        };
        let all = heads.into_iter().map(|head| Claimed {
            head,
            places: places(head),
        });
        Ok(all.collect())
    }
}

/// Returns the reason for a snapshot of a version that did not keep this.
///
/// # Errors
/// Always.
pub fn older() -> Known<Vec<Claimed>> {
    Err(never(
        "the snapshot is of a version that did not keep whether they are",
    ))
}

/// No other instant would show it.
fn never(why: &str) -> NotRead {
    NotRead {
        why: why.into(),
        later: false,
        not_built: false,
    }
}

/// Returns the places at which each may be mapped. A VMA is in a folio's reverse mapping before it maps it: where all of those are known, no
/// other address space has it, whether a process forks or not. `incomplete`: why there may be an address space that is not
/// known, if its reverse mapping says nothing.
pub fn unmapped(claimed: &[Claimed], spaces: &[Space], incomplete: Option<&str>) -> Vec<Unmapped> {
    let unmapped = |claimed: &Claimed| {
        let places = claimed.places.as_deref().unwrap_or_default();
        let mut open = match places {
            [] => incomplete.map(str::to_owned),
            _ => None,
        };
        let mut may = Vec::new();
        for place in places {
            let Some(space) = spaces.iter().find(|space| space.mm == place.mm) else {
                open = Some("it may be mapped in an address space that no task has".into());
                continue;
            };
            if space.lock.is_held() || space.table_locked {
                open = Some(format!(
                    "the mmap_lock of process {} ({}), or the lock of one of its tables, was held",
                    space.pid, space.name
                ));
            }
            may.push(MayBe {
                table: space.table,
                va: place.va,
                process: format!("{} ({})", space.pid, space.name),
            });
        }
        Unmapped {
            head: claimed.head,
            places: may,
            open,
        }
    };
    claimed.iter().map(unmapped).collect()
}
