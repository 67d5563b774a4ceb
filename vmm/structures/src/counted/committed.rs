// SPDX-License-Identifier: GPL-2.0-only
//! Memory that is promised (`vm_committed_as`, mm/util.c), and to whom: VMAs with `VM_ACCOUNT`, and files of shmem, with the
//! pages that each tmpfs counts towards its limit.

use std::collections::BTreeSet;

use linux::counted::{Committed, Limited};
use stage1::PhysMemory;

use crate::kernel::View;
use crate::lock::{Lock, RwSemaphore, SpinLock};
use crate::per_cpu::PerCpuCounter;
use crate::types::Member;
use crate::{maple, tasks, vmas, Kernel, StructureError};

/// Where they are.
#[derive(Debug)]
pub(super) struct Layout {
    /// The address of `vm_committed_as`.
    counter: u64,
    counters: PerCpuCounter,
    spaces: Spaces,
    files: Files,
}

/// All address spaces, and their VMAs.
#[derive(Debug)]
struct Spaces {
    tasks: tasks::Layout,
    lock: RwSemaphore,
    tree: maple::Layout,
    tree_of: Member,
    flags: Member,
    /// `VM_ACCOUNT`.
    account: u64,
}

/// All inodes of shmem's file systems.
#[derive(Debug)]
struct Files {
    super_blocks: u64,
    in_list: Member,
    operations: Member,
    /// The address of `shmem_ops`.
    own: u64,
    lock: SpinLock,
    lock_of: Member,
    inodes: Member,
    in_inodes: Member,
    next: Member,
    size: Member,
    /// Offset of the inode in a `struct shmem_inode_info`, in bytes.
    inode: u64,
    flags: Member,
    alloced: Member,
    /// `super_block.s_dev` and `s_fs_info`, and `max_blocks` and `used_blocks` of the `struct shmem_sb_info` there.
    device: Member,
    own_info: Member,
    limit: Member,
    used: Member,
}

/// `VM_NORESERVE`; from 7.0 on `SHMEM_F_NORESERVE` (include/linux/shmem_fs.h). No kernel has the other's bit there.
const NORESERVE: u64 = 0x0020_0000 | 1;
/// More file systems, and more files in memory, than anybody has.
const MOST_SUPER_BLOCKS: usize = 1 << 16;
const MOST_FILES: usize = 1 << 20;
const WHAT: &str = "the files of shmem";

impl Layout {
    pub(super) fn new<M: PhysMemory + ?Sized>(
        kernel: &Kernel,
        view: View<'_, M>,
    ) -> Result<Layout, StructureError> {
        Ok(Layout {
            counter: kernel.variable("vm_committed_as")?,
            counters: PerCpuCounter::new(kernel, view)?,
            spaces: Spaces::new(kernel, view)?,
            files: Files::new(kernel)?,
        })
    }

    /// # Errors
    /// Where it cannot be read.
    pub(super) fn read<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
    ) -> Result<Committed, StructureError> {
        let (mut busy, mut limited) = (None, Vec::new());
        let files = (&self.counters, &mut limited);
        Ok(Committed {
            counted: self.counters.sum(view, self.counter)?,
            at: self.counters.place(self.counter),
            vmas: self.spaces.accounted(view, &mut busy)?,
            shmem: self.files.accounted(view, files, &mut busy)?,
            limited,
            busy,
        })
    }
}

impl Spaces {
    fn new<M: PhysMemory + ?Sized>(
        kernel: &Kernel,
        view: View<'_, M>,
    ) -> Result<Spaces, StructureError> {
        let names = vmas::flags(kernel, view)?;
        let account = names.iter().find(|(_, name)| *name == "ac");
        Ok(Spaces {
            tasks: tasks::Layout::new(kernel)?,
            lock: RwSemaphore::new(&kernel.types, "mm_struct", "mmap_lock")?,
            tree: maple::Layout::new(&kernel.types)?,
            tree_of: kernel.types.member("mm_struct", "mm_mt")?,
            flags: kernel.types.member("vm_area_struct", "vm_flags")?,
            account: account
                .map(|(bit, _)| *bit)
                .ok_or_else(|| StructureError::Missing("vmaflag_names with account".into()))?,
        })
    }

    /// Pages of all VMAs with `VM_ACCOUNT`; `busy` says why some may be counted and not there.
    fn accounted<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        busy: &mut Option<String>,
    ) -> Result<i64, StructureError> {
        let (mut seen, mut bytes) = (BTreeSet::new(), 0u64);
        for process in self.tasks.processes(view)? {
            let Some(mm) = process.mm else {
                if !process.is_kernel && !process.has_ended {
                    *busy = Some(format!("process {} was ending", process.tgid));
                }
                continue;
            };
            if !seen.insert(mm) {
                continue;
            }
            if self.lock.read(view, mm)? != Lock::Free {
                let why = format!("the mmap_lock of process {} was held", process.tgid);
                *busy = Some(why);
            }
            for entry in self
                .tree
                .entries(view, mm.wrapping_add(self.tree_of.offset))?
            {
                let flags = view.number("a VMA", entry.value, self.flags)?;
                let size = entry.last.wrapping_sub(entry.first).wrapping_add(1);
                bytes = bytes.wrapping_add(if flags & self.account != 0 { size } else { 0 });
            }
        }
        Ok((bytes / view.upper.granule.bytes()) as i64)
    }
}

impl Files {
    fn new(kernel: &Kernel) -> Result<Files, StructureError> {
        let member = |structure, path| kernel.types.member(structure, path);
        Ok(Files {
            super_blocks: kernel.variable("super_blocks")?,
            in_list: member("super_block", "s_list")?,
            operations: member("super_block", "s_op")?,
            own: kernel.variable("shmem_ops")?,
            lock: SpinLock::new(&kernel.types)?,
            lock_of: member("super_block", "s_inode_list_lock")?,
            inodes: member("super_block", "s_inodes")?,
            in_inodes: member("inode", "i_sb_list")?,
            next: member("list_head", "next")?,
            size: member("inode", "i_size")?,
            inode: member("shmem_inode_info", "vfs_inode")?.offset,
            flags: member("shmem_inode_info", "flags")?,
            alloced: member("shmem_inode_info", "alloced")?,
            device: member("super_block", "s_dev")?,
            own_info: member("super_block", "s_fs_info")?,
            limit: member("shmem_sb_info", "max_blocks")?,
            used: member("shmem_sb_info", "used_blocks")?,
        })
    }

    /// Pages of all files (`shmem_acct_size()`, `shmem_acct_blocks()`, mm/shmem.c), and the file systems that have a limit.
    fn accounted<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        (counters, limited): (&PerCpuCounter, &mut Vec<Limited>),
        busy: &mut Option<String>,
    ) -> Result<i64, StructureError> {
        let all = view.list(WHAT, (self.super_blocks, self.next), MOST_SUPER_BLOCKS)?;
        let (mut pages, bytes) = (0u64, view.upper.granule.bytes());
        for node in all {
            let block = node.wrapping_sub(self.in_list.offset);
            if view.number(WHAT, block, self.operations)? != self.own {
                continue;
            }
            let lock = block.wrapping_add(self.lock_of.offset);
            if self.lock.is_held(view, lock)? {
                *busy = Some("the lock of a tmpfs's list of inodes was held".into());
            }
            let list = block.wrapping_add(self.inodes.offset);
            let mut alloced = 0;
            for node in view.list(WHAT, (list, self.next), MOST_FILES)? {
                let inode = node.wrapping_sub(self.in_inodes.offset);
                let info = inode.wrapping_sub(self.inode);
                let own = view.number(WHAT, info, self.alloced)?;
                alloced += own as i64;
                let reserves = view.number(WHAT, info, self.flags)? & NORESERVE == 0;
                pages = pages.wrapping_add(match reserves {
                    true => view.number(WHAT, inode, self.size)?.div_ceil(bytes),
                    false => own,
                });
            }
            let info = view.number(WHAT, block, self.own_info)?;
            if view.number(WHAT, info, self.limit)? != 0 {
                let at = info.wrapping_add(self.used.offset);
                limited.push(Limited {
                    // MINORBITS is 20 (include/linux/kdev_t.h).
                    device: view.number(WHAT, block, self.device)? & 0xf_ffff,
                    used: counters.sum(view, at)?,
                    at: counters.place(at),
                    alloced,
                });
            }
        }
        Ok(pages as i64)
    }
}
