// SPDX-License-Identifier: GPL-2.0-only
//! The reverse mapping, by which reclaim and migration find a folio's entries (`rmap_walk()`, mm/rmap.c): from a folio to
//! the VMAs that may map it, and from a VMA to the trees in which a search finds it.

use linux::folio::{Kind, MayMap, Numbering, Page};
use stage1::PhysMemory;

use crate::kernel::View;
use crate::lock::{Lock, RwSemaphore};
use crate::place::Place;
use crate::types::Member;
use crate::{Kernel, StructureError};

const WHAT: &str = "a reverse mapping";
/// Levels of a tree, and trees that one VMA hangs in, beyond which what is read is no such thing.
const DEEPEST: usize = 128;
const MOST: usize = 1 << 16;

/// Layout that leads from a folio to VMAs, and back.
#[derive(Debug)]
pub struct Layout {
    anonymous: Tree,
    file: Tree,
    /// `anon_vma->root`, whose lock covers all trees below it.
    root: Member,
    anon_lock: RwSemaphore,
    file_lock: RwSemaphore,
    chain_vma: Member,
    chain_anon_vma: Member,
    /// `vma->anon_vma_chain`, a list, and the place of its nodes in a `struct anon_vma_chain`.
    chain: Member,
    same_vma: Member,
    next: Member,
    vm_mm: Member,
    vma: Place,
}

/// An interval tree (include/linux/interval_tree_generic.h) by its root, and where its nodes are in what hangs in it.
#[derive(Clone, Copy, Debug)]
struct Tree {
    root: Member,
    node: Member,
    parent: Member,
    left: Member,
    right: Member,
    /// `rb_subtree_last`: the last number of all that hangs in the tree from this node down.
    last: Member,
}

impl Layout {
    /// As this kernel has it.
    ///
    /// # Errors
    /// What it does not have.
    pub fn new(kernel: &Kernel) -> Result<Layout, StructureError> {
        let member = |structure, path| kernel.types.member(structure, path);
        let tree = |root, node, last| {
            Ok(Tree {
                root,
                node,
                parent: member("rb_node", "__rb_parent_color")?,
                left: member("rb_node", "rb_left")?,
                right: member("rb_node", "rb_right")?,
                last,
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
            root: member("anon_vma", "root")?,
            anon_lock: RwSemaphore::new(&kernel.types, "anon_vma", "rwsem")?,
            file_lock: RwSemaphore::new(&kernel.types, "address_space", "i_mmap_rwsem")?,
            chain_vma: member("anon_vma_chain", "vma")?,
            chain_anon_vma: member("anon_vma_chain", "anon_vma")?,
            chain: member("vm_area_struct", "anon_vma_chain")?,
            same_vma: member("anon_vma_chain", "same_vma")?,
            next: member("list_head", "next")?,
            vm_mm: member("vm_area_struct", "vm_mm")?,
            vma: Place::new(kernel)?,
        })
    }

    /// The places at which a folio may be mapped, if it is at all. No more than `left` VMAs are followed, from which those
    /// that were are taken off.
    ///
    /// # Errors
    /// Where its mapping cannot be followed, or is just being changed.
    pub fn places<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        page: &Page,
        left: &mut usize,
    ) -> Result<Vec<MayMap>, StructureError> {
        let wrong = |why: &str| StructureError::Inconsistent {
            what: WHAT,
            va: page.mapping,
            why: why.to_owned(),
        };
        let anonymous = match page.kind {
            Kind::Anonymous => true,
            Kind::File => false,
            Kind::Ksm | Kind::Movable | Kind::Unowned => {
                return Err(wrong("it is neither anonymous nor of a file"))
            }
        };
        let read = |at, member| view.number(WHAT, at, member);
        let locked = match anonymous {
            true => self.anon_lock.read(view, read(page.mapping, self.root)?)?,
            false => self.file_lock.read(view, page.mapping)?,
        };
        if locked.is_held() {
            return Err(wrong("its lock was held"));
        }
        let tree = if anonymous { self.anonymous } else { self.file };
        let mut places = Vec::new();
        for holder in tree.holders(view, page.mapping, left)? {
            let vma = match anonymous {
                true if read(holder, self.chain_anon_vma)? != page.mapping => {
                    return Err(wrong("what hangs in its tree is another's"))
                }
                true => read(holder, self.chain_vma)?,
                false => holder,
            };
            let numbering = self.vma.read(view, vma)?;
            let first = if anonymous {
                numbering.anonymous
            } else {
                numbering.file
            };
            let pages = numbering.end.saturating_sub(numbering.start) / view.upper.granule.bytes();
            let from = page.index.max(first);
            let to = page
                .index
                .saturating_add(page.pages())
                .min(first.saturating_add(pages));
            if from < to {
                places.push(MayMap {
                    mm: read(vma, self.vm_mm)?,
                    va: numbering.start + (from - first) * view.upper.granule.bytes(),
                });
            }
        }
        places.sort_unstable();
        Ok(places)
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
        let read = |at, member| view.number(WHAT, at, member);
        let changing = |lock, owner| match lock {
            Lock::Written => Err(StructureError::Inconsistent {
                what: WHAT,
                va: owner,
                why: "a task was changing it".to_owned(),
            }),
            Lock::Free | Lock::Read => Ok(()),
        };
        let pages = numbering.end.saturating_sub(numbering.start) / view.upper.granule.bytes();
        let range = |first: u64| (first, first.wrapping_add(pages).wrapping_sub(1));
        let mut owners = Vec::new();
        let chain = (vma.wrapping_add(self.chain.offset), self.next);
        for entry in view.list(WHAT, chain, MOST)? {
            let link = entry.wrapping_sub(self.same_vma.offset);
            let owner = read(link, self.chain_anon_vma)?;
            changing(self.anon_lock.read(view, read(owner, self.root)?)?, owner)?;
            let first = |link| {
                let other = read(link, self.chain_vma)?;
                Ok(self.vma.first(view, other)?.1)
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
            let first = |other| Ok(self.vma.first(view, other)?.0);
            let range = range(numbering.file);
            if self.file.finds(view, (owner, vma), range, first)? {
                owners.push(owner);
            }
        }
        Ok(owners)
    }
}

impl Tree {
    /// Reads the tree of the structure at `owner`.
    fn holders<M: PhysMemory + ?Sized>(
        self,
        view: View<'_, M>,
        owner: u64,
        left: &mut usize,
    ) -> Result<Vec<u64>, StructureError> {
        let mut holders = Vec::new();
        let mut open = vec![view.number(WHAT, owner, self.root)?];
        while let Some(node) = open.pop() {
            if node == 0 {
                continue;
            }
            *left = left
                .checked_sub(1)
                .ok_or_else(|| StructureError::Inconsistent {
                    what: WHAT,
                    va: owner,
                    why: format!("its tree does not end after {} nodes", holders.len()),
                })?;
            holders.push(node.wrapping_sub(self.node.offset));
            open.push(view.number(WHAT, node, self.left)?);
            open.push(view.number(WHAT, node, self.right)?);
        }
        Ok(holders)
    }

    /// Returns whether a search of the owner's tree for any number of the range comes to the node of `holder`: the way up
    /// from it ends at the root, is on the side that its first number belongs on, and every node on it knows its last.
    fn finds<M: PhysMemory + ?Sized>(
        self,
        view: View<'_, M>,
        (owner, holder): (u64, u64),
        (start, last): (u64, u64),
        first_of: impl Fn(u64) -> Result<u64, StructureError>,
    ) -> Result<bool, StructureError> {
        let mut node = holder.wrapping_add(self.node.offset);
        let mut known = view.number(WHAT, holder, self.last)?;
        for _ in 0..DEEPEST {
            if known < last {
                return Ok(false);
            }
            // The two low bits are its colour.
            let parent = view.number(WHAT, node, self.parent)? & !3;
            if parent == 0 {
                return Ok(view.number(WHAT, owner, self.root)? == node);
            }
            let above = parent.wrapping_sub(self.node.offset);
            let first = first_of(above)?;
            let is_left = view.number(WHAT, parent, self.left)? == node;
            let is_right = view.number(WHAT, parent, self.right)? == node;
            let belongs = (is_left && start <= first) || (is_right && start >= first);
            if !belongs {
                return Ok(false);
            }
            known = view.number(WHAT, above, self.last)?;
            node = parent;
        }
        Err(StructureError::Inconsistent {
            what: WHAT,
            va: owner,
            why: format!("its tree is deeper than {DEEPEST}"),
        })
    }
}
