// SPDX-License-Identifier: GPL-2.0-only
//! A list of folios that wait to be split, with its lock and its length.

use crate::types::Member;

/// One list of them: the addresses of its lock, of its head and of its length.
#[derive(Debug)]
pub(super) struct List {
    pub(super) whose: String,
    pub(super) lock: u64,
    pub(super) head: u64,
    pub(super) length: u64,
}

/// Where lock, head and length are in what has such a list.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) lock: Member,
    pub(super) head: Member,
    pub(super) length: Member,
}

impl Parts {
    /// The list of what is at `at`.
    pub(super) fn list(&self, at: u64, whose: String) -> List {
        List {
            whose,
            lock: at.wrapping_add(self.lock.offset),
            head: at.wrapping_add(self.head.offset),
            length: at.wrapping_add(self.length.offset),
        }
    }
}
