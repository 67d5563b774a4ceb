// SPDX-License-Identifier: GPL-2.0-only
//! A1 to A8: the architecture's rules on descriptors. Their checks are `stage1::check`. W1: tables that can be walked. What
//! cannot be is the walker's to say, `stage1::WalkProblem`.

use stage1::ArchRule;

use super::rule::RuleId;
use crate::check::Check;
use crate::rules::rule::{Identity, OnBreak, Releases, Rule, Tier};

pub(super) static RULES: &[&Rule] = &[&A1, &A2, &A3, &A4, &A5, &A6, &A7, &A8, &W1];

const fn rule(
    name: &'static str,
    arch: ArchRule,
    asserts: &'static str,
    sources: &'static [&'static str],
    live: &'static [&'static str],
) -> Rule {
    Rule {
        name,
        title: arch.title(),
        asserts,
        tier: Tier::Architecture,
        sources,
        needs: &[],
        releases: Releases::ANY,
        known: &[],
        identity: Identity::Words,
        on_break: OnBreak::GoOn,
        checks: &[Check::Elsewhere("the walk of `vmm/stage1`")],
        synthetic: &["each_rule_of_the_architecture_comes_through"],
        live,
    }
}

pub(crate) static A1: Rule = rule(
    "A1",
    ArchRule::A1,
    "A contiguous group is naturally aligned in its table.",
    &["Arm ARM D8.7.1, R_CBXXM, R_WMNPV"],
    &["test_a1_group_between_two"],
);

pub(crate) static A2: Rule = rule(
    "A2",
    ArchRule::A2,
    "A group's output range is aligned to the group's size.",
    &["Arm ARM D8.7.1, R_CBXXM, R_WMNPV"],
    &["test_folded_block", "test_contiguous_pmd"],
);

pub(crate) static A3: Rule = rule(
    "A3",
    ArchRule::A3,
    "A group's output addresses are consecutive.",
    &["Arm ARM D8.7.1, R_SKQHL"],
    &[
        "test_folded_block",
        "test_bits_9_8_are_what_the_regime_says",
    ],
);

pub(crate) static A4: Rule = rule(
    "A4",
    ArchRule::A4,
    "All valid members of a group agree on the Contiguous bit. Members that are not valid are L1's.",
    &["Arm ARM D8.7.1.1, R_QTRPM, I_PGVGZ"],
    &["test_folded_block"],
);

pub(crate) static A5: Rule = rule(
    "A5",
    ArchRule::A5,
    "Attributes and permissions of a group's valid members are equal: AF apart, and AP[2] where DBM is 1 and the \
     CPU updates it.",
    &["Arm ARM D8.7.1, R_SKQHL, I_CQTNL; R_XDPXQ, R_LCGVS"],
    &[
        "test_folded_block",
        "test_software_updates",
        "test_bits_9_8_are_what_the_regime_says",
    ],
);

pub(crate) static A6: Rule = rule(
    "A6",
    ArchRule::A6,
    "The Contiguous bit is 0 at levels where the granule has no groups.",
    &["Arm ARM D8.7.1, R_HMQXG"],
    &["test_a6_reserved_contiguous_bit"],
);

pub(crate) static A7: Rule = rule(
    "A7",
    ArchRule::A7,
    "No reserved descriptor type, no output address above the output size, no RES0 bit that is set.",
    &["Arm ARM D8.3, VMSAv8-64 descriptor formats"],
    &["test_a7_reserved_type", "test_a7_beyond_output_size"],
);

pub(crate) static A8: Rule = rule(
    "A8",
    ArchRule::A8,
    "Blocks only at levels where the granule has them.",
    &["Arm ARM D8.3, VMSAv8-64 Block descriptors"],
    &["test_a8_block_above"],
);

pub(crate) static W1: Rule = Rule {
    name: "W1",
    title: "every table can be walked",
    asserts: "No table descriptor leads back to a table above it, outside RAM, or beyond the output size.",
    tier: Tier::Architecture,
    sources: &["Arm ARM D8.2, translation process"],
    needs: &[],
    releases: Releases::ANY,
    known: &[],
    identity: Identity::Words,
    on_break: OnBreak::GoOn,
    checks: &[Check::Elsewhere("the walk of `vmm/stage1`")],
    synthetic: &["w1_a_table_outside_ram"],
    live: &["test_w1_loop", "test_w1_outside_ram", "test_w1_beyond_output_size"],
};

impl From<ArchRule> for RuleId {
    fn from(rule: ArchRule) -> RuleId {
        match rule {
            ArchRule::A1 => &A1,
            ArchRule::A2 => &A2,
            ArchRule::A3 => &A3,
            ArchRule::A4 => &A4,
            ArchRule::A5 => &A5,
            ArchRule::A6 => &A6,
            ArchRule::A7 => &A7,
            ArchRule::A8 => &A8,
        }
        .into()
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::id;
    use crate::tests::guest::*;
    use stage1::testing::Layout;
    use stage1::{Granule, Half};

    #[test]
    fn a1_to_a5_come_with_the_words_of_the_group() {
        let mut guest = Guest::new();
        guest.fold(0, written());
        guest.change(3, |word| word ^ CONT);
        let verdict = guest.judge();
        let finding = &verdict.findings[0];
        assert_eq!(guest.errors(), [id("A4")]);
        assert_eq!(finding.words.len(), 16);
        assert_eq!((finding.va.0, finding.end.0), (VA, VA + 0x1_0000));
        assert_eq!(finding.level, 3);
        assert_eq!(finding.index, 0);
        assert_eq!(finding.table.0 % 4096, 0);
        let json = serde_json::to_value(finding).unwrap();
        assert_eq!(json["va"], "0x0000000040000000");
        assert_eq!(json["rule"], "A4");
        assert_eq!(json["process"]["pid"], 42);
    }

    #[test]
    fn each_rule_of_the_architecture_comes_through() {
        // A member or a lone entry, changed in one way each; the last two on raw words.
        type Case = (crate::RuleId, fn(u64) -> u64);
        let cases: [Case; 4] = [
            (id("A3"), |word| word ^ 1 << 30),
            (id("A4"), |word| word ^ CONT),
            (id("A5"), |word| word ^ 1 << 53),
            (id("A7"), |word| word | 1 << 48),
        ];
        for (rule, change) in cases {
            let mut guest = Guest::new();
            guest.fold(0, written());
            guest.assert_legal();
            guest.change(6, change);
            assert_eq!(guest.errors(), [rule]);
        }
        // A2: consecutive, from an odd page on.
        let mut guest = Guest::new();
        for at in 0..16 {
            let at = at * 4096;
            guest
                .tables
                .map_page(VA + at, PA + 0x1000 + at, written(), true);
        }
        assert_eq!(guest.errors(), [id("A2")]);
        // A1: aligned in physical memory, from an odd place in the table on.
        let mut guest = Guest::new();
        for at in 0..32 {
            let at = at * 4096;
            guest
                .tables
                .map_page(VA + 0x8000 + at, PA + at, written(), true);
        }
        assert!(guest.errors().contains(&id("A1")));
        // A6: 16K blocks at level 1 (with DS) have no group. A8: without DS there are none.
        let layout = Layout::new(Granule::K16, Half::Lower, 47);
        for (layout, rule) in [(layout.wide(), id("A6")), (layout, id("A8"))] {
            let maps = "1000000000-2000000000 rw-p 00000000 00:00 0 ";
            let mut guest = Guest::of(layout).maps(maps);
            let cont = u64::from(rule == id("A6")) * CONT;
            guest
                .tables
                .poke(0x10_0000_0000, 1, 0b01 | 1 << 10 | 1 << 11 | cont);
            assert_eq!(guest.errors(), [rule]);
        }
    }

    #[test]
    fn w1_a_table_outside_ram() {
        let mut guest = Guest::new();
        guest.fold(0, written());
        guest.assert_legal();
        guest
            .tables
            .change(VA, 2, |word| word & 0xfff | 0x7000_0000_0000);
        assert_eq!(guest.errors(), [id("W1")]);
    }
}
