// SPDX-License-Identifier: GPL-2.0-only
//! The page cache of a file as a whole: the tree of its folios (`struct xarray`, include/linux/xarray.h).

use linux::cache::{Shmem, Tree};
use linux::counted::Known;
use stage1::PhysMemory;

use crate::counted::not_read;
use crate::kernel::View;
use crate::lock::{Lock, RwSemaphore, SpinLock};
use crate::pages::{Pages, Passed};
use crate::types::Member;
use crate::xarray::{XArray, KIND, VALUE};
use crate::{Kernel, StructureError};

/// Layout of this kernel's page caches.
#[derive(Debug)]
pub struct Layout {
    lock: SpinLock,
    lock_of: Member,
    root: Member,
    count: Member,
    host: Member,
    flags: Member,
    entries: XArray,
    shmem: Result<ShmemLayout, StructureError>,
}

/// Where shmem counts the pages of a file.
#[derive(Debug)]
struct ShmemLayout {
    /// `address_space.a_ops`, and the address of `shmem_aops`, to which it leads.
    operations: (Member, u64),
    /// Offset of the inode in a `struct shmem_inode_info`, in bytes.
    inode: u64,
    alloced: Member,
    swapped: Member,
    lock: RwSemaphore,
}

impl ShmemLayout {
    fn new(kernel: &Kernel) -> Result<ShmemLayout, StructureError> {
        let info = |name| kernel.types.member("shmem_inode_info", name);
        Ok(ShmemLayout {
            operations: (
                kernel.types.member("address_space", "a_ops")?,
                kernel.variable("shmem_aops")?,
            ),
            inode: info("vfs_inode")?.offset,
            alloced: info("alloced")?,
            swapped: info("swapped")?,
            lock: RwSemaphore::new(&kernel.types, "inode", "i_rwsem")?,
        })
    }

    /// Reads the counts of the file of `inode`; `None` if it is not shmem's.
    fn read<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        (mapping, inode): (u64, u64),
    ) -> Result<Option<Shmem>, StructureError> {
        let (operations, own) = self.operations;
        if inode == 0 || view.number(WHAT, mapping, operations)? != own {
            return Ok(None);
        }
        let info = inode.wrapping_sub(self.inode);
        let number = |member| view.number("an inode of shmem", info, member);
        Ok(Some(Shmem {
            alloced: number(self.alloced)?,
            swapped: number(self.swapped)?,
            in_swap: 0,
            busy: self.lock.read(view, inode)? != Lock::Free,
            at: [self.alloced, self.swapped].map(|it| info.wrapping_add(it.offset)),
        }))
    }
}

/// Bits of a slot's number in a value of shmem's tree, above which there is its area's (`SWP_TYPE_SHIFT`).
const SLOT_BITS: u32 = 63 - 5;
/// Areas are numbered from 0 on, and other kinds of entries, as a broken page's, from the last number down.
const AREAS: u64 = 16;

/// Values of a tree, each with how many numbers it stands for.
type Values = Vec<(u64, u64)>;

/// `S_DAX` (include/linux/fs.h): its tree has no folios.
const DAX: u64 = 1 << 13;
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
        Ok(Layout {
            lock: SpinLock::new(&kernel.types)?,
            lock_of: member("address_space", "i_pages.xa_lock")?,
            root: member("address_space", "i_pages.xa_head")?,
            count: member("address_space", "nrpages")?,
            host: member("address_space", "host")?,
            flags: member("inode", "i_flags")?,
            entries: XArray::new(kernel, WHAT)?,
            shmem: ShmemLayout::new(kernel),
        })
    }

    /// Says whether shmem's counts are known.
    ///
    /// # Errors
    /// The first of their members that this kernel lacks.
    pub(crate) fn knows_shmem(&self) -> Result<(), StructureError> {
        self.shmem.as_ref().map(drop).map_err(Clone::clone)
    }

    /// Where a file's pages are counted.
    #[must_use]
    pub fn count_at(&self, mapping: u64) -> u64 {
        mapping.wrapping_add(self.count.offset)
    }

    /// Reads the tree of the `struct address_space` at `mapping`; `None` if that has no folios (DAX). No more than `left`
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
        let read = self.read(view, pages, mapping, left);
        let tree = read.map(|read| read.map(|(tree, _)| tree));
        tree.map_err(|error| not_read(&error))
    }

    /// Returns the tree and the values in it, each with how many numbers it stands for, as [`Layout::tree`].
    pub(crate) fn read<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        pages: &Pages<'_, M>,
        mapping: u64,
        left: &mut u64,
    ) -> Result<Option<(Tree, Values)>, StructureError> {
        let number = |member| view.number(WHAT, mapping, member);
        let inode = number(self.host)?;
        if inode != 0 && view.number("an inode", inode, self.flags)? & DAX != 0 {
            return Ok(None);
        }
        self.unlocked(view, mapping)?;
        let shmem = self.shmem.as_ref().ok();
        let shmem = shmem.map(|layout| layout.read(view, (mapping, inode)));
        let mut looked = Looked {
            pages,
            mapping,
            tree: Tree {
                counted: number(self.count)?,
                shmem: shmem.transpose()?.flatten(),
                ..Tree::default()
            },
            passed: Passed::default(),
            values: Vec::new(),
        };
        let root = number(self.root)?;
        self.entries.each(view, root, left, |entry, at, numbers| {
            looked.entry(entry, at, numbers);
        })?;
        Ok(Some((looked.tree, looked.values)))
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
                why: "the lock of its tree was held".into(),
            }),
        }
    }
}

/// Folios found so far.
struct Looked<'w, 'p, M: ?Sized> {
    pages: &'w Pages<'p, M>,
    mapping: u64,
    tree: Tree,
    passed: Passed<'p>,
    /// Its values.
    values: Values,
}

impl<M: PhysMemory + ?Sized> Looked<'_, '_, M> {
    /// An entry that stands for so many numbers from `number` on.
    fn entry(&mut self, entry: u64, number: u64, numbers: u64) {
        if entry & VALUE != 0 {
            self.tree.values = self.tree.values.saturating_add(numbers);
            self.values.push((entry >> 1, numbers));
            if let Some(shmem) = &mut self.tree.shmem {
                match (entry >> 1) >> SLOT_BITS {
                    ..AREAS => shmem.in_swap = shmem.in_swap.saturating_add(numbers),
                    _ => shmem.busy = true,
                }
            }
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
        if let Some(shmem) = &mut self.tree.shmem {
            shmem.busy |= folio.is_locked;
        }
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

#[cfg(test)]
mod tests;
