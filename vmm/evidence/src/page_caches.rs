// SPDX-License-Identifier: GPL-2.0-only
//! The page caches of the files that processes map.

use std::collections::BTreeMap;

use linux::cache::Cache;
use linux::counted::{Known, NotRead};
use stage1::PhysMemory;
use structures::pages::Pages;
use structures::spaces::Space;
use structures::View;

use crate::inside::Inside;

/// Folios that are looked at in all of them, at one instant.
const MOST: u64 = 1 << 18;

/// Those of all files that are in the numbering of an address space, each once.
///
/// # Errors
/// Where this kernel's are not known.
pub fn read<M: PhysMemory + ?Sized>(
    inside: &Inside,
    view: View<'_, M>,
    pages: &Pages<'_, M>,
    spaces: &[Space],
) -> Known<Vec<Cache>> {
    let layout = inside.caches.as_ref().map_err(|error| NotRead {
        why: error.to_string(),
        later: error.may_pass(),
        not_built: false,
    })?;
    let mut files = BTreeMap::new();
    for space in spaces {
        for place in space.numbering.iter().flatten() {
            let Some(file) = place.of else { continue };
            files.entry(file.mapping).or_insert_with(|| {
                format!(
                    "process {} ({}) maps at VA 0x{:016x}",
                    space.pid, space.name, place.start
                )
            });
        }
    }
    let mut left = MOST;
    let cache = |(mapping, whose)| {
        let tree = layout.tree(view, pages, mapping, &mut left).transpose()?;
        Some(Cache {
            whose,
            mapping,
            at: layout.count_at(mapping),
            tree,
        })
    };
    Ok(files.into_iter().filter_map(cache).collect())
}

/// Returns whether another instant may show a cache that was being changed.
pub fn later(caches: Option<&Known<Vec<Cache>>>) -> bool {
    let mut caches = caches.into_iter().flatten().flatten();
    caches.any(|cache| cache.tree.as_ref().is_err_and(|why| why.later))
}
