// SPDX-License-Identifier: GPL-2.0-only
//! Explains a page whose entry leads to another frame, or to another folio in the same frame.
//!
//! What two instants, the kernel's record and its counters leave open is [replaced](Kind::Replace), with what it may have been.

use linux::counted::{COW_KSM, PGMIGRATE_SUCCESS};
use linux::folio::{Kind as Memory, Page};
use linux::order::Path;

use crate::event::Kind;
use crate::sides::{Faulted, Sides};
use crate::view::Entry;
use crate::why::{Doubt, Why};

/// One place, mapped both times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Both<'e> {
    pub before: &'e Entry,
    pub after: &'e Entry,
    pub old: Option<Page>,
    pub new: Option<Page>,
}

/// The newest fault at this place in the records.
fn recorded(fault: Faulted, before: &Entry) -> (Kind, Why) {
    match fault.path {
        Path::Copy => (Kind::CopyOnWrite, Why::CopiedByRecord(fault.order)),
        Path::ZeroPage if !before.has_folio() => {
            (Kind::CopyOnWrite, Why::ZeroPageByRecord(fault.order))
        }
        Path::SwapIn => (Kind::Replace, Why::SwappedAgain(fault.order)),
        _ => (Kind::Replace, Why::FaultedAgain(fault.order)),
    }
}

/// Returns the change of a page in the same frame, if there is one.
pub(crate) fn same_frame(sides: &Sides<'_, '_>, both: Both<'_>) -> Option<(Kind, Why)> {
    if let Some(fault) = sides.faulted(both.after.va) {
        return Some(recorded(fault, both.before));
    }
    let (old, new) = (both.old?, both.new?);
    if old.kind != new.kind && new.kind == Memory::Ksm {
        return Some((Kind::Merge, Why::Nothing));
    }
    // An anonymous folio's mapping may become the process's own when no other process has it any more.
    let one = old.kind == new.kind
        && old.index_of_page() == new.index_of_page()
        && old.hugetlb == new.hugetlb
        && (new.kind.anonymous() || old.mapping == new.mapping);
    match (one, old.order, new.order) {
        (false, ..) => Some((Kind::Replace, Why::SameFrame)),
        (true, from, to) if from > to => {
            let kept = sides.has_split() || sides.without_faults() || first_writes(sides, both);
            Some(match kept {
                true => (Kind::Split, Why::FolioSplit(from, to)),
                false => (Kind::Replace, Why::FolioShrank(from, to)),
            })
        }
        (true, from, to) if from < to => Some((Kind::Replace, Why::FolioGrew(from, to))),
        _ => None,
    }
}

/// Returns whether a page that had been thrown away, and was written to again, would be in the record.
fn first_writes(sides: &Sides<'_, '_>, both: Both<'_>) -> bool {
    // A table of 8-byte entries is one page: what a block maps, and hugetlb, is in no record.
    let of_block = sides.after.page_size.ilog2() as u8 - 3;
    let small =
        |page: Option<Page>| page.is_some_and(|page| page.order < of_block && !page.hugetlb);
    small(both.new) && sides.records_first_writes(both.after.va)
}

/// Returns the change where the frame is another one.
pub(crate) fn other_frame(sides: &Sides<'_, '_>, both: Both<'_>) -> (Kind, Why) {
    let replaced = |doubt| (Kind::Replace, Why::NotProved(doubt));
    if let Some(fault) = sides.faulted(both.after.va) {
        return recorded(fault, both.before);
    }
    let zero = |entry: &Entry| !entry.has_folio();
    if zero(both.after) {
        return (Kind::Replace, Why::ZeroPage);
    }
    let Some(new) = both.new else {
        return (Kind::Replace, Why::NoFolios);
    };
    if zero(both.before) {
        // A copy of the zero page is one page. A first write after it was thrown away comes to the same.
        return match new.kind == Memory::Anonymous && new.order == 0 {
            true => (Kind::CopyOnWrite, Why::ZeroPageWritten),
            false => replaced(Doubt::Order(0, new.order)),
        };
    }
    let Some(old) = both.old else {
        return (Kind::Replace, Why::NoFolios);
    };
    match (old.kind, new.kind) {
        (Memory::Ksm, Memory::Ksm) => replaced(Doubt::Other),
        (_, Memory::Ksm) => (Kind::Merge, Why::Nothing),
        (Memory::Ksm, Memory::Anonymous) => {
            let counted = sides.counted(COW_KSM).is_some_and(|copies| copies > 0);
            match counted || first_writes(sides, both) {
                true => (Kind::CopyOnWrite, Why::KsmWritten),
                false => replaced(Doubt::CopiedOrGone),
            }
        }
        (Memory::File, Memory::Anonymous) if !sides.may_be_filled(both.after.va) => {
            (Kind::CopyOnWrite, Why::FileWritten)
        }
        (Memory::Anonymous, Memory::Anonymous) => anonymous(sides, both, &old, &new),
        (Memory::File, Memory::File) => file(sides, both, &old, &new),
        _ => replaced(Doubt::Other),
    }
}

fn anonymous(sides: &Sides<'_, '_>, both: Both<'_>, old: &Page, new: &Page) -> (Kind, Why) {
    let replaced = |doubt| (Kind::Replace, Why::NotProved(doubt));
    let Some(elsewhere) = sides.after.mapped.holds(both.before.frame) else {
        return replaced(Doubt::NotEverybody);
    };
    let shared = !both.before.pte().write() && !old.exclusive;
    let copied = new.order == 0 || new.hugetlb;
    if elsewhere {
        // It was this one's own then: what others have of it is by a fork since.
        let now = sides.after.folios.as_ref().ok();
        let now = now.and_then(|folios| folios.page(both.before.frame).ok());
        let forked = now.is_some_and(|now| now.kind.anonymous() && !now.exclusive);
        // What was thrown away, and written to again, looks alike.
        let kept = first_writes(sides, both);
        return match (shared, forked, copied) {
            (true, _, true) if kept => (Kind::CopyOnWrite, Why::StillElsewhere),
            (false, true, true) if kept => (Kind::CopyOnWrite, Why::Forked),
            (true, _, true) | (false, true, true) => replaced(Doubt::CopiedOrGone),
            _ => replaced(Doubt::Elsewhere),
        };
    }
    if old.mapping != new.mapping || old.index_of_page() != new.index_of_page() {
        return replaced(Doubt::Other);
    }
    if old.order != new.order || old.subpage() != new.subpage() {
        return replaced(Doubt::Order(old.order, new.order));
    }
    let changed =
        old.exclusive != new.exclusive || both.before.pte().write() != both.after.pte().write();
    // A copy, a page from swap, and what was read first and then written to, are single pages without a record; of a larger
    // folio each way in has one.
    let recorded = new.order > 0 && first_writes(sides, both);
    let stayed = sides.without_faults() && !sides.may_be_filled(both.after.va);
    match migrated(sides) {
        _ if changed => replaced(Doubt::OwnerGone),
        Some(0) => replaced(Doubt::NotMigrated),
        Some(pages) if recorded || stayed => (Kind::Migrate, Why::SameFolio(new.order, pages)),
        Some(pages) => replaced(Doubt::Migrations(pages)),
        None => replaced(Doubt::NoCount),
    }
}

/// How many pages the kernel has migrated since, where that is known.
pub(crate) fn migrated(sides: &Sides<'_, '_>) -> Option<u64> {
    sides.counted(PGMIGRATE_SUCCESS)
}

fn file(sides: &Sides<'_, '_>, both: Both<'_>, old: &Page, new: &Page) -> (Kind, Why) {
    let replaced = |doubt| (Kind::Replace, Why::NotProved(doubt));
    let Some(elsewhere) = sides.after.mapped.holds(both.before.frame) else {
        return replaced(Doubt::NotEverybody);
    };
    let one = old.mapping == new.mapping && old.index_of_page() == new.index_of_page();
    if !one || elsewhere {
        return replaced(Doubt::Other);
    }
    if old.order != new.order {
        return replaced(Doubt::Order(old.order, new.order));
    }
    match migrated(sides) {
        Some(0) => replaced(Doubt::ReadAgain),
        Some(pages) if sides.without_faults() => (Kind::Migrate, Why::SameFileFolio(pages)),
        _ => replaced(Doubt::MigratedOrReadAgain),
    }
}
