//! All rules, in the order of their names.

use std::borrow::Cow;

use schemars::{json_schema, JsonSchema, Schema, SchemaGenerator};

use super::rule::Rule;
use super::{
    architecture, c1, c2, c3, f1, information, k1, k2, l1, l10, l11, l12, l13, l14, l15, l16, l17,
    l18, l2, l3, l4, l5, l6, l7, l8, l9, sequences, v1, w1,
};
use crate::RuleId;

/// All, in order.
pub const RULES: [&Rule; 43] = [
    &architecture::A1,
    &architecture::A2,
    &architecture::A3,
    &architecture::A4,
    &architecture::A5,
    &architecture::A6,
    &architecture::A7,
    &architecture::A8,
    &w1::RULE,
    &l1::RULE,
    &l2::RULE,
    &l3::RULE,
    &l4::RULE,
    &l5::RULE,
    &l6::RULE,
    &l7::RULE,
    &l8::RULE,
    &l9::RULE,
    &l10::RULE,
    &l11::RULE,
    &l12::RULE,
    &l13::RULE,
    &l14::RULE,
    &l15::RULE,
    &l16::RULE,
    &l17::RULE,
    &l18::RULE,
    &c1::RULE,
    &c2::RULE,
    &c3::RULE,
    &k1::RULE,
    &k2::RULE,
    &f1::RULE,
    &v1::RULE,
    &sequences::S1,
    &sequences::S2,
    &sequences::S3,
    &sequences::S4,
    &sequences::S5,
    &sequences::S6,
    &sequences::S7,
    &information::ELIGIBLE,
    &information::NOT_JUDGED,
];

/// Each rule is where its name is among the names, so that a name's rule is found without a search that could fail.
const _: () = {
    let mut at = 0;
    while at < RULES.len() {
        assert!(RULES[at].id as usize == at);
        at += 1;
    }
    assert!(RuleId::NotJudged as usize + 1 == RULES.len());
};

impl RuleId {
    /// The rule itself.
    pub fn rule(self) -> &'static Rule {
        RULES[self as usize]
    }

    /// What the rule asserts, in a few words.
    pub fn title(self) -> &'static str {
        self.rule().title
    }
}

impl JsonSchema for RuleId {
    fn schema_name() -> Cow<'static, str> {
        "RuleId".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let one = |rule: &&Rule| serde_json::json!({"const": rule.id, "description": rule.title});
        let each: Vec<_> = RULES.iter().map(one).collect();
        json_schema!({"type": "string", "description": "A rule, or a kind of information.", "oneOf": each})
    }
}
