// SPDX-License-Identifier: GPL-2.0-only
//! What a verdict on a snapshot stands on, as the snapshot keeps it.

use serde::{Deserialize, Serialize};
use snapshot::{Notes, Snapshot};
use untrusted::Text;
use verdict::basis::{Input, Known, Scope};
use verdict::{AddressSpace, Hex, NotKnown};

use crate::inside::is_whole;
use crate::{Gathered, Subject};

/// The notes' key of [`Kept`].
const KEPT: &str = "basis";

/// What a snapshot keeps of how its guest was recognised.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    /// By what the release is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    recognised_by: Option<String>,
    /// The address spaces that the kernel's tasks have, or why these are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spaces: Option<Result<Vec<Space>, String>>,
    /// The only process that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
}

/// One address space, as a snapshot keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Space {
    pid: u32,
    name: Text,
    root: u64,
}

impl Kept {
    fn of(notes: &Notes) -> Self {
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
pub(crate) fn keep_spaces(notes: &mut Notes, spaces: Result<Vec<(u32, Text, u64)>, String>) {
    let space = |(pid, name, root)| Space { pid, name, root };
    let kept = Kept {
        spaces: Some(spaces.map(|all| all.into_iter().map(space).collect())),
        ..Kept::of(notes)
    };
    kept.keep(notes);
}

/// Keeps why the kernel's tasks are not known, where nothing was kept of them.
pub(crate) fn keep_no_spaces(notes: &mut Notes, why: &str) {
    if Kept::of(notes).spaces.is_none() {
        keep_spaces(notes, Err(why.into()));
    }
}

/// Keeps that one process alone was asked for.
pub(crate) fn keep_asked(notes: &mut Notes, pid: Option<u32>) {
    let kept = Kept {
        pid,
        ..Kept::of(notes)
    };
    kept.keep(notes);
}

/// The process that alone was asked for when the snapshot was taken, if so.
pub(crate) fn asked(notes: &Notes) -> Option<u32> {
    Kept::of(notes).pid
}

/// What is known of a snapshot beside its verdicts, where the process `pid` or all of it is asked for.
pub(crate) fn known(snapshot: &Snapshot, pid: Option<u32>) -> Known {
    let notes = &snapshot.notes;
    let kept = Kept::of(notes);
    let attended = notes.processes.iter().any(|it| it.checkpoint.is_some());
    let by_agent = (attended && kept.recognised_by.is_none()).then(|| "the guest's agent".into());
    let space = |it: Space| AddressSpace {
        pid: it.pid,
        name: it.name,
        root: Hex(it.root),
    };
    let spaces = kept.spaces;
    let spaces = spaces.map(|all| all.map(|all| all.into_iter().map(space).collect()));
    // A small core holds what it was taken of, and no list of what else there was.
    let all = pid.is_none() && spaces.is_some() && (!attended || is_whole(&snapshot.memory));
    Known {
        scope: match all {
            true => Scope::Guest,
            false => Scope::Processes,
        },
        release: Some(notes.kernel_release.clone()).filter(|release| !release.is_empty()),
        recognised_by: kept.recognised_by.or(by_agent),
        spaces,
        ..Known::default()
    }
}

/// The same with what was gathered of all address spaces, where the snapshot says nothing else of them.
pub(crate) fn with_gathered(mut known: Known, gathered: Option<&Gathered>) -> Known {
    let space = |space: &structures::spaces::Space| AddressSpace {
        pid: space.pid,
        name: space.name.clone(),
        root: Hex(space.table),
    };
    if let (None, Some(gathered)) = (&known.spaces, gathered) {
        known.spaces = Some(Ok(gathered.spaces.iter().map(space).collect()));
    }
    known
}

/// Whether order records were there to be read. Without the kernel's symbols it is not known whether it keeps any.
pub(crate) fn records(subject: &Subject<'_>, gathered: Option<&NotKnown>) -> Input {
    match (&subject.orders, gathered) {
        (Ok(_), _) => Input::Given,
        (Err(why), _) if subject.has_records => Input::Absent(why.clone().into()),
        (Err(_), Some(why)) => Input::Absent(
            format!(
                "whether this kernel keeps order records is not known: {}",
                why.why
            )
            .into(),
        ),
        (Err(_), None) => Input::NotAsked,
    }
}
