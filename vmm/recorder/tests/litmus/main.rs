// SPDX-License-Identifier: GPL-2.0-only
//! Litmus tests: sequences that are right, and each in the ways in which it can be wrong.

mod followed;
mod guest;
mod returns;
mod spaces;

use guest::Guest;
use stage1::testing::Layout;
use stage1::{BbmLevel, Granule, Half};

const NOTHING: &[&str] = &[];

fn layouts() -> Vec<Layout> {
    let mut layouts = Vec::new();
    for granule in Granule::ALL {
        layouts.push(Layout::new(granule, Half::Lower, 48));
        layouts.push(Layout::new(granule, Half::Lower, 48).hardware_dirty());
        layouts.push(Layout::new(granule, Half::Lower, 52));
        if granule == Granule::K4 {
            layouts.push(Layout::new(granule, Half::Lower, 39));
        }
    }
    layouts
}

/// Judges the steps on each layout, after VA 3 has had `old`, which `cpus` CPUs may have cached.
fn judged(
    layout: Layout,
    cpus: u16,
    old: &str,
    steps: &str,
) -> (Vec<&'static str>, recorder::Judge) {
    let mut guest = Guest::new(layout, cpus);
    if old.starts_with("cont") {
        (0..guest.entries()).for_each(|index| guest.has(index, old));
    } else {
        guest.has(3, old);
    }
    guest.settled(cpus);
    guest.steps(steps);
    guest.verdict()
}

fn expect(cpus: u16, old: &str, steps: &str, expected: &[&str]) {
    for layout in layouts() {
        let (rules, judge) = judged(layout, cpus, old, steps);
        let kept = judge.findings().kept();
        assert_eq!(
            rules, expected,
            "{old}, then {steps}, {layout:?}: {kept:#?}"
        );
        assert_eq!(judge.not_judged().sentences(), NOTHING, "{steps}");
    }
}

/// A break-before-make of one page in every correct way.
#[test]
fn right() {
    for steps in [
        "0:3=inv 0:ishst 0:vae1is,3 0:ish 0:3=b",
        "0:3=inv 0:ishst 0:vale1is,3 0:ish 0:isb 0:3=b",
        "0:3=inv 0:ish 0:vaae1is,3 0:ish 0:3=b",
        "0:3=inv 0:sy 0:vaale1os,3 0:sy 0:3=b",
        "0:3=inv 0:ishst 0:aside1is 0:ish 0:3=b",
        "0:3=inv 0:ishst 0:vmalle1is 0:ish 0:3=b",
        "0:3=swap 0:ishst 0:vale1is,3/ttl=3 0:ish 0:3=b",
        "0:3=inv 0:ishst 0:rvale1is,0+16 0:ish 0:3=b",
        "0:3=inv 0:ishst 0:rvae1is,0+4/ttl=3 0:ish 0:3=b",
        // A second TLBI without order does not undo the first.
        "0:3=inv 0:ishst 0:vale1is,3 0:ish 0:vale1is,3 0:3=b",
        // Another CPU writes, and one CPU waits for the other's store.
        "0:3=inv 0:ishst 0:vale1is,3 0:ish 1:3=b",
        "0:3=inv 1:ishst 1:vale1is,3 1:ish 1:3=b",
        // Each CPU for itself.
        "0:3=inv 0:ishst 0:vale1,3 0:nsh 1:ishst 1:vale1,3 1:nsh 0:3=b",
        // Lazily: elsewhere in between, and one TLBI for several.
        "0:3=inv 0:4=a 0:5=a 0:5=inv 0:6=b 0:ishst 0:aside1is 0:ish 0:3=b 0:5=b",
    ] {
        expect(2, "a", steps, NOTHING);
    }
}

/// Each of its parts left out or weakened.
#[test]
fn wrong() {
    for (steps, rule) in [
        ("0:3=b", "S1"),
        ("0:3=dev", "S1"),
        ("0:3=cont", "S1"),
        ("0:3=glob", "S1"),
        ("0:3=inv 0:3=b", "S2"),
        ("0:3=inv 0:ishst 0:ish 0:3=b", "S2"),
        ("0:3=inv 0:ishst 0:vale1is,4 0:ish 0:3=b", "S2"),
        ("0:3=inv 0:ishst 0:vale1is,3/asid=6 0:ish 0:3=b", "S2"),
        ("0:3=inv 0:ishst 0:aside1is/asid=6 0:ish 0:3=b", "S2"),
        // For its own CPU alone.
        ("0:3=inv 0:ishst 0:vale1,3 0:ish 0:3=b", "S2"),
        ("0:3=inv 0:ishst 0:vmalle1 0:ish 0:3=b", "S2"),
        // Before the store.
        ("0:ishst 0:vale1is,3 0:ish 0:3=inv 0:3=b", "S2"),
        // For the wrong change.
        ("0:3=inv 0:ishst 0:vale1is,3 0:ish 0:3=a 0:3=b", "S1"),
        // Without order.
        ("0:3=inv 0:vale1is,3 0:ish 0:3=b", "S3"),
        ("0:ishst 0:3=inv 0:vale1is,3 0:ish 0:3=b", "S3"),
        ("0:3=inv 0:ishld 0:vale1is,3 0:ish 0:3=b", "S3"),
        ("0:3=inv 0:nshst 0:vale1is,3 0:ish 0:3=b", "S3"),
        ("0:3=inv 0:ishst 0:vale1is,3 0:3=b", "S3"),
        ("0:3=inv 0:ishst 0:vale1is,3 0:isb 0:3=b", "S3"),
        ("0:3=inv 0:ishst 0:vale1is,3 0:nsh 0:3=b", "S3"),
        ("0:3=inv 0:ishst 0:vale1is,3 0:ishld 0:3=b", "S3"),
        // It waits for stores and not for the TLBI.
        ("0:3=inv 0:ishst 0:vale1is,3 0:ishst 0:3=b", "S3"),
        // Another CPU's DSB does not wait for this one's TLBI.
        ("0:3=inv 0:ishst 0:vale1is,3 1:ish 1:3=b", "S3"),
        // Its coverage.
        ("0:3=inv 0:ishst 0:vale1is,3/ttl=2 0:ish 0:3=b", "S6"),
        ("0:3=inv 0:ishst 0:rvale1is,4+16 0:ish 0:3=b", "S6"),
        ("0:3=inv 0:ishst 0:rvale1is,0+2 0:ish 0:3=b", "S6"),
        ("0:3=inv 0:ishst 0:rvale1is,0+16/ttl=2 0:ish 0:3=b", "S6"),
    ] {
        expect_somewhere(2, "a", steps, rule);
    }
}

/// Expects as [`expect`] does. A range has units of 64K with `TCR_EL1.DS`, so that one that misses VA 3 cannot be
/// written on every layout.
fn expect_somewhere(cpus: u16, old: &str, steps: &str, rule: &str) {
    let mut seen = 0;
    for layout in layouts() {
        if layout.ds && steps.contains("rvale1is,4") && layout.granule != Granule::K64 {
            continue;
        }
        let (rules, judge) = judged(layout, cpus, old, steps);
        let kept = judge.findings().kept();
        assert_eq!(rules, [rule], "{old}, then {steps}, {layout:?}: {kept:#?}");
        let finding = &kept[0];
        assert!(!finding.sentence.is_empty() && judge.findings().count(finding) == 1);
        seen += 1;
    }
    assert!(seen > 3);
}

/// Changes that need no break, no TLBI, or none yet.
#[test]
fn no_alarm() {
    for (cpus, old, steps) in [
        // Rights, age, software's bits, tags: with no break.
        (2, "a", "0:3=ro 0:3=a 1:3=aged 1:3=a 0:3=sw 0:3=tagged"),
        (2, "ro", "0:3=a"),
        // Through an invalid word, without TLBI: mprotect.
        (2, "a", "0:3=inv 0:3=ro 0:3=inv 0:3=a"),
        (2, "glob", "0:3=a"),
        // Never valid, never walked.
        (2, "inv", "0:3=b 1:3=inv 0:ishst 0:aside1is 0:ish 0:3=a"),
        (2, "swap", "0:3=b"),
        // Written while no CPU walks it, so in no TLB.
        (1, "inv", "0:run=idle 0:3=a 0:3=inv 0:3=b 0:3=a 0:run=p"),
        // CPU 1 has left and was emptied.
        (
            2,
            "a",
            "1:run=idle 1:vmalle1 1:nsh 0:3=inv 0:nshst 0:vale1,3 0:nsh 0:3=b",
        ),
        // A new ASID: after a rollover no CPU can hit entries of the old one.
        (1, "a", "0:3=inv 0:run=p6 0:3=b"),
        // Another process meanwhile.
        (
            2,
            "a",
            "0:3=inv 0:ishst 0:vale1is,3 0:run=q 0:ish 0:run=p 1:3=b",
        ),
        // The whole group, folded and unfolded as contpte does.
        (
            2,
            "cont",
            "0:g=inv 0:ishst 0:rvale1is,0+64 0:rvale1is,64+64 0:ish 0:g=a",
        ),
        (2, "cont", "0:g=inv 0:ishst 0:aside1is 0:ish 0:g=contb"),
        // Its documented exception: rights of a live group, entry by entry.
        (2, "cont", "0:g=contro 0:ishst 0:aside1is 0:ish"),
        (2, "contro", "0:3=cont"),
        // Taken away one by one.
        (2, "cont", "0:g=inv 0:ishst 0:aside1is 0:ish"),
    ] {
        expect(cpus, old, steps, NOTHING);
    }
}

/// Without hardware management of AF an old page is in no TLB; with it, it may be.
#[test]
fn an_old_page_is_cached_only_by_hardware_that_ages() {
    let layout = Layout::new(Granule::K4, Half::Lower, 48);
    assert_eq!(judged(layout, 1, "aged", "0:3=agedb").0, NOTHING);
    let aging = layout.hardware_dirty();
    assert_eq!(judged(aging, 1, "aged", "0:3=agedb").0, ["S1"]);
    // It may still be held if the kernel writes AF after that.
    let left = "0:run=idle 0:3=a 0:3=inv 0:3=b 0:run=p";
    assert_eq!(judged(layout, 1, "aged", left).0, NOTHING);
    assert_eq!(judged(aging, 1, "aged", left).0, ["S2"]);
}

/// An ASID in use again for the same tables is the same address space.
#[test]
fn an_asid_that_comes_back_has_what_it_had() {
    let layout = Layout::new(Granule::K4, Half::Lower, 48);
    let steps = "0:run=idle 0:3=inv 0:run=p 0:3=b";
    assert_eq!(judged(layout, 1, "a", steps).0, ["S2"]);
}

#[test]
fn groups() {
    for (old, steps, rules) in [
        // The batch of mprotect that clears an unfolded block and writes it with the bit, its TLBI at the end.
        (
            "a",
            "0:3=inv 0:3=cont 0:ishst 0:vale1is,3 0:ish",
            &["S2"][..],
        ),
        ("cont", "0:3=inv 0:ishst 0:vale1is,3 0:ish 0:3=a", &["S4"]),
        (
            "cont",
            "0:3=inv 0:ishst 0:vale1is,3 0:ish 0:3=contb",
            &["S4"],
        ),
        ("cont", "0:3=a", &["S1", "S4"]),
        (
            "cont",
            "0:3=inv 0:ishst 0:vale1is,3 0:ish 0:3=cont",
            NOTHING,
        ),
    ] {
        expect(2, old, steps, rules);
    }
    // All of an unfolded block at once: as 7.x does it, and as 6.12.
    for (steps, count) in [
        (
            "0:g=a 0:run=idle 0:run=p 0:g=inv 0:g=cont 0:ishst 0:aside1is 0:ish",
            true,
        ),
        (
            "0:g=a 0:run=idle 0:run=p 0:g=inv 0:ishst 0:aside1is 0:ish 0:g=cont",
            false,
        ),
    ] {
        for layout in layouts() {
            let (rules, judge) = judged(layout, 2, "inv", steps);
            let entries = layout.group(3);
            let expected = if count { entries } else { 0 };
            assert_eq!(judge.findings().total, expected, "{steps} {layout:?}");
            assert!(rules.iter().all(|rule| *rule == "S2"));
        }
    }
}

/// A kernel that makes use of FEAT_BBM changes sizes live.
#[test]
fn with_feat_bbm() {
    for (bbm, expected) in [
        (BbmLevel::Zero, &["S1", "S4"][..]),
        (BbmLevel::One, NOTHING),
        (BbmLevel::Two, NOTHING),
    ] {
        let mut guest = Guest::new(Layout::new(Granule::K4, Half::Lower, 48), 1);
        guest.bbm = bbm;
        (0..16).for_each(|index| guest.has(index, "a"));
        guest.settled(1);
        guest.steps("0:3=cont");
        assert_eq!(guest.verdict().0, expected);
    }
}

/// A table that is removed, and the words that replace it.
#[test]
fn tables() {
    let layout = Layout::new(Granule::K4, Half::Lower, 48);
    for (steps, rules) in [
        ("0:t=block", &["S1"][..]),
        ("0:t=inv 0:t=block", &["S2", "S2"]),
        // The walk cache alone is left.
        ("0:t=inv 0:ishst 0:vale1is,3 0:ish 0:t=block", &["S6"]),
        // The pages alone are left.
        ("0:t=inv 0:ishst 0:vae1is,0 0:ish 0:t=block", &["S2"]),
        ("0:t=inv 0:ishst 0:vae1is,3 0:ish 0:t=block", NOTHING),
        ("0:t=inv 0:ishst 0:aside1is 0:ish 0:t=block", NOTHING),
        ("0:t=inv 0:ishst 0:aside1is 0:ish 0:t=other", NOTHING),
        // Linked again, as mremap moves one.
        ("0:t=inv 0:t=table", NOTHING),
        ("0:t=inv 0:t=other", &["S2", "S2"]),
        (
            "0:3=inv 0:t=inv 0:ishst 0:vae1is,0 0:ish 0:t=other",
            &["S2"],
        ),
        (
            "0:3=inv 0:ishst 0:vae1is,3 0:ish 0:t=inv 0:ishst 0:vae1is,0 0:ish 0:t=other",
            NOTHING,
        ),
    ] {
        let mut guest = Guest::new(layout, 1);
        guest.has(3, "a");
        guest.other_has(3, "b");
        guest.settled(1);
        guest.steps(steps);
        let (found, judge) = guest.verdict();
        assert_eq!(found, rules, "{steps}: {:#?}", judge.findings().kept());
    }
}

/// The kernel half: global, whatever the ASID.
#[test]
fn the_upper_half() {
    for (granule, va_bits) in [
        (Granule::K4, 48),
        (Granule::K4, 52),
        (Granule::K16, 47),
        (Granule::K64, 52),
    ] {
        let layout = Layout::new(granule, Half::Upper, va_bits);
        for (steps, rules) in [
            ("0:3=globb", &["S1"][..]),
            ("0:3=inv 0:3=globb", &["S2"]),
            ("0:3=inv 0:ishst 0:vaale1is,3 0:ish 0:3=globb", NOTHING),
            (
                "0:3=inv 0:ishst 0:vale1is,3/asid=7 0:ish 0:3=globb",
                NOTHING,
            ),
            ("0:3=inv 0:ishst 0:aside1is 0:ish 0:3=globb", &["S2"]),
            ("0:3=inv 0:ishst 0:rvaale1is,0+16 0:ish 0:3=globb", NOTHING),
            ("0:3=inv 0:ishst 0:vmalle1is 0:ish 0:3=globb", NOTHING),
            ("0:3=inv 0:ishst 0:vmalle1 0:nsh 0:3=globb", &["S2"]),
        ] {
            let (found, judge) = judged(layout, 2, "glob", steps);
            assert_eq!(
                found,
                rules,
                "{steps} {layout:?}: {:#?}",
                judge.findings().kept()
            );
        }
    }
}

/// One to four CPUs: local TLBIs suffice if each CPU has executed its own.
#[test]
fn one_to_four_cpus() {
    let layout = Layout::new(Granule::K4, Half::Lower, 48);
    for cpus in 1..=4 {
        let mut steps = "0:3=inv 0:ishst ".to_owned();
        for cpu in 0..cpus {
            steps += &format!("{cpu}:ishst {cpu}:vale1,3 {cpu}:nsh ");
            let (rules, _) = judged(layout, cpus, "a", &format!("{steps} 0:3=b"));
            let expected = if cpu + 1 == cpus { NOTHING } else { &["S2"] };
            assert_eq!(rules, expected, "{steps} of {cpus} CPUs");
        }
    }
}

/// Read-only memory that moves: the words do not show whether it was right.
#[test]
fn what_is_not_judged_says_so() {
    let layout = Layout::new(Granule::K4, Half::Lower, 48);
    let (rules, judge) = judged(layout, 1, "ro", "0:3=rob");
    assert_eq!(rules, NOTHING);
    assert_eq!(judge.not_judged().read_only, 1);
    assert!(judge.not_judged().sentences()[0].contains("read-only"));
    let (rules, judge) = judged(layout, 1, "ro", "0:t=other");
    assert_eq!(rules, NOTHING);
    assert_eq!(judge.not_judged().tables, 1);
}

/// A finding names the stores, the CPUs, and the missing operation.
#[test]
fn a_finding_in_full() {
    let layout = Layout::new(Granule::K4, Half::Lower, 48);
    let (_, judge) = judged(layout, 2, "a", "1:3=inv 1:ishst 1:vale1,3 1:nsh 0:3=b");
    let finding = &judge.findings().kept()[0];
    let broken = finding.broken.unwrap();
    assert_eq!((finding.made.cpu, broken.cpu), (0, 1));
    assert_eq!((finding.va, finding.level.number()), (0x3000, 3));
    assert_eq!(finding.old & 0xffff_f000, 0x8000_3000);
    assert_eq!(finding.tlbi.unwrap().event, broken.event + 2);
    assert!(broken.event < finding.made.event);
    assert_eq!(
        finding.sentence,
        "the output address differs: a TLBI of its own CPU of VA 0x3000 to 0x3fff of ASID 5, last level only does not reach \
         that CPU, and CPU 0 (ASID 5) may hold the old one"
    );
}
