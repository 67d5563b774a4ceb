// SPDX-License-Identifier: GPL-2.0-only
//! Large folios that wait to be split: on a queue of each node and of each memory cgroup (`struct deferred_split`), or from
//! Linux 7.3 on on a list of each node and of each memory cgroup on it (`struct list_lru`).

use linux::counted::{Queue, Queues};
use stage1::PhysMemory;

use super::cgroups::Cgroups;
use super::list_lru::ListLru;
use super::lists::{List, Parts};
use super::nodes;
use crate::kernel::View;
use crate::lock::SpinLock;
use crate::pages::Pages;
use crate::per_cpu::word;
use crate::types::Member;
use crate::{Kernel, StructureError};

/// Where they are.
#[derive(Debug)]
pub(super) struct Layout {
    lock: SpinLock,
    kept: Kept,
    shrinker: Option<(u64, Member)>,
}

/// How the kernel keeps them.
#[derive(Debug)]
enum Kept {
    Queues(Own),
    Lists(ListLru),
}

/// `struct deferred_split`.
#[derive(Debug)]
struct Own {
    parts: Parts,
    of_node: Member,
    nodes: Vec<(u64, u64)>,
    /// The tree of memory cgroups, and the queue of each.
    cgroups: Option<(Cgroups, Member)>,
}

/// More folios than all memory has, of the smallest order that can wait.
const MOST_FOLIOS: u64 = 1 << 24;

impl Layout {
    pub(super) fn new<M: PhysMemory + ?Sized>(
        kernel: &Kernel,
        view: View<'_, M>,
    ) -> Result<Layout, StructureError> {
        let shrinker = kernel.variable("deferred_split_shrinker").ok();
        let references = kernel.types.member("shrinker", "refcount.refs.counter");
        Ok(Layout {
            lock: SpinLock::new(&kernel.types)?,
            kept: match kernel.variable("deferred_split_lru") {
                Ok(lru) => Kept::Lists(ListLru::new(kernel, view, lru)?),
                Err(_) => Kept::Queues(Own::new(kernel, view)?),
            },
            shrinker: shrinker.zip(references.ok()),
        })
    }

    pub(super) fn read<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        pages: &Pages<'_, M>,
    ) -> Result<Queues, StructureError> {
        let lists = match &self.kept {
            Kept::Queues(own) => own.lists(view)?,
            Kept::Lists(lru) => lru.lists(view, self.lock)?,
        };
        let queues = lists.into_iter().map(|list| self.queue(view, pages, list));
        Ok(Queues {
            is_scanned: self.is_scanned(view)?,
            queues: queues.collect::<Result<_, _>>()?,
        })
    }

    /// Returns whether any task has the shrinker that splits folios: it takes them off their queue, which goes on counting them.
    fn is_scanned<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
    ) -> Result<bool, StructureError> {
        let Some((variable, references)) = self.shrinker else {
            return Ok(true);
        };
        let what = "the shrinker of folios that wait to be split";
        let shrinker = view.number(what, variable, word(8))?;
        // One reference for being registered.
        Ok(shrinker == 0 || view.number(what, shrinker, references)? != 1)
    }

    fn queue<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        pages: &Pages<'_, M>,
        list: List,
    ) -> Result<Queue, StructureError> {
        let what = "a queue of folios that wait to be split";
        if self.lock.is_held(view, list.lock)? {
            return Err(StructureError::Inconsistent {
                what,
                va: list.head,
                why: "its lock was held".into(),
            });
        }
        let first = view.number(what, list.head, word(8))?;
        let mut folios = Vec::new();
        let followed = pages.follow_deferred((list.head, first), MOST_FOLIOS, &mut folios);
        Ok(Queue {
            whose: list.whose,
            length: view.number(what, list.length, word(8))? as i64,
            at: list.length,
            folios,
            problem: followed.err(),
        })
    }
}

impl Own {
    fn new<M: PhysMemory + ?Sized>(
        kernel: &Kernel,
        view: View<'_, M>,
    ) -> Result<Own, StructureError> {
        let types = &kernel.types;
        let queue = |name| types.member("deferred_split", name);
        Ok(Own {
            parts: Parts {
                lock: queue("split_queue_lock")?,
                head: queue("split_queue")?,
                length: queue("split_queue_len")?,
            },
            of_node: types.member("pglist_data", "deferred_split_queue")?,
            nodes: nodes(kernel, view)?,
            cgroups: match Cgroups::new(kernel)? {
                Some(cgroups) => {
                    Some((cgroups, types.member("mem_cgroup", "deferred_split_queue")?))
                }
                None => None,
            },
        })
    }

    fn lists<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
    ) -> Result<Vec<List>, StructureError> {
        let of_nodes = self.nodes.iter().map(|(node, data)| {
            let at = data.wrapping_add(self.of_node.offset);
            self.parts.list(at, format!("node {node}"))
        });
        let mut all: Vec<List> = of_nodes.collect();
        if let Some((cgroups, queue)) = &self.cgroups {
            for (cgroup, id) in cgroups.all(view)? {
                let at = cgroup.wrapping_add(queue.offset);
                let whose = format!("the memory cgroup with id {id}");
                all.push(self.parts.list(at, whose));
            }
        }
        Ok(all)
    }
}
