// SPDX-License-Identifier: GPL-2.0-only
//! Short names for the operations of the tour.

use protocol::{
    Access, Advice, Backing, MapFlag, MoveFlag, Operation, Order, Placement, Protection,
};

/// Returns an area of anonymous memory on its own, `offset` bytes above a level-2 boundary.
pub fn map(length: u64, offset: u64) -> Operation {
    Operation::Mmap {
        length,
        backing: Backing::Anonymous,
        prot: vec![Protection::Read, Protection::Write],
        flags: vec![],
        place: Placement::Isolated {
            align: None,
            offset,
            gap: None,
        },
    }
}

/// Maps shared memory: anonymous shmem.
pub fn map_shared(length: u64) -> Operation {
    Operation::Mmap {
        length,
        backing: Backing::Anonymous,
        prot: vec![Protection::Read, Protection::Write],
        flags: vec![MapFlag::Shared],
        place: Placement::default(),
    }
}

/// Maps private huge pages of `size` bytes each.
pub fn map_hugetlb(length: u64, size: u64) -> Operation {
    Operation::Mmap {
        length,
        backing: Backing::Hugetlb {
            size_kib: size / 1024,
        },
        prot: vec![Protection::Read, Protection::Write],
        flags: vec![],
        place: Placement::default(),
    }
}

/// Returns one access per page of a range.
pub fn touch(address: u64, length: u64, access: Access, order: Order) -> Operation {
    Operation::Touch {
        address,
        length,
        stride: None,
        access,
        order,
        salt: 0,
    }
}

/// Returns one write per page of a range, forward.
pub fn write(address: u64, length: u64) -> Operation {
    touch(address, length, Access::Write, Order::Forward)
}

/// Returns a `munmap(2)`.
pub fn unmap(address: u64, length: u64) -> Operation {
    Operation::Munmap { address, length }
}

/// Returns a `madvise(2)`.
pub fn advise(address: u64, length: u64, advice: Advice) -> Operation {
    Operation::Madvise {
        address,
        length,
        advice,
    }
}

/// Returns a `mprotect(2)`.
pub fn protect(address: u64, length: u64, prot: &[Protection]) -> Operation {
    Operation::Mprotect {
        address,
        length,
        prot: prot.to_vec(),
    }
}

/// Returns a `mremap(2)` to a given address.
pub fn remap(address: u64, length: u64, to: u64) -> Operation {
    Operation::Mremap {
        address,
        length,
        new_length: length,
        flags: vec![MoveFlag::Maymove, MoveFlag::Fixed],
        new_address: Some(to),
    }
}

/// Returns a `move_pages(2)` to a node; without one it only reads the pages' nodes.
pub fn move_pages(address: u64, length: u64, node: Option<i32>) -> Operation {
    Operation::MovePages {
        address,
        length,
        node,
    }
}

/// Returns one write per page of a range, forward, of another pattern than [`write()`]'s.
pub fn write_salted(address: u64, length: u64, salt: u64) -> Operation {
    Operation::Touch {
        address,
        length,
        stride: None,
        access: Access::Write,
        order: Order::Forward,
        salt,
    }
}
