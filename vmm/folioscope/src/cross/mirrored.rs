// SPDX-License-Identifier: GPL-2.0-only
//! Stale pages of secondary MMUs: those that a process can no longer access as its secondary MMU still does.

use std::collections::BTreeMap;

use protocol::{Mirrored, MirroredPage, ProcessId, StalePage};

/// A stale page of a process, by its address.
pub type Stale = ((ProcessId, u64), StalePage);

/// The pages that the secondary MMU of each process was found to have.
#[derive(Debug, Default)]
pub struct Mirrors {
    /// The newest answer of each process.
    pub newest: BTreeMap<ProcessId, Mirrored>,
    /// Each stale page, as it was first seen: the process may get the same page back later.
    pub stale: BTreeMap<(ProcessId, u64), StalePage>,
}

/// Returns whether two stale pages follow each other and have lost the same.
pub fn is_one_run(one: &Stale, next: &Stale, page: u64) -> bool {
    let lost = |it: &StalePage| {
        let is_same = it.now.is_some_and(|now| now.pfn == it.copied.pfn);
        (it.now.is_none(), is_same, it.copied.writable)
    };
    let ((process, at), (next_process, next_at)) = (one.0, next.0);
    (process, at + page) == (next_process, next_at) && lost(&one.1) == lost(&next.1)
}

/// Returns the page in words.
pub fn said(page: MirroredPage) -> String {
    let right = if page.writable {
        "for writing"
    } else {
        "for reading"
    };
    format!("page frame 0x{:x} {right}", page.pfn)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(address: u64, copied: (u64, bool), now: Option<(u64, bool)>) -> Stale {
        let page = |(pfn, writable)| MirroredPage { pfn, writable };
        let stale = StalePage {
            address,
            copied: page(copied),
            now: now.map(page),
        };
        ((ProcessId(1), address), stale)
    }

    #[test]
    fn a_run_has_one_reason() {
        let gone = page(0x1000, (7, true), None);
        assert!(is_one_run(&gone, &page(0x2000, (9, true), None), 0x1000));
        assert!(!is_one_run(&gone, &page(0x3000, (9, true), None), 0x1000));
        let other = page(0x2000, (9, true), Some((3, true)));
        assert!(!is_one_run(&gone, &other, 0x1000));
        let same = page(0x3000, (9, true), Some((9, false)));
        assert!(!is_one_run(&other, &same, 0x1000));
        assert_eq!(said(same.1.copied), "page frame 0x9 for writing");
    }
}
