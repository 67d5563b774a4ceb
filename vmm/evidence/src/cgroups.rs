// SPDX-License-Identifier: GPL-2.0-only
//! The memory cgroups of pages.

use std::collections::BTreeSet;

use linux::folio::{Memcg, Page, Type};
use stage1::PhysMemory;
use structures::memcg::Layout;
use structures::pages::Pages;
use structures::View;

/// Different words that are followed: each may be another cgroup, or nonsense.
const MOST: usize = 1 << 12;

/// Reads of the cgroups of many pages what will be asked, each once.
pub(crate) struct Cgroups<'c, M: ?Sized> {
    layout: Option<&'c Layout>,
    view: View<'c, M>,
    seen: BTreeSet<u64>,
    last: u64,
}

impl<'c, M: PhysMemory + ?Sized> Cgroups<'c, M> {
    pub fn new(layout: Option<&'c Layout>, view: View<'c, M>) -> Self {
        Self {
            layout,
            view,
            seen: BTreeSet::new(),
            last: 0,
        }
    }

    /// Reads the cgroup of the folio with this `memcg_data`. A word that is no folio's leads nowhere.
    pub fn touch(&mut self, data: u64) {
        if data == self.last || data == 0 || self.seen.len() == MOST {
            return;
        }
        self.last = data;
        if let Some(layout) = self.layout.filter(|_| self.seen.insert(data)) {
            // Where that leads nowhere it is found again when it is asked for.
            let _ = layout.of(self.view, data);
        }
    }
}

/// The cgroup that a page's folio is charged to: none where it is charged to none, or that is not known.
pub fn of<M: PhysMemory + ?Sized>(
    layout: Option<&Layout>,
    view: View<'_, M>,
    pages: &Pages<'_, M>,
    page: &Page,
) -> Option<Memcg> {
    // A slab has a vector of its objects there (`slab.obj_exts`), and what is free has nothing.
    if page
        .kind_of_page
        .is_some_and(|kind| kind != Type::Table && !matches!(kind, Type::Other(_)))
    {
        return None;
    }
    let data = pages.memcg_data(page.head)?;
    layout?.of(view, data).ok()?
}
