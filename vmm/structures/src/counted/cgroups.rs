// SPDX-License-Identifier: GPL-2.0-only
//! The tree of memory cgroups.

use stage1::PhysMemory;

use crate::kernel::View;
use crate::per_cpu::word;
use crate::types::Member;
use crate::{Kernel, StructureError};

/// More cgroups than anybody has; `MEM_CGROUP_ID_MAX`.
const MOST_CGROUPS: usize = 1 << 16;

/// The tree of memory cgroups.
#[derive(Debug)]
pub(super) struct Cgroups {
    root: u64,
    css: Member,
    id: Member,
    children: Member,
    sibling: Member,
    next: Member,
}

impl Cgroups {
    /// As this kernel has it; `None` without CONFIG_MEMCG.
    pub(super) fn new(kernel: &Kernel) -> Result<Option<Cgroups>, StructureError> {
        let types = &kernel.types;
        let Ok(root) = kernel.variable("root_mem_cgroup") else {
            return Ok(None);
        };
        let state = |name| types.member("cgroup_subsys_state", name);
        Ok(Some(Cgroups {
            root,
            css: types.member("mem_cgroup", "css")?,
            id: state("id")?,
            children: state("children")?,
            sibling: state("sibling")?,
            next: types.member("list_head", "next")?,
        }))
    }

    /// The address of each one's `struct mem_cgroup`, with its id; none where they are switched off at boot.
    pub(super) fn all<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
    ) -> Result<Vec<(u64, u64)>, StructureError> {
        let what = "the tree of memory cgroups";
        let root = view.number(what, self.root, word(8))?;
        let mut found = Vec::new();
        let mut left = match root {
            0 => Vec::new(),
            root => vec![root.wrapping_add(self.css.offset)],
        };
        while let Some(state) = left.pop() {
            let cgroup = state.wrapping_sub(self.css.offset);
            found.push((cgroup, view.number(what, state, self.id)?));
            let head = state.wrapping_add(self.children.offset);
            // All together: a child may lead back to where it came from.
            let most = MOST_CGROUPS.saturating_sub(left.len() + found.len());
            let children = view.list(what, (head, self.next), most)?;
            left.extend(
                children
                    .iter()
                    .map(|node| node.wrapping_sub(self.sibling.offset)),
            );
        }
        Ok(found)
    }
}
