// SPDX-License-Identifier: GPL-2.0-only
//! The methods `page`, `space`, `tasks`, `maps` and `counts`: the kernel's own structures at one instant,
//! and their addresses.

use std::collections::BTreeSet;

use evidence::inside::Inside;
use linux::cache::Shmem;
use report::listing::{Maps, Tasks};
use structures::pages::Pages;
use structures::View;
use verdict::Hex;

use super::kernel_answers::{
    ContpteCounted, CountedAnswer, CountsAnswer, FileAnswer, OrdersCounted, PageAnswer,
    ShmemAnswer, SpaceAnswer, Unfolds,
};
use super::parameters::{OfPage, OfSpace};
use crate::guest::Guest;
use crate::Error;

type Layouts = (structures::pages::Layout, structures::spaces::Layout);

/// Returns a page by its page frame number.
pub(super) fn page(guest: &mut Guest, p: &OfPage) -> Result<PageAnswer, Error> {
    guest.with_structures(|inside, view| {
        let (layout, _) = layouts(inside)?;
        let page = Pages::new(layout, view).page(p.pfn);
        let page = page.map_err(|why| Error::Input(why.why().to_owned()))?;
        Ok(PageAnswer {
            flags: layout.own_flags(&page),
            folio_flags: layout.flags_of_folio(&page),
            at: physical(view, layout.address(page.pfn))?,
            head_at: physical(view, layout.address(page.head))?,
            memcg: inside.memcg(view.memory, &page),
            page,
        })
    })
}

/// Returns the address space of a process.
pub(super) fn space(guest: &mut Guest, p: &OfSpace) -> Result<SpaceAnswer, Error> {
    guest.with_structures(|inside, view| {
        let (_, layout) = layouts(inside)?;
        let wrong = |error: structures::StructureError| Error::Input(error.to_string());
        let all = layout.spaces(view, &[]).map_err(wrong)?;
        let space = all
            .iter()
            .find(|space| space.pid == p.pid)
            .ok_or_else(|| Error::Input(format!("no process {} has an address space", p.pid)))?;
        let counted = layout.spaces(view, &[space.table]).map_err(wrong)?;
        let counted = counted.into_iter().find(|it| it.mm == space.mm);
        let mapped = counted.iter().flat_map(|it| it.numbering.iter().flatten());
        let mapped: BTreeSet<u64> = mapped.filter_map(|it| Some(it.of?.mapping)).collect();
        let tables_at = layout.tables_bytes(space.mm);
        let hugetlb_at = layout.hugetlb(space.mm);
        let flags_at = layout.flags(space.mm);
        let at = (0..4).filter_map(|index| layout.counter(space.mm, index));
        Ok(SpaceAnswer {
            mm: Hex(space.mm),
            table: Hex(space.table),
            rss: counted.as_ref().and_then(|it| it.rss),
            rss_at: at.map(|va| physical(view, va)).collect::<Result<_, _>>()?,
            tables_bytes: counted.as_ref().and_then(|it| it.tables_bytes),
            tables_bytes_at: tables_at.map(|va| physical(view, va)).transpose()?,
            huge_zero: counted.as_ref().and_then(|it| it.huge_zero),
            hugetlb: counted.and_then(|it| it.hugetlb),
            hugetlb_at: hugetlb_at.map(|va| physical(view, va)).transpose()?,
            flags_at: flags_at.map(|va| physical(view, va)).transpose()?,
            files: files(inside, view, mapped)?,
        })
    })
}

/// Returns the page caches of these files.
fn files(
    inside: &Inside,
    view: View<'_, snapshot::Memory>,
    mappings: BTreeSet<u64>,
) -> Result<Vec<FileAnswer>, Error> {
    let wrong = |error: &structures::StructureError| Error::Input(error.to_string());
    let (layout, (pages, _)) = (inside.caches.as_ref().map_err(wrong)?, layouts(inside)?);
    let (pages, mut left) = (Pages::new(pages, view), FOLIOS);
    let mut files = Vec::new();
    for mapping in mappings {
        let tree = layout.tree(view, &pages, mapping, &mut left);
        let Some(tree) = tree.map_err(|why| Error::Input(why.why))? else {
            continue;
        };
        files.push(FileAnswer {
            mapping: Hex(mapping),
            counted: tree.counted,
            counted_at: physical(view, layout.count_at(mapping))?,
            found: tree.found,
            gone: tree.values,
            shmem: tree.shmem.map(|it| shmem(view, it)).transpose()?,
        });
    }
    Ok(files)
}

fn shmem(view: View<'_, snapshot::Memory>, counts: Shmem) -> Result<ShmemAnswer, Error> {
    let [alloced_at, swapped_at] = counts.at;
    Ok(ShmemAnswer {
        alloced: counts.alloced,
        swapped: counts.swapped,
        at: [physical(view, alloced_at)?, physical(view, swapped_at)?],
    })
}

/// Folios that are looked at for one answer.
const FOLIOS: u64 = 1 << 20;

/// Returns what the kernel counts of all memory.
pub(super) fn counted(guest: &mut Guest) -> Result<CountedAnswer, Error> {
    guest.with_structures(|inside, view| {
        let (layout, _) = layouts(inside)?;
        let mut counted = inside.counted.read(view, &Pages::new(layout, view));
        for at in counted.places_mut() {
            *at = physical(view, *at)?.0;
        }
        Ok(CountedAnswer { counted })
    })
}

/// Returns what the patched kernel counts of its decisions.
pub(super) fn counts(guest: &mut Guest) -> Result<CountsAnswer, Error> {
    guest.with_structures(|inside, view| {
        let (kernel, mut notes) = (&inside.kernel, Vec::new());
        let mut note = |error: structures::StructureError| notes.push(error.to_string());
        let orders = structures::counts::orders(kernel, view);
        let contpte = structures::counts::contpte(kernel, view);
        Ok(CountsAnswer {
            orders: orders.map_err(&mut note).ok().map(|of| OrdersCounted {
                on: of.on,
                decisions: of.counted,
            }),
            contpte: contpte.map_err(&mut note).ok().map(|of| {
                let named = |(caller, count): (u64, u64)| Unfolds {
                    caller: Some(match kernel.symbols.name(caller) {
                        Some((name, distance)) => format!("{name}+{distance:#x}"),
                        None => format!("{caller:#x}"),
                    }),
                    count,
                };
                let others = (of.counted.others > 0).then_some(Unfolds {
                    caller: None,
                    count: of.counted.others,
                });
                ContpteCounted {
                    on: of.on,
                    events: of.counted.events.into_iter().collect(),
                    unfolds: of
                        .counted
                        .unfolds
                        .into_iter()
                        .map(named)
                        .chain(others)
                        .collect(),
                }
            }),
            notes,
        })
    })
}

/// Returns all tasks.
pub(super) fn tasks(guest: &mut Guest) -> Result<Tasks, Error> {
    let (seen, _) = guest.see(None)?;
    Ok(seen.listing())
}

/// Returns the address space of any process.
pub(super) fn maps(guest: &mut Guest, of: &OfSpace) -> Result<Maps, Error> {
    let (seen, memory) = guest.see(Some(of.pid))?;
    let space = seen
        .space
        .ok_or_else(|| Error::Input(format!("no process {} has an address space", of.pid)))?;
    Ok(space.maps(&memory))
}

fn layouts(inside: &Inside) -> Result<&Layouts, Error> {
    let layouts = inside.layouts.as_ref();
    layouts.map_err(|error| Error::Input(error.to_string()))
}

fn physical(view: View<'_, snapshot::Memory>, va: u64) -> Result<Hex, Error> {
    let found = view.physical("the kernel's memory", va);
    let found = found.map_err(|error| Error::Input(error.to_string()))?;
    Ok(Hex(found.0))
}
