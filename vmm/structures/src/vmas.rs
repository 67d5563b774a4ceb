// SPDX-License-Identifier: GPL-2.0-only
//! The VMAs of an address space, in the words of `/proc/PID/smaps`.

use linux::folio::Numbering;
use linux::vma::{Permissions, VmFlags, Vma};
use stage1::PhysMemory;
use untrusted::Text;

use crate::counted::not_read;
use crate::kernel::View;
use crate::lock::{Lock, RwSemaphore};
use crate::maple;
use crate::place::Place;
use crate::reverse;
use crate::sizes::Sizes;
use crate::types::Member;
use crate::{Kernel, StructureError};

/// The kernel's own names of its flags (include/trace/events/mmflags.h), and what smaps calls them
/// (`show_smap_vma_flags()`, fs/proc/task_mmu.c).
const MNEMONICS: [(&str, &str); 30] = [
    ("read", "rd"),
    ("write", "wr"),
    ("exec", "ex"),
    ("shared", "sh"),
    ("mayread", "mr"),
    ("maywrite", "mw"),
    ("mayexec", "me"),
    ("mayshare", "ms"),
    ("growsdown", "gd"),
    ("pfnmap", "pf"),
    ("locked", "lo"),
    ("io", "io"),
    ("seqread", "sr"),
    ("randread", "rr"),
    ("dontcopy", "dc"),
    ("dontexpand", "de"),
    ("lockonfault", "lf"),
    ("account", "ac"),
    ("noreserve", "nr"),
    ("hugetlb", "ht"),
    ("sync", "sf"),
    ("wipeonfork", "wf"),
    ("dontdump", "dd"),
    ("mixedmap", "mm"),
    ("hugepage", "hg"),
    ("nohugepage", "nh"),
    ("mergeable", "mg"),
    ("uffd_missing", "um"),
    ("uffd_wp", "uw"),
    ("uffd_rwp", "ur"),
];
/// Names that a path may have; deeper ones are cut short.
const DEEPEST: usize = 256;
/// `NAME_MAX`.
const LONGEST: u64 = 255;

/// Layout of this kernel's VMAs.
#[derive(Debug)]
pub struct Layout {
    tree: maple::Layout,
    mm_mt: Member,
    lock: RwSemaphore,
    start_brk: Member,
    brk: Member,
    start_stack: Member,
    place: Place,
    vm_flags: Member,
    vm_file: Member,
    vm_ops: Member,
    vm_private_data: Member,
    mapping_name: Member,
    special_ops: Option<u64>,
    files: Files,
    sizes: Option<Sizes>,
    reverse: Result<reverse::Layout, StructureError>,
    /// Bits of `vm_flags`, and what smaps calls them.
    flags: Vec<(u64, &'static str)>,
}

/// Layout that leads from a file to its name.
#[derive(Debug)]
pub(crate) struct Files {
    inode: Member,
    dentry: Member,
    mount: Member,
    number: Member,
    super_block: Member,
    device: Member,
    block_size: Member,
    name: Member,
    name_length: Member,
    parent: Member,
    hashed: Member,
    mnt: Member,
    mnt_root: Member,
    mnt_parent: Member,
    mnt_mountpoint: Member,
}

impl Layout {
    /// As this kernel has it.
    ///
    /// # Errors
    /// What it does not have.
    pub fn new<M: PhysMemory + ?Sized>(
        kernel: &Kernel,
        view: View<'_, M>,
    ) -> Result<Layout, StructureError> {
        let mm = |path| kernel.types.member("mm_struct", path);
        let vma = |path| kernel.types.member("vm_area_struct", path);
        Ok(Layout {
            tree: maple::Layout::new(&kernel.types)?,
            mm_mt: mm("mm_mt")?,
            lock: RwSemaphore::new(&kernel.types, "mm_struct", "mmap_lock")?,
            start_brk: mm("start_brk")?,
            brk: mm("brk")?,
            start_stack: mm("start_stack")?,
            place: Place::new(kernel)?,
            vm_flags: vma("vm_flags")?,
            vm_file: vma("vm_file")?,
            vm_ops: vma("vm_ops")?,
            vm_private_data: vma("vm_private_data")?,
            mapping_name: kernel.types.member("vm_special_mapping", "name")?,
            special_ops: kernel.symbols.address("special_mapping_vmops"),
            files: Files::new(kernel)?,
            sizes: Sizes::new(&kernel.types).ok(),
            reverse: reverse::Layout::new(kernel),
            flags: flags(kernel, view)?,
        })
    }

    /// Returns the holder of the address space's lock: if a task holds it, its VMAs are perhaps not those of its tables.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub fn lock<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        mm: u64,
    ) -> Result<Lock, StructureError> {
        self.lock.read(view, mm)
    }

    /// The VMAs of the address space whose `struct mm_struct` is at `mm`, by address.
    ///
    /// # Errors
    /// Where they cannot be read, or are in the middle of an update.
    pub fn vmas<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        mm: u64,
    ) -> Result<Vec<Vma>, StructureError> {
        let tree = mm.wrapping_add(self.mm_mt.offset);
        let entries = self.tree.entries(view, tree)?;
        entries
            .into_iter()
            .map(|entry| self.vma(view, mm, entry))
            .collect()
    }

    /// Which number the pages of each VMA have, by address; as [`Layout::vmas`] otherwise.
    ///
    /// # Errors
    /// As [`Layout::vmas`].
    pub fn numbering<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        mm: u64,
    ) -> Result<Vec<Numbering>, StructureError> {
        let tree = mm.wrapping_add(self.mm_mt.offset);
        let entries = self.tree.entries(view, tree)?;
        let numbering = |entry: maple::Entry| {
            let read = |member| view.number("a VMA", entry.value, member);
            let place = self.place.read(view, entry.value)?;
            let of = match (read(self.vm_file)?, &self.sizes) {
                (0, _) | (_, None) => None,
                (of, Some(sizes)) => sizes.of(view, of)?,
            };
            let place = Numbering { of, ..place };
            let reverse = self.reverse.as_ref().map_err(Clone::clone);
            let found_by =
                reverse.and_then(|reverse| reverse.found_by(view, (entry.value, &place)));
            let found_by = found_by.map_err(|error| not_read(&error));
            Ok(Numbering {
                found_by: Some(found_by),
                ..place
            })
        };
        entries.into_iter().map(numbering).collect()
    }

    fn vma<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        mm: u64,
        entry: maple::Entry,
    ) -> Result<Vma, StructureError> {
        let va = entry.value;
        let read = |member| view.number("a VMA", va, member);
        let Numbering {
            start,
            end,
            file: offset,
            ..
        } = self.place.read(view, va)?;
        if start != entry.first || end != entry.last.wrapping_add(1) {
            return Err(StructureError::Inconsistent {
                what: "a VMA",
                va,
                why: format!(
                    "it reaches from 0x{start:x} to 0x{end:x}, and the tree has it for 0x{:x} to 0x{:x}",
                    entry.first, entry.last
                ),
            });
        }
        let bits = read(self.vm_flags)?;
        let has = |name| {
            self.flags
                .iter()
                .any(|(bit, it)| *it == name && bits & bit != 0)
        };
        let file = read(self.vm_file)?;
        let mut vma = Vma {
            start,
            end,
            permissions: Permissions {
                read: has("rd"),
                write: has("wr"),
                execute: has("ex"),
                shared: has("ms"),
            },
            offset: 0,
            device: (0, 0),
            inode: 0,
            name: Text::default(),
            flags: Some(VmFlags::new(
                self.flags
                    .iter()
                    .filter(|(bit, _)| bits & bit != 0)
                    .map(|(_, name)| name.as_ref()),
            )),
            hugetlb_page: None,
        };
        if file != 0 {
            vma.offset = offset * view.upper.granule.bytes();
            let block_size = self.files.describe(view, file, &mut vma)?;
            // That of hugetlbfs is its page's (`hugetlbfs_fill_super()`).
            vma.hugetlb_page = has("ht").then_some(block_size);
        } else if self
            .special_ops
            .is_some_and(|ops| read(self.vm_ops) == Ok(ops))
        {
            let mapping = read(self.vm_private_data)?;
            let name = view.number("a special mapping", mapping, self.mapping_name)?;
            vma.name = view.text("a special mapping's name", name, LONGEST)?;
        } else {
            let of_mm = |member| view.number("an address space", mm, member);
            // vma_is_initial_heap(), vma_is_initial_stack(): include/linux/mm.h.
            let stack = of_mm(self.start_stack)?;
            if start < of_mm(self.brk)? && end > of_mm(self.start_brk)? {
                vma.name = "[heap]".into();
            } else if start <= stack && stack <= end {
                vma.name = "[stack]".into();
            }
        }
        Ok(vma)
    }
}

impl Files {
    pub(crate) fn new(kernel: &Kernel) -> Result<Files, StructureError> {
        let types = &kernel.types;
        Ok(Files {
            inode: types.member("file", "f_inode")?,
            dentry: types.member("file", "f_path.dentry")?,
            mount: types.member("file", "f_path.mnt")?,
            number: types.member("inode", "i_ino")?,
            super_block: types.member("inode", "i_sb")?,
            device: types.member("super_block", "s_dev")?,
            block_size: types.member("super_block", "s_blocksize")?,
            name: types.member("dentry", "d_name.name")?,
            name_length: types.member("dentry", "d_name.len")?,
            parent: types.member("dentry", "d_parent")?,
            hashed: types.member("dentry", "d_hash.pprev")?,
            mnt: types.member("mount", "mnt")?,
            mnt_root: types.member("vfsmount", "mnt_root")?,
            mnt_parent: types.member("mount", "mnt_parent")?,
            mnt_mountpoint: types.member("mount", "mnt_mountpoint")?,
        })
    }

    /// Notes which file it is, and returns the block size of its file system.
    fn describe<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        file: u64,
        vma: &mut Vma,
    ) -> Result<u64, StructureError> {
        let inode = view.number("a file", file, self.inode)?;
        vma.inode = view.number("an inode", inode, self.number)?;
        let super_block = view.number("an inode", inode, self.super_block)?;
        // MINORBITS is 20 (include/linux/kdev_t.h).
        let device = view.number("a super block", super_block, self.device)?;
        vma.device = ((device >> 20) as u32, (device & 0xf_ffff) as u32);
        vma.name = self.path(view, file)?;
        view.number("a super block", super_block, self.block_size)
    }

    /// `d_path()`, fs/d_path.c, from the outermost root.
    pub(crate) fn path<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        file: u64,
    ) -> Result<Text, StructureError> {
        let of_dentry = |dentry, member| view.number("a directory entry", dentry, member);
        let name = |dentry| {
            let length = of_dentry(dentry, self.name_length)?.min(LONGEST);
            view.text("a file's name", of_dentry(dentry, self.name)?, length)
        };
        let first = view.number("a file", file, self.dentry)?;
        let mut mount = view
            .number("a file", file, self.mount)?
            .wrapping_sub(self.mnt.offset);
        let gone = of_dentry(first, self.hashed)? == 0;
        let deleted = if gone { " (deleted)" } else { "" };
        let (mut dentry, mut names) = (first, Vec::new());
        for _ in 0..DEEPEST {
            let of_mount = |member| view.number("a mount", mount, member);
            let root = view.number(
                "a mount",
                mount.wrapping_add(self.mnt.offset),
                self.mnt_root,
            )?;
            let parent = of_dentry(dentry, self.parent)?;
            if dentry == root {
                let outer = of_mount(self.mnt_parent)?;
                if outer == mount {
                    break;
                }
                dentry = of_mount(self.mnt_mountpoint)?;
                mount = outer;
            } else if dentry == parent {
                // A file of the kernel's own, in no directory (simple_dname()).
                return Ok(format!("/{} (deleted)", name(dentry)?.raw()).into());
            } else {
                names.push(name(dentry)?);
                dentry = parent;
            }
        }
        names.reverse();
        Ok(format!("/{}{deleted}", names.join("/")).into())
    }
}

/// Reads `vmaflag_names` (mm/debug.c): which bit has which name in this kernel.
pub(crate) fn flags<M: PhysMemory + ?Sized>(
    kernel: &Kernel,
    view: View<'_, M>,
) -> Result<Vec<(u64, &'static str)>, StructureError> {
    let what = "the names of VMA flags";
    let start = kernel.variable("vmaflag_names")?;
    let size = kernel.types.size("trace_print_flags")?;
    let mask = kernel.types.member("trace_print_flags", "mask")?;
    let name = kernel.types.member("trace_print_flags", "name")?;
    let mut found = Vec::new();
    for at in 0..64 {
        let entry = start.wrapping_add(at * size);
        let pointer = view.number(what, entry, name)?;
        if pointer == 0 {
            return Ok(found);
        }
        let text = view.text(what, pointer, 32)?;
        let known = MNEMONICS.iter().find(|(name, _)| text == *name);
        if let Some((_, mnemonic)) = known {
            found.push((view.number(what, entry, mask)?, *mnemonic));
        }
    }
    Err(StructureError::Inconsistent {
        what,
        va: start,
        why: "they do not end".into(),
    })
}
