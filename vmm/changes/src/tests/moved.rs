// SPDX-License-Identifier: GPL-2.0-only
//! The same memory in another frame, and the same frame at another address.

use linux::counted::{FOLIO_SPLIT, PGMIGRATE_SUCCESS};
use linux::folio::Kind as Memory;

use super::scene::*;
use crate::Entry;

fn of(frame: u64) -> Instant {
    Instant::new().folio(16, frame, 4, DIRTY)
}

#[test]
fn a_migration_keeps_all_but_the_frame() {
    let (here, there) = (of(FRAME), of(FRAME + 64).counted(PGMIGRATE_SUCCESS, 16));
    assert_eq!(told(&here, &there), ["migrate 16-32"]);
    assert!(detail(&here, &there).contains("no fault brought it in"));
    // By the kernel's record it was faulted in again.
    assert_eq!(told(&here, &there.clone().fault(16, 4)), ["replace 16-32"]);
    assert!(detail(&here, &there.clone().fault(16, 4)).contains("faulted in again with order 4"));
    // A fault before is no fault since, and one of another process is none of this one.
    assert_eq!(
        told(&here.clone().fault(16, 4), &there.clone().fault(16, 4)),
        ["migrate 16-32"]
    );
    let mut foreign = there.clone().fault(16, 4);
    foreign = foreign.of_another();
    assert_eq!(told(&here, &foreign), ["migrate 16-32"]);
    // A fault of another process for it, by its address space.
    foreign.records.as_mut().unwrap().records[1].mm = 1;
    assert_eq!(told(&here, &foreign), ["replace 16-32"]);
    // That it had no fault of its own is as good as a record, of single pages too.
    let single = |frame: u64| Instant::new().page(3, frame, DIRTY).unrecorded().faults(7);
    let moved = single(FRAME + 1).counted(PGMIGRATE_SUCCESS, 1);
    assert_eq!(told(&single(FRAME), &moved), ["migrate 3-4"]);
    let armed = |mut it: Instant| {
        it.vmas = vma(VA, VA + 0x40_0000, "rw-p", "rd wr um");
        it
    };
    assert_eq!(told(&armed(single(FRAME)), &armed(moved)), ["replace 3-4"]);
}

#[test]
fn what_is_not_known_to_be_a_migration_is_not_called_one() {
    let (here, there) = (of(FRAME), of(FRAME + 64).counted(PGMIGRATE_SUCCESS, 16));
    let replaced = |before: &Instant, after: &Instant| {
        assert_eq!(told(before, after), ["replace 16-32"]);
        detail(before, after)
    };
    let open_question = "migrated (the kernel migrated 16 pages), copied on write";
    // No record, one with gaps, one that is being written, one that was off.
    assert!(replaced(&here, &there.clone().unrecorded()).contains(open_question));
    let mut gap = there.clone().fault(99, 0);
    gap.records.as_mut().unwrap().records.remove(0);
    assert!(replaced(&here, &gap).contains(open_question));
    let mut open = there.clone();
    open.records.as_mut().unwrap().being_written = 1;
    assert!(replaced(&here, &open).contains(open_question));
    let mut off = there.clone();
    off.records.as_mut().unwrap().records[0].time_ns = 9;
    assert!(replaced(&here, &off).contains(open_question));
    // The kernel has migrated nothing, or less, or does not say.
    assert!(replaced(&here, &of(FRAME + 64)).contains("the kernel migrated no page"));
    let fewer = of(FRAME + 64).counted(PGMIGRATE_SUCCESS, 15);
    assert!(replaced(&here, &fewer).contains("the kernel migrated 15 pages"));
    let mut uncounted = there.clone();
    uncounted.events = None;
    assert!(replaced(&here, &uncounted).contains("is not known"));
    // A single page may be a copy, which no record has; or from swap.
    let single = |frame: u64| Instant::new().page(3, frame, DIRTY).faults(frame);
    let moved = single(FRAME + 1).counted(PGMIGRATE_SUCCESS, 1);
    assert_eq!(told(&single(FRAME), &moved), ["replace 3-4"]);
    // Another process still has the old frames.
    let mut held = there.clone();
    for page in 0..16 {
        held = held.elsewhere(FRAME + page);
    }
    replaced(&here, &held);
    // And perhaps another process has.
    assert!(replaced(&here, &there.clone().incomplete()).contains("not known"));
    // Another mapping, another order.
    let mut other = there.clone();
    (0..16).for_each(|page| other.tell(FRAME + 64 + page, |it| it.mapping += 64));
    assert!(replaced(&here, &other).contains("another mapping or index"));
    let mut single = Instant::new();
    for page in 16..32 {
        single = single.page(page, FRAME + 64 + page, DIRTY);
    }
    assert!(replaced(&here, &single).contains("order 0 where order 4 was"));
    // hugetlb's faults have no record.
    let huge = |mut it: Instant, frame: u64| {
        (0..16).for_each(|page| it.tell(frame + page, |page| page.hugetlb = true));
        it
    };
    replaced(&huge(here, FRAME), &huge(there, FRAME + 64));
}

#[test]
fn a_files_page_moves() {
    let make = |frame: u64| {
        let mut it = of(frame);
        (0..16).for_each(|page| {
            it.tell(frame + page, |page| {
                (page.kind, page.swapbacked) = (Memory::File, false)
            })
        });
        it
    };
    let there = make(FRAME + 64).counted(PGMIGRATE_SUCCESS, 16);
    // It may have been dropped and read in again.
    assert_eq!(told(&make(FRAME), &there), ["replace 16-32"]);
    assert!(detail(&make(FRAME), &there).contains("migrated, or dropped and read in again"));
    let dropped = make(FRAME + 64).faults(7);
    assert!(detail(&make(FRAME).faults(7), &dropped).contains("the kernel migrated no page"));
    let still = there.clone().faults(7);
    assert_eq!(told(&make(FRAME).faults(6), &still), ["replace 16-32"]);
    assert_eq!(told(&make(FRAME).faults(7), &still), ["migrate 16-32"]);
    let mut truncated = there;
    (0..16).for_each(|page| truncated.tell(FRAME + 64 + page, |it| it.index += 1));
    assert_eq!(told(&make(FRAME), &truncated), ["replace 16-32"]);
}

#[test]
fn the_same_frame_may_be_another_folio() {
    let here = of(FRAME);
    // Zapped and faulted in again, where the allocator gave the same folio.
    assert_eq!(told(&here, &here.clone().fault(20, 4)), ["replace 16-32"]);
    let mut other = here.clone();
    (0..16).for_each(|page| other.tell(FRAME + page, |it| it.index += 1));
    assert_eq!(told(&here, &other), ["replace 16-32"]);
    // A page that is not shared any more gets the process's own anon_vma.
    let mut reused = here.clone();
    (0..16).for_each(|page| reused.tell(FRAME + page, |it| it.mapping += 64));
    assert_eq!(told(&here, &reused), [""; 0]);
    // Smaller folios in the frames of a larger one, where nothing shows that it was split.
    let mut parts = Instant::new().unrecorded();
    for page in 16..32 {
        parts = parts.page(page, FRAME + page - 16, DIRTY);
    }
    assert_eq!(told(&here, &parts), ["replace 16-32"]);
    assert!(detail(&here, &parts).contains("split, or gone and faulted into the same frame"));
    assert_eq!(
        told(&here, &parts.clone().counted(FOLIO_SPLIT, 1)),
        ["split 16-32"]
    );
    assert_eq!(
        told(&here.clone().faults(3), &parts.faults(3)),
        ["split 16-32"]
    );
    // KSM makes one of them everybody's.
    let one = Instant::new().page(0, FRAME, SHARED);
    let merged = one.clone().with(FRAME, |page| page.kind = Memory::Ksm);
    assert_eq!(told(&one, &merged), ["merge 0-1"]);
}

#[test]
fn pages_move_to_another_address() {
    let here = of(FRAME);
    let mut there = Instant::new().folio(64, FRAME, 4, DIRTY);
    (0..16).for_each(|page| there.tell(FRAME + page, |it| it.index = VA / PAGE + 16));
    // The VMA moved with them.
    let cut = vma(VA, VA + 16 * PAGE, "rw-p", "rd wr")
        + &vma(VA + 32 * PAGE, VA + 0x40_0000, "rw-p", "rd wr");
    let mut moved = there.clone();
    moved.vmas = cut;
    let mut before = here.clone();
    before.vmas = vma(VA, VA + 0x40_0000, "rw-p", "rd wr");
    assert_eq!(told(&before, &moved), ["unmap 16-32", "move 64-80"]);
    // With MREMAP_DONTUNMAP it stays.
    assert_eq!(told(&here, &there), ["zap 16-32", "move 64-80"]);
    // The allocator gave the frames to a fault.
    let fault = Instant::new().folio(64, FRAME, 4, DIRTY);
    assert_eq!(told(&here, &fault), ["zap 16-32", "fault 64-80"]);
    // They are still where they were: mapped twice.
    let mut both = there.clone();
    both.entries.extend(here.entries.clone());
    both.entries.sort_by_key(|entry| entry.va);
    assert_eq!(told(&here, &both), ["fault 64-80"]);
}

#[test]
fn without_folios_a_frame_is_a_frame() {
    let (mut here, mut there) = (of(FRAME), of(FRAME + 64));
    (here.pages, there.pages) = (None, None);
    let diff = compared(&here, &there);
    assert_eq!(diff.notes.len(), 2);
    let event = &diff.processes[0].events[0];
    assert_eq!((event.kind.name(), event.pages), ("replace", 16));
    assert_eq!(event.detail, "by another frame; the folios are not known");
    // And a page that is somewhere else is no page that moved.
    let mut elsewhere = Instant::new().folio(64, FRAME, 4, DIRTY);
    elsewhere.pages = None;
    let events = &compared(&here, &elsewhere).processes[0].events;
    let kinds: Vec<&str> = events.iter().map(|event| event.kind.name()).collect();
    assert_eq!(kinds, ["zap", "fault"]);
}

/// Half of an address space by blocks of a gigabyte, as damaged tables have it: 2^35 pages, which are not gone through.
#[test]
fn where_a_page_was_is_found_among_blocks_without_end() {
    let block = 1 << 30;
    let of_block = |at: u64| Entry {
        va: (1 << 40) + at * block,
        size: block,
        level: 1,
        frame: (1 << 30) + (at << 18),
        ..entry(0, 0, DIRTY)
    };
    let mut here = of(FRAME);
    here.entries.extend((0..1 << 17).map(of_block));
    here.entries.sort_by_key(|entry| entry.va);
    let mut there = Instant::new().folio(64, FRAME, 4, DIRTY);
    (0..16).for_each(|page| there.tell(FRAME + page, |it| it.index = VA / PAGE + 16));
    let told = told(&here, &there);
    assert!(told.iter().any(|it| it == "move 64-80"), "{told:?}");
}
