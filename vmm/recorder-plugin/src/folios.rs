// SPDX-License-Identifier: GPL-2.0-only
//! Reads a page frame's folio from the kernel's structures, while the CPU that maps or unmaps it is stopped.

use recorder::{Folio, FolioKind, PageLayout};

use crate::virtual_memory::read;

/// Bytes that are read at once, a `struct page` and the one behind it: a read costs a walk of the tables.
const AT_ONCE: usize = 128;
/// Bytes of a `struct page` on arm64 (`HAVE_ALIGNED_STRUCT_PAGE`).
const PAGE: usize = 64;

/// Returns the folio of a page frame; of unknown kind where its `struct page` cannot be read or makes no sense.
pub fn folio(layout: &PageLayout, frame: u64) -> Folio {
    let (mut at, mut bytes) = (0, Vec::new());
    let found = layout.folio(frame, |va| {
        let base = va & !(PAGE as u64 - 1);
        let offset = va.wrapping_sub(at) as usize;
        if bytes.is_empty() || va < at || offset + 8 > bytes.len() {
            // The array of pages may end behind the first.
            bytes = read(base, AT_ONCE).or_else(|| read(base, PAGE))?;
            at = base;
        }
        let offset = (va - at) as usize;
        let word = bytes.get(offset..offset + 8)?.try_into().ok()?;
        Some(u64::from_le_bytes(word))
    });
    found.unwrap_or(Folio {
        first: frame,
        order: 0,
        kind: FolioKind::Unknown,
        index: 0,
    })
}
