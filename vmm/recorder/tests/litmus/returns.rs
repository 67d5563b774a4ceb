// SPDX-License-Identifier: GPL-2.0-only
//! Rule S7: a thread returns to EL0, and memory that it removed may be in a TLB.

use crate::guest::Guest;
use crate::{expect, judged, layouts, NOTHING};
use stage1::testing::Layout;
use stage1::{Granule, Half};

#[test]
fn a_tlbi_that_never_comes() {
    for (steps, rules) in [
        ("0:pid=7 0:3=inv 0:to=el0", &["S7"][..]),
        // Reported once, and not again by the next mapping there.
        ("0:pid=7 0:3=inv 0:to=el0 0:to=el0 0:3=b", &["S7"]),
        ("0:pid=7 0:3=swap 0:to=el0", &["S7"]),
        ("0:pid=7 0:3=inv 0:vale1is,3 0:ish 0:to=el0", &["S7"]),
        ("0:pid=7 0:3=inv 0:ishst 0:vale1is,3 0:to=el0", &["S7"]),
        (
            "0:pid=7 0:3=inv 0:ishst 0:vale1is,4 0:ish 0:to=el0",
            &["S7"],
        ),
        ("0:pid=7 0:3=inv 0:ishst 0:vale1,3 0:nsh 0:to=el0", &["S7"]),
        // It has moved to another CPU before.
        ("0:pid=7 0:3=inv 0:pid=0 1:pid=7 1:to=el0", &["S7"]),
        ("0:pid=7 0:3=inv 0:ishst 0:vale1is,3 0:ish 0:to=el0", NOTHING),
        ("0:pid=7 0:3=inv 0:ishst 0:aside1is 0:ish 0:to=el0", NOTHING),
        // Back to the kernel, which an interrupt does.
        (
            "0:pid=7 0:3=inv 0:to=el1 0:ishst 0:vale1is,3 0:ish 0:to=el0",
            NOTHING,
        ),
        // Another thread runs on meanwhile, on another CPU and on the same.
        (
            "0:pid=7 1:pid=8 0:3=inv 1:to=el0 0:pid=8 0:to=el0 0:pid=7 0:ishst 0:vale1is,3 0:ish 0:to=el0",
            NOTHING,
        ),
        // Its old address space, which it no longer uses.
        ("0:pid=7 0:3=inv 0:run=q 0:to=el0", NOTHING),
        // A right, at once and by way of an invalid word; nothing where it has it again.
        ("0:pid=7 0:3=ro 0:to=el0", &["S7"]),
        ("0:pid=7 0:3=inv 0:3=ro 0:to=el0 0:to=el0", &["S7"]),
        ("0:pid=7 0:3=ro 0:ishst 0:vale1is,4 0:ish 0:to=el0", &["S7"]),
        ("0:pid=7 0:3=ro 0:ishst 0:vale1is,3 0:ish 0:to=el0", NOTHING),
        (
            "0:pid=7 0:3=inv 0:3=ro 0:ishst 0:vale1is,3 0:ish 0:to=el0",
            NOTHING,
        ),
        ("0:pid=7 0:3=ro 0:3=a 0:to=el0", NOTHING),
        // Another thread's, and age, have no deadline.
        ("0:pid=7 1:pid=60 1:3=ro 0:to=el0", NOTHING),
        // Another CPU's TLBI for it waits for its DSB, this one's own is complete.
        (
            "0:pid=7 1:pid=60 0:3=inv 1:ishst 1:vale1is,3 0:ishst 0:vale1is,3 0:ish 0:to=el0",
            NOTHING,
        ),
        (
            "0:pid=7 1:pid=60 0:3=inv 0:ishst 0:vale1is,3 1:ishst 1:vale1is,3 1:ish 0:to=el0",
            NOTHING,
        ),
        (
            "0:pid=7 1:pid=60 0:3=inv 1:ishst 1:vale1is,3 0:ishst 0:vale1is,3 0:to=el0",
            &["S7"],
        ),
        // Reclaim's and khugepaged's.
        ("0:pid=7 1:pid=60 1:3=inv 0:to=el0", NOTHING),
    ] {
        expect(2, "a", steps, rules);
    }
}

#[test]
fn a_table_whose_tlbi_never_comes() {
    let layout = Layout::new(Granule::K4, Half::Lower, 48);
    for (steps, rules) in [
        ("0:t=inv 0:to=el0", &["S7", "S7"][..]),
        // The walk cache alone is left.
        ("0:t=inv 0:ishst 0:vale1is,3 0:ish 0:to=el0", &["S7"]),
        ("0:t=inv 0:ishst 0:vae1is,3 0:ish 0:to=el0", NOTHING),
        // mremap() links it again.
        ("0:t=inv 0:t=table 0:to=el0", NOTHING),
    ] {
        let mut guest = Guest::new(layout, 1);
        guest.has(3, "a");
        guest.settled(1);
        guest.steps("0:pid=7");
        guest.steps(steps);
        let (found, judge) = guest.verdict();
        assert_eq!(found, rules, "{steps}: {:#?}", judge.findings().kept());
    }
}

/// A thread maps a page while another thread's TLBI is still to come: that TLBI is needed all the same.
#[test]
fn overtaken() {
    for (steps, rules, overtaken) in [
        ("0:ishst 0:vale1is,3 1:3=b 0:ish 0:to=el0", NOTHING, 1),
        ("1:3=b 0:ishst 0:vale1is,3 0:ish 0:to=el0", NOTHING, 1),
        ("0:ishst 0:vale1is,3 0:ish 1:3=b 0:to=el0", NOTHING, 0),
        ("1:3=b 0:to=el0", &["S7"], 1),
        ("0:ishst 0:vale1is,3 1:3=b 0:to=el0", &["S7"], 1),
        // By itself, and with an attribute that another thread's fault does not set.
        ("0:ishst 0:vale1is,3 0:3=b 0:ish 0:to=el0", &["S3"], 0),
        ("0:ishst 0:vale1is,3 1:3=dev 0:ish 0:to=el0", &["S3"], 0),
    ] {
        for layout in layouts() {
            let steps = format!("0:pid=7 1:pid=8 0:3=inv {steps}");
            let (found, judge) = judged(layout, 2, "a", &steps);
            assert_eq!(found, rules, "{steps}");
            assert_eq!(judge.summary().overtaken, overtaken, "{steps}");
            assert_eq!(judge.not_judged().sentences(), NOTHING, "{steps}");
        }
    }
}

/// On a kernel that does not record the running thread, the judge counts only that something may be wrong.
#[test]
fn without_pids() {
    for layout in layouts() {
        let (rules, judge) = judged(layout, 2, "a", "0:3=inv 1:to=el0 0:to=el0");
        assert_eq!(rules, NOTHING);
        assert_eq!(judge.not_judged().nameless, 1);
        let right = "0:3=inv 0:ishst 0:vale1is,3 0:ish 0:to=el0";
        assert_eq!(judged(layout, 2, "a", right).1.not_judged().nameless, 0);
    }
}

/// Another process removes a page, and its frame is reused before the TLBI: no thread of the page's own address space
/// shows the deadline.
#[test]
fn a_page_that_is_given_away() {
    // CPU 1 runs a thread of the kernel's.
    let before = "0:pid=7 1:run=idle 1:pid=60 0:folio=80003/0/3";
    let flushed = "1:ishst 1:vale1is,3 1:ish";
    let given = "0:folio=80003/0/40 0:40=a3";
    for (steps, rules) in [
        (format!("1:3=inv {given} 0:to=el0"), &["S5"][..]),
        (format!("1:3=swap {given} 0:to=el0 0:to=el0"), &["S5"]),
        (
            format!("1:3=inv 1:ishst 1:vale1is,3 {given} 0:to=el0"),
            &["S5"],
        ),
        (
            format!("1:3=inv 1:vale1is,3 1:ish {given} 0:to=el0"),
            &["S5"],
        ),
        (
            format!("1:3=inv 1:ishst 1:vale1is,4 1:ish {given} 0:to=el0"),
            &["S5"],
        ),
        (format!("1:3=inv {flushed} {given} 0:to=el0"), NOTHING),
        // No thread has returned, or it returns to another address space.
        (format!("1:3=inv {given}"), NOTHING),
        (format!("1:3=inv {given} 0:to=el1"), NOTHING),
        (format!("1:3=inv {given} 0:run=q 0:to=el0"), NOTHING),
        (
            format!("1:3=inv {given} 0:run=q 0:to=el0 0:run=p 0:to=el0"),
            &["S5"],
        ),
        // Moved, as mremap() does: the same page of the same memory.
        ("1:3=inv 0:40=a3 0:to=el0".into(), NOTHING),
        ("1:3=inv 0:folio=80003/0/3 0:40=a3 0:to=el0".into(), NOTHING),
        // By the thread itself, which S7 covers; reported once.
        (format!("0:3=inv {given} 0:to=el0 0:to=el0"), &["S7"]),
    ] {
        let mut guest = Guest::new(Layout::new(Granule::K4, Half::Lower, 48), 2);
        guest.has(3, "a");
        guest.settled(2);
        guest.steps(before);
        guest.steps(&steps);
        let (found, judge) = guest.verdict();
        assert_eq!(found, rules, "{steps}: {:#?}", judge.findings().kept());
    }
    // Its folio was not recorded when it was removed.
    let mut guest = Guest::new(Layout::new(Granule::K4, Half::Lower, 48), 2);
    guest.has(3, "a");
    guest.settled(2);
    guest.steps("0:pid=7 1:run=idle 1:pid=60 1:3=inv 0:folio=80003/0/3");
    guest.steps(given);
    guest.steps("0:to=el0");
    assert_eq!(guest.verdict().0, NOTHING);
}
