// SPDX-License-Identifier: GPL-2.0-only
//! Devices of page caches (`mapping_can_writeback()`, include/linux/backing-dev.h): the kernel counts the dirty folios of a
//! file that is written back to one.

use serde::{Deserialize, Serialize};
use stage1::PhysMemory;

use crate::kernel::View;
use crate::per_cpu::word;
use crate::types::Member;
use crate::{Kernel, StructureError};

/// Members that lead from a `struct address_space` to the capabilities of its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Written {
    host: Member,
    super_block: Member,
    device: Member,
    capabilities: Member,
    /// Address of `blockdev_superblock`: the files of that one have their disks' devices.
    of_disks: u64,
}

/// `BDI_CAP_WRITEBACK`.
const WRITEBACK: u64 = 1;
const WHAT: &str = "the device of a page cache";

impl Written {
    pub(super) fn new(kernel: &Kernel) -> Result<Written, StructureError> {
        let member = |structure, path| kernel.types.member(structure, path);
        Ok(Written {
            host: member("address_space", "host")?,
            super_block: member("inode", "i_sb")?,
            device: member("super_block", "s_bdi")?,
            capabilities: member("backing_dev_info", "capabilities")?,
            of_disks: kernel.variable("blockdev_superblock")?,
        })
    }

    /// Returns whether the page cache of the `struct address_space` at `mapping` is written back; `None` where that is not
    /// known: of a disk's own, and of what is no page cache.
    pub(super) fn is_written_back<M: PhysMemory + ?Sized>(
        self,
        view: View<'_, M>,
        mapping: u64,
    ) -> Option<bool> {
        let number = |at, member| view.number(WHAT, at, member).ok();
        let inode = number(mapping, self.host).filter(|inode| *inode != 0)?;
        let super_block = number(inode, self.super_block)?;
        if super_block == view.number(WHAT, self.of_disks, word(8)).ok()? {
            return None;
        }
        let device = number(super_block, self.device)?;
        Some(number(device, self.capabilities)? & WRITEBACK != 0)
    }
}
