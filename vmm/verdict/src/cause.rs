// SPDX-License-Identifier: GPL-2.0-only
//! Findings of one cause are one finding, with a count and the first places.

use std::collections::btree_map::Entry;
use std::collections::BTreeMap;

use crate::finding::Place;
use crate::{Finding, RuleId};

/// The cause that findings share: the rule, and the sentence without addresses, words and counts.
pub(crate) type Cause = (RuleId, String);

/// Places of one finding that are listed, the first apart.
const LISTED: usize = 15;

/// Words before a number that is part of a name.
const NAMES: [&str; 6] = ["bit", "bits", "level", "order", "EL", "TTBR"];

/// The cause of what `message` says.
pub(crate) fn cause(rule: RuleId, message: &str) -> Cause {
    let mut text = String::with_capacity(message.len());
    let mut before = "";
    for word in message.split(' ') {
        let core = word.trim_matches(|c| "()[],.;:".contains(c));
        let digits = core.strip_prefix("0x").map_or((core, 10), |hex| (hex, 16));
        let number = u64::from_str_radix(digits.0, digits.1).is_ok();
        text += match number && !NAMES.contains(&before) {
            true => "#",
            false => word,
        };
        text.push(' ');
        before = core;
    }
    (rule, text)
}

/// Makes findings of one cause one, in the place of the first. `beyond` is how many more there are of a cause than
/// were kept; what it accounts for is taken from `dropped`.
pub(crate) fn gather(
    findings: &mut Vec<Finding>,
    dropped: &mut BTreeMap<RuleId, u64>,
    beyond: &mut BTreeMap<Cause, u64>,
) {
    let mut first: BTreeMap<Cause, usize> = BTreeMap::new();
    let mut gathered: Vec<Finding> = Vec::new();
    for finding in findings.drain(..) {
        match first.entry(cause(finding.rule, &finding.message)) {
            Entry::Vacant(new) => {
                new.insert(gathered.len());
                gathered.push(finding);
            }
            Entry::Occupied(at) => {
                let one = &mut gathered[*at.get()];
                one.places += finding.places;
                let room = LISTED.saturating_sub(one.more.len());
                let places = std::iter::once(Place::of(&finding)).chain(finding.more);
                one.more.extend(places.take(room));
            }
        }
    }
    for (cause, count) in std::mem::take(beyond) {
        let (Some(&at), Some(left)) = (first.get(&cause), dropped.get_mut(&cause.0)) else {
            continue;
        };
        let taken = count.min(*left);
        gathered[at].places += taken;
        *left -= taken;
    }
    dropped.retain(|_, left| *left > 0);
    *findings = gathered;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::id;

    #[test]
    fn a_cause_is_the_sentence_without_its_numbers() {
        let of = |message| cause(id("K2"), message).1;
        let one = of(
            "the entry for VA 0xffff000000001000 (0x00e8000040001f03) lacks it (bit 55), 3 of 16",
        );
        assert_eq!(one, of("the entry for VA 0xffff00000000f000 (0x00e800004000ff03) lacks it (bit 55), 12 of 128"));
        assert_ne!(one, of("the entry for VA 0xffff000000001000 (0x00e8000040001f03) lacks it (bit 52), 3 of 16"));
        assert_ne!(of("differ in AP[1]"), of("differ in AP[2]"));
        assert_ne!(of("at level 3 only"), of("at level 2 only"));
        assert_ne!(cause(id("A3"), "x"), cause(id("A4"), "x"));
    }
}
