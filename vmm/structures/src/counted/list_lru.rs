// SPDX-License-Identifier: GPL-2.0-only
//! `struct list_lru` (include/linux/list_lru.h, since 6.15): a list of each node, and one for each memory cgroup on it.

use stage1::PhysMemory;

use super::lists::{List, Parts};
use super::nodes;
use crate::kernel::View;
use crate::lock::SpinLock;
use crate::types::Member;
use crate::xarray::{XArray, KIND};
use crate::{Kernel, StructureError};

/// Where the lists of one are.
#[derive(Debug)]
pub(super) struct ListLru {
    /// The address of the whole.
    at: u64,
    of_nodes: Member,
    /// Bytes of what each node has, and where its own list is in that.
    stride: u64,
    of_node: Member,
    /// Bytes of a list with its lock and its length, and where these are.
    size: u64,
    parts: Parts,
    nodes: Vec<u64>,
    cgroups: Option<Cgroups>,
}

/// Those of the memory cgroups, by their number (`kmemcg_id`).
#[derive(Debug)]
struct Cgroups {
    is_aware: Member,
    lock: Member,
    root: Member,
    entries: XArray,
    lists: Member,
}

/// More than there can be: as many memory cgroups as `MEM_CGROUP_ID_MAX`, and the nodes of their tree.
const MOST: u64 = 1 << 17;
const WHAT: &str = "the lists of folios that wait to be split";

impl ListLru {
    /// Reads the one at `at`.
    pub(super) fn new<M: PhysMemory + ?Sized>(
        kernel: &Kernel,
        view: View<'_, M>,
        at: u64,
    ) -> Result<ListLru, StructureError> {
        let types = &kernel.types;
        let one = |name| types.member("list_lru_one", name);
        Ok(ListLru {
            at,
            of_nodes: types.member("list_lru", "node")?,
            stride: types.size("list_lru_node")?,
            of_node: types.member("list_lru_node", "lru")?,
            size: types.size("list_lru_one")?,
            parts: Parts {
                lock: one("lock")?,
                head: one("list")?,
                length: one("nr_items")?,
            },
            nodes: nodes(kernel, view)?
                .into_iter()
                .map(|(node, _)| node)
                .collect(),
            cgroups: Cgroups::new(kernel)?,
        })
    }

    /// All of them.
    pub(super) fn lists<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        lock: SpinLock,
    ) -> Result<Vec<List>, StructureError> {
        let of_nodes = view.number(WHAT, self.at, self.of_nodes)?;
        let mut all = Vec::new();
        for node in &self.nodes {
            let at = of_nodes.wrapping_add(node * self.stride + self.of_node.offset);
            all.push(self.parts.list(at, format!("node {node}")));
        }
        let Some(cgroups) = &self.cgroups else {
            return Ok(all);
        };
        for (number, at) in cgroups.all(view, self.at, lock)? {
            let first = at.wrapping_add(cgroups.lists.offset);
            for node in &self.nodes {
                let whose =
                    format!("the memory cgroup with number {number} (kmemcg_id), on node {node}");
                let at = first.wrapping_add(node * self.size);
                all.push(self.parts.list(at, whose));
            }
        }
        Ok(all)
    }
}

impl Cgroups {
    fn new(kernel: &Kernel) -> Result<Option<Cgroups>, StructureError> {
        let types = &kernel.types;
        // Without CONFIG_MEMCG there are none.
        let Ok(is_aware) = types.member("list_lru", "memcg_aware") else {
            return Ok(None);
        };
        Ok(Some(Cgroups {
            is_aware,
            lock: types.member("list_lru", "xa.xa_lock")?,
            root: types.member("list_lru", "xa.xa_head")?,
            entries: XArray::new(kernel, WHAT)?,
            lists: types.member("list_lru_memcg", "node")?,
        }))
    }

    /// The address of each one's `struct list_lru_memcg`, with its number.
    fn all<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        lru: u64,
        lock: SpinLock,
    ) -> Result<Vec<(u64, u64)>, StructureError> {
        let mut found = Vec::new();
        if view.number(WHAT, lru, self.is_aware)? == 0 {
            return Ok(found);
        }
        if lock.is_held(view, lru.wrapping_add(self.lock.offset))? {
            return Err(StructureError::Inconsistent {
                what: WHAT,
                va: lru,
                why: "the lock of their tree was held".into(),
            });
        }
        let root = view.number(WHAT, lru, self.root)?;
        self.entries
            .each(view, root, &mut { MOST }, |entry, number, _| {
                if entry != 0 && entry & KIND == 0 {
                    found.push((number, entry));
                }
            })?;
        Ok(found)
    }
}
