// SPDX-License-Identifier: GPL-2.0-only
//! The memory cgroup that a folio is charged to (`folio_memcg_check()`, include/linux/memcontrol.h).

use linux::folio::Memcg;
use serde::{Deserialize, Serialize};
use stage1::PhysMemory;
use untrusted::Text;

use crate::kernel::View;
use crate::types::Member;
use crate::{Kernel, StructureError};

/// Cgroups are nested no deeper, and the bytes of one's name no more (`NAME_MAX`).
const DEEPEST: usize = 64;
const NAME: u64 = 255;

/// Where the kernel keeps what leads from a folio's `memcg_data` to its cgroup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// The address of `memory_cgrp_subsys`: by it a memory cgroup is known for one.
    subsystem: u64,
    /// `MEMCG_DATA_OBJEXTS`: no cgroup, but a vector of those of a slab's objects.
    of_objects: u64,
    /// The bits of `memcg_data` that are no address.
    flags: u64,
    css: Member,
    subsystem_of: Member,
    id: Member,
    cgroup: Member,
    /// Layout of a `struct obj_cgroup`, by which kernel memory is charged, and from 7.x on all.
    memcg: Member,
    node: Member,
    inode: Member,
    name: Member,
    parent: Member,
}

impl Layout {
    /// As this kernel has it.
    ///
    /// # Errors
    /// What it does not have, as one without memory cgroups.
    pub fn new(kernel: &Kernel) -> Result<Layout, StructureError> {
        let types = &kernel.types;
        let state = |name| types.member("cgroup_subsys_state", name);
        let node = |name| types.member("kernfs_node", name);
        let last = types.enumerator("page_memcg_data_flags", "__NR_MEMCG_DATA_FLAGS")?;
        // Where it is, the bits of objects' extensions are behind those.
        let last = types
            .enumerator("objext_flags", "__NR_OBJEXTS_FLAGS")
            .map_or(last, |behind| behind.max(last));
        Ok(Layout {
            subsystem: kernel.variable("memory_cgrp_subsys")?,
            of_objects: types
                .enumerator("page_memcg_data_flags", "MEMCG_DATA_OBJEXTS")
                .or_else(|_| types.enumerator("page_memcg_data_flags", "MEMCG_DATA_OBJCGS"))?,
            flags: last - 1,
            css: types.member("mem_cgroup", "css")?,
            subsystem_of: state("ss")?,
            id: state("id")?,
            cgroup: state("cgroup")?,
            memcg: types.member("obj_cgroup", "memcg")?,
            node: types.member("cgroup", "kn")?,
            inode: node("id")?,
            name: node("name")?,
            // Renamed in 6.15.
            parent: node("parent").or_else(|_| node("__parent"))?,
        })
    }

    /// The cgroup of a folio with this `memcg_data`; none where it is charged to none.
    ///
    /// # Errors
    /// Where it leads to none.
    pub fn of<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        data: u64,
    ) -> Result<Option<Memcg>, StructureError> {
        let what = "a folio's memory cgroup";
        let address = data & !self.flags;
        if data & self.of_objects != 0 || address == 0 {
            return Ok(None);
        }
        let is_one = |address: u64| {
            let state = address.wrapping_add(self.css.offset);
            view.number(what, state, self.subsystem_of)
                .is_ok_and(|subsystem| subsystem == self.subsystem)
        };
        let memcg = match is_one(address) {
            true => address,
            false => view.number(what, address, self.memcg)?,
        };
        if !is_one(memcg) {
            return Err(StructureError::Inconsistent {
                what,
                va: address,
                why: format!("memcg_data 0x{data:x} leads to nothing of memory_cgrp_subsys"),
            });
        }
        let state = memcg.wrapping_add(self.css.offset);
        let cgroup = view.number(what, state, self.cgroup)?;
        let node = view.number(what, cgroup, self.node)?;
        Ok(Some(Memcg {
            css: view.number(what, state, self.id)?,
            inode: view.number(what, node, self.inode)?,
            path: self.path(view, node)?,
        }))
    }

    /// Its path from the root of the hierarchy, which has no name.
    fn path<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        node: u64,
    ) -> Result<Text, StructureError> {
        let what = "a cgroup's name";
        let (mut at, mut path) = (node, String::new());
        for _ in 0..DEEPEST {
            let parent = view.number(what, at, self.parent)?;
            if parent == 0 {
                let root = if path.is_empty() { "/" } else { "" };
                return Ok(format!("{root}{path}").into());
            }
            let name = view.text(what, view.number(what, at, self.name)?, NAME)?;
            path = format!("/{}{path}", name.raw());
            at = parent;
        }
        Err(StructureError::Inconsistent {
            what,
            va: node,
            why: format!("it is more than {DEEPEST} deep"),
        })
    }
}
