// SPDX-License-Identifier: GPL-2.0-only
//! One process at two instants, place by place.

use std::collections::{BTreeMap, HashMap};

use linux::absent::SwapTypes;
use linux::counted::THP_COLLAPSE_ALLOC;
use linux::folio::{Kind as Memory, Page};
use linux::order::Path;
use linux::pte::{Kind as Entered, SwapKind};
use linux::vma::Vma;
use verdict::Hex;

use crate::bits::entry_bits;
use crate::event::{Event, Kind, State};
use crate::frames::{migrated, other_frame, same_frame, Both};
use crate::sides::Sides;
use crate::view::{Entry, Space, View};
use crate::why::{As, Doubt, Why};

/// Neighbouring pages to which the same happened.
#[derive(Debug)]
struct Range {
    kind: Kind,
    why: Why,
    va: u64,
    end: u64,
    pages: u64,
    before: Option<State>,
    after: Option<State>,
}

impl Range {
    fn event(self, names: &SwapTypes) -> Event {
        Event {
            kind: self.kind,
            va: Hex(self.va),
            end: Hex(self.end),
            pages: self.pages,
            detail: self.why.text(names),
            before: self.before,
            after: self.after,
        }
    }
}

/// The entry of this type and offset (`__swp_entry()`), without its flags.
fn entry_of(swap_type: u8, offset: u64) -> u64 {
    u64::from(swap_type) << 6 | offset << 12
}

/// Finds the changes at each place of a process, and the pages that went with their VMA: addresses and counts. `vmas` are those that it
/// has now, where they are known.
pub(crate) fn places(
    sides: Sides<'_, '_>,
    (earlier, now): (&Space, &Space),
    vmas: Option<&[Vma]>,
) -> (Vec<Event>, Vec<(u64, u64)>) {
    let mut compare = Compare {
        page_size: sides.after.page_size,
        places: None,
        was: &earlier.entries,
        is: &now.entries,
        vmas,
        events: Vec::new(),
        open: HashMap::new(),
        unmapped: Vec::new(),
        sides,
    };
    compare.run();
    compare.no_more_than_counted();
    let names = &compare.sides.after.names;
    let events = compare.events.into_iter().map(|range| range.event(names));
    (events.collect(), compare.unmapped)
}

struct Compare<'d, 'v> {
    page_size: u64,
    was: &'d [Entry],
    is: &'d [Entry],
    vmas: Option<&'d [Vma]>,
    /// Where pages were, made when it is first asked for: by how many pages an entry maps, the first frame and the address of
    /// each, in order. Pages are not listed one by one: where memory holds anything, blocks may map more than there are.
    places: Option<BTreeMap<u64, Vec<(u64, u64)>>>,
    events: Vec<Range>,
    /// The last range of each kind.
    open: HashMap<(Kind, Why), usize>,
    /// Addresses whose VMA is gone, and pages that were there.
    unmapped: Vec<(u64, u64)>,
    sides: Sides<'d, 'v>,
}

impl Compare<'_, '_> {
    fn run(&mut self) {
        let (was, is) = (self.was, self.is);
        let (mut i, mut j) = (0, 0);
        loop {
            match (was.get(i), is.get(j)) {
                (None, None) => break,
                (Some(before), Some(after))
                    if before.va == after.va && before.size == after.size =>
                {
                    self.place(Some(before), Some(after));
                    (i, j) = (i + 1, j + 1);
                }
                (Some(before), Some(after))
                    if before.va < after.end() && after.va < before.end() =>
                {
                    if before.size > after.size {
                        let parts = within(&is[j..], before.end());
                        self.split(before, &is[j..j + parts]);
                        (i, j) = (i + 1, j + parts);
                    } else {
                        let parts = within(&was[i..], after.end());
                        self.collapsed(&was[i..i + parts], after);
                        (i, j) = (i + parts, j + 1);
                    }
                }
                (Some(before), after) if after.is_none_or(|after| before.va < after.va) => {
                    self.place(Some(before), None);
                    i += 1;
                }
                (_, after) => {
                    self.place(None, after);
                    j += 1;
                }
            }
        }
    }

    /// Takes migrations back of which there are more than the kernel has counted: which of them were none is not known.
    fn no_more_than_counted(&mut self) {
        let Some(counted) = migrated(&self.sides) else {
            return;
        };
        let told = self.events.iter_mut();
        let told: Vec<&mut Range> = told.filter(|it| it.kind == Kind::Migrate).collect();
        if told.iter().map(|range| range.pages).sum::<u64>() > counted {
            for range in told {
                (range.kind, range.why) =
                    (Kind::Replace, Why::NotProved(Doubt::Migrations(counted)));
            }
        }
    }

    /// A block, and what there is in its place.
    fn split(&mut self, block: &Entry, parts: &[Entry]) {
        // What is none of the block's memory says nothing of what became of it.
        let is_same = |part: &Entry| {
            let va = part.va.max(block.va);
            let there = block.frame + (va - block.va) / self.page_size;
            part.present() && part.frame == there && !self.sides.vma_is_another(va)
        };
        if block.present() && parts.iter().any(is_same) {
            let why = Why::Block(block.level);
            self.say((Kind::Split, why), Some(block), parts.first(), block.size);
        }
        let mut at = block.va;
        for part in parts {
            let (start, end) = (part.va.max(block.va), part.end().min(block.end()));
            if at < start {
                let gone = block.piece(at, start - at, self.page_size);
                self.place(Some(&gone), None);
            }
            let piece = block.piece(start, end - start, self.page_size);
            self.place(Some(&piece), Some(part));
            at = end;
        }
        if at < block.end() {
            let gone = block.piece(at, block.end() - at, self.page_size);
            self.place(Some(&gone), None);
        }
    }

    /// A block, and what there was in its place.
    fn collapsed(&mut self, parts: &[Entry], block: &Entry) {
        let page = self.page_size;
        let (mut mapped, mut same) = (0, 0);
        for part in parts.iter().filter(|part| part.present()) {
            let pages = part.size / page;
            mapped += pages;
            let there = block.frame + (part.va.wrapping_sub(block.va)) / page;
            same += if there == part.frame { pages } else { 0 };
        }
        let why = Why::Collapsed(mapped, block.size / page, same);
        let (sides, va) = (&self.sides, block.va);
        let counted = sides
            .counted(THP_COLLAPSE_ALLOC)
            .is_some_and(|blocks| blocks > 0);
        // By other frames the block may have come by a fault, once the pages were gone.
        let collapsed = mapped > 0
            && !sides.vma_is_another(va)
            && sides.faulted(va).is_none()
            && (same == mapped || counted || sides.without_faults());
        match block.present() {
            true if mapped == 0 => {
                for part in parts {
                    let now = block.piece(part.va.max(block.va), part.size, page);
                    self.place(Some(part), Some(&now));
                }
            }
            true => {
                let (kind, why) = match (collapsed, sides.faulted(va)) {
                    (true, _) => (Kind::Collapse, why),
                    (false, Some(fault)) => (Kind::Replace, Why::FaultedAgain(fault.order)),
                    (false, None) => (
                        Kind::Replace,
                        Why::CollapsedOrGone(mapped, block.size / page),
                    ),
                };
                self.say((kind, why), parts.first(), Some(block), block.size);
            }
            false => {
                for part in parts {
                    let now = block.piece(part.va.max(block.va), part.size, page);
                    self.place(Some(part), Some(&now));
                }
            }
        }
    }

    /// One place, at which there was or is an entry.
    fn place(&mut self, before: Option<&Entry>, after: Option<&Entry>) {
        let kind = |entry: Option<&Entry>| entry.map_or(Entered::None, kind);
        let mark = |swap: linux::pte::SwapEntry| match swap.kind() {
            SwapKind::Swapped => None,
            SwapKind::Marker => Some(Why::Absent(entry_of(swap.swap_type, swap.offset))),
            SwapKind::Special => Some(Why::Absent(entry_of(swap.swap_type, 0))),
        };
        match (kind(before), kind(after)) {
            (Entered::None, Entered::None) => {}
            (Entered::None, Entered::Swap(swap)) => {
                let (what, why) = match mark(swap) {
                    Some(why) => (Kind::Mark, why),
                    None => (Kind::SwapOut, Why::SwappedUnseen),
                };
                self.tell((what, why), before, after);
            }
            (Entered::None, _) => self.came(after),
            (Entered::Swap(swap), Entered::None) => match mark(swap) {
                _ if self.vma_is_gone(before) => {}
                Some(why) => self.tell((Kind::Unmark, why), before, after),
                None => self.tell((Kind::Zap, Why::Swapped), before, after),
            },
            (_, Entered::None) => self.went(before),
            (Entered::Swap(one), Entered::Swap(other)) => match (mark(one), mark(other)) {
                (one, other) if one == other && (one.is_some() || same_slot(before, after)) => {}
                (_, Some(why)) => self.tell((Kind::Mark, why), before, after),
                (_, None) => self.tell((Kind::SwapOut, Why::SwappedUnseen), before, after),
            },
            (Entered::Swap(swap), _) => match (mark(swap), before, after) {
                (Some(why), ..) => self.tell((Kind::Unmark, why), before, after),
                (None, Some(was), Some(is)) => {
                    let event = self.back_from_swap(was, is, (swap.swap_type, swap.offset));
                    self.tell(event, before, after);
                }
                _ => {}
            },
            (_, Entered::Swap(swap)) => {
                let as_before = self.as_of(before, true);
                match mark(swap) {
                    Some(why) => self.tell((Kind::Mark, why), before, after),
                    None => self.tell((Kind::SwapOut, as_before), before, after),
                }
            }
            _ => {
                if let (Some(before), Some(after)) = (before, after) {
                    self.both(before, after);
                }
            }
        }
    }

    /// A page is here, and was in this slot of a swap area.
    fn back_from_swap(&mut self, was: &Entry, is: &Entry, slot: (u8, u64)) -> (Kind, Why) {
        let sides = &self.sides;
        if sides.vma_is_another(is.va) {
            return (Kind::Fault, self.as_of(Some(is), false));
        }
        let swap_in = (Kind::SwapIn, self.as_of(Some(is), false));
        match sides.faulted(is.va) {
            Some(fault) if fault.path == Path::SwapIn => return swap_in,
            Some(fault) => return (Kind::Replace, Why::DroppedFromSwap(fault.order)),
            None => {}
        }
        // It is in the swap cache still, or was when the entry led to the slot.
        let in_slot = |page: Option<Page>| page.is_some_and(|page| page.slot == Some(slot));
        let then = sides.before.folios.as_ref().ok();
        let then = then.and_then(|folios| folios.page(is.frame).ok());
        let kept = in_slot(sides.after.page(is)) || in_slot(then);
        let read = sides
            .swapped_in()
            .is_some_and(|pages| pages >= was.size / self.page_size);
        let excluded = sides.without_faults() && !sides.may_be_filled(is.va);
        match kept || read || excluded {
            true => swap_in,
            false => (Kind::Replace, Why::NotProved(Doubt::SwapOrGone)),
        }
    }

    /// A page is here, and nothing was.
    fn came(&mut self, after: Option<&Entry>) {
        let Some(entry) = after else { return };
        let Why::As(what) = self.as_of(after, false) else {
            return;
        };
        match self.was_elsewhere(entry) {
            Some(from) => {
                let why = Why::From(what, from.wrapping_sub(entry.va));
                self.tell((Kind::Move, why), None, after);
            }
            None => self.tell((Kind::Fault, Why::As(what)), None, after),
        }
    }

    /// A page was here, and nothing is.
    fn went(&mut self, before: Option<&Entry>) {
        if !self.vma_is_gone(before) {
            let why = self.as_of(before, true);
            self.tell((Kind::Zap, why), before, None);
        }
    }

    /// Pages that went with their VMA are reported with the VMA.
    fn vma_is_gone(&mut self, before: Option<&Entry>) -> bool {
        let (Some(entry), Some(vmas)) = (before, self.vmas) else {
            return false;
        };
        let at = vmas.partition_point(|vma| vma.end <= entry.va);
        let gone = vmas.get(at).is_none_or(|vma| vma.start >= entry.end());
        if gone && entry.present() {
            self.unmapped.push((entry.va, entry.size / self.page_size));
        }
        gone
    }

    /// Where a page that is here now was before, if it was elsewhere in this process, and is there no more.
    fn was_elsewhere(&mut self, entry: &Entry) -> Option<u64> {
        if !entry.has_folio() {
            return None;
        }
        let (was, is, page) = (self.was, self.is, self.page_size);
        let places = self.places.get_or_insert_with(|| {
            let mut places = BTreeMap::<_, Vec<_>>::new();
            for entry in was.iter().filter(|entry| entry.has_folio()) {
                let of_size = places.entry(entry.size / page).or_default();
                of_size.push((entry.frame, entry.va));
            }
            places.values_mut().for_each(|all| all.sort_unstable());
            places
        });
        let gone = |va: &u64| {
            let at = is.partition_point(|entry| entry.end() <= *va);
            let now = is.get(at).filter(|now| now.va <= *va && now.present());
            now.is_none_or(|now| now.frame + (va - now.va) / page != entry.frame)
        };
        let of_size = |(pages, all): (&u64, &Vec<(u64, u64)>)| {
            // An entry's memory is aligned to its size.
            let inside = entry.frame % (*pages).max(1);
            let first = entry.frame - inside;
            let at = all.partition_point(|(pfn, _)| *pfn < first);
            let here = all[at..].iter().take_while(|(pfn, _)| *pfn == first);
            here.map(|(_, va)| va + inside * page).find(gone)
        };
        let va = places.iter().filter_map(of_size).min()?;
        // A frame that is of another folio now came by a fault; so it may have where that is not known.
        let (old, new) = (self.folio_at(va)?, self.sides.after.page(entry)?);
        let moved = old.kind == new.kind && old.index_of_page() == new.index_of_page();
        // A file's page is at two places where the file is mapped twice, and at another one where it is mapped again.
        let own = match new.kind {
            Memory::Anonymous => old.mapping == new.mapping,
            _ => self.sides.without_faults(),
        };
        (moved && own && self.sides.faulted(entry.va).is_none()).then_some(va)
    }

    fn folio_at(&self, va: u64) -> Option<Page> {
        let at = self.was.partition_point(|entry| entry.end() <= va);
        let entry = self.was.get(at)?;
        let piece = entry.piece(va, self.page_size, self.page_size);
        self.sides.before.page(&piece)
    }

    fn as_of(&self, entry: Option<&Entry>, before: bool) -> Why {
        let view = if before {
            self.sides.before
        } else {
            self.sides.after
        };
        entry.map_or(Why::Nothing, |entry| {
            Why::As(As::of(entry, view.page(entry).as_ref()))
        })
    }

    /// A page is here both times.
    fn both(&mut self, before: &Entry, after: &Entry) {
        if self.sides.vma_is_another(after.va) {
            // That the one before is gone is said of its VMA.
            if before.present() {
                let pages = before.size / self.page_size;
                self.unmapped.push((before.va, pages));
            }
            return self.came(Some(after));
        }
        let sides = &self.sides;
        let both = Both {
            before,
            after,
            old: sides.before.page(before),
            new: sides.after.page(after),
        };
        let folio = |entry: &Entry| entry.has_folio();
        let (one, event) = if before.frame == after.frame && folio(before) == folio(after) {
            let event = folio(after).then(|| same_frame(sides, both)).flatten();
            let one = event.is_none_or(|(kind, _)| kind == Kind::Split);
            (one, event)
        } else {
            let event = other_frame(sides, both);
            (event.0 == Kind::Migrate, Some(event))
        };
        let tell = |this: &mut Self, what| this.tell(what, Some(before), Some(after));
        if let Some(event) = event {
            tell(self, event);
        }
        entry_bits((before, after), one, &mut |what| tell(self, what));
    }

    fn tell(&mut self, what: (Kind, Why), before: Option<&Entry>, after: Option<&Entry>) {
        let size = after.or(before).map_or(0, |entry| entry.size);
        self.say(what, before, after, size);
    }

    fn say(&mut self, what: (Kind, Why), before: Option<&Entry>, after: Option<&Entry>, size: u64) {
        let (kind, why) = what;
        // A block and its first piece begin at one address.
        let whole = matches!(kind, Kind::Collapse);
        let va = match (before, after) {
            (_, Some(after)) if whole => after.va,
            (Some(before), _) => before.va,
            (None, after) => after.map_or(0, |after| after.va),
        };
        let pages = size / self.page_size;
        let last = self.open.get(&what).map(|at| &mut self.events[*at]);
        if let Some(last) = last.filter(|last| last.end == va) {
            last.end += size;
            last.pages += pages;
            return;
        }
        let state = |view: &View<'_>, entry: &Entry| State::of(entry, view.page(entry).as_ref());
        self.open.insert(what, self.events.len());
        self.events.push(Range {
            kind,
            why,
            va,
            end: va + size,
            pages,
            before: before.map(|entry| state(self.sides.before, entry)),
            after: after.map(|entry| state(self.sides.after, entry)),
        });
    }
}

/// How many entries begin before `end`.
fn within(entries: &[Entry], end: u64) -> usize {
    entries.iter().take_while(|entry| entry.va < end).count()
}

fn kind(entry: &Entry) -> Entered {
    match entry.present() {
        true => Entered::Valid,
        false => entry.pte().kind(),
    }
}

fn same_slot(before: Option<&Entry>, after: Option<&Entry>) -> bool {
    let slot = |entry: Option<&Entry>| match entry.map(|entry| entry.pte().kind()) {
        Some(Entered::Swap(swap)) => Some((swap.swap_type, swap.offset)),
        _ => None,
    };
    slot(before) == slot(after)
}
