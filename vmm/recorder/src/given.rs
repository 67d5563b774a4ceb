//! Pages that are somebody else's now, and where a word leads.

use stage1::{Descriptor, Half, Kind};

use crate::stale::Key;
use crate::Stored;

/// A page that is somebody else's now, and that a TLB may lead to still.
#[derive(Clone, Debug)]
pub(crate) struct Given {
    pub(crate) key: Key,
    /// The event that took its old word away.
    pub(crate) event: u64,
    /// Where it was mapped anew, by which word and whom.
    pub(crate) entry: u64,
    pub(crate) new: u64,
    pub(crate) by: Stored,
}

/// The table that a word leads to, or the page that it maps in the lower half. The kernel's own half is left out: vfree()
/// gives pages back at once and flushes lazily (mm/vmalloc.c), which harms nobody but the kernel itself.
pub(crate) fn leads_to(word: &Descriptor<'_>) -> Option<u64> {
    match word.kind() {
        _ if word.regime().half == Half::Upper => None,
        Kind::Table => Some(word.next_table().0),
        Kind::Page => Some(word.output_address().0),
        _ => None,
    }
}
