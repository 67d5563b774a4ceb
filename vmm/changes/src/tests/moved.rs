//! The same memory in another frame, and the same frame at another address.

use linux::folio::Kind as Memory;

use super::scene::*;

fn of(frame: u64) -> Instant {
    Instant::new().folio(16, frame, 4, DIRTY)
}

#[test]
fn a_migration_keeps_all_but_the_frame() {
    let (here, there) = (of(FRAME), of(FRAME + 64));
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
    foreign.records.as_mut().unwrap().records[0].tgid = 45;
    assert_eq!(told(&here, &foreign), ["migrate 16-32"]);
}

#[test]
fn what_is_not_known_to_be_a_migration_is_not_called_one() {
    let (here, there) = (of(FRAME), of(FRAME + 64));
    let replaced = |before: &Instant, after: &Instant| {
        assert_eq!(told(before, after), ["replace 16-32"]);
        detail(before, after)
    };
    // No record, one with gaps, one that is being written.
    let mut unknown = there.clone();
    unknown.records = None;
    assert!(replaced(&here, &unknown).contains("does not tell"));
    let mut gap = there.clone().fault(99, 0);
    gap.records.as_mut().unwrap().records[0].seq = 2;
    assert!(replaced(&here, &gap).contains("does not tell"));
    let mut open = there.clone();
    open.records.as_mut().unwrap().being_written = 1;
    assert!(replaced(&here, &open).contains("does not tell"));
    // Somebody still has the old frames.
    let mut held = there.clone();
    for page in 0..16 {
        held = held.elsewhere(FRAME + page);
    }
    replaced(&here, &held);
    // And perhaps somebody has.
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
    let there = make(FRAME + 64);
    assert_eq!(told(&make(FRAME), &there), ["migrate 16-32"]);
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
    // A page that nobody shares any more gets the process's own anon_vma.
    let mut reused = here.clone();
    (0..16).for_each(|page| reused.tell(FRAME + page, |it| it.mapping += 64));
    assert_eq!(told(&here, &reused), [""; 0]);
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
