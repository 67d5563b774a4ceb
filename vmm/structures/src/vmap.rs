// SPDX-License-Identifier: GPL-2.0-only
//! The areas of vmalloc, modules and ioremap: what `/proc/vmallocinfo` lists (mm/vmalloc.c, vmalloc_info_show()).

use stage1::PhysMemory;

use crate::kernel::View;
use crate::lock::SpinLock;
use crate::per_cpu::word;
use crate::types::Member;
use crate::{Kernel, StructureError};

/// More than `vmap_init_nodes()` makes: at most one for each CPU, and no more than 128.
const MOST_NODES: u64 = 1024;
/// More areas than anybody has.
const MOST_AREAS: usize = 1 << 22;
const WHAT: &str = "a vmalloc area";

/// One area (`struct vmap_area`, and its `struct vm_struct` where it has one).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmArea {
    /// Its first address.
    pub start: u64,
    /// The first address behind it; the guard page is within.
    pub end: u64,
    /// Its use. `None` for `vm_map_ram()`, which has no `struct vm_struct`.
    pub of: Option<Owner>,
}

/// The use of an area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// `VM_IOREMAP`, `VM_ALLOC` and the others of include/linux/vmalloc.h.
    pub flags: u64,
    /// Pages of the smallest size that it has of its own; 0 where it maps what it was given.
    pub pages: u64,
    /// The order of the blocks that it tried for; None where the kernel has one size.
    pub order: Option<u64>,
    /// An address in the function that asked for it; 0 where that is not known.
    pub caller: u64,
}

/// Layout of this kernel's areas.
#[derive(Debug)]
pub struct Layout {
    lock: SpinLock,
    nodes: u64,
    count: u64,
    size: u64,
    lock_of: Member,
    head: Member,
    next: Member,
    list: Member,
    start: Member,
    end: Member,
    vm: Member,
    flags: Member,
    pages: Member,
    order: Option<Member>,
    caller: Member,
}

impl Layout {
    /// As this kernel has it: from 6.9 on, where the areas are spread over nodes.
    ///
    /// # Errors
    /// What it does not have.
    pub fn new(kernel: &Kernel) -> Result<Layout, StructureError> {
        let types = &kernel.types;
        let area = |name| types.member("vmap_area", name);
        let vm = |name| types.member("vm_struct", name);
        Ok(Layout {
            lock: SpinLock::new(&kernel.types)?,
            nodes: kernel.variable("vmap_nodes")?,
            count: kernel.variable("nr_vmap_nodes")?,
            size: types.size("vmap_node")?,
            lock_of: types.member("vmap_node", "busy.lock")?,
            head: types.member("vmap_node", "busy.head")?,
            next: types.member("list_head", "next")?,
            list: area("list")?,
            start: area("va_start")?,
            end: area("va_end")?,
            vm: area("vm")?,
            flags: vm("flags")?,
            pages: vm("nr_pages")?,
            order: vm("page_order").ok(),
            caller: vm("caller")?,
        })
    }

    /// All areas that are in use, by address.
    ///
    /// # Errors
    /// Where a list cannot be followed to its end, or is just being changed.
    pub fn areas<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
    ) -> Result<Vec<VmArea>, StructureError> {
        let nodes = view.number(WHAT, self.nodes, word(8))?;
        let count = view.number(WHAT, self.count, word(4))?;
        if !(1..=MOST_NODES).contains(&count) {
            return Err(StructureError::Inconsistent {
                what: WHAT,
                va: self.count,
                why: format!("{count} lists are said to be there, and 1 to {MOST_NODES} can be"),
            });
        }
        let mut areas = Vec::new();
        for node in 0..count {
            let node = nodes.wrapping_add(node * self.size);
            if self
                .lock
                .is_held(view, node.wrapping_add(self.lock_of.offset))?
            {
                return Err(StructureError::Inconsistent {
                    what: WHAT,
                    va: node,
                    why: "the lock of its list was held".into(),
                });
            }
            let head = node.wrapping_add(self.head.offset);
            for at in view.list(WHAT, (head, self.next), MOST_AREAS - areas.len())? {
                areas.push(self.area(view, at.wrapping_sub(self.list.offset))?);
            }
        }
        areas.sort_unstable_by_key(|area: &VmArea| area.start);
        Ok(areas)
    }

    fn area<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        at: u64,
    ) -> Result<VmArea, StructureError> {
        let vm = view.number(WHAT, at, self.vm)?;
        let owner = |member| view.number(WHAT, vm, member);
        Ok(VmArea {
            start: view.number(WHAT, at, self.start)?,
            end: view.number(WHAT, at, self.end)?,
            of: match vm {
                0 => None,
                _ => Some(Owner {
                    flags: owner(self.flags)?,
                    pages: owner(self.pages)?,
                    order: self.order.map(owner).transpose()?,
                    caller: owner(self.caller)?,
                }),
            },
        })
    }
}
