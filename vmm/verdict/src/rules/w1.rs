//! W1: tables that can be walked. What cannot be is the walker's to say, `stage1::WalkProblem`.

use super::rule::{Releases, Rule, Tier};
use crate::RuleId;

pub(super) const RULE: Rule = Rule {
    id: RuleId::W1,
    title: "every table can be walked",
    asserts: "No table descriptor leads back to a table above it, outside RAM, or beyond the output size.",
    tier: Tier::Architecture,
    sources: &["Arm ARM D8.2, translation process"],
    needs: &[],
    releases: Releases::ANY,
    known: &[],
    synthetic: &["w1_a_table_outside_ram"],
    live: &["test_w1_loop", "test_w1_outside_ram", "test_w1_beyond_output_size"],
};

#[cfg(test)]
mod tests {
    use crate::tests::guest::*;
    use crate::RuleId;

    #[test]
    fn w1_a_table_outside_ram() {
        let mut guest = Guest::new();
        guest.fold(0, written());
        guest.assert_legal();
        guest
            .tables
            .change(VA, 2, |word| word & 0xfff | 0x7000_0000_0000);
        assert_eq!(guest.errors(), [RuleId::W1]);
    }
}
