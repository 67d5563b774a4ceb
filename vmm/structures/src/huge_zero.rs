// SPDX-License-Identifier: GPL-2.0-only
//! The huge zero folio, and who has a reference on it: mm/huge_memory.c.

use linux::folio::HugeZero;
use stage1::PhysMemory;

use crate::kernel::View;
use crate::per_cpu::word;
use crate::types::Member;
use crate::{Kernel, StructureError};

/// `HUGE_ZERO_UNSET_PFN`: there is none at present.
const UNSET: u64 = u64::MAX;
/// `MMF_HUGE_ZERO_PAGE`, in a word of flags (include/linux/sched/coredump.h).
const BIT: u32 = 23;
/// `MMF_HUGE_ZERO_FOLIO`, since the flags are a bitmap: 6.18 changed both (include/linux/mm_types.h).
const BIT_OF_BITMAP: u32 = 18;

/// Where they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pfn: u64,
    references: u64,
    flags: Member,
    bit: u32,
}

impl Layout {
    /// As this kernel has it.
    ///
    /// # Errors
    /// The kernel lacks one of them: with `CONFIG_PERSISTENT_HUGE_ZERO_FOLIO` no reference is counted, and the variable is
    /// absent.
    pub fn new(kernel: &Kernel) -> Result<Layout, StructureError> {
        let member = |path| kernel.types.member("mm_struct", path);
        let (flags, bit) = match member("flags.__mm_flags") {
            Ok(bitmap) => (bitmap, BIT_OF_BITMAP),
            Err(_) => (member("flags")?, BIT),
        };
        if flags.size != 8 {
            return Err(StructureError::Missing(
                "mm_struct with flags of 64 bits".into(),
            ));
        }
        Ok(Layout {
            pfn: kernel.variable("huge_zero_pfn")?,
            references: kernel.variable("huge_zero_refcount")?,
            flags,
            bit,
        })
    }

    /// Reads the folio and its references; `None` if there is no such folio at present. `spaces` are the address spaces of
    /// tasks (`struct mm_struct`), each once.
    ///
    /// # Errors
    /// Where they cannot be read.
    pub fn read<M: PhysMemory + ?Sized>(
        self,
        view: View<'_, M>,
        spaces: impl Iterator<Item = u64>,
    ) -> Result<Option<HugeZero>, StructureError> {
        let pfn = view.number("huge_zero_pfn", self.pfn, word(8))?;
        if pfn == UNSET {
            return Ok(None);
        }
        let references = view.number("huge_zero_refcount", self.references, word(4))?;
        let mut holders = 0;
        for mm in spaces {
            holders += i64::from(self.is_holder(view, mm)?);
        }
        Ok(Some(HugeZero {
            pfn,
            references: i64::from(references as u32 as i32),
            holders,
            is_holder: false,
            bit: self.bit,
        }))
    }

    /// Returns whether the address space at `mm` is marked as having a reference.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub fn is_holder<M: PhysMemory + ?Sized>(
        self,
        view: View<'_, M>,
        mm: u64,
    ) -> Result<bool, StructureError> {
        let flags = view.number("an address space", mm, self.flags)?;
        Ok(flags >> self.bit & 1 == 1)
    }

    /// Returns the address of the flags of the address space at `mm`.
    #[must_use]
    pub fn flags_at(self, mm: u64) -> u64 {
        mm.wrapping_add(self.flags.offset)
    }
}
