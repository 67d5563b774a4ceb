// SPDX-License-Identifier: GPL-2.0-only
//! VMAs, address by address: how the kernel cuts and joins them does not matter.

use linux::vma::Vma;
use verdict::Hex;

use crate::event::{Event, Kind};

/// Flags that `rwx` tell of, and one that changes by itself.
const NOT_TOLD: [&str; 5] = ["rd", "wr", "ex", "sh", "sd"];

/// Finds the changes of VMAs. `unmapped` are addresses at which pages went with theirs, and how many.
pub(crate) fn compare(
    before: &[Vma],
    after: &[Vma],
    page_size: u64,
    unmapped: &[(u64, u64)],
) -> Vec<Event> {
    let mut edges: Vec<u64> = before
        .iter()
        .chain(after)
        .flat_map(|vma| [vma.start, vma.end])
        .collect();
    edges.sort_unstable();
    edges.dedup();
    let mut events: Vec<Event> = Vec::new();
    let mut tell = |kind, va: u64, end: u64, detail: String| {
        let alike = |it: &&mut Event| it.kind == kind && it.end.0 == va && it.detail == detail;
        // A VMA that is gone and the one in its place are told of by turns.
        let last = events.iter_mut().rev().take(2).find(alike);
        if let Some(last) = last {
            last.end = Hex(end);
            last.pages += (end - va) / page_size;
            return;
        }
        events.push(Event {
            kind,
            va: Hex(va),
            end: Hex(end),
            pages: (end - va) / page_size,
            detail,
            before: None,
            after: None,
        });
    };
    for pair in edges.windows(2) {
        let (va, end) = (pair[0], pair[1]);
        match (at(before, va), at(after, va)) {
            (None, None) => {}
            (None, Some(now)) => tell(Kind::Map, va, end, named(now)),
            (Some(was), None) => tell(Kind::Unmap, va, end, named(was)),
            (Some(was), Some(now)) if !one(was, now) => {
                tell(Kind::Unmap, va, end, named(was));
                tell(Kind::Map, va, end, named(now));
            }
            (Some(was), Some(now)) => {
                let (old, new) = (was.permissions.text(), now.permissions.text());
                if old != new {
                    tell(Kind::Protection, va, end, format!("{old} to {new}"));
                }
                let flags = flags(was, now);
                if !flags.is_empty() {
                    tell(Kind::Flags, va, end, flags);
                }
            }
        }
    }
    for event in events.iter_mut().filter(|it| it.kind == Kind::Unmap) {
        let inside = unmapped
            .iter()
            .filter(|(va, _)| (event.va.0..event.end.0).contains(va));
        let pages: u64 = inside.map(|(_, pages)| pages).sum();
        let more = format!("{pages} of its pages were mapped");
        event.detail = match event.detail.is_empty() {
            true => more,
            false => format!("{}, {more}", event.detail),
        };
    }
    events
}

fn at(vmas: &[Vma], va: u64) -> Option<&Vma> {
    let next = vmas.partition_point(|vma| vma.end <= va);
    vmas.get(next).filter(|vma| vma.contains(va))
}

/// Returns whether both are of the same memory.
pub(crate) fn one(was: &Vma, now: &Vma) -> bool {
    let file = |vma: &Vma| (vma.device, vma.inode, vma.permissions.shared);
    let from = |vma: &Vma| vma.offset.wrapping_sub(vma.start);
    file(was) == file(now) && (was.inode == 0 || from(was) == from(now))
}

fn named(vma: &Vma) -> String {
    let text = format!("{} {}", vma.permissions.text(), vma.name);
    text.trim_end().to_owned()
}

fn flags(was: &Vma, now: &Vma) -> String {
    let (Some(was), Some(now)) = (&was.flags, &now.flags) else {
        return String::new();
    };
    let told = |flag: &&String| !NOT_TOLD.contains(&flag.as_str());
    let (was, now) = (was.words(), now.words());
    let new = now.iter().filter(told).filter(|flag| !was.contains(flag));
    let gone = was.iter().filter(told).filter(|flag| !now.contains(flag));
    let new = new.map(|flag| format!("+{flag}"));
    let all: Vec<String> = new.chain(gone.map(|flag| format!("-{flag}"))).collect();
    all.join(" ")
}
