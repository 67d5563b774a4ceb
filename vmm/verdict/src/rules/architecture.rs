//! A1 to A8: the architecture's rules on descriptors. Their checks are `stage1::check`.

use stage1::ArchRule;

use super::rule::{Releases, Rule, Tier};
use crate::RuleId;

const fn rule(
    id: RuleId,
    arch: ArchRule,
    asserts: &'static str,
    sources: &'static [&'static str],
    live: &'static [&'static str],
) -> Rule {
    Rule {
        id,
        title: arch.title(),
        asserts,
        tier: Tier::Architecture,
        sources,
        needs: &[],
        releases: Releases::ANY,
        known: &[],
        synthetic: &["each_rule_of_the_architecture_comes_through"],
        live,
    }
}

pub(super) const A1: Rule = rule(
    RuleId::A1,
    ArchRule::A1,
    "A contiguous group is naturally aligned in its table.",
    &["Arm ARM D8.7.1, R_CBXXM, R_WMNPV"],
    &["test_a1_group_between_two"],
);

pub(super) const A2: Rule = rule(
    RuleId::A2,
    ArchRule::A2,
    "A group's output range is aligned to the group's size.",
    &["Arm ARM D8.7.1, R_CBXXM, R_WMNPV"],
    &["test_folded_block", "test_contiguous_pmd"],
);

pub(super) const A3: Rule = rule(
    RuleId::A3,
    ArchRule::A3,
    "A group's output addresses are consecutive.",
    &["Arm ARM D8.7.1, R_SKQHL"],
    &[
        "test_folded_block",
        "test_bits_9_8_are_what_the_regime_says",
    ],
);

pub(super) const A4: Rule = rule(
    RuleId::A4,
    ArchRule::A4,
    "All valid members of a group agree on the Contiguous bit. Members that are not valid are L1's.",
    &["Arm ARM D8.7.1.1, R_QTRPM, I_PGVGZ"],
    &["test_folded_block"],
);

pub(super) const A5: Rule = rule(
    RuleId::A5,
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

pub(super) const A6: Rule = rule(
    RuleId::A6,
    ArchRule::A6,
    "The Contiguous bit is 0 at levels where the granule has no groups.",
    &["Arm ARM D8.7.1, R_HMQXG"],
    &["test_a6_reserved_contiguous_bit"],
);

pub(super) const A7: Rule = rule(
    RuleId::A7,
    ArchRule::A7,
    "No reserved descriptor type, no output address above the output size, no RES0 bit that is set.",
    &["Arm ARM D8.3, VMSAv8-64 descriptor formats"],
    &["test_a7_reserved_type", "test_a7_beyond_output_size"],
);

pub(super) const A8: Rule = rule(
    RuleId::A8,
    ArchRule::A8,
    "Blocks only at levels where the granule has them.",
    &["Arm ARM D8.3, VMSAv8-64 Block descriptors"],
    &["test_a8_block_above"],
);

#[cfg(test)]
mod tests {
    use crate::tests::guest::*;
    use crate::RuleId;
    use stage1::testing::Layout;
    use stage1::{Granule, Half};

    #[test]
    fn a1_to_a5_come_with_the_words_of_the_group() {
        let mut guest = Guest::new();
        guest.fold(0, written());
        guest.change(3, |word| word ^ CONT);
        let verdict = guest.judge();
        let finding = &verdict.findings[0];
        assert_eq!(guest.errors(), [RuleId::A4]);
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
        type Case = (RuleId, fn(u64) -> u64);
        let cases: [Case; 4] = [
            (RuleId::A3, |word| word ^ 1 << 30),
            (RuleId::A4, |word| word ^ CONT),
            (RuleId::A5, |word| word ^ 1 << 53),
            (RuleId::A7, |word| word | 1 << 48),
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
        assert_eq!(guest.errors(), [RuleId::A2]);
        // A1: aligned in physical memory, from an odd place in the table on.
        let mut guest = Guest::new();
        for at in 0..32 {
            let at = at * 4096;
            guest
                .tables
                .map_page(VA + 0x8000 + at, PA + at, written(), true);
        }
        assert!(guest.errors().contains(&RuleId::A1));
        // A6: 16K blocks at level 1 (with DS) have no group. A8: without DS there are none.
        let layout = Layout::new(Granule::K16, Half::Lower, 47);
        for (layout, rule) in [(layout.wide(), RuleId::A6), (layout, RuleId::A8)] {
            let maps = "1000000000-2000000000 rw-p 00000000 00:00 0 ";
            let mut guest = Guest::of(layout).maps(maps);
            let cont = u64::from(rule == RuleId::A6) * CONT;
            guest
                .tables
                .poke(0x10_0000_0000, 1, 0b01 | 1 << 10 | 1 << 11 | cont);
            assert_eq!(guest.errors(), [rule]);
        }
    }
}
