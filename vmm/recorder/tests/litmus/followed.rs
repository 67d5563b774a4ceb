// SPDX-License-Identifier: GPL-2.0-only
//! The record of one VA: its last sequences, and the folios behind its words.

use recorder::{Did, Folio, FolioKind, Sequence};
use stage1::testing::Layout;
use stage1::{Granule, Half};

use crate::guest::Guest;

/// Returns a character for each step: broken, changed, made or emptied words, a TLBI, a DSB.
fn text(sequence: &Sequence) -> String {
    let of = |did: &Did| match did {
        Did::Store { old, new, .. } => match (old & 1, new & 1) {
            (0, 0) => 'e',
            (0, _) => 'm',
            (_, 0) => 'b',
            _ => 'c',
        },
        Did::Tlbi { .. } => 't',
        Did::Dsb { .. } => 'd',
    };
    sequence.steps.iter().map(|step| of(&step.did)).collect()
}

/// Returns the sequences of page 3. The first has written the initial word.
fn sequences(steps: &str) -> Vec<String> {
    let mut guest = Guest::new(Layout::new(Granule::K4, Half::Lower, 48), 2);
    guest.has(3, "a");
    guest.settled(2);
    guest.steps("0:pid=7 0:to=el0 1:pid=8");
    guest.steps(steps);
    let (_, judge) = guest.verdict_following(Some(3));
    let (spaces, left_out) = judge.followed();
    assert_eq!((spaces.len(), left_out), (1, 0), "{steps}");
    assert_eq!(spaces[0].all, spaces[0].sequences.len() as u64);
    let mut all: Vec<String> = spaces[0].sequences.iter().map(text).collect();
    assert_eq!(all.remove(0), "m", "{steps}");
    all
}

#[test]
fn what_belongs_together() {
    for (steps, expected) in [
        ("0:3=inv 0:ishst 0:vale1is,3 0:ish 0:3=b", &["bdtdm"][..]),
        // Behind its DSB nothing is open, and later steps belong to another change.
        ("0:3=inv 0:ishst 0:vale1is,3 0:ish 0:vale1is,3 0:ish 0:3=b 0:ish", &["bdtdm"]),
        // A page beside it is in the same block, one beyond is not; nor is its TLBI, or one for another ASID.
        ("0:3=inv 0:4=a 0:16=a 0:ishst 0:vale1is,16 0:vale1is,3/asid=6 0:vale1is,3 0:ish", &["bmdtd"]),
        // Page by page, in one call: pages 3 and 4 are changed and come back.
        ("0:3=inv 0:3=ro 0:4=inv 0:4=ro 0:ishst 0:aside1is 0:ish", &["bmmdtd"]),
        // In two.
        (
            "0:3=inv 0:3=ro 0:ishst 0:vale1is,3 0:ish 0:to=el0 0:3=inv 0:3=a 0:ishst 0:vale1is,3 0:ish",
            &["bmdtd", "bmdtd"],
        ),
        // By two CPUs.
        ("0:3=inv 0:ishst 0:vale1is,3 0:ish 0:3=b 1:3=inv 1:ishst", &["bdtdm", "bd"]),
        // Rights that are changed without a break.
        ("0:3=ro 0:ishst 0:vale1is,3 0:ish", &["cdtd"]),
    ] {
        assert_eq!(sequences(steps), expected, "{steps}");
    }
}

#[test]
fn a_finding_is_one_of_the_block() {
    let mut guest = Guest::new(Layout::new(Granule::K4, Half::Lower, 48), 1);
    guest.has(3, "a");
    guest.has(40, "a");
    guest.settled(1);
    guest.steps("0:pid=7 0:to=el0 0:3=b 0:40=b");
    let (rules, judge) = guest.verdict_following(Some(4));
    assert_eq!(rules, ["S1", "S1"]);
    let (spaces, _) = judge.followed();
    assert_eq!(spaces[0].pid, Some(7));
    let kept = judge.findings().kept();
    let concerns: Vec<bool> = kept
        .iter()
        .map(|it| judge.concerns(spaces[0], it))
        .collect();
    assert_eq!(concerns, [true, false]);
    let sequence = spaces[0].sequences.back().unwrap();
    assert_eq!(sequence.before.len(), 16);
    let words = sequence.before.iter().filter(|word| **word != 0);
    assert_eq!(words.count(), 1, "what was there before the store");
    let now = judge.now(spaces[0], kept[0].va).unwrap();
    assert!(now.text.starts_with("level 3 entry 3 of table"), "{now:?}");
    assert_eq!((now.words[3], now.folio), (kept[0].new, None));
}

/// The folio of the old word is that of the time it was removed, even if the page frame belongs to another one by the
/// time of the new word.
#[test]
fn folios_of_the_old_word_and_the_new() {
    let folio = |first, order| {
        Some(Folio {
            first,
            order,
            kind: FolioKind::Anonymous,
            index: 0,
        })
    };
    let old = "0:folio=80000/4";
    for (steps, expected) in [
        (
            format!("{old} 0:3=inv 0:folio=80003/0 0:folio=90000/5 0:3=b"),
            [folio(0x8_0000, 4), folio(0x9_0000, 5)],
        ),
        (
            format!("{old} 0:folio=90003/0 0:3=b"),
            [folio(0x8_0000, 4), folio(0x9_0003, 0)],
        ),
        (
            format!("{old} 0:pid=7 0:3=inv 0:folio=80003/0 0:to=el0"),
            [folio(0x8_0000, 4), None],
        ),
        // The folio is recorded only later, and may be another one.
        ("0:3=inv 0:folio=80003/0 0:3=b".into(), [None, None]),
    ] {
        let mut guest = Guest::new(Layout::new(Granule::K4, Half::Lower, 48), 1);
        guest.has(3, "a");
        guest.settled(1);
        guest.steps(&steps);
        let (rules, judge) = guest.verdict();
        assert_eq!(rules.len(), 1, "{steps}");
        assert_eq!(judge.findings().kept()[0].scene.folios, expected, "{steps}");
    }
}
