// SPDX-License-Identifier: GPL-2.0-only
//! Address spaces that no CPU walks, and pages that are reused too soon.

use stage1::testing::Layout;
use stage1::{Granule, Half};

use crate::guest::Guest;
use crate::{judged, layouts, NOTHING};

/// A TLBI that empties an address space without a walker needs its DSB as any other.
#[test]
fn an_address_space_that_was_left() {
    for layout in layouts() {
        for (steps, expected) in [
            (
                "0:run=idle 0:3=inv 0:ishst 0:aside1is 0:ish 0:3=b 0:run=p",
                NOTHING,
            ),
            (
                "0:run=idle 0:3=inv 0:ishst 0:vmalle1is 0:ish 0:3=b 0:run=p",
                NOTHING,
            ),
            (
                "0:run=idle 0:3=inv 0:ishst 0:aside1is 0:3=b 0:run=p",
                &["S3"],
            ),
            (
                "0:run=idle 0:3=inv 0:ishst 0:vmalle1is 0:isb 0:3=b 0:run=p",
                &["S3"],
            ),
            // The TLBI before the break: the DSB completes it, and no CPU has walked since.
            ("0:run=idle 0:aside1is 0:3=inv 0:ish 0:3=b 0:run=p", NOTHING),
            // A word that changes nothing for the PE is not new: it may be held since the old one was.
            ("0:run=idle 0:3=a 0:3=inv 0:3=b 0:run=p", &["S2"]),
            ("0:run=idle 0:3=sw 0:3=inv 0:3=b 0:run=p", &["S2"]),
            (
                "0:run=idle 0:3=sw 0:3=inv 0:ishst 0:vale1is,3 0:ish 0:3=b 0:run=p",
                NOTHING,
            ),
            (
                "0:run=idle 0:3=a 0:3=inv 0:ishst 0:vale1is,3 0:ish 0:3=b 0:run=p",
                NOTHING,
            ),
            (
                "0:run=idle 0:ishst 0:aside1is 0:ish 0:3=a 0:3=inv 0:3=b 0:run=p",
                NOTHING,
            ),
        ] {
            assert_eq!(
                judged(layout, 1, "a", steps).0,
                expected,
                "{steps} {layout:?}"
            );
        }
    }
}

/// A table's page that is written to, or mapped, while a TLB may still walk it.
#[test]
fn pages_that_are_used_too_soon() {
    let layout = Layout::new(Granule::K4, Half::Lower, 48);
    for (steps, rules) in [
        ("0:t=inv 0:ish 0:7=swap", &["S5"][..]),
        ("0:t=inv 0:ish 0:7=inv", NOTHING),
        ("0:t=inv 0:ish 0:vae1is,3 0:ish 0:7=swap", NOTHING),
        ("0:t=inv 0:ish 0:vale1is,3 0:ish 0:7=swap", &["S5"]),
        ("0:t=inv 0:ish 0:aside1is 0:7=swap", &["S5"]),
        ("0:t=inv 0:ish 0:aside1is 0:ish 0:7=swap", NOTHING),
    ] {
        let mut guest = Guest::new(layout, 1);
        guest.has(3, "a");
        guest.settled(1);
        guest.steps(steps);
        let (found, judge) = guest.verdict();
        assert_eq!(found, rules, "{steps}: {:#?}", judge.findings().kept());
    }
}
