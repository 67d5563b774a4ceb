// SPDX-License-Identifier: GPL-2.0-only
//! Answers requests for one guest; serves one client on standard input and output (for several see
//! [`super::listen()`]).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, Write};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::Path;
use std::time::Duration;

use protocol::ProcessId;
use serde::Serialize;

use super::answer::{errors, Answer, Greeting, Ready, Report, RequestResult};
use super::failure::Failure;
use super::keep::keep;
use super::limits::LONGEST_ANSWER;
use super::line::{self, Line};
use super::methods::{Call, Done, Hold, Sent};
use super::request::Request;
use crate::confined::explained;
use crate::guest::Guest;
use crate::Error;

/// A client's number; never used twice.
pub(super) type ClientId = u64;

/// A guest that serves.
#[derive(Debug)]
pub struct Server<'g> {
    guest: &'g mut Guest,
    /// Directory of a bundle.
    out: &'g Path,
    /// The client that holds each held process.
    holders: BTreeMap<ProcessId, ClientId>,
    /// True if the guest is gone, or has not answered.
    lost: bool,
    /// True if the clients were told that the console's log is incomplete.
    told: bool,
}

/// A line for a client, and whether it is the last.
pub(super) struct ClientLine {
    pub(super) line: String,
    pub(super) last: bool,
}

impl<'g> Server<'g> {
    /// Creates a server for a guest that is up; `out` is the directory of a bundle if it is lost.
    pub fn new(guest: &'g mut Guest, out: &'g Path) -> Self {
        Self {
            guest,
            out,
            holders: BTreeMap::new(),
            lost: false,
            told: false,
        }
    }

    pub(super) fn greeting(&self) -> String {
        json(&Greeting::Ready(Box::new(Ready::of(self.guest))))
    }

    /// Executes the request in a line, with the file that came with it, if there is one.
    pub(super) fn answer(
        &mut self,
        client: ClientId,
        line: &str,
        given: Option<File>,
    ) -> ClientLine {
        let (id, result, last) = match Request::read(line) {
            Err(unread) => {
                let failure = Failure::bad_request(unread.why);
                (unread.id, RequestResult::Error(failure), false)
            }
            Ok(request) => {
                let last = matches!(request.call, Call::Quit(_));
                let id = Some(request.id);
                // A panic in one request is that request's failure: the guest is there for all its clients.
                let done = catch_unwind(AssertUnwindSafe(|| self.execute(client, request, given)));
                match done {
                    Ok(Ok(done)) => (id, RequestResult::Ok(Box::new(done)), last),
                    Ok(Err(error)) => (id, RequestResult::Error(Failure::from(&error)), last),
                    Err(panic) => (id, RequestResult::Error(Failure::fault(&*panic)), last),
                }
            }
        };
        let answer = Answer {
            id,
            result,
            findings: errors(&self.guest.take_rest()),
            voice: self.console_reports(),
        };
        let line = json_within(&answer, LONGEST_ANSWER).unwrap_or_else(|| {
            json(&Answer {
                result: RequestResult::Error(Failure::too_large()),
                findings: Vec::new(),
                voice: Vec::new(),
                ..answer
            })
        });
        ClientLine { line, last }
    }

    /// Returns what the kernel has reported since the answer before; and once, that not all of it is known.
    fn console_reports(&mut self) -> Vec<Report> {
        let mut voice: Vec<Report> = self
            .guest
            .console_reports()
            .into_iter()
            .map(Into::into)
            .collect();
        if let (Some(why), false) = (self.guest.console_incomplete(), self.told) {
            self.told = true;
            voice.push(Report {
                lines: vec![why.clone()],
                headline: why,
                at_us: None,
            });
        }
        voice
    }

    fn execute(
        &mut self,
        client: ClientId,
        request: Request,
        given: Option<File>,
    ) -> Result<Done, Error> {
        let held = request.call.held();
        self.check_holder(client, held.map(|(process, _)| process))?;
        let sent = Sent {
            deadline: Duration::from_millis(request.deadline_ms),
            file: given,
        };
        let done = request.call.execute(self.guest, sent).map_err(|error| {
            if error.lost() {
                self.lost = true;
                keep(self.guest, self.out, error)
            } else {
                explained(error)
            }
        })?;
        match held {
            Some((process, Hold::Begins)) => drop(self.holders.insert(process, client)),
            Some((process, Hold::Ends)) => drop(self.holders.remove(&process)),
            Some((_, Hold::Stays)) | None => {}
        }
        Ok(done)
    }

    /// Refuses the use of a process that another client holds.
    fn check_holder(&self, client: ClientId, process: Option<ProcessId>) -> Result<(), Error> {
        match process.and_then(|process| Some((process, self.holders.get(&process)?))) {
            Some((process, holder)) if *holder != client => Err(Error::Input(format!(
                "another client of this guest holds {process}; it can be used when that one releases it or goes away"
            ))),
            Some(_) | None => Ok(()),
        }
    }

    /// Handles the end of a client: the processes that it held run on.
    pub(super) fn client_closed(&mut self, client: ClientId) {
        let mine: Vec<ProcessId> = self
            .holders
            .iter()
            .filter(|(_, holder)| **holder == client)
            .map(|(process, _)| *process)
            .collect();
        for process in mine {
            self.holders.remove(&process);
            // If a process cannot run on, its next user gets the error; a guest that hangs is not waited for.
            if !self.lost {
                let _ = self.guest.release(process);
            }
        }
    }
}

/// Returns a line's text. No type here has keys that are not strings, so it cannot fail.
#[must_use]
pub fn json(line: &impl Serialize) -> String {
    serde_json::to_string(line).unwrap_or_default() + "\n"
}

/// Returns a line's text if it has at most this many bytes. Longer ones are not kept in memory.
fn json_within(line: &impl Serialize, most: usize) -> Option<String> {
    struct Limited {
        text: Vec<u8>,
        most: usize,
    }
    impl Write for Limited {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.text.len() + bytes.len() > self.most {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            self.text.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let text = Vec::new();
    let mut limited = Limited { text, most };
    serde_json::to_writer(&mut limited, line).ok()?;
    limited.text.push(b'\n');
    String::from_utf8(limited.text).ok()
}

/// Returns the answer to a line that is no request.
pub(super) fn no_request(why: String) -> String {
    json(&Answer {
        id: None,
        result: RequestResult::Error(Failure::bad_request(why)),
        findings: Vec::new(),
        voice: Vec::new(),
    })
}

/// Serves one client until its input ends. The guest is the caller's to drop.
///
/// # Errors
/// If the input or output fails, or a line of the input has no end.
pub fn serve(
    server: &mut Server<'_>,
    mut input: impl BufRead,
    mut output: impl Write,
) -> io::Result<()> {
    const ONLY: ClientId = 0;
    let mut write = |text: String| {
        output.write_all(text.as_bytes())?;
        output.flush()
    };
    write(server.greeting())?;
    while let Some(line) = line::next(&mut input)? {
        let said = match line {
            Line::Text(text) => server.answer(ONLY, &text, None),
            Line::NoText(why) => ClientLine {
                line: no_request(why),
                last: false,
            },
            Line::TooLong(why) => {
                write(no_request(why.clone()))?;
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
        };
        write(said.line)?;
        if said.last {
            break;
        }
    }
    server.client_closed(ONLY);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_is_too_long_is_not_kept() {
        let words = vec!["0123456789"; 1000];
        assert_eq!(json_within(&words, 1000), None);
        assert_eq!(json_within(&words, 100_000), Some(json(&words)));
    }
}
