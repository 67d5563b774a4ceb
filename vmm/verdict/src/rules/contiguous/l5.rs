// SPDX-License-Identifier: GPL-2.0-only
//! L5: access and software bits of a contiguous group, where nothing but the kernel writes them.

use std::ops::Range;

use linux::pte::{bits, Pte};

use crate::check::{Check, Report};
use crate::group::{field_names, Group};
use crate::rules::rule::{Identity, Need, OnBreak, Releases, Rule, Tier};
use crate::Expected;

pub(crate) static RULE: Rule = Rule {
    name: "L5",
    title: "AF, dirty and software bits are equal, and as the last access left them",
    asserts: "AF (where TCR_EL1.HA is 0) and the software dirty and write bits (where HD is 0) are equal across a \
              contiguous group; special, devmap and uffd-wp always are. AP[2] is A5's. Ranges that the checkpoint \
              calls just read or just written (`readable`, `writable`) carry AF, and WRITE with AP[2] clear: each \
              entry by itself, a group in every raw entry, or in one at least where the CPU updates it. Ranges \
              called `young` or `old` have AF set, or clear, in every raw entry, whatever the CPU updates: software \
              carried it there. In ranges called `mapped` each entry is present, and not that of the zero page: the kernel had \
              no leave to take a page away.",
    tier: Tier::Linux,
    sources: &[
        "Arm ARM D8.7.1, R_XDPXQ, R_LCGVS",
        "arch/arm64/mm/contpte.c, contpte_ptep_set_access_flags(), contpte_clear_young_dirty_ptes()",
        "mlock(2); mm/madvise.c, madvise_cold_or_pageout_pte_range() (folio_likely_mapped_shared())",
    ],
    needs: &[Need::Vmas.all(), Need::Expectations.less()],
    releases: Releases::WIDELY,
    known: &[],
    identity: Identity::Words,
    on_break: OnBreak::GoOn,
    checks: &[Check::Contiguous(equal),
        Check::Expected(Expected::Readable, |group, at, report| accessed(group, at, false, report)),
        Check::Expected(Expected::Writable, |group, at, report| accessed(group, at, true, report)),
        Check::Expected(Expected::Young, |group, at, report| young(group, at, true, report)),
        Check::Expected(Expected::Old, |group, at, report| young(group, at, false, report)),
        Check::Expected(Expected::Mapped, mapped)],
    synthetic: &[
        "l5_each_bit_that_only_the_kernel_writes",
        "a5_and_not_l5_where_ap2_differs",
        "l5_every_raw_entry_carries_the_access_that_was_asked_for",
        "l5_one_entry_will_do_where_the_cpu_updates_it",
        "l5_young_and_old_are_of_every_raw_entry",
        "l5_what_may_not_go_is_mapped",
    ],
    live: &[
        "test_folded_block",
        "test_software_updates",
        "test_hardware_updates",
        "test_l5_access_that_was_asked_for",
        "test_l5_what_may_not_go",
    ],
};

/// The first half, on a group that has the bit: what must be equal because nothing but the kernel writes it.
fn equal(group: &Group<'_>) -> Option<String> {
    let regime = group.regime;
    let mut mask = bits::SOFTWARE_SAME;
    let mut because = "only the kernel writes them";
    if !regime.ha {
        mask |= bits::AF;
        because = "TCR_EL1.HA is 0, so that only the kernel writes them";
    }
    if !regime.hd {
        // AP[2] that differs is A5's; DBM means nothing to the CPU then, but much to Linux.
        mask |= bits::DIRTY | bits::WRITE;
        because = "TCR_EL1.HA or HD is 0, so that only the kernel writes them";
    }
    let differing = group.differing_in(mask);
    if differing == 0 {
        return None;
    }
    let names = [
        (bits::AF, "AF"),
        (bits::DIRTY, "DIRTY (bit 55)"),
        (bits::WRITE, "WRITE (DBM)"),
    ];
    let mut named: Vec<String> = names
        .iter()
        .filter(|(bit, _)| differing & bit != 0)
        .map(|(_, name)| (*name).to_owned())
        .collect();
    let rest = differing & bits::SOFTWARE_SAME;
    if rest != 0 {
        named.push(field_names(rest));
    }
    Some(format!(
        "members of a contiguous group differ in {}: {because}, and they must be equal",
        named.join(", ")
    ))
}

/// The second half: what was just read, or written, can be read, or written, without another fault.
///
/// A group of which some members lack a bit that others have is the first half's, or A5's; what is left to see
/// here is one that lacks it altogether.
fn accessed(group: &Group<'_>, range: Range<u64>, write: bool, report: &mut Report<'_>) {
    let missing = |entries: &mut dyn Iterator<Item = Pte>| {
        let (mut young, mut writable, mut clear) = (false, false, false);
        for pte in entries {
            young |= pte.young();
            writable |= pte.write();
            clear |= !pte.rdonly();
        }
        match (young, writable || !write, clear || !write) {
            (false, ..) => Some("AF"),
            (_, false, _) => Some("WRITE (DBM)"),
            (.., false) => Some("AP[2] clear"),
            _ => None,
        }
    };
    let touched = |&(at, _): &(usize, Pte)| group.touches(at, &range);
    let asked = if write { "written" } else { "read" };
    let contiguous = |pte: Pte| pte.valid_cont();
    if group
        .leaves()
        .filter(touched)
        .any(|(_, pte)| contiguous(pte))
    {
        if let Some(what) = missing(&mut group.leaves().map(|(_, pte)| pte)) {
            let message = format!(
                "a contiguous group was just {asked} and none of its {} entries has {what}: the fault that \
                 came before must have given it to every one",
                group.words.len()
            );
            report(group.va..group.end(), message);
        }
        return;
    }
    for (at, pte) in group.leaves().filter(touched) {
        if let Some(what) = missing(&mut std::iter::once(pte)) {
            let (va, word) = (group.va_of(at), pte.0);
            let message = format!(
                "the page at VA 0x{va:016x} was just {asked} and its entry ({word:#018x}) does not have {what}"
            );
            report(va..va.saturating_add(group.step()), message);
        }
    }
}

/// AF of every raw entry, valid or only present, in a range of which it is known.
fn young(group: &Group<'_>, range: Range<u64>, young: bool, report: &mut Report<'_>) {
    let mut entries = group.present().filter(|(at, _)| group.touches(*at, &range));
    if let Some((at, pte)) = entries.find(|(_, pte)| pte.young() != young) {
        let (va, word) = (group.va_of(at), pte.0);
        let (is, must) = if young {
            ("old", "set")
        } else {
            ("young", "clear")
        };
        let message = format!(
            "the raw entry for VA 0x{va:016x} ({word:#018x}) is {is}: after this step AF must be {must} in every entry"
        );
        report(va..va.saturating_add(group.step()), message);
    }
}

/// Entries of a range whose pages the kernel had no leave to take away.
fn mapped(group: &Group<'_>, range: Range<u64>, report: &mut Report<'_>) {
    let gone = |&at: &usize| {
        let pte = Pte(group.words[at]);
        group.touches(at, &range) && (!group.is_present(pte) || pte.special())
    };
    let mut gone = (0..group.words.len()).filter(gone);
    let Some(first) = gone.next() else {
        return;
    };
    let (va, word, others) = (group.va_of(first), group.words[first], gone.count());
    let has = match group.is_present(Pte(word)) {
        true => "maps the zero page",
        false => "maps no page",
    };
    let message = format!(
        "the page at VA 0x{va:016x} must still be mapped after this step, and its entry ({word:#018x}) {has}; {others} more entries of \
         its block are like it"
    );
    report(va.max(range.start)..group.end().min(range.end), message);
}

#[cfg(test)]
mod tests {
    use crate::testing::id;
    use crate::tests::guest::*;
    use crate::Expected;
    use stage1::testing::{Attributes, Layout};
    use stage1::{Granule, Half};

    fn hardware() -> Guest {
        Guest::of(Layout::new(Granule::K4, Half::Lower, 48).hardware_dirty())
    }

    /// `_PAGE_SHARED` as mkclean leaves it: WRITE and RDONLY.
    fn clean() -> Attributes {
        Attributes {
            ap: 0b11,
            software: 0,
            ..written()
        }
    }

    #[test]
    fn l5_each_bit_that_only_the_kernel_writes() {
        // Software manages AF and dirty.
        for (bit, attributes) in [(AF, written()), (DIRTY, written()), (UFFD_WP, read_only())] {
            let mut guest = Guest::new();
            guest.fold(0, attributes);
            guest.change(4, |word| word ^ bit);
            assert_eq!(guest.errors(), [id("L5")], "bit {bit:#x}");
        }
        // DBM means nothing to a CPU without HD; to Linux it is WRITE.
        let mut guest = Guest::new();
        guest.fold(0, read_only());
        guest.change(4, |word| word | WRITE);
        assert_eq!(guest.errors(), [id("L5")]);
        // HA alone: the CPU writes AF, and nothing else.
        let mut layout = Layout::new(Granule::K4, Half::Lower, 48);
        layout.ha = true;
        for (bit, expected) in [(AF, vec![]), (DIRTY, vec![id("L5")])] {
            let mut guest = Guest::of(layout);
            guest.fold(0, written());
            guest.change(4, |word| word ^ bit);
            assert_eq!(guest.errors(), expected, "bit {bit:#x}");
        }
        // With HA and HD the uffd-wp bit still is the kernel's alone.
        let mut guest = Guest::of(layout.hardware_dirty());
        guest.fold(0, read_only());
        guest.change(4, |word| word | UFFD_WP);
        assert_eq!(guest.errors(), [id("L5")]);
    }

    #[test]
    fn a5_and_not_l5_where_ap2_differs() {
        let mut guest = Guest::new();
        guest.fold(
            0,
            Attributes {
                software: 0,
                ..written()
            },
        );
        guest.change(4, |word| word | RDONLY);
        assert_eq!(guest.errors(), [id("A5")]);
    }

    #[test]
    fn l5_every_raw_entry_carries_the_access_that_was_asked_for() {
        for (what, lacking) in [(Expected::Readable, AF), (Expected::Writable, WRITE)] {
            // One page was accessed, and the kernel looked at the group as a whole.
            let mut guest = Guest::new();
            guest.fold(0, written());
            guest.spread(1, written());
            guest.expect(what, VA + 0x3000, VA + 0x4000);
            guest.expect(what, VA + 0x1_3000, VA + 0x1_4000);
            guest.assert_legal();
            // Not the page that was accessed but another of its group: the first half's.
            guest.change(9, |word| word & !lacking);
            assert_eq!(guest.errors(), [id("L5")]);
            // None has it: nothing differs.
            (0..16).for_each(|at| guest.change(at, |word| word & !lacking));
            assert_eq!(guest.errors(), [id("L5")]);
            assert!(guest.judge().findings[0]
                .message
                .contains("none of its 16 entries"));
            guest.expectations.remove(0);
            guest.assert_legal();
            // Of single pages only the one that was accessed matters.
            guest.change(16 + 4, |word| word & !lacking);
            guest.assert_legal();
            guest.change(16 + 3, |word| word & !lacking);
            assert_eq!(guest.errors(), [id("L5")]);
            let found = guest.judge().findings;
            let found = found.iter().find(|f| f.rule == id("L5")).unwrap();
            assert_eq!(found.va.0, VA + 0x1_3000);
        }
        // Writable for Linux, and the CPU would fault again.
        let mut guest = Guest::new();
        guest.fold(0, clean());
        guest.expect(Expected::Readable, VA, VA + 0x1000);
        guest.assert_legal();
        guest.expect(Expected::Writable, VA, VA + 0x1000);
        assert_eq!(guest.errors(), [id("L5")]);
        assert!(guest.judge().findings[0].message.contains("AP[2] clear"));
    }

    #[test]
    fn l5_one_entry_will_do_where_the_cpu_updates_it() {
        let mut guest = hardware();
        guest.fold(
            0,
            Attributes {
                af: false,
                ..clean()
            },
        );
        guest.expect(Expected::Writable, VA + 0x3000, VA + 0x4000);
        assert_eq!(guest.errors(), [id("L5")]);
        guest.change(7, |word| (word | AF) & !RDONLY);
        guest.assert_legal();
        // Where there is no group the entry is the page's own.
        guest.expect(Expected::Readable, VA + 0x1_0000, VA + 0x1_2000);
        guest.spread(1, written());
        guest.change(17, |word| word & !AF);
        assert_eq!(guest.errors(), [id("L5")]);
    }

    #[test]
    fn l5_what_may_not_go_is_mapped() {
        let mut guest = Guest::new();
        guest.fold(0, written());
        guest.spread(1, written());
        guest.expect(Expected::Mapped, VA, VA + 0x2_0000);
        guest.assert_legal();
        // An entry that is present and not valid maps its page.
        let present = |word: u64| (word & !1) | super::bits::PRESENT_INVALID;
        guest.change(16 + 2, present);
        guest.assert_legal();
        guest.change(16 + 3, |_| 0);
        assert_eq!(guest.errors(), [id("L5")]);
        let found = guest.judge().findings.remove(0);
        assert_eq!(found.va.0, VA + 0x1_3000);
        assert!(found.message.contains("maps no page; 0 more entries"));
        guest.expectations.clear();
        guest.expect(Expected::Mapped, VA, VA + 0x1_3000);
        guest.assert_legal();
    }

    #[test]
    fn l5_young_and_old_are_of_every_raw_entry() {
        let mut guest = hardware();
        guest.fold(0, written());
        guest.fold(
            1,
            Attributes {
                af: false,
                ..written()
            },
        );
        // PROT_NONE: present, and its AF is carried as well.
        guest
            .tables
            .poke(VA + 0x2_0000, 3, prot_none(PA + 0x2_0000));
        guest.expect(Expected::Young, VA, VA + 0x1_0000);
        guest.expect(Expected::Young, VA + 0x2_0000, VA + 0x2_1000);
        guest.expect(Expected::Old, VA + 0x1_0000, VA + 0x2_0000);
        guest.assert_legal();
        for at in [4, 20, 32] {
            guest.change(at, |word| word ^ AF);
            let verdict = guest.judge();
            let errors: Vec<_> = verdict.findings.iter().map(|f| (f.rule, f.va.0)).collect();
            assert_eq!(errors, [(id("L5"), VA + at * 4096)]);
            guest.change(at, |word| word ^ AF);
        }
    }
}
