// SPDX-License-Identifier: GPL-2.0-only
//! The folios behind entries, if they are known.

use std::collections::HashMap;

use serde::Serialize;

use super::pack::Packed;

/// Kinds of folios that are told apart by their text; beyond that only by their order.
const KEPT: usize = 4096;

/// The folio behind a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folio {
    /// Page frame number of its first page.
    pub head: u64,
    /// It has 2 to the power of this pages.
    pub order: u8,
    /// Other facts about it, in words.
    pub text: String,
}

/// Gives the folio of a page frame, where there is one.
pub type Folios<'f> = dyn Fn(u64) -> Option<Folio> + 'f;

/// Common part of folios.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct FolioKind {
    order: u8,
    text: String,
}

/// All kinds of a run, each once.
#[derive(Debug, Default)]
pub(crate) struct FolioKinds {
    pub all: Vec<FolioKind>,
    known: HashMap<FolioKind, usize>,
}

impl FolioKinds {
    fn place(&mut self, folio: &Folio) -> usize {
        let mut kind = FolioKind {
            order: folio.order,
            text: folio.text.clone(),
        };
        if let Some(place) = self.known.get(&kind) {
            return *place;
        }
        if self.all.len() >= KEPT {
            kind.text = String::new();
            if let Some(place) = self.known.get(&kind) {
                return *place;
            }
        }
        let place = self.all.len();
        self.all.push(kind.clone());
        self.known.insert(kind, place);
        place
    }
}

/// Folios by address, as runs: pages of one kind of folio, each at the next place of its folio, the first behind the
/// last. In bytes: pages from the end of the run before, pages less 1, kind, place of the first page.
#[derive(Debug, Default)]
pub(crate) struct FolioRuns {
    pub packed: Packed,
    run: Option<Run>,
    end: u64,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    page: u64,
    pages: u64,
    kind: usize,
    order: u8,
    place: u64,
}

impl FolioRuns {
    /// Adds `pages` pages from `page` on, which one entry maps to the frames from `frame` on.
    pub fn add(
        &mut self,
        page: u64,
        pages: u64,
        frame: u64,
        folio: &Folio,
        kinds: &mut FolioKinds,
    ) {
        let next = Run {
            page,
            pages,
            kind: kinds.place(folio),
            order: folio.order.min(63),
            place: frame.wrapping_sub(folio.head),
        };
        if let Some(run) = &mut self.run {
            let place = (run.place + run.pages) & ((1 << run.order) - 1);
            if run.page + run.pages == page && run.kind == next.kind && place == next.place {
                run.pages += pages;
                return;
            }
        }
        self.flush();
        self.run = Some(next);
    }

    /// Ends the last run.
    pub fn flush(&mut self) {
        let Some(run) = self.run.take() else { return };
        self.packed.number(run.page - self.end);
        self.packed.number(run.pages - 1);
        self.packed.number(run.kind as u64);
        self.packed.number(run.place);
        self.end = run.page + run.pages;
    }
}
