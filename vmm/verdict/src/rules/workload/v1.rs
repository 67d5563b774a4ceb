// SPDX-License-Identifier: GPL-2.0-only
//! V1: the kernel reports no fault of its own. Its check is [`linux::console::Scanner`]'s.

use linux::console::ConsoleReport;

use crate::check::Check;
use crate::rules::rule::{Identity, Need, OnBreak, Releases, Rule, Tier, V6_12_117};
use crate::Finding;

/// The rule.
pub static RULE: Rule = Rule {
    name: "V1",
    title: "the kernel reports no fault of its own",
    asserts: "The kernel's console, or its log in memory where the guest is not ours or a core is judged, shows no \
              WARNING, BUG, oops or panic, no bad page, page map or rss-counter, nothing of KASAN and lockdep, no stall, \
              hung task or lockup. Lines that only have such a word are none; what a program writes to /dev/kmsg looks \
              like the kernel's own on a console, and not in the log. `quiet` and `loglevel=` hide warnings from a \
              console.",
    tier: Tier::Linux,
    sources: &[
        "kernel/panic.c, __warn()",
        "lib/bug.c, report_bug()",
        "arch/arm64/kernel/traps.c, die()",
        "mm/page_alloc.c, bad_page()",
        "mm/memory.c, print_bad_pte()",
        "kernel/fork.c, check_mm()",
        "mm/kasan/report.c",
        "kernel/locking/lockdep.c",
        "kernel/watchdog.c",
        "kernel/hung_task.c",
        "kernel/rcu/tree_stall.h",
    ],
    needs: &[Need::Console.all()],
    releases: Releases {
        since: None,
        until: None,
        tried: &[V6_12_117],
    },
    known: &[],
    identity: Identity::Words,
    on_break: OnBreak::GoOn,
    checks: &[Check::Elsewhere("the scanner of consoles and logs, `console::Scanner`")],
    synthetic: &[
        "a_warning_is_one_report_to_its_end",
        "pages_that_are_wrong",
        "no_false_alarm",
    ],
    live: &[
        "test_a_page_that_is_lost",
        "test_a_page_that_is_none",
        "test_run_ends_with_errors",
    ],
};

/// Returns the finding of a report: its headline, and below it all lines.
#[must_use]
pub fn kernel_report(report: &ConsoleReport) -> Finding {
    let mut message = format!("the kernel reports: {}", report.headline());
    if report.lines.len() > 1 {
        for line in &report.lines {
            message.push_str("\n       ");
            message.push_str(&line.to_string());
        }
    }
    Finding::new(&RULE, message)
}
