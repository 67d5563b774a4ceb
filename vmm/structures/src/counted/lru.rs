// SPDX-License-Identifier: GPL-2.0-only
//! The lists of the LRU (`struct lruvec`): of each node, and of each memory cgroup on it.

use linux::counted::Lists;
use stage1::PhysMemory;

use super::cgroups::Cgroups;
use super::nodes;
use crate::kernel::View;
use crate::lock::SpinLock;
use crate::per_cpu::word;
use crate::types::Member;
use crate::{Kernel, StructureError};

/// Where they are, and which counters they have.
#[derive(Debug)]
pub(super) struct Layout {
    lock: SpinLock,
    of_lists: Member,
    /// The address of each node's own.
    of_nodes: Vec<u64>,
    cgroups: Option<OfCgroups>,
    /// Counters of a node (`enum node_stat_item`).
    pub(super) items: Lists<Vec<u64>>,
}

/// Members that lead from a memory cgroup to its lists.
#[derive(Debug)]
struct OfCgroups {
    all: Cgroups,
    /// An array of pointers, one for each node.
    nodes: Member,
    lists: Member,
    /// The numbers of the nodes that there are.
    numbers: Vec<u64>,
}

impl Layout {
    pub(super) fn new<M: PhysMemory + ?Sized>(
        kernel: &Kernel,
        view: View<'_, M>,
    ) -> Result<Layout, StructureError> {
        let types = &kernel.types;
        let item = |name| types.enumerator("node_stat_item", name);
        let own = types.member("pglist_data", "__lruvec")?;
        let nodes = nodes(kernel, view)?;
        let of_cgroups = |all| {
            Ok::<_, StructureError>(OfCgroups {
                all,
                nodes: types.member("mem_cgroup", "nodeinfo")?,
                lists: types.member("mem_cgroup_per_node", "lruvec")?,
                numbers: nodes.iter().map(|(number, _)| *number).collect(),
            })
        };
        Ok(Layout {
            lock: SpinLock::new(types)?,
            of_lists: types.member("lruvec", "lru_lock")?,
            of_nodes: nodes
                .iter()
                .map(|(_, node)| node.wrapping_add(own.offset))
                .collect(),
            cgroups: Cgroups::new(kernel)?.map(of_cgroups).transpose()?,
            items: Lists {
                anonymous: vec![item("NR_INACTIVE_ANON")?, item("NR_ACTIVE_ANON")?],
                file: vec![item("NR_INACTIVE_FILE")?, item("NR_ACTIVE_FILE")?],
                unevictable: vec![item("NR_UNEVICTABLE")?],
            },
        })
    }

    /// Returns an error if anybody changes one of the lists: folios are taken off before they are counted down
    /// (`isolate_lru_folios()`, mm/vmscan.c).
    pub(super) fn is_at_rest<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
    ) -> Result<(), StructureError> {
        let what = "the lists of the LRU";
        let mut all = self.of_nodes.clone();
        if let Some(of) = &self.cgroups {
            for (cgroup, _) in of.all.all(view)? {
                for number in &of.numbers {
                    let pointer = cgroup.wrapping_add(of.nodes.offset + 8 * number);
                    let node = view.number(what, pointer, word(8))?;
                    if node != 0 {
                        all.push(node.wrapping_add(of.lists.offset));
                    }
                }
            }
        }
        for lists in all {
            let lock = lists.wrapping_add(self.of_lists.offset);
            if self.lock.is_held(view, lock)? {
                return Err(StructureError::Inconsistent {
                    what,
                    va: lists,
                    why: "their lock was held".into(),
                });
            }
        }
        Ok(())
    }
}
