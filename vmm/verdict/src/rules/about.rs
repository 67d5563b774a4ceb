//! What is said of the rules themselves: a table, and remarks on findings.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use linux::release::Release;

use super::{Known, Need, Releases, Rule, RuleId, Tier, RULES};

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
            Need::Processes => "all processes (the half on sharing)",
            Need::Folios => "the kernel's struct page (BTF)",
            Need::Counted => "the kernel's own counters and lists (BTF, kallsyms)",
            Need::Getters => "what the kernel's own files say (the agent)",
            Need::Layout => "the kernel's layout (vmlinux, rodata=)",
            Need::Console => "the console alone",
            Need::Recording => "a recorded guest (`--record`, TCG)",
        }
    }
}

fn list<T: ToString>(items: impl IntoIterator<Item = T>, last: &str) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    match items.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        [rest @ .., end] => format!("{}{last}{end}", rest.join(", ")),
    }
}

impl Releases {
    fn text(self) -> String {
        let from = self.since.map(|since| format!("since {since}"));
        let to = self.until.map(|until| format!("before {until}"));
        let bounds: Vec<String> = from.into_iter().chain(to).collect();
        let bounds = match bounds.is_empty() {
            true => "all".to_owned(),
            false => bounds.join(", "),
        };
        format!("{bounds}; tried on {}", list(self.tried, " and "))
    }

    /// The newest on which the rule was tried, where `release` is of a newer series.
    fn newer(self, release: Release) -> Option<Release> {
        let newest = self.tried.iter().copied().max()?;
        (release > newest && !release.same_series(newest)).then_some(newest)
    }
}

impl Known {
    /// Whether this kernel lacks the commit.
    fn lacks(&self, release: Release) -> bool {
        let series = self
            .mended
            .iter()
            .find(|mended| mended.same_series(release));
        let first = series.or(self.mended.iter().max());
        first.is_some_and(|first| release < *first)
    }
}

impl Rule {
    fn needs(&self) -> String {
        let texts = self.needs.iter().map(|need| need.text());
        let texts = list(texts, ", ");
        if texts.is_empty() {
            "tables".to_owned()
        } else if self.needs.contains(&Need::Console) || self.needs.contains(&Need::Recording) {
            texts
        } else {
            format!("tables, {texts}")
        }
    }
}

/// What is to be said of a finding by `rule` on this kernel beside what was found: the commit that mends it, and
/// that the rule was not tried on a kernel as new as this.
pub(crate) fn remark(rule: RuleId, message: &str, release: Option<Release>) -> Vec<String> {
    let (rule, Some(release)) = (rule.rule(), release) else {
        return Vec::new();
    };
    let known = rule.known.iter();
    let known = known.filter(|known| message.contains(known.mark) && known.lacks(release));
    let known = known.map(|known| {
        format!(
            "the mark of a fault that upstream has mended: \"{}\", in {}; this kernel is {release}",
            known.commit,
            list(known.mended, " and ")
        )
    });
    let newer = rule
        .releases
        .newer(release)
        .filter(|_| rule.tier == Tier::Linux);
    let newer = newer.map(|newest| {
        format!(
            "kernel {release} is newer than those that {} was tried on (up to {newest})",
            rule.id
        )
    });
    known.chain(newer).collect()
}

/// A note for a kernel that is newer than those on which Linux's rules were tried, on a process or on the kernel
/// half: which rules, and how new those were.
pub(crate) fn untried(release: Release, kernel_half: bool) -> Option<String> {
    let mut by_newest: BTreeMap<Release, Vec<RuleId>> = BTreeMap::new();
    // These two look at no table.
    let on_tables = |rule: &&&Rule| !matches!(rule.id, RuleId::F1 | RuleId::V1);
    let holds = |rule: &&&Rule| rule.releases.until.is_none_or(|until| release < until);
    let rules = RULES.iter().filter(on_tables).filter(holds);
    for rule in rules.filter(|rule| rule.tier == Tier::Linux) {
        if rule.needs.contains(&Need::Layout) == kernel_half {
            if let Some(newest) = rule.releases.newer(release) {
                by_newest.entry(newest).or_default().push(rule.id);
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

/// The table of `docs/rules.md`, with what stands above it.
#[must_use]
pub fn markdown() -> String {
    let mut out = String::from(
        "# Rules\n\n\
         Made by `folioscope rules --markdown`; a test fails while this file says something else. The text of each \
         rule, its check and its test on made-up tables are in one module of `vmm/verdict/src/rules/` (A1 to A8 are \
         checked by `vmm/stage1`, S1 to S7 by `vmm/recorder`).\n\n\
         Every rule but V1 and S1 to S7 needs the tables and the CPU's registers; what else it needs is named. *Synthetic* tests are Rust \
         tests on made-up tables: one that breaks the rule in just one way, one that does not. *Live* tests are \
         pytest's, on a running guest whose tables are changed from outside.\n\n\
         | rule | asserts | source | needs | releases | tested |\n|---|---|---|---|---|---|\n",
    );
    let code = |names: &[&str]| list(names.iter().map(|name| format!("`{name}`")), ", ");
    for rule in RULES {
        let known = rule.known.iter().map(|known| {
            format!(
                " Known and mended: \"{}\", in {}.",
                known.commit,
                list(known.mended, " and ")
            )
        });
        let live = match rule.live.is_empty() {
            true => "none".to_owned(),
            false => code(rule.live),
        };
        // Within a table a bar would end the cell.
        let cells = [
            format!("**{}** ({})", rule.id, rule.tier.text()),
            rule.asserts.to_owned() + &known.collect::<String>(),
            list(rule.sources, "; "),
            rule.needs(),
            rule.releases.text(),
            format!("synthetic: {}; live: {live}", code(rule.synthetic)),
        ]
        .map(|cell| cell.replace('|', "\\|"));
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    out
}

/// The rules for a terminal: a paragraph each, of lines that are `width` wide.
#[must_use]
pub fn text(width: usize) -> String {
    let mut out = String::new();
    for rule in RULES {
        let _ = writeln!(out, "{:<10} {} [{}]", rule.id, rule.title, rule.tier.text());
        let mut paragraph = |label: &str, text: &str| {
            let mut line = format!("           {label}");
            for word in text.split_whitespace() {
                if line.len() + 1 + word.len() > width {
                    let _ = writeln!(out, "{}", line.trim_end());
                    line = " ".repeat(12);
                }
                if !line.ends_with(' ') {
                    line.push(' ');
                }
                line.push_str(word);
            }
            let _ = writeln!(out, "{}", line.trim_end());
        };
        paragraph("", rule.asserts);
        for known in rule.known {
            let mended = list(known.mended, " and ");
            paragraph("mended:", &format!("\"{}\", in {mended}", known.commit));
        }
        if !rule.sources.is_empty() {
            paragraph("source:", &list(rule.sources, "; "));
        }
        paragraph("needs:", &rule.needs());
        paragraph("releases:", &rule.releases.text());
        out.push('\n');
    }
    out
}
