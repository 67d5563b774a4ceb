// SPDX-License-Identifier: GPL-2.0-only
//! Which lines of a kernel's console begin a report, each by the format string that prints it.

/// How a report ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// With `---[ end trace` (`print_oops_end_marker()`).
    Oops,
    /// With the end of its stack.
    Splat,
    /// With a line of `=`: KASAN, KFENCE, KCSAN and UBSAN.
    Framed,
    /// With its only line.
    Line,
    /// With `---[ end Kernel panic`.
    Panic,
}

impl Start {
    /// Returns whether this is a report's last line.
    pub(super) fn ends_with(self, text: &str) -> bool {
        match self {
            Start::Oops => text.starts_with("---[ end trace "),
            Start::Panic => text.starts_with("---[ end Kernel panic"),
            Start::Framed => is_bar(text),
            Start::Splat | Start::Line => false,
        }
    }
}

/// `CUT_HERE` (asm-generic/bug.h).
pub(super) fn cuts(text: &str) -> bool {
    text == "------------[ cut here ]------------"
}

/// A line of `=` only, as lockdep and KASAN frame theirs with.
pub(super) fn is_bar(text: &str) -> bool {
    text.len() >= 20 && text.bytes().all(|byte| byte == b'=')
}

/// Returns how the report ends that a line begins. `below_bar`: the line above was one of `=`.
pub(super) fn start(text: &str, below_bar: bool) -> Option<Start> {
    /// The words of an oops on arm64: kernel/traps.c, mm/fault.c; and of BUG(): lib/bug.c.
    const OOPS: [&str; 6] = [
        "kernel BUG at ",
        "Internal error: ",
        "Unable to handle kernel ",
        "Unexpected kernel BRK exception at EL1",
        "Insufficient stack space to handle exception!",
        "SError Interrupt on CPU",
    ];
    if cuts(text) || OOPS.iter().any(|start| text.starts_with(start)) {
        return Some(Start::Oops);
    }
    if text.starts_with("Kernel panic - not syncing") {
        return Some(Start::Panic);
    }
    if let Some(rest) = text.strip_prefix("WARNING: ") {
        // lockdep and RCU; all else with this word is advice (a boot parameter, the firmware, eBPF).
        return match below_bar {
            true => Some(Start::Splat),
            false => warns(rest).then_some(Start::Oops),
        };
    }
    if below_bar && text.starts_with("[ BUG: ") {
        return Some(Start::Splat);
    }
    if text.starts_with("UBSAN: ") && text.contains(" in ") {
        return Some(Start::Framed);
    }
    if let Some(rest) = said(text, "BUG: ") {
        // check_mm() of kernel/fork.c, and those of mm/ that tell how many they left out.
        let lone = rest.starts_with("Bad rss-counter state ")
            || rest.starts_with("non-zero pgtables_bytes on freeing mm")
            || rest.ends_with(" messages suppressed");
        return Some(match rest {
            _ if lone => Start::Line,
            _ if below_bar => Start::Framed,
            _ => Start::Splat,
        });
    }
    if text.starts_with("BUG ")
        && (text.contains(" (Not tainted): ") || text.contains(" (Tainted: "))
    {
        return Some(Start::Splat); // slab_bug() of mm/slub.c
    }
    if let Some(rest) = said(text, "INFO: ") {
        return is_stall(rest, below_bar).then_some(Start::Splat);
    }
    if said(text, "Watchdog detected hard LOCKUP on cpu ").is_some() {
        return Some(Start::Splat);
    }
    (is_bad_table(text) || is_bad_swap(text)).then_some(Start::Line)
}

/// Behind `WARNING: `: `CPU: 0 PID: 1 at mm/memory.c:1 function+0x10/0x20` of `__warn()` (kernel/panic.c), and since
/// 6.19 `mm/memory.c:1 at function+0x10/0x20, CPU#0: init/1`.
fn warns(rest: &str) -> bool {
    let place = rest.split(' ').any(|word| {
        let offset = word.split_once("+0x").map(|(_, rest)| rest);
        offset.is_some_and(|rest| rest.contains("/0x"))
    });
    rest.contains(" at ") && (rest.starts_with("CPU: ") && rest.contains(" PID: ") || place)
}

/// Behind `INFO: `: a hung task (kernel/hung_task.c), a stall (kernel/rcu/), lockdep.
fn is_stall(rest: &str, below_bar: bool) -> bool {
    let stalls = [
        "self-detected stall",
        "detected stall",
        "detected expedited stall",
    ];
    rest.starts_with("task ") && rest.contains(" blocked for more than ")
        || stalls.iter().any(|stall| rest.contains(stall))
        || rest.starts_with("trying to register non-static key")
        || below_bar && !rest.starts_with("lockdep is turned off")
}

/// Returns the text after `words`, at the line's start or behind the prefix of a subsystem (`watchdog: `).
fn said<'t>(text: &'t str, words: &str) -> Option<&'t str> {
    if let Some(rest) = text.strip_prefix(words) {
        return Some(rest);
    }
    let (prefix, rest) = text.split_once(": ")?;
    let plain =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte);
    if prefix.is_empty() || !prefix.bytes().all(plain) {
        return None;
    }
    // watchdog: CPU0: Watchdog detected hard LOCKUP on cpu 0
    let rest = match rest.split_once(": ") {
        Some((cpu, behind)) if cpu.starts_with("CPU") => behind,
        _ => rest,
    };
    rest.strip_prefix(words)
}

/// `pte_ERROR()` and its like (asm/pgtable.h): `mm/memory.c:434: bad pmd 0000000000000001.`
fn is_bad_table(text: &str) -> bool {
    let mut parts = text.splitn(3, ':');
    let (Some(file), Some(line), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let tables = ["pte", "pmd", "pud", "p4d", "pgd"];
    let (word, value) = match rest
        .strip_prefix(" bad ")
        .and_then(|rest| rest.split_once(' '))
    {
        Some(found) => found,
        None => return false,
    };
    (file.ends_with(".c") || file.ends_with(".h"))
        && line.parse::<u32>().is_ok()
        && tables.contains(&word)
        && value
            .trim_end_matches('.')
            .bytes()
            .all(|byte| byte.is_ascii_hexdigit())
}

/// `swap_info_get: Bad swap offset entry 3ffff` (mm/swapfile.c).
fn is_bad_swap(text: &str) -> bool {
    let kinds = [
        "Bad swap file entry ",
        "Bad swap offset entry ",
        "Unused swap file entry ",
        "Unused swap offset entry ",
    ];
    kinds.iter().any(|kind| said(text, kind).is_some())
}

/// Lines of a report that may follow its stack.
pub(super) fn is_dump(text: &str) -> bool {
    const DUMPS: [&str; 18] = [
        "Code: ",
        "Allocated by task",
        "Freed by task",
        "Last potentially related work",
        "Second to last potentially",
        "The buggy address",
        "The physical address",
        "page:",
        "page_type:",
        "flags:",
        "raw:",
        "head:",
        "page dumped because",
        "Memory state around",
        ">f",
        "Disabling lock debugging",
        "Showing all locks",
        "Slab ",
    ];
    text.is_empty() || DUMPS.iter().any(|start| text.starts_with(start))
}
