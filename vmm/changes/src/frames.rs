//! What became of a page whose entry leads to another frame, or to another folio in the same frame.

use linux::folio::{Kind as Memory, Page};

use crate::event::Kind;
use crate::sides::Sides;
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

/// What happened to the page in the same frame, if anything.
pub(crate) fn same_frame(sides: &Sides<'_, '_>, both: Both<'_>) -> Option<(Kind, Why)> {
    if let Some(order) = sides.faulted(both.after.va) {
        return Some((Kind::Replace, Why::FaultedAgain(order)));
    }
    let (old, new) = (both.old?, both.new?);
    if old.kind != new.kind && new.kind == Memory::Ksm {
        return Some((Kind::Merge, Why::Nothing));
    }
    // An anonymous folio's mapping may become the process's own when nobody else has it any more.
    let one = old.kind == new.kind
        && old.index_of_page() == new.index_of_page()
        && old.hugetlb == new.hugetlb
        && (new.kind.anonymous() || old.mapping == new.mapping);
    match (one, old.order, new.order) {
        (false, ..) => Some((Kind::Replace, Why::SameFrame)),
        (true, from, to) if from > to => Some((Kind::Split, Why::FolioSplit(from, to))),
        (true, from, to) if from < to => Some((Kind::Replace, Why::FolioGrew(from, to))),
        _ => None,
    }
}

/// What happened where the frame is another one.
pub(crate) fn other_frame(sides: &Sides<'_, '_>, both: Both<'_>) -> (Kind, Why) {
    let replaced = |doubt| (Kind::Replace, Why::NotProved(doubt));
    let again = sides.faulted(both.after.va);
    if let Some(order) = again {
        return (Kind::Replace, Why::FaultedAgain(order));
    }
    let zero = |entry: &Entry| !entry.has_folio();
    if zero(both.after) {
        return (Kind::Replace, Why::ZeroPage);
    }
    let Some(new) = both.new else {
        return (Kind::Replace, Why::NoFolios);
    };
    if zero(both.before) {
        // A copy of the zero page is one page.
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
        (Memory::Ksm, Memory::Anonymous) => (Kind::CopyOnWrite, Why::KsmWritten),
        (Memory::File, Memory::Anonymous) => (Kind::CopyOnWrite, Why::FileWritten),
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
        return match (shared, forked, copied) {
            (true, _, true) => (Kind::CopyOnWrite, Why::StillElsewhere),
            (false, true, true) => (Kind::CopyOnWrite, Why::Forked),
            _ => replaced(Doubt::Elsewhere),
        };
    }
    if old.mapping != new.mapping || old.index_of_page() != new.index_of_page() {
        return replaced(Doubt::Other);
    }
    if old.order != new.order || old.subpage() != new.subpage() {
        return replaced(Doubt::Order(old.order, new.order));
    }
    if old.exclusive != new.exclusive || both.before.pte().write() != both.after.pte().write() {
        return replaced(Doubt::OwnerGone);
    }
    // Faults of hugetlb and of whole blocks are in no record: a table of 8-byte entries is one page.
    let of_block = sides.after.page_size.ilog2() as u8 - 3;
    match sides.records_are_whole() && !new.hugetlb && new.order < of_block {
        true => (Kind::Migrate, Why::SameFolio(new.order)),
        false => replaced(Doubt::NoRecord),
    }
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
    match old.order == new.order {
        true => (Kind::Migrate, Why::SameFileFolio),
        false => replaced(Doubt::Order(old.order, new.order)),
    }
}
