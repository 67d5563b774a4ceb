// SPDX-License-Identifier: GPL-2.0-only
//! The trees of the reverse mapping in which a VMA is found: what reclaim and migration go by (`rmap_walk()`, mm/rmap.c).

use linux::folio::Numbering;
use stage1::PhysMemory;

use crate::kernel::View;
use crate::lock::{Lock, RwSemaphore};
use crate::place::Place;
use crate::types::Member;
use crate::{Kernel, StructureError};

/// Levels of a tree, and anonymous trees of one VMA, beyond which what is read is no such thing.
const DEEPEST: usize = 128;
const MOST: usize = 1 << 16;

/// Layout that leads from a VMA to the trees that it hangs in.
#[derive(Debug)]
pub(crate) struct Layout {
    anonymous: Tree,
    file: Tree,
    /// `vma->anon_vma_chain`, the list that its nodes are in.
    chain: Member,
    same_vma: Member,
    next: Member,
    chain_vma: Member,
    chain_anon_vma: Member,
    /// `anon_vma->root`, whose lock covers all trees below it.
    root: Member,
    anon_lock: RwSemaphore,
    file_lock: RwSemaphore,
    place: Place,
}

/// An interval tree by its root, and where the members of a node are in what hangs in it (include/linux/interval_tree_generic.h).
#[derive(Clone, Copy, Debug)]
struct Tree {
    root: Member,
    node: Member,
    /// `rb_subtree_last`: the last number of all that hangs in the tree from here down.
    last: Member,
    parent: Member,
    left: Member,
    right: Member,
}

impl Layout {
    /// As this kernel has it.
    ///
    /// # Errors
    /// What it does not have.
    pub(crate) fn new(kernel: &Kernel) -> Result<Layout, StructureError> {
        let member = |structure, path| kernel.types.member(structure, path);
        let tree = |root, node, last| {
            Ok(Tree {
                root,
                node,
                last,
                parent: member("rb_node", "__rb_parent_color")?,
                left: member("rb_node", "rb_left")?,
                right: member("rb_node", "rb_right")?,
            })
        };
        Ok(Layout {
            anonymous: tree(
                member("anon_vma", "rb_root.rb_root.rb_node")?,
                member("anon_vma_chain", "rb")?,
                member("anon_vma_chain", "rb_subtree_last")?,
            )?,
            file: tree(
                member("address_space", "i_mmap.rb_root.rb_node")?,
                member("vm_area_struct", "shared.rb")?,
                member("vm_area_struct", "shared.rb_subtree_last")?,
            )?,
            chain: member("vm_area_struct", "anon_vma_chain")?,
            same_vma: member("anon_vma_chain", "same_vma")?,
            next: member("list_head", "next")?,
            chain_vma: member("anon_vma_chain", "vma")?,
            chain_anon_vma: member("anon_vma_chain", "anon_vma")?,
            root: member("anon_vma", "root")?,
            anon_lock: RwSemaphore::new(&kernel.types, "anon_vma", "rwsem")?,
            file_lock: RwSemaphore::new(&kernel.types, "address_space", "i_mmap_rwsem")?,
            place: Place::new(kernel)?,
        })
    }

    /// The owners of the trees (`struct anon_vma`, and the `struct address_space` of its file) in which a search for any of
    /// the VMA's pages finds it.
    ///
    /// # Errors
    /// If they cannot be read, or one of them is just being changed.
    pub(crate) fn found_by<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        (vma, numbering): (u64, &Numbering),
    ) -> Result<Vec<u64>, StructureError> {
        let what = "a VMA's reverse mapping";
        let read = |at, member| view.number(what, at, member);
        let changing = |lock, owner| match lock {
            Lock::Written => Err(StructureError::Inconsistent {
                what,
                va: owner,
                why: "a task was changing it".to_owned(),
            }),
            Lock::Free | Lock::Read => Ok(()),
        };
        let pages = numbering.end.saturating_sub(numbering.start) / view.upper.granule.bytes();
        let range = |first: u64| (first, first.wrapping_add(pages).wrapping_sub(1));
        let mut owners = Vec::new();
        let chain = (vma.wrapping_add(self.chain.offset), self.next);
        for entry in view.list(what, chain, MOST)? {
            let link = entry.wrapping_sub(self.same_vma.offset);
            let owner = read(link, self.chain_anon_vma)?;
            changing(self.anon_lock.read(view, read(owner, self.root)?)?, owner)?;
            let first = |link| {
                let other = read(link, self.chain_vma)?;
                Ok(self.place.first(view, other)?.1)
            };
            let range = range(numbering.anonymous);
            if read(link, self.chain_vma)? == vma
                && self.anonymous.finds(view, (owner, link), range, first)?
            {
                owners.push(owner);
            }
        }
        if let Some(file) = numbering.of {
            let owner = file.mapping;
            changing(self.file_lock.read(view, owner)?, owner)?;
            let first = |other| Ok(self.place.first(view, other)?.0);
            let range = range(numbering.file);
            if self.file.finds(view, (owner, vma), range, first)? {
                owners.push(owner);
            }
        }
        Ok(owners)
    }
}

impl Tree {
    /// Returns whether a search of the owner's tree for any number of the range comes to the node of `holder`: the way up
    /// from it ends at the root, is on the side that its first number belongs on, and every node on it knows its last.
    fn finds<M: PhysMemory + ?Sized>(
        self,
        view: View<'_, M>,
        (owner, holder): (u64, u64),
        (start, last): (u64, u64),
        first_of: impl Fn(u64) -> Result<u64, StructureError>,
    ) -> Result<bool, StructureError> {
        let what = "a VMA's reverse mapping";
        let mut node = holder.wrapping_add(self.node.offset);
        let mut known = view.number(what, holder, self.last)?;
        for _ in 0..DEEPEST {
            if known < last {
                return Ok(false);
            }
            // The two low bits are its colour.
            let parent = view.number(what, node, self.parent)? & !3;
            if parent == 0 {
                return Ok(view.number(what, owner, self.root)? == node);
            }
            let above = parent.wrapping_sub(self.node.offset);
            let first = first_of(above)?;
            let is_left = view.number(what, parent, self.left)? == node;
            let is_right = view.number(what, parent, self.right)? == node;
            let belongs = (is_left && start <= first) || (is_right && start >= first);
            if !belongs {
                return Ok(false);
            }
            known = view.number(what, above, self.last)?;
            node = parent;
        }
        Err(StructureError::Inconsistent {
            what,
            va: owner,
            why: format!("its tree is deeper than {DEEPEST}"),
        })
    }
}
