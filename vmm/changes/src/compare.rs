// SPDX-License-Identifier: GPL-2.0-only
//! Two views, process by process.

use verdict::Hex;

use crate::event::{Diff, Event, Kind, Lives, ProcessDiff, DIFF_VERSION};
use crate::places::places;
use crate::sides::Sides;
use crate::view::{Space, View, Who};
use crate::vmas;

/// Processes that are named in a note.
const NAMED: usize = 8;

/// Returns the events between two instants: of all processes, or of the one with this pid.
#[must_use]
pub fn diff(before: &View<'_>, after: &View<'_>, pid: Option<u32>) -> Diff {
    let mut result = Diff {
        schema_version: DIFF_VERSION,
        kernel: after.kernel.clone().or_else(|| before.kernel.clone()),
        page_size: after.page_size,
        processes: Vec::new(),
        unchanged: 0,
        notes: Vec::new(),
    };
    let mut unseen: [Vec<&Who>; 2] = Default::default();
    let wanted = |space: &&Space| pid.is_none_or(|pid| space.who.pid == pid);
    for space in after.spaces.iter().filter(wanted) {
        match before.spaces.iter().find(|it| it.who.is(&space.who)) {
            Some(earlier) => {
                let process = process(before, after, (earlier, space));
                match process.events.is_empty() && process.notes.is_empty() {
                    true => result.unchanged += 1,
                    false => result.processes.push(process),
                }
            }
            None => match before.had(&space.who) {
                Some(false) => result.processes.push(life(&space.who, Lives::Started)),
                _ => unseen[0].push(&space.who),
            },
        }
    }
    for space in before.spaces.iter().filter(wanted) {
        if after.spaces.iter().any(|it| it.who.is(&space.who)) {
            continue;
        }
        match after.had(&space.who) {
            Some(false) => result.processes.push(life(&space.who, Lives::Ended)),
            _ => unseen[1].push(&space.who),
        }
    }
    for (who, which) in unseen.iter().zip(["first", "second"]) {
        result.notes.extend(not_looked_at(who, which));
    }
    result
        .processes
        .sort_by_key(|process| (process.pid, process.started_ns));
    for (which, view) in [("first", before), ("second", after)] {
        if let Err(why) = &view.folios {
            result.notes.push(format!("the folios of the {which} instant are not known, so other frames are just that: {why}"));
        }
    }
    result
}

fn not_looked_at(who: &[&Who], which: &str) -> Option<String> {
    let names = who.iter().take(NAMED);
    let names: Vec<String> = names
        .map(|who| format!("{} ({})", who.name, who.pid))
        .collect();
    let more = match who.len().checked_sub(NAMED + 1) {
        Some(more) => format!(" and {} more", more + 1),
        None => String::new(),
    };
    (!who.is_empty()).then(|| {
        format!(
            "not looked at the {which} time, so nothing is said of: {}{more}",
            names.join(", ")
        )
    })
}

fn life(who: &Who, lives: Lives) -> ProcessDiff {
    ProcessDiff {
        pid: who.pid,
        name: who.name.clone(),
        started_ns: who.started_ns,
        lives,
        events: Vec::new(),
        notes: Vec::new(),
    }
}

fn process(before: &View<'_>, after: &View<'_>, of: (&Space, &Space)) -> ProcessDiff {
    let (earlier, now) = of;
    let mut result = life(&now.who, Lives::Both);
    let problems = earlier.problems + now.problems;
    if problems > 0 {
        result.notes.push(format!(
            "{problems} tables could not be walked: what they map is not known"
        ));
    }
    if earlier.mm.zip(now.mm).is_some_and(|(was, is)| was != is) {
        result.events.push(Event {
            kind: Kind::Exec,
            va: Hex(0),
            end: Hex(0),
            pages: 0,
            detail: "it has another address space since: its places are not compared".into(),
            before: None,
            after: None,
        });
        return result;
    }
    let vmas = match (&earlier.vmas, &now.vmas) {
        (Ok(earlier), Ok(now)) => Some((earlier.as_slice(), now.as_slice())),
        (Err(why), _) | (_, Err(why)) => {
            result
                .notes
                .push(format!("its VMAs were not compared: {why}"));
            None
        }
    };
    let sides = Sides::new(before, after, of);
    let (mut events, unmapped) = places(sides, of, vmas.map(|(_, now)| now));
    if let Some((earlier, now)) = vmas {
        events.extend(vmas::compare(earlier, now, after.page_size, &unmapped));
    }
    events.sort_by_key(|event| (event.va, event.kind, event.end));
    result.events = events;
    result
}
