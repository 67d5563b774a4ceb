// SPDX-License-Identifier: GPL-2.0-only
//! Texts on the rules themselves: a table, and remarks on findings.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use linux::release::Release;

use super::registry::RULES;
use super::rule::{list, Need, Rule, RuleId, Tier};
use crate::check::Check;

impl Tier {
    fn text(self) -> &'static str {
        match self {
            Tier::Architecture => "architecture",
            Tier::Linux => "Linux",
            Tier::Information => "information",
        }
    }
}

impl Need {
    fn text(self) -> &'static str {
        match self {
            Need::Vmas => "VMAs",
            Need::VmFlags => "VmFlags of files",
            Need::Records => "order records",
            Need::Expectations => "expectations",
            Need::Mirror => "a secondary MMU for tests (MMU_MIRROR_TEST)",
            Need::Contents => "what the process reads of its memory",
            Need::Processes => "all processes (the half on sharing)",
            Need::Folios => "the kernel's struct page (BTF)",
            Need::Numbering => "the numbering of the VMAs' pages",
            Need::Reverse => "the reverse mapping of the VMAs (BTF)",
            Need::Sizes
            | Need::Queues
            | Need::Zones
            | Need::Memory
            | Need::Lists
            | Need::Committed
            | Need::Swap
            | Need::Census
            | Need::PageCaches => "the kernel's own counters and lists (BTF, kallsyms)",
            Need::Getters => "what the kernel's own files say (the agent)",
            Need::Layout => "the kernel's layout (vmlinux, rodata=)",
            Need::Console => "the console alone",
            Need::Deadline => "an operation of a workload that is past its deadline",
            Need::Recording => "a recorded guest (`--record`, TCG)",
        }
    }
}

impl Rule {
    fn needed(&self) -> String {
        let mut texts: Vec<&str> = Vec::new();
        for (need, _) in self.needs {
            if !texts.contains(&need.text()) {
                texts.push(need.text());
            }
        }
        let texts = list(texts, ", ");
        if texts.is_empty() {
            "tables".to_owned()
        } else if self.looks_at_tables() {
            format!("tables, {texts}")
        } else {
            texts
        }
    }

    /// Returns whether its check walks tables.
    fn looks_at_tables(&self) -> bool {
        let others = [Need::Console, Need::Recording];
        !others.iter().any(|need| self.needs(*need))
    }
}

/// A note for a kernel that is newer than those on which Linux's rules were tried, on a process or on the kernel
/// half: which rules, and how new those were.
pub(crate) fn untried(release: Release, kernel_half: bool) -> Option<String> {
    let mut by_newest: BTreeMap<Release, Vec<RuleId>> = BTreeMap::new();
    // These look at no table at an instant.
    let others = [Need::Console, Need::Deadline];
    let on_tables = |rule: &&&'static Rule| !others.iter().any(|need| rule.needs(*need));
    let holds = |rule: &&&'static Rule| rule.releases.until.is_none_or(|until| release < until);
    let rules = RULES.iter().filter(on_tables).filter(holds);
    for rule in rules.filter(|rule| rule.tier == Tier::Linux) {
        if rule.needs(Need::Layout) == kernel_half {
            if let Some(newest) = rule.releases.newer(release) {
                by_newest.entry(newest).or_default().push(rule.id());
            }
        }
    }
    let each = by_newest
        .iter()
        .rev()
        .map(|(newest, rules)| format!("{} on kernels up to {newest}", list(rules, " and ")));
    let each: Vec<String> = each.collect();
    (!each.is_empty()).then(|| {
        format!(
            "kernel {release} is newer than those that rules were tried on: {}; they were applied all the same",
            each.join(", ")
        )
    })
}

/// Width of `docs/rules.md` in columns.
const COLUMNS: usize = 100;

/// `docs/rules.md`: a section for each rule, with a bullet for each assertion.
#[must_use]
pub fn markdown() -> String {
    let mut out = String::from("# Rules\n\n");
    for paragraph in [
        "Made by `folioscope rules --markdown`; a test fails while this file says something else. Each rule \
         is a value in a file of its family in `vmm/verdict/src/rules/`, with its text, its checks and its tests on \
         made-up tables.",
        "What each rule needs is named; *tables* are the CPU's registers too. \
         *Synthetic* tests are Rust tests on made-up tables: one that breaks the rule in just one way, one that does \
         not. *Live* tests are pytest's, on a running guest whose tables are changed from outside.",
    ] {
        wrapped(&mut out, ("", ""), paragraph, COLUMNS);
        out.push('\n');
    }
    let code = |names: &[&str]| list(names.iter().map(|name| format!("`{name}`")), ", ");
    for rule in RULES.iter() {
        let _ = writeln!(out, "## {}: {}\n", rule.name, rule.title);
        let mut bullet = |text: &str| wrapped(&mut out, ("- ", "  "), text, COLUMNS);
        for sentence in sentences(rule.asserts) {
            bullet(sentence);
        }
        for known in rule.known {
            let mended = list(known.mended, " and ");
            bullet(&format!(
                "Known and mended: \"{}\", in {mended}.",
                known.commit
            ));
        }
        out.push('\n');
        let mut about = format!("**Kind** {}.", rule.tier.text());
        let mut add = |label: &str, text: &str| {
            let _ = write!(about, " **{label}** {}.", text.trim_end_matches('.'));
        };
        if !rule.sources.is_empty() {
            add("Source", &list(rule.sources, "; "));
        }
        add("Needs", &rule.needed());
        let elsewhere = rule.checks.iter().filter_map(|check| match check {
            Check::Elsewhere(place) => Some(*place),
            _ => None,
        });
        let elsewhere: Vec<&str> = elsewhere.collect();
        if !elsewhere.is_empty() {
            add("Checked by", &list(elsewhere, ", "));
        }
        add("Releases", &rule.releases.text());
        add("Synthetic tests", &code(rule.synthetic));
        if !rule.live.is_empty() {
            add("Live tests", &code(rule.live));
        }
        wrapped(&mut out, ("", ""), &about, COLUMNS);
        out.push('\n');
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

/// The sentences of a text: they end with a full stop that a capital letter follows, outside of brackets.
fn sentences(text: &str) -> Vec<&str> {
    let (mut found, mut start, mut depth) = (Vec::new(), 0, 0);
    for (at, letter) in text.char_indices() {
        depth += i32::from(letter == '(') - i32::from(letter == ')');
        let behind = text[at..].strip_prefix(". ");
        if depth == 0 && behind.is_some_and(|behind| behind.starts_with(char::is_uppercase)) {
            found.push(&text[start..=at]);
            start = at + 2;
        }
    }
    found.push(&text[start..]);
    found
}

/// Adds a text in lines of `width`, the first with the one prefix and the others with the other.
fn wrapped(out: &mut String, (first, others): (&str, &str), text: &str, width: usize) {
    let mut line = first.to_owned();
    let mut empty = true;
    for word in text.split_whitespace() {
        if !empty && line.len() + 1 + word.len() > width {
            let _ = writeln!(out, "{}", line.trim_end());
            line = others.to_owned();
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    let _ = writeln!(out, "{}", line.trim_end());
}

/// The rules for a terminal: a paragraph each, of lines that are `width` wide.
#[must_use]
pub fn text(width: usize) -> String {
    let mut out = String::new();
    for rule in RULES.iter() {
        let _ = writeln!(
            out,
            "{:<10} {} [{}]",
            rule.name,
            rule.title,
            rule.tier.text()
        );
        let mut paragraph = |label: &str, text: &str| {
            let first = match label {
                "" => "           ".to_owned(),
                label => format!("           {label} "),
            };
            wrapped(&mut out, (&first, "            "), text, width);
        };
        paragraph("", rule.asserts);
        for known in rule.known {
            let mended = list(known.mended, " and ");
            paragraph("mended:", &format!("\"{}\", in {mended}", known.commit));
        }
        if !rule.sources.is_empty() {
            paragraph("source:", &list(rule.sources, "; "));
        }
        paragraph("needs:", &rule.needed());
        paragraph("releases:", &rule.releases.text());
        out.push('\n');
    }
    out
}
