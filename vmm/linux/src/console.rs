// SPDX-License-Identifier: GPL-2.0-only
//! Finds kernel error reports in the guest console.
//!
//! A [`Scanner`] takes the console's bytes as they come and gives [`ConsoleReport`] reports, each with its lines: up to
//! its `---[ end trace`, or to the end of its stack. Which line begins one is in [`starts`], by the kernel's own
//! format strings; a line that only has one of the words in it begins nothing.
//!
//! What a program writes to `/dev/kmsg` looks like the kernel's own on a console, and is taken for it.

mod starts;

use untrusted::Text;

use starts::{is_bar, start, Start};

/// Lines of a report that are kept.
const MOST_LINES: usize = 200;
/// Between two lines of one report lies less than this, in microseconds of the guest.
const GAP: u64 = 1_000_000;
/// A line that is longer is none of the kernel's, and dropped.
const LONGEST_LINE: usize = 16 << 10;
/// A guest that reports without end has no more than that kept of it until its reports are taken, in bytes; the others are counted.
const MOST_KEPT: usize = 4 << 20;

/// One report of the kernel about a fault of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsoleReport {
    /// Microseconds after boot, where the kernel says so (`CONFIG_PRINTK_TIME`).
    pub at: Option<u64>,
    /// Its lines, without their times; those after the first 200 are not kept.
    pub lines: Vec<Text>,
}

impl ConsoleReport {
    /// The line that says what is wrong.
    pub fn headline(&self) -> Text {
        let frame = |line: &str| is_bar(line) || line.starts_with("---") || line.is_empty();
        let says = |line: &&Text| {
            ["WARNING: ", "kernel BUG at ", "UBSAN: "]
                .iter()
                .any(|start| line.starts_with(start))
        };
        // WARN() prints its text before the line that says where.
        let first = self.lines.iter().take(8).find(says);
        let first = first.or_else(|| self.lines.iter().find(|line| !frame(line)));
        first.or(self.lines.first()).cloned().unwrap_or_default()
    }
}

/// Finds reports in what comes from a console.
#[derive(Clone, Debug, Default)]
pub struct Scanner {
    /// A line whose end has not come yet.
    partial: Vec<u8>,
    /// The kernel says when: a line without a time is a program's.
    timed: bool,
    /// The newest time.
    newest: u64,
    /// A line of `=`, which may begin a report.
    bar: Option<String>,
    open: Option<Open>,
    done: Vec<ConsoleReport>,
    /// Bytes of `done`.
    kept: usize,
    /// Reports that came when `done` had its fill.
    more: u64,
    /// When the last of `done` ended.
    ended: Option<u64>,
}

/// A report whose end has not come yet.
#[derive(Clone, Debug)]
struct Open {
    spoken: ConsoleReport,
    start: Start,
    /// The time of its last line.
    last: Option<u64>,
    /// Its stack has begun.
    stack: bool,
    lines: usize,
}

impl Scanner {
    /// Takes what the console has shown next.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.partial.extend_from_slice(bytes);
        let mut from = 0;
        while let Some(length) = self.partial[from..].iter().position(|&byte| byte == b'\n') {
            let line = String::from_utf8_lossy(&self.partial[from..from + length]).into_owned();
            self.line(line.trim_end_matches(['\r', ' ']));
            from += length + 1;
        }
        self.partial.drain(..from);
        if self.partial.len() > LONGEST_LINE {
            self.partial.clear();
        }
    }

    /// Returns whether a report has begun of which more is to come.
    pub fn is_open(&self) -> bool {
        let more = |open: &Open| open.start != Start::Line;
        self.open.as_ref().is_some_and(more)
    }

    /// The reports that are whole.
    pub fn take(&mut self) -> Vec<ConsoleReport> {
        self.kept = 0;
        let more = std::mem::take(&mut self.more);
        if more > 0 {
            let line =
                format!("{more} more reports of the kernel, which the console's log may have");
            self.done.push(ConsoleReport {
                at: None,
                lines: vec![line.into()],
            });
        }
        std::mem::take(&mut self.done)
    }

    /// All reports, the one whose end has not come included.
    pub fn finish(&mut self) -> Vec<ConsoleReport> {
        self.close();
        self.take()
    }

    fn line(&mut self, line: &str) {
        let (at, text) = match timed(line) {
            Some((at, text)) => {
                self.timed = true;
                // A program that prints the kernel's log again.
                if at + GAP < self.newest {
                    return;
                }
                self.newest = self.newest.max(at);
                (Some(at), text)
            }
            None if self.timed => return,
            None => (None, line),
        };
        let bar = self.bar.take();
        let start = start(text, bar.is_some());
        let goes_on = (self.open.as_ref()).is_some_and(|open| open.takes(at, text, start));
        if goes_on {
            self.bar = is_bar(text).then(|| text.to_owned());
            self.add(at, text);
            return;
        }
        self.close();
        if is_bar(text) {
            self.bar = Some(text.to_owned());
        }
        let Some(start) = start else { return };
        // An oops that ends in a panic is one report.
        let close = |ended: u64| at.is_some_and(|at| at < ended + GAP);
        if start == Start::Panic && self.ended.is_some_and(close) {
            if let Some(spoken) = self.done.pop() {
                self.open = Some(Open {
                    lines: spoken.lines.len(),
                    spoken,
                    start,
                    last: at,
                    stack: false,
                });
            }
        }
        if self.open.is_none() {
            self.open = Some(Open {
                spoken: ConsoleReport {
                    at,
                    lines: bar.into_iter().map(Text::from).collect(),
                },
                start,
                last: at,
                stack: false,
                lines: 0,
            });
        }
        self.add(at, text);
    }

    /// Adds a line to the open report, which may be its last.
    fn add(&mut self, at: Option<u64>, text: &str) {
        let Some(open) = &mut self.open else { return };
        open.lines += 1;
        open.last = at.or(open.last);
        open.stack |= text.starts_with("Call trace:");
        if open.spoken.lines.len() < MOST_LINES {
            open.spoken.lines.push(text.into());
        }
        if open.start.ends_with(text) && open.lines > 1 {
            self.close();
        }
    }

    fn close(&mut self) {
        if let Some(open) = self.open.take() {
            self.ended = open.last;
            if self.kept > MOST_KEPT {
                self.more += 1;
                return;
            }
            self.kept += open
                .spoken
                .lines
                .iter()
                .map(|line| line.len())
                .sum::<usize>();
            self.done.push(open.spoken);
        }
    }
}

impl Open {
    /// Returns whether a line is part of it.
    fn takes(&self, at: Option<u64>, text: &str, start: Option<Start>) -> bool {
        let late = |(last, at): (u64, u64)| at > last + GAP;
        if self.last.zip(at).is_some_and(late) || self.lines > 5 * MOST_LINES {
            return false;
        }
        if self.start == Start::Line {
            // One for each counter.
            let counter = "BUG: Bad rss-counter state";
            let first = self.spoken.lines.first();
            return text.starts_with(counter) && first.is_some_and(|it| it.starts_with(counter));
        }
        match start {
            // The line below "cut here", or below the address of an oops.
            Some(Start::Oops) => !self.stack && self.start == Start::Oops && !starts::cuts(text),
            Some(Start::Framed) => {
                !self.stack && self.start == Start::Oops && text.starts_with("UBSAN: ")
            }
            Some(_) => false,
            // The frame of the next one.
            None if self.start == Start::Splat && is_bar(text) => false,
            // What comes below the stack of one that has no mark at its end.
            None if self.start == Start::Splat && self.stack => {
                starts::is_dump(text) || text.starts_with([' ', '\t'])
            }
            None => true,
        }
    }
}

/// A line's time in microseconds, and its text. What a program printed before it on the same line is left out.
fn timed(line: &str) -> Option<(u64, &str)> {
    for (place, _) in line.match_indices('[') {
        let (stamp, text) = line[place + 1..].split_once(']')?;
        let Some((seconds, micros)) = stamp.trim_start_matches(' ').split_once('.') else {
            continue;
        };
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if micros.len() != 6 || !digits(seconds) || !digits(micros) {
            continue;
        }
        let (Ok(seconds), Ok(micros)) = (seconds.parse::<u64>(), micros.parse::<u64>()) else {
            continue;
        };
        // CONFIG_PRINTK_CALLER: "[    T1]" or "[    C0]".
        let text = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((caller, rest)) if caller.trim_start().starts_with(['T', 'C']) => rest,
            _ => text,
        };
        let at = seconds.saturating_mul(1_000_000).saturating_add(micros);
        return Some((at, text.strip_prefix(' ').unwrap_or(text)));
    }
    None
}
