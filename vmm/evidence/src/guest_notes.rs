// SPDX-License-Identifier: GPL-2.0-only
//! Facts about the guest that a snapshot keeps in its notes.

use serde::{Deserialize, Serialize};
use snapshot::Notes;
use untrusted::Text;

/// The notes' key of [`Kept`].
const KEPT: &str = "basis";

/// How the guest was recognised.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// By what the release is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recognised_by: Option<String>,
    /// The address spaces that the kernel's tasks have, or why these are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spaces: Option<Result<Vec<KeptSpace>, String>>,
    /// The only process that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
}

/// One address space, as a snapshot keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptSpace {
    /// Its pid.
    pub pid: u32,
    /// Its name.
    pub name: Text,
    /// Physical address of its root table.
    pub root: u64,
}

impl Kept {
    /// Reads it from a snapshot's notes.
    #[must_use]
    pub fn of(notes: &Notes) -> Self {
        let kept = notes.extra.get(KEPT);
        let kept = kept.and_then(|kept| serde_json::from_value(kept.clone()).ok());
        kept.unwrap_or_default()
    }

    fn keep(&self, notes: &mut Notes) {
        let value = serde_json::to_value(self).unwrap_or_default();
        notes.extra.insert(KEPT.into(), value);
    }
}

/// Keeps by what the kernel's release is known.
pub fn keep_recognised(notes: &mut Notes, by: &str) {
    let kept = Kept {
        recognised_by: Some(by.into()),
        ..Kept::of(notes)
    };
    kept.keep(notes);
}

/// Keeps which address spaces the kernel's tasks have: pid, name and first table; or why these are not known.
pub fn keep_spaces(notes: &mut Notes, spaces: Result<Vec<(u32, Text, u64)>, String>) {
    let space = |(pid, name, root)| KeptSpace { pid, name, root };
    let kept = Kept {
        spaces: Some(spaces.map(|all| all.into_iter().map(space).collect())),
        ..Kept::of(notes)
    };
    kept.keep(notes);
}

/// Keeps why the kernel's tasks are not known, where nothing was kept of them.
pub fn keep_no_spaces(notes: &mut Notes, why: &str) {
    if Kept::of(notes).spaces.is_none() {
        keep_spaces(notes, Err(why.into()));
    }
}

/// Keeps that one process alone was asked for.
pub fn keep_asked(notes: &mut Notes, pid: Option<u32>) {
    let kept = Kept {
        pid,
        ..Kept::of(notes)
    };
    kept.keep(notes);
}

/// The process that alone was asked for when the snapshot was taken, if so.
pub fn asked(notes: &Notes) -> Option<u32> {
    Kept::of(notes).pid
}
