//! The page cache of a file as a whole: the tree of its folios (`struct xarray`, include/linux/xarray.h).

use linux::cache::Tree;
use linux::counted::Known;
use stage1::PhysMemory;

use crate::counted::{not_read, Lock};
use crate::kernel::View;
use crate::pages::{Pages, Passed};
use crate::types::Member;
use crate::{Kernel, StructureError};

/// What this kernel's page caches look like.
#[derive(Debug)]
pub struct Layout {
    lock: Lock,
    lock_of: Member,
    root: Member,
    count: Member,
    host: Member,
    flags: Member,
    shift: Member,
    slots: Member,
}

/// `S_DAX` (include/linux/fs.h): its tree has no folios.
const DAX: u64 = 1 << 13;
/// Bits of an entry that say what it is: a value by bit 0, an internal entry by both together (`xa_is_internal()`).
const VALUE: u64 = 1;
const INTERNAL: u64 = 2;
const KIND: u64 = 3;
/// Internal entries above are nodes (`xa_is_node()`); those below, but for siblings, stand for nothing.
const LAST_THAT_IS_NO_NODE: u64 = 4096;
/// Folios of one file that are told of.
const TOLD: usize = 4;
const WHAT: &str = "the page cache of a file";

impl Layout {
    /// As this kernel has it.
    ///
    /// # Errors
    /// What it does not have.
    pub fn new(kernel: &Kernel) -> Result<Layout, StructureError> {
        let member = |structure, path| kernel.types.member(structure, path);
        let layout = Layout {
            lock: Lock::new(kernel)?,
            lock_of: member("address_space", "i_pages.xa_lock")?,
            root: member("address_space", "i_pages.xa_head")?,
            count: member("address_space", "nrpages")?,
            host: member("address_space", "host")?,
            flags: member("inode", "i_flags")?,
            shift: member("xa_node", "shift")?,
            slots: member("xa_node", "slots")?,
        };
        let slots = layout.slots;
        let whole = slots.size == 8 * slots.elements && slots.offset % 8 == 0;
        match whole && slots.elements.is_power_of_two() && slots.elements > 1 {
            true => Ok(layout),
            false => Err(StructureError::Missing(
                "xa_node with slots[] of pointers".into(),
            )),
        }
    }

    /// Where a file's pages are counted.
    #[must_use]
    pub fn count_at(&self, mapping: u64) -> u64 {
        mapping.wrapping_add(self.count.offset)
    }

    /// What is in the tree of the `struct address_space` at `mapping`; `None` where that has no folios (DAX). No more than `left`
    /// entries are followed, from which those that were are taken off.
    ///
    /// # Errors
    /// Where it cannot be followed, or is just being changed.
    pub fn tree<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        pages: &Pages<'_, M>,
        mapping: u64,
        left: &mut u64,
    ) -> Known<Option<Tree>> {
        let tree = self.read(view, pages, mapping, left);
        tree.map_err(|error| not_read(&error))
    }

    fn read<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        pages: &Pages<'_, M>,
        mapping: u64,
        left: &mut u64,
    ) -> Result<Option<Tree>, StructureError> {
        let number = |member| view.number(WHAT, mapping, member);
        let inode = number(self.host)?;
        if inode != 0 && view.number("an inode", inode, self.flags)? & DAX != 0 {
            return Ok(None);
        }
        self.unlocked(view, mapping)?;
        let mut looked = Looked {
            pages,
            mapping,
            tree: Tree {
                counted: number(self.count)?,
                ..Tree::default()
            },
            passed: Passed::default(),
        };
        let root = number(self.root)?;
        self.entries(view, root, left, |entry, at, numbers| {
            looked.entry(entry, at, numbers);
        })?;
        Ok(Some(looked.tree))
    }

    /// The values in the tree of the `struct address_space` at `mapping`, each with how many numbers it stands for.
    ///
    /// # Errors
    /// As [`Layout::tree`].
    pub(crate) fn values<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        mapping: u64,
        left: &mut u64,
    ) -> Result<Vec<(u64, u64)>, StructureError> {
        self.unlocked(view, mapping)?;
        let mut values = Vec::new();
        let root = view.number(WHAT, mapping, self.root)?;
        self.entries(view, root, left, |entry, _, numbers| {
            if entry & VALUE != 0 {
                values.push((entry >> 1, numbers));
            }
        })?;
        Ok(values)
    }

    fn unlocked<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        mapping: u64,
    ) -> Result<(), StructureError> {
        let lock = mapping.wrapping_add(self.lock_of.offset);
        match self.lock.is_held(view, lock)? {
            false => Ok(()),
            true => Err(StructureError::Inconsistent {
                what: WHAT,
                va: mapping,
                why: "somebody held the lock of its tree".into(),
            }),
        }
    }

    /// Tells of all that hangs below the root: what it is, its number, and how many numbers it stands for.
    fn entries<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        root: u64,
        left: &mut u64,
        mut tell: impl FnMut(u64, u64, u64),
    ) -> Result<(), StructureError> {
        let Some(node) = node_of(root) else {
            tell(root, 0, 1);
            return Ok(());
        };
        let bits = self.bits();
        let mut open = vec![(node, 0u64, u64::BITS + bits)];
        while let Some((node, first, above)) = open.pop() {
            let wrong = |why: String| StructureError::Inconsistent {
                what: "a node of the page cache of a file",
                va: node,
                why,
            };
            let shift = view.number(WHAT, node, self.shift)? as u32;
            if shift % bits != 0 || shift + bits > above || shift >= u64::BITS {
                return Err(wrong(format!(
                    "its entries stand for 2 to the power of {shift} numbers, and those above it for 2 to the power of {above}"
                )));
            }
            let slots = self.slots_of(view, node)?;
            for (at, &slot) in slots.iter().enumerate() {
                if slot == 0 || is_sibling(slot, slots.len()) {
                    continue;
                }
                *left = left.checked_sub(1).ok_or_else(|| {
                    StructureError::Missing("page caches with fewer folios at one instant".into())
                })?;
                let number = first.wrapping_add((at as u64) << shift);
                if let Some(child) = node_of(slot) {
                    open.push((child, number, shift));
                    continue;
                }
                let its = slots[at + 1..].iter();
                let its = its.take_while(|it| **it == (at as u64) << 2 | INTERNAL);
                tell(slot, number, (1 + its.count() as u64) << shift);
            }
        }
        Ok(())
    }

    fn slots_of<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        node: u64,
    ) -> Result<Vec<u64>, StructureError> {
        let va = node.wrapping_add(self.slots.offset);
        let pa = view.physical(WHAT, va)?;
        let words = view.memory.passing(pa, self.slots.elements as usize);
        let words = words.ok_or_else(|| StructureError::Inconsistent {
            what: WHAT,
            va,
            why: "a node of it is not in memory".into(),
        })?;
        Ok(words.to_vec())
    }

    /// How many bits of a number one node takes.
    fn bits(&self) -> u32 {
        self.slots.elements.ilog2()
    }
}

/// What was found so far.
struct Looked<'w, 'p, M: ?Sized> {
    pages: &'w Pages<'p, M>,
    mapping: u64,
    tree: Tree,
    passed: Passed<'p>,
}

impl<M: PhysMemory + ?Sized> Looked<'_, '_, M> {
    /// What stands for so many numbers from `number` on.
    fn entry(&mut self, entry: u64, number: u64, numbers: u64) {
        if entry & VALUE != 0 {
            self.tree.values = self.tree.values.saturating_add(numbers);
        } else if entry & KIND == 0 && entry != 0 {
            match self.folio(entry, number, numbers) {
                Ok(pages) => self.tree.found += pages,
                Err(why) if self.tree.wrong.len() < TOLD => self.tree.wrong.push(why),
                Err(_) => self.tree.more += 1,
            }
        }
    }

    /// How many pages the folio has whose `struct page` is at `at`.
    fn folio(&mut self, at: u64, number: u64, numbers: u64) -> Result<u64, String> {
        let place = |rest: String| format!("number 0x{number:x} leads to {rest}");
        let folio = self.pages.cached(at, &mut self.passed).map_err(place)?;
        let wrong = |rest: String| place(format!("page frame 0x{:x}, {rest}", folio.pfn));
        let pages = 1u64 << folio.order;
        if folio.is_tail {
            Err(wrong("which is no first page of a folio".into()))
        } else if let Some(kind) = folio.kind_of_page {
            Err(wrong(format!(
                "whose type is 0x{kind:x}: it is free or the kernel's own"
            )))
        } else if folio.mapping != self.mapping {
            let (found, own) = (folio.mapping, self.mapping);
            Err(wrong(format!(
                "whose mapping is 0x{found:x}: it must be the file's own, 0x{own:x}"
            )))
        } else if folio.index != number {
            Err(wrong(format!(
                "whose index is 0x{:x}: they must be equal",
                folio.index
            )))
        } else if pages != numbers {
            Err(wrong(format!(
                "a folio of {pages} pages, and stands for {numbers}: they must be equal"
            )))
        } else if folio.refcount <= 0 && !folio.is_locked {
            Err(wrong("which nobody has a reference of".into()))
        } else {
            Ok(pages)
        }
    }
}

/// The address of the node that an entry leads to (`xa_to_node()`).
fn node_of(entry: u64) -> Option<u64> {
    let is_node = entry & KIND == INTERNAL && entry > LAST_THAT_IS_NO_NODE;
    is_node.then(|| entry - INTERNAL)
}

/// Whether it stands for what an entry before it in the same node does.
fn is_sibling(entry: u64, slots: usize) -> bool {
    entry & KIND == INTERNAL && entry < (slots as u64) << 2
}

#[cfg(test)]
mod tests;
