//! The half of L8 that asks the folio: what a process may write in private memory is its own.

use linux::folio::Kind;
use linux::vma::Vma;

use crate::folios::{of_frames, Mapped};

/// On one entry: the sentence where a writable anonymous page is not exclusive.
pub(super) fn check(mapped: &Mapped<'_>, vma: &Vma) -> Option<String> {
    let (pte, page) = (mapped.pte, mapped.page);
    // Without VmFlags it is not known whether a driver chose the page.
    let known = vma.pfn_mapped() == Some(false) && !of_frames(vma);
    if vma.permissions.shared || !known || !(pte.valid() && pte.write()) {
        return None;
    }
    let what = match page.kind {
        Kind::Anonymous if !page.exclusive => "not exclusive to one mapping (PageAnonExclusive)",
        Kind::Ksm => "KSM's, for many places",
        Kind::File => "a file's",
        _ => return None,
    };
    Some(format!(
        "VA 0x{:016x} maps page frame 0x{:x} writable in private memory, and the page is {what}: it must not be writable",
        mapped.va(),
        mapped.pfn
    ))
}
