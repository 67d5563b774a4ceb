// SPDX-License-Identifier: GPL-2.0-only
//! `folioscope watch`: a process of a live guest, for as long as it is there.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use changes::Diff;
use clap::Args;
use report::listing::Maps;
use report::map::MapOptions;
use rustix::termios::tcgetwinsize;
use untrusted::{filtered, Filter};

use super::output::{self, say};
use super::Outcome;
use crate::inside::{InsideOptions, Watched};
use crate::signals::{Signals, ENDS};
use crate::{Error, EXIT_OK};

/// Lines of events on a terminal.
const EVENTS: usize = 12;
/// Height of a terminal whose size is unknown.
const ROWS: usize = 24;
/// Back to the first line, and everything behind it is gone.
const REDRAW: &str = "\x1b[H\x1b[J";

/// Follow a process of a live guest: what happens to its memory, until Ctrl-C or until it ends
#[derive(Args, Debug)]
#[command(
    after_help = "On a terminal the map of the process is drawn anew whenever it changes, with what happened below it; elsewhere each change is a line.\n\nExample: folioscope watch 42 --interval 0.2"
)]
pub struct Watch {
    /// The process, by its id in the guest (folioscope ps); it need not run
    #[arg(value_name = "PID")]
    pid: u32,
    #[command(flatten)]
    pub inside: InsideOptions,
    /// Seconds between two looks, for each of which the guest is stopped
    #[arg(long, value_name = "SECONDS", default_value = "0.5", value_parser = parse_seconds)]
    interval: Duration,
    /// End after so many looks
    #[arg(long, value_name = "N")]
    looks: Option<u64>,
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|it| (0.01..=3600.0).contains(it));
    let seconds =
        seconds.ok_or_else(|| format!("expected 0.01 to 3600 seconds and found {text:?}"))?;
    Ok(Duration::from_secs_f64(seconds))
}

impl Watch {
    pub fn run(self) -> Outcome {
        if self.inside.core.is_some() {
            return Err(Error::Input(
                "a snapshot does not change: compare two of them by folioscope diff".into(),
            ));
        }
        let ends = end();
        let mut guest = Watched::new(&self.inside)?;
        let mut last = guest.look(self.pid)?;
        let (begin, mut looks) = (Instant::now(), 1);
        let screen = io::stdout().is_terminal();
        let mut told: Vec<String> = Vec::new();
        match screen {
            true => draw(&last.maps(), &told)?,
            false => {
                let maps = last.maps();
                let mapped: u64 = maps.vmas.iter().map(|vma| vma.map.mapped).sum();
                let pages = mapped / maps.page_size;
                let name = &maps.task.name;
                say!("{name} ({}): {pages} pages are mapped", self.pid);
            }
        }
        while self.looks.is_none_or(|most| looks < most) {
            match ends.recv_timeout(self.interval) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
            }
            looks += 1;
            let now = match guest.look(self.pid) {
                Ok(now) => now,
                // A process that existed before has ended.
                Err(error) => {
                    say!("{} ({}): the end: {error}", last.name(), self.pid);
                    break;
                }
            };
            let found = now.since(&last)?;
            if now.who() != last.who() {
                say!(
                    "{} ({}) has ended, and its pid is another process's",
                    last.name(),
                    self.pid
                );
                break;
            }
            last = now;
            let lines = lines(&found, begin.elapsed())?;
            if lines.is_empty() {
                continue;
            }
            match screen {
                true => {
                    told.extend(lines);
                    let old = told.len().saturating_sub(EVENTS);
                    told.drain(..old);
                    draw(&last.maps(), &told)?;
                }
                false => {
                    for line in lines {
                        say!("{line}");
                    }
                }
            }
        }
        Ok(EXIT_OK)
    }
}

/// Returns a channel for the signals that end it; a request to the guest is completed first.
fn end() -> Receiver<()> {
    let signals = Signals::block(&ENDS);
    let (send, ends) = channel();
    std::thread::spawn(move || {
        let _ = signals.wait();
        let _ = send.send(());
    });
    ends
}

/// Returns a line for each event.
fn lines(found: &Diff, after: Duration) -> Result<Vec<String>, Error> {
    let mut text = Vec::new();
    for process in &found.processes {
        for event in &process.events {
            event.write(&mut text).map_err(Error::io(output::STDOUT))?;
        }
        // Without known events there is nothing to doubt.
        for note in found.notes.iter().chain(&process.notes) {
            if !process.events.is_empty() {
                writeln!(text, "  note: {note}").map_err(Error::io(output::STDOUT))?;
            }
        }
    }
    let text = String::from_utf8_lossy(&text);
    let line = |line: &str| format!("{:8.2}s{line}", after.as_secs_f64());
    Ok(text.lines().map(line).collect())
}

fn draw(maps: &Maps, told: &[String]) -> Result<(), Error> {
    let failed = |error| Error::io(output::STDOUT)(error);
    let rows = tcgetwinsize(io::stdout()).map_or(0, |size| usize::from(size.ws_row));
    let rows = if rows == 0 { ROWS } else { rows };
    let mut text = Vec::new();
    let options = MapOptions {
        colour: true,
        ..MapOptions::default()
    };
    maps.write(&mut Filter::new(&mut text, true), &options)
        .map_err(failed)?;
    let text = String::from_utf8_lossy(&text);
    let room = rows.saturating_sub(told.len() + 2);
    let all = text.lines().count();
    let mut out = io::stdout().lock();
    write!(out, "{REDRAW}").map_err(failed)?;
    let shown = if all > room {
        room.saturating_sub(1)
    } else {
        all
    };
    for line in text.lines().take(shown) {
        writeln!(out, "{line}").map_err(failed)?;
    }
    if all > shown {
        writeln!(out, "... {} lines more", all - shown).map_err(failed)?;
    }
    writeln!(out).map_err(failed)?;
    for line in told {
        writeln!(out, "{}", filtered(line)).map_err(failed)?;
    }
    out.flush().map_err(failed)
}
