// SPDX-License-Identifier: GPL-2.0-only
//! Context of a verdict: what was asked for, and which kernel and address spaces the guest has.

use evidence::{
    guest_notes::{Kept, KeptSpace},
    inside::is_whole,
    Evidence, Gathered, Subject,
};
use snapshot::Snapshot;
use verdict::basis::{Context, Input, Scope};
use verdict::{AddressSpace, Hex, NotKnown};

/// Returns the context from a snapshot's notes. `pid`: only this process was asked for.
fn known(snapshot: &Snapshot, pid: Option<u32>) -> Context {
    let notes = &snapshot.notes;
    let kept = Kept::of(notes);
    let attended = notes.processes.iter().any(|it| it.checkpoint.is_some());
    let by_agent = (attended && kept.recognised_by.is_none()).then(|| "the guest's agent".into());
    let space = |it: KeptSpace| AddressSpace {
        pid: it.pid,
        name: it.name,
        root: Hex(it.root),
    };
    let spaces = kept.spaces;
    let spaces = spaces.map(|all| all.map(|all| all.into_iter().map(space).collect()));
    // A small core holds what it was taken of, and no list of what else there was.
    let all = pid.is_none() && spaces.is_some() && (!attended || is_whole(&snapshot.memory));
    Context {
        scope: match all {
            true => Scope::Guest,
            false => Scope::Processes,
        },
        release: Some(notes.kernel_release.clone()).filter(|release| !release.is_empty()),
        recognised_by: kept.recognised_by.or(by_agent),
        spaces,
        ..Context::default()
    }
}

/// The same with what was gathered of all address spaces, where the snapshot says nothing else of them.
fn with_gathered(mut known: Context, gathered: Option<&Gathered>) -> Context {
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

/// Returns order records as an input. Without the kernel's symbols it is not known whether it keeps any.
fn records(subject: &Subject<'_>, gathered: Option<&NotKnown>) -> Input {
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

/// Returns the context of the verdicts. `pid`: only this process was asked for.
pub(crate) fn context(evidence: &Evidence<'_>, pid: Option<u32>) -> Context {
    let known = known(evidence.snapshot, pid);
    let Some(waiting) = &evidence.waiting else {
        return known;
    };
    let (gathered, unread) = (
        evidence.gathered.as_ref().ok(),
        evidence.gathered.as_ref().err(),
    );
    let asked = evidence.processes.first();
    Context {
        expectations: match asked.is_some_and(|it| !it.expectations.is_empty()) {
            true => Input::Given,
            false => Input::NotAsked,
        },
        records: records(waiting, unread.filter(|why| !why.later)),
        getters: match asked.and_then(|it| it.getters) {
            Some(_) => Input::Given,
            None => Input::NotAsked,
        },
        ..with_gathered(known, gathered)
    }
}
