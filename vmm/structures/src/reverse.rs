// SPDX-License-Identifier: GPL-2.0-only
//! The reverse mapping: from a folio to the VMAs that may map it, as the kernel itself finds them (`rmap_walk()`, mm/rmap.c).

use linux::folio::{Kind, MayMap, Page};
use stage1::PhysMemory;

use crate::kernel::View;
use crate::lock::RwSemaphore;
use crate::place::Place;
use crate::types::Member;
use crate::{Kernel, StructureError};

/// Layout that leads from a folio to VMAs.
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
    vm_mm: Member,
    vma: Place,
}

/// A tree by its root (`struct rb_root_cached`), and where its nodes are in what hangs in it.
#[derive(Clone, Copy, Debug)]
struct Tree {
    root: Member,
    node: Member,
    left: Member,
    right: Member,
}

impl Layout {
    /// As this kernel has it.
    ///
    /// # Errors
    /// What it does not have.
    pub fn new(kernel: &Kernel) -> Result<Layout, StructureError> {
        let member = |structure, path| kernel.types.member(structure, path);
        let tree = |root, node| {
            Ok(Tree {
                root,
                node,
                left: member("rb_node", "rb_left")?,
                right: member("rb_node", "rb_right")?,
            })
        };
        Ok(Layout {
            anonymous: tree(
                member("anon_vma", "rb_root.rb_root.rb_node")?,
                member("anon_vma_chain", "rb")?,
            )?,
            file: tree(
                member("address_space", "i_mmap.rb_root.rb_node")?,
                member("vm_area_struct", "shared.rb")?,
            )?,
            root: member("anon_vma", "root")?,
            anon_lock: RwSemaphore::new(&kernel.types, "anon_vma", "rwsem")?,
            file_lock: RwSemaphore::new(&kernel.types, "address_space", "i_mmap_rwsem")?,
            chain_vma: member("anon_vma_chain", "vma")?,
            chain_anon_vma: member("anon_vma_chain", "anon_vma")?,
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
        let what = "a folio's reverse mapping";
        let wrong = |why: &str| StructureError::Inconsistent {
            what,
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
        let read = |at, member| view.number(what, at, member);
        let locked = match anonymous {
            true => self.anon_lock.read(view, read(page.mapping, self.root)?)?,
            false => self.file_lock.read(view, page.mapping)?,
        };
        if locked.is_held() {
            return Err(wrong("somebody held its lock"));
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
}

impl Tree {
    /// Reads the tree of the structure at `owner`.
    fn holders<M: PhysMemory + ?Sized>(
        self,
        view: View<'_, M>,
        owner: u64,
        left: &mut usize,
    ) -> Result<Vec<u64>, StructureError> {
        let what = "a folio's reverse mapping";
        let mut holders = Vec::new();
        let mut open = vec![view.number(what, owner, self.root)?];
        while let Some(node) = open.pop() {
            if node == 0 {
                continue;
            }
            *left = left
                .checked_sub(1)
                .ok_or_else(|| StructureError::Inconsistent {
                    what,
                    va: owner,
                    why: format!("its tree does not end after {} nodes", holders.len()),
                })?;
            holders.push(node.wrapping_sub(self.node.offset));
            open.push(view.number(what, node, self.left)?);
            open.push(view.number(what, node, self.right)?);
        }
        Ok(holders)
    }
}
