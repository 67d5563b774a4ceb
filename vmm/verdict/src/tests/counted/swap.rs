// SPDX-License-Identifier: GPL-2.0-only
//! L16, on made-up swap areas and entries.

use crate::testing::id;
use linux::counted::{Slots, SwapArea};

use super::*;
use crate::entries::Swapped;

/// Area 1: slots 8 to 15 are counted once, 20 three times, 21 an unknown number of times.
fn swap() -> Counted {
    let mut counted = queued().0;
    let run = |first, slots, count| Slots {
        first,
        slots,
        count,
    };
    counted.swap = Ok(Swap {
        areas: vec![SwapArea {
            number: 1,
            slots: 100,
            at: 0,
            counted: vec![run(8, 8, Some(1)), run(20, 1, Some(3)), run(21, 1, None)],
        }],
        spaces: Vec::new(),
        shmem: Vec::new(),
    });
    counted
}

/// As many entries as are counted.
fn swapped() -> Vec<Swapped> {
    let once = (8..16).map(|slot| (1, slot, 1));
    once.chain([(1, 20, 3), (1, 21, 70)]).collect()
}

#[test]
fn l16_slots_and_entries() {
    let (counted, kernel) = (swap(), queued().1);
    let said = |change: &dyn Fn(&mut Vec<Swapped>)| {
        let mut entries = swapped();
        change(&mut entries);
        entries.sort_unstable();
        let verdict = judged_with(&counted, &kernel, &entries, None);
        assert!(errors(&verdict).iter().all(|rule| *rule == id("L16")));
        let findings = verdict.findings.into_iter();
        findings.map(|finding| finding.message).collect::<Vec<_>>()
    };
    let of = |change: &dyn Fn(&mut Vec<Swapped>), part: &str| {
        let said = said(change);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains(part), "{said:?}");
    };
    assert_eq!(said(&|_| ()), [""; 0]);
    // A slot that was kept; one that two have and one counts; entries to where nothing is counted, in front, between
    // and behind.
    let kept = "slot 8 of swap area 1 is counted 1 times (swap_map), and 0 entries";
    of(&|all| all.retain(|(_, slot, _)| *slot != 8), kept);
    of(
        &|all| all[1].2 = 2,
        "slot 9 of swap area 1 is counted 1 times (swap_map), and 2 entries",
    );
    of(
        &|all| all[8].2 = 2,
        "slot 20 of swap area 1 is counted 3 times (swap_map), and 2 entries",
    );
    for slot in [7, 16, 22, 4000] {
        let uncounted =
            format!("slot {slot} of swap area 1 is counted 0 times (swap_map), and 1 entries");
        of(&|all| all.push((1, slot, 1)), &uncounted);
    }
    of(
        &|all| all.retain(|(_, slot, _)| *slot > 15),
        "it is so with 7 slots more",
    );
    of(
        &|all| all.push((2, 5, 1)),
        "leads to slot 5 of swap area 2, which there is not",
    );
}

#[test]
fn l16_what_is_not_known() {
    let (mut counted, kernel) = (swap(), queued().1);
    let entries = swapped();
    // Of an address space that was not walked may be those that are missing, and none that are too many.
    let verdict = judged_with(&counted, &kernel, &entries[1..], Some("one was not walked"));
    assert_eq!(errors(&verdict), []);
    let reason = &verdict.not_judged[0].reason;
    assert!(
        reason.starts_with("1 slots are counted") && reason.ends_with("one was not walked"),
        "{reason}"
    );
    let more = [&entries[..], &[(1, 30, 1)]].concat();
    let verdict = judged_with(&counted, &kernel, &more, Some("one was not walked"));
    assert_eq!(errors(&verdict), [id("L16")]);
    assert!(verdict.not_judged.is_empty());
    let why = "it counts otherwise".to_owned();
    counted.swap = Err(NotRead {
        why,
        later: false,
        not_built: false,
    });
    let verdict = judged_with(&counted, &kernel, &more, None);
    assert_eq!(errors(&verdict), []);
    assert!(verdict
        .lacks
        .iter()
        .any(|lack| lack.reason.starts_with("L16 was not judged")));
}

#[test]
fn l16_slots_of_shmem() {
    let (mut counted, kernel) = (swap(), queued().1);
    let mut entries = swapped();
    // Two of three that lead to slot 20, and slots 10 to 13, are a file's.
    entries.retain(|(_, slot, _)| !(10..14).contains(slot));
    entries
        .iter_mut()
        .filter(|it| it.1 == 20)
        .for_each(|it| it.2 = 1);
    let judged = |counted: &Counted| errors(&judged_with(counted, &kernel, &entries, None));
    assert_eq!(judged(&counted), [id("L16")]);
    counted.swap.as_mut().unwrap().shmem = vec![(1, 10, 4), (1, 20, 1), (1, 20, 1)];
    assert_eq!(judged(&counted), []);
    // One more than is counted.
    counted.swap.as_mut().unwrap().shmem.push((1, 30, 1));
    assert_eq!(judged(&counted), [id("L16")]);
}
