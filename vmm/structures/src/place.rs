// SPDX-License-Identifier: GPL-2.0-only
//! Where a VMA is, and how its pages are numbered.

use linux::folio::Numbering;
use stage1::PhysMemory;

use crate::kernel::View;
use crate::types::Member;
use crate::{Kernel, StructureError};

/// Where a VMA is, and which number its first page has.
#[derive(Debug)]
pub(crate) struct Place {
    start: Member,
    end: Member,
    pgoff: Member,
    /// The number of the first page for anonymous folios, its low and its high half: from 7.3 on.
    anonymous: Option<(Member, Member)>,
    /// The patched kernel's.
    order_state: Option<Member>,
}

impl Place {
    pub(crate) fn new(kernel: &Kernel) -> Result<Place, StructureError> {
        let vma = |path| kernel.types.member("vm_area_struct", path);
        Ok(Place {
            start: vma("vm_start")?,
            end: vma("vm_end")?,
            pgoff: vma("vm_pgoff")?,
            anonymous: vma("__vm_anon_pgoff_lo")
                .ok()
                .zip(vma("__vm_anon_pgoff_hi").ok()),
            order_state: vma("anon_order_trust").ok(),
        })
    }

    /// The file of its pages is not read.
    pub(crate) fn read<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        vma: u64,
    ) -> Result<Numbering, StructureError> {
        let read = |member| view.number("a VMA", vma, member);
        let (file, anonymous) = self.first(view, vma)?;
        Ok(Numbering {
            start: read(self.start)?,
            end: read(self.end)?,
            file,
            anonymous,
            of: None,
            order_state: self.order_state.map(read).transpose()?,
            found_by: None,
        })
    }

    /// The number of its first page: for folios of its file, and for anonymous ones.
    pub(crate) fn first<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        vma: u64,
    ) -> Result<(u64, u64), StructureError> {
        let read = |member| view.number("a VMA", vma, member);
        let file = read(self.pgoff)?;
        let anonymous = match self.anonymous {
            Some((low, high)) => read(high)? << 32 | read(low)?,
            None => file,
        };
        Ok((file, anonymous))
    }
}
