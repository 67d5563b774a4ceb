// SPDX-License-Identifier: GPL-2.0-only
//! Tests that the rules describe themselves rightly.

use crate::testing::id;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use linux::release::Release;

use super::{markdown, text, untried, Tier, FAMILIES, RULES};
use crate::RuleId;

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The text of all files below, with this ending.
fn sources(place: &Path, ending: &str) -> String {
    let mut all = String::new();
    let mut left = vec![place.to_owned()];
    while let Some(place) = left.pop() {
        for entry in std::fs::read_dir(&place).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
            } else if path.extension().is_some_and(|found| found == ending) {
                all += &std::fs::read_to_string(&path).unwrap();
            }
        }
    }
    all
}

#[test]
fn every_name_has_its_rule_and_no_two_are_alike() {
    let mut before: Option<RuleId> = None;
    let mut titles = BTreeSet::new();
    for rule in RULES.iter() {
        assert_eq!(RuleId::named(rule.name), Some(rule.id()));
        assert!(before < Some(rule.id()), "{} is out of order", rule.name);
        assert!(titles.insert(rule.title), "{}", rule.title);
        assert!(rule.releases.tried.is_sorted(), "{}", rule.name);
        before = Some(rule.id());
    }
    // Each family is listed once, and each rule in one family.
    assert_eq!(
        RULES.len(),
        FAMILIES.iter().map(|family| family.len()).sum::<usize>()
    );
    assert_eq!(before, Some(id("N")));
}

#[test]
fn the_tests_that_a_rule_names_are_there() {
    let mut ours = sources(Path::new(env!("CARGO_MANIFEST_DIR")), "rs");
    ours += &sources(&checkout().join("vmm/recorder/tests"), "rs");
    let live = sources(&checkout().join("tests"), "py");
    for rule in RULES.iter() {
        assert!(!rule.synthetic.is_empty(), "{}", rule.name);
        for test in rule.synthetic {
            assert!(
                ours.contains(&format!("fn {test}()")),
                "{}: {test}",
                rule.name
            );
        }
        for test in rule.live {
            assert!(
                live.contains(&format!("def {test}(")),
                "{}: {test}",
                rule.name
            );
        }
        assert!(rule.tier == Tier::Information || !rule.sources.is_empty());
    }
}

#[test]
fn the_text_in_the_documentation_is_this_one() {
    let path = checkout().join("docs/rules.md");
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == markdown(),
        "{} is stale: out/folioscope rules --markdown > docs/rules.md",
        path.display()
    );
}

/// A line continuation that is not one would end a table's row and show in a terminal's paragraph.
#[test]
fn the_text_of_a_rule_is_one_line() {
    for rule in RULES.iter() {
        let known = rule.known.iter().map(|known| known.commit);
        for text in [rule.title, rule.asserts]
            .into_iter()
            .chain(rule.sources.iter().copied())
            .chain(known)
        {
            let odd =
                text.contains(['\n', '\\', '\t']) || text.contains("  ") || text.trim() != text;
            assert!(!odd && !text.is_empty(), "{}: {text:?}", rule.name);
        }
    }
}

#[test]
fn a_kernel_newer_than_any_is_told_so_by_rule() {
    let of = |text, kernel| untried(Release::parse(text).unwrap(), kernel);
    assert_eq!(of("6.12.117", false), None);
    // A stable release of a series that was tried is no news.
    assert_eq!(of("6.12.200", false), None);
    let process = of("99.1", false).unwrap();
    assert!(
        process.contains(" and S7 on kernels up to 7.3.4;"),
        "{process}"
    );
    assert!(
        process.contains("L4, ") && process.contains("L11, ") && !process.contains("K2"),
        "{process}"
    );
    let kernel = of("99.1", true).unwrap();
    assert!(
        kernel.contains("K1") && kernel.contains("K2") && !kernel.contains("L4"),
        "{kernel}"
    );
    // Every rule was tried on 7.3.4, with our patches where it needs them.
    assert_eq!(of("6.18.15", false), None);
    assert_eq!(of("7.3.4", true), None);
}

#[test]
fn a_terminal_gets_lines_that_fit() {
    let text = text(100);
    let longest = text.lines().map(str::len).max().unwrap();
    assert!((90..=100).contains(&longest), "{longest}");
    for rule in RULES.iter() {
        assert!(text.contains(rule.title));
    }
}

#[test]
fn the_documentation_has_a_section_for_each_rule_in_lines_that_fit() {
    let text = markdown();
    for rule in RULES.iter() {
        let heading = format!("## {}: {}\n", rule.name, rule.title);
        assert_eq!(text.matches(&heading).count(), 1, "{heading}");
        let (_, section) = text.split_once(&heading).unwrap();
        let section = section.split("\n## ").next().unwrap();
        // Each word of its text is there, and each assertion is a bullet of its own.
        let said = section.split_whitespace().filter(|word| *word != "-");
        let said: Vec<&str> = said.collect();
        let asserted: Vec<&str> = rule.asserts.split_whitespace().collect();
        assert!(
            said.windows(asserted.len()).any(|words| words == asserted),
            "{section}"
        );
        assert!(
            section.lines().any(|line| line.starts_with("- ")),
            "{section}"
        );
    }
    // A name of a test may be longer than all.
    let long = text.lines().filter(|line| line.trim_end().len() > 100);
    let long: Vec<&str> = long.filter(|line| line.trim().contains(' ')).collect();
    assert!(long.is_empty(), "{long:?}");
}
