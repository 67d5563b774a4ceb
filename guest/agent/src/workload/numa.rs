//! Pages and NUMA nodes.

use std::ffi::c_void;

use protocol::{Failure, Outcome};

use super::memory::on_memory;
use crate::sys;

/// Maximum number of pages of one request, so that the answer fits in a line.
const MAX_PAGES: u64 = 1 << 16;

/// `MPOL_MF_MOVE`, `MPOL_DEFAULT` and `MPOL_BIND` (include/uapi/linux/mempolicy.h).
const MOVE: libc::c_int = 1 << 1;
const DEFAULT: usize = 0;
const BIND: usize = 2;

pub fn mbind(address: u64, length: u64, node: Option<u32>) -> Result<Outcome, Failure> {
    let Some(nodes) = node.map_or(Some(0u64), |node| 1u64.checked_shl(node)) else {
        return Err(Failure::bad("a node is a number below 64"));
    };
    // get_nodes() reads maxnode - 1 bits.
    let (mode, list, bits, flags) = match node {
        Some(_) => (
            BIND,
            (&raw const nodes).expose_provenance(),
            65,
            MOVE as usize,
        ),
        None => (DEFAULT, 0, 0, 0),
    };
    let words = [address as usize, length as usize, mode, list, bits, flags];
    on_memory(libc::SYS_mbind, words, "mbind")
}

pub fn move_pages(address: u64, length: u64, node: Option<i32>) -> Result<Outcome, Failure> {
    let page = sys::page_size();
    if address % page != 0 || address.checked_add(length).is_none() {
        return Err(Failure::bad(
            "the address must be a multiple of the page size, and the range end below the last address",
        ));
    }
    let count = length.div_ceil(page);
    if count > MAX_PAGES {
        return Err(Failure::bad(format!("at most {MAX_PAGES} pages at once")));
    }
    let pages: Vec<*mut c_void> = (0..count)
        .map(|i| std::ptr::without_provenance_mut((address + i * page) as usize))
        .collect();
    let nodes = node.map(|node| vec![node; pages.len()]);
    let mut status = vec![0i32; pages.len()];
    // SAFETY: the three lists have the length that is passed, the second may be null; the addresses are only looked up.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            0,
            pages.len(),
            pages.as_ptr(),
            nodes
                .as_ref()
                .map_or(std::ptr::null(), |nodes| nodes.as_ptr()),
            status.as_mut_ptr(),
            MOVE,
        )
    };
    // Pages that were not moved (a positive result) show in the pages' own status.
    sys::check(result, "move_pages")?;
    Ok(Outcome::Nodes { nodes: status })
}
