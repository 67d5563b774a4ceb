// SPDX-License-Identifier: GPL-2.0-only
//! Events of entries.

use linux::counted::{COW_KSM, PSWPIN, THP_COLLAPSE_ALLOC};
use linux::folio::Kind as Memory;
use linux::order::Path;
use linux::pte::bits;

use super::scene::*;
use crate::Entry;

const SWAPPED: u64 = 2 << 6 | 5 << 12;
const MARKER: u64 = 31 << 6 | 1 << 12;
const MIGRATION: u64 = 28 << 6 | FRAME << 12;
const CONT: u64 = DIRTY | bits::CONT;
const ZERO: u64 = CLEAN & !bits::WRITE | bits::SPECIAL;

/// Nothing else changes, nothing else is told; and the other way round the other thing.
fn there_and_back(one: &Instant, other: &Instant, there: &str, back: &str) {
    assert_eq!(told(one, other), [there]);
    assert_eq!(told(other, one), [back]);
    assert_eq!(told(one, one), [""; 0]);
}

#[test]
fn a_fault_and_a_zap() {
    let none = Instant::new();
    let some = Instant::new()
        .folio(16, FRAME, 4, CONT)
        .page(40, FRAME + 99, DIRTY);
    assert_eq!(told(&none, &some), ["fault 16-32", "fault 40-41"]);
    assert_eq!(told(&some, &none), ["zap 16-32", "zap 40-41"]);
    let (fault, zap) = (compared(&none, &some), compared(&some, &none));
    let (fault, zap) = (&fault.processes[0].events[0], &zap.processes[0].events[0]);
    assert_eq!(fault.detail, "anonymous, order 4, contiguous");
    assert_eq!((fault.pages, fault.before.is_none()), (16, true));
    let state = fault.after.as_ref().unwrap();
    assert_eq!(
        (state.pfn, state.order, state.level),
        (Some(FRAME), Some(4), 3)
    );
    assert_eq!(
        (zap.detail.as_str(), zap.after.is_none()),
        ("anonymous, order 4, contiguous", true)
    );
    let zero = Instant::new().page(3, 7, ZERO);
    assert_eq!(detail(&none, &zero), "zero page or another special one");
}

#[test]
fn folds_and_unfolds() {
    let unfolded = Instant::new().folio(0, FRAME, 4, DIRTY);
    let folded = Instant::new().folio(0, FRAME, 4, CONT);
    there_and_back(&unfolded, &folded, "fold 0-16", "unfold 0-16");
    // One page is gone: what is left of the group is no more.
    let mut hole = unfolded.clone();
    hole.entries.remove(5);
    assert_eq!(
        told(&folded, &hole),
        ["unfold 0-5", "zap 5-6", "unfold 6-16"]
    );
}

#[test]
fn dirty_young_and_protection() {
    let of = |word| Instant::new().folio(0, FRAME, 2, word);
    there_and_back(&of(CLEAN), &of(DIRTY), "dirty 0-4", "clean 0-4");
    there_and_back(&of(CLEAN & !bits::AF), &of(CLEAN), "young 0-4", "old 0-4");
    // A page that was written to stays dirty when its writer may not write any more.
    there_and_back(
        &of(DIRTY),
        &of(SHARED),
        "write-protect 0-4",
        "write-unprotect 0-4",
    );
    let uffd = SHARED | bits::UFFD_WP;
    there_and_back(
        &of(DIRTY),
        &of(uffd),
        "write-protect 0-4",
        "write-unprotect 0-4",
    );
    assert_eq!(detail(&of(DIRTY), &of(uffd)), "by userfaultfd");
    // PROT_NONE: no user bit, and bit 11 says that it is present.
    let none = (DIRTY & !(bits::VALID | bits::USER)) | bits::PRESENT_INVALID;
    there_and_back(&of(DIRTY), &of(none), "deny 0-4", "allow 0-4");
    there_and_back(
        &of(DIRTY),
        &of(DIRTY & !bits::UXN),
        "attributes 0-4",
        "attributes 0-4",
    );
    assert_eq!(detail(&of(DIRTY), &of(DIRTY & !bits::UXN)), "UXN");
}

#[test]
fn swap_and_marks() {
    let none = Instant::new();
    let here = Instant::new().page(0, FRAME, DIRTY);
    let swapped = Instant::new().word(0, SWAPPED);
    let marked = Instant::new().word(0, MARKER);
    let moving = Instant::new().word(0, MIGRATION);
    assert_eq!(told(&here, &swapped), ["swap-out 0-1"]);
    // Nothing shows that it came from there; a page was read, its folio is in the slot, or was, or there was no fault.
    assert_eq!(told(&swapped, &here), ["replace 0-1"]);
    assert!(detail(&swapped, &here).contains("swapped in, or thrown away there"));
    assert_eq!(
        told(&swapped, &here.clone().counted(PSWPIN, 1)),
        ["swap-in 0-1"]
    );
    let in_slot = |slot| here.clone().with(FRAME, |page| page.slot = Some((2, slot)));
    assert_eq!(told(&swapped, &in_slot(5)), ["swap-in 0-1"]);
    assert_eq!(told(&swapped, &in_slot(6)), ["replace 0-1"]);
    assert_eq!(
        told(&swapped.clone().knowing(&in_slot(5)), &here),
        ["swap-in 0-1"]
    );
    assert_eq!(
        told(&swapped.clone().faults(3), &here.clone().faults(3)),
        ["swap-in 0-1"]
    );
    assert_eq!(
        told(&swapped.clone().faults(3), &here.clone().faults(4)),
        ["replace 0-1"]
    );
    // By the record it was written to for the first time, or swapped in.
    let written = here.clone().counted(PSWPIN, 1).fault(0, 0);
    assert_eq!(told(&swapped, &written), ["replace 0-1"]);
    assert!(detail(&swapped, &written).contains("was thrown away there"));
    let mut recorded = here.clone().fault(0, 0);
    recorded.records.as_mut().unwrap().records[1].path = Path::SwapIn;
    assert_eq!(told(&swapped, &recorded), ["swap-in 0-1"]);
    there_and_back(&here, &marked, "mark 0-1", "unmark 0-1");
    there_and_back(&here, &moving, "mark 0-1", "unmark 0-1");
    there_and_back(&none, &marked, "mark 0-1", "unmark 0-1");
    there_and_back(&none, &swapped, "swap-out 0-1", "zap 0-1");
    there_and_back(&swapped, &marked, "mark 0-1", "swap-out 0-1");
    let another = Instant::new().word(0, SWAPPED + (1 << 12));
    there_and_back(&swapped, &another, "swap-out 0-1", "swap-out 0-1");
    // userfaultfd's bit is no slot.
    assert_eq!(
        told(&swapped, &Instant::new().word(0, SWAPPED | 1 << 3)),
        [""; 0]
    );
}

#[test]
fn a_block_is_split_and_made() {
    let mut block = Instant::new().folio(0, FRAME & !511, 9, DIRTY);
    let pages = block.clone();
    block.entries = vec![Entry {
        size: 512 * PAGE,
        level: 2,
        word: (DIRTY & !2) | (FRAME & !511) << 12,
        ..entry(0, FRAME & !511, DIRTY)
    }];
    there_and_back(&block, &pages, "split 0-512", "collapse 0-512");
    assert_eq!(detail(&block, &pages), "a block of level 2, to pages");
    assert_eq!(
        detail(&pages, &block),
        "512 of 512 pages were mapped, 512 of them by the same frames"
    );
    // Pages that were elsewhere, with a hole.
    let some = Instant::new().folio(0, FRAME + 512, 4, DIRTY);
    let made = block.clone().counted(THP_COLLAPSE_ALLOC, 1);
    assert_eq!(
        detail(&some, &made),
        "16 of 512 pages were mapped, 0 of them by the same frames"
    );
    // No such block was allocated: it came by a fault, once they were gone.
    assert_eq!(told(&some, &block), ["replace 0-512"]);
    assert!(detail(&some, &block).contains("collapsed, or gone and faulted in again"));
    assert_eq!(told(&some, &made.clone().fault(0, 9)), ["replace 0-512"]);
    // Pages that are none of the block's do not come of it.
    let mut gone = Instant::new().unrecorded();
    for page in 0..512 {
        gone = gone.page(page, FRAME + 4096 + page, DIRTY);
    }
    assert_eq!(told(&block, &gone), ["replace 0-512"]);
    // The first 16 pages are another process's copy by now, the last are gone.
    let mut rest = pages.clone();
    rest.entries.truncate(500);
    assert_eq!(told(&block, &rest), ["split 0-512", "zap 500-512"]);
    assert_eq!(told(&Instant::new(), &block), ["fault 0-512"]);
    assert_eq!(told(&block, &Instant::new()), ["zap 0-512"]);
}

#[test]
fn a_folio_is_split() {
    let one = Instant::new().folio(0, FRAME, 4, DIRTY);
    let mut parts = Instant::new();
    for page in 0..16 {
        parts = parts.page(page, FRAME + page, DIRTY);
    }
    assert_eq!(told(&one, &parts), ["split 0-16"]);
    assert_eq!(detail(&one, &parts), "folio of order 4, to order 0");
    // It does not grow in its place.
    assert_eq!(told(&parts, &one), ["replace 0-16"]);
}

#[test]
fn a_copy_on_write_leaves_the_page_to_others() {
    let before = Instant::new().page(0, FRAME, SHARED).elsewhere(FRAME);
    let before = before.with(FRAME, |page| page.exclusive = false);
    let copy = Instant::new().page(0, FRAME + 1, DIRTY);
    assert_eq!(
        told(&before, &copy.clone().elsewhere(FRAME)),
        ["copy-on-write 0-1"]
    );
    // That others may map more takes nothing away from it.
    let seen = copy.clone().elsewhere(FRAME).incomplete();
    assert_eq!(told(&before, &seen), ["copy-on-write 0-1"]);
    let unseen = copy.clone().incomplete();
    assert_eq!(told(&before, &unseen), ["replace 0-1"]);
    assert!(detail(&before, &unseen).contains("not known"));
    // No process has it any more: perhaps it was, perhaps not.
    assert_eq!(told(&before, &copy), ["replace 0-1"]);
    assert!(detail(&before, &copy).contains("nobody maps it now"));
    // It had been its own.
    let own = Instant::new().page(0, FRAME, SHARED);
    assert_eq!(told(&own, &copy.clone().elsewhere(FRAME)), ["replace 0-1"]);
    // A fork since has shared it, as the page itself says; unless it is another's own by now.
    let page = |exclusive| own.clone().with(FRAME, |page| page.exclusive = exclusive);
    let forked = |exclusive| copy.clone().elsewhere(FRAME).knowing(&page(exclusive));
    assert_eq!(told(&own, &forked(false)), ["copy-on-write 0-1"]);
    assert!(detail(&own, &forked(false)).contains("as by a fork"));
    assert_eq!(told(&own, &forked(true)), ["replace 0-1"]);
    // The kernel has a record of a fault since, or none of anything.
    let again = copy.clone().elsewhere(FRAME).fault(0, 0);
    assert_eq!(told(&before, &again), ["replace 0-1"]);
    let unknown = copy.clone().elsewhere(FRAME).unrecorded();
    assert_eq!(told(&before, &unknown), ["replace 0-1"]);
    assert!(detail(&before, &unknown).contains("copied on write, or gone and faulted in again"));
    // The record has copies of large folios, and of pages that are used again; that is no other page.
    let by = |path| {
        let mut it = copy.clone().fault(0, 0);
        it.records.as_mut().unwrap().records[1].path = path;
        it
    };
    assert_eq!(told(&before, &by(Path::Copy)), ["copy-on-write 0-1"]);
    let again = by(Path::SwapIn);
    assert_eq!(told(&before, &again), ["replace 0-1"]);
    assert!(detail(&before, &again).contains("swapped out, and in again"));
    let mut reused = before.clone().fault(0, 0);
    reused.records.as_mut().unwrap().records[1].path = Path::Reuse;
    assert_eq!(told(&before, &reused), [""; 0]);
}

#[test]
fn copies_of_other_pages() {
    let copy = Instant::new().page(0, FRAME + 1, DIRTY);
    let zero = Instant::new().page(0, 7, ZERO);
    assert_eq!(told(&zero, &copy), ["copy-on-write 0-1"]);
    assert_eq!(told(&copy, &zero), ["replace 0-1"]);
    // A copy is one page.
    assert_eq!(
        told(&zero, &Instant::new().folio(0, FRAME, 1, DIRTY)),
        ["replace 0-1", "fault 1-2"]
    );
    let of = |kind| {
        Instant::new()
            .page(0, FRAME, SHARED)
            .with(FRAME, |page| page.kind = kind)
    };
    assert_eq!(told(&of(Memory::File), &copy), ["copy-on-write 0-1"]);
    assert_eq!(told(&of(Memory::Ksm), &copy), ["copy-on-write 0-1"]);
    let unknown = copy.clone().unrecorded();
    assert_eq!(told(&of(Memory::Ksm), &unknown), ["replace 0-1"]);
    let counted = unknown.counted(COW_KSM, 1);
    assert_eq!(told(&of(Memory::Ksm), &counted), ["copy-on-write 0-1"]);
    // Another VMA is there by now: what it has was never a copy.
    let mut mapped = of(Memory::File);
    mapped.vmas = format!(
        "{VA:x}-{:x} rw-p 00000000 00:1 77 /file\nVmFlags: rd wr \n",
        VA + 0x40_0000
    );
    assert_eq!(
        told(&mapped, &copy),
        ["map 0-1024", "unmap 0-1024", "fault 0-1"]
    );
    assert_eq!(told(&copy, &of(Memory::Ksm)), ["merge 0-1"]);
}
