// SPDX-License-Identifier: GPL-2.0-only
//! The protocol on a machine's channel: a request out, its reply back, events on the way.

use std::time::{Duration, Instant};

use machine::{ChannelError, Machine, MachineError};
use protocol::{read_message, Command, Hello, Message, Outcome, Reply, Request};

use crate::commands::complain;
use crate::Error;

/// Time beyond the agent's own deadline after which a missing answer means that the guest hangs.
const MARGIN: Duration = Duration::from_secs(5);

/// A machine and the connection to its agent.
#[derive(Debug)]
pub struct Link {
    /// The machine, for all that is not the channel.
    pub machine: Box<dyn Machine>,
    next_request: u64,
}

impl Link {
    /// Creates a link over a machine that was just started.
    #[must_use]
    pub fn new(machine: Box<dyn Machine>) -> Self {
        Self {
            machine,
            next_request: 1,
        }
    }

    /// Returns which of the guest's logs are not whole, for example for want of space, if any. Verdicts do not depend
    /// on them.
    #[must_use]
    pub fn unlogged(&self) -> Option<String> {
        let logs = [
            ("console.log", self.machine.console().log_error()),
            ("channel.log", self.machine.transcript_error()),
        ];
        let failed: Vec<String> = (logs.into_iter())
            .filter_map(|(log, why)| Some(format!("{log} could not be written: {}", why?)))
            .collect();
        let failed = failed.join("; ");
        (!failed.is_empty()).then(|| format!("the guest's logs are not whole: {failed}"))
    }

    /// Waits for the agent's first line.
    ///
    /// # Errors
    /// If the guest panics, ends, hangs, violates the protocol or has another version of it.
    pub fn hello(&mut self, timeout: Duration) -> Result<Hello, Error> {
        match self.message(timeout).map_err(|error| self.silent(error, timeout))? {
            Message::Hello(hello) => Ok(*hello),
            other => Err(lost(format!("expected the agent's hello as the guest's first line and found {other:?}; build the initramfs anew with: make rootfs"))),
        }
    }

    /// Explains a missing line, with the console's contents.
    fn silent(&self, error: Error, timeout: Duration) -> Error {
        let Error::Machine(MachineError::Channel(ChannelError::Timeout { .. })) = error else {
            return error;
        };
        let console = self.machine.console().tail();
        let seen = match console.lines().rev().find(|line| !line.trim().is_empty()) {
            None => "its console is empty, so the kernel never started: its image may be cut short, or this CPU cannot run it (a granule that it lacks, for one)".to_owned(),
            Some(line) => format!("the last line of its console is {:?}", line.trim_end()),
        };
        lost(format!(
            "the guest's agent did not speak within {} s: {seen}",
            timeout.as_secs()
        ))
    }

    /// Sends a request, and waits for the answer.
    ///
    /// # Errors
    /// [`Error::Guest`] if the guest refuses; otherwise it is lost.
    pub fn request(&mut self, command: Command, deadline: Duration) -> Result<Outcome, Error> {
        let id = self.next_request;
        self.next_request += 1;
        let what = name(&command);
        let request = Request {
            id,
            deadline_ms: u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX),
            command,
        };
        let line = protocol::encode(&request).map_err(|error| Error::Input(error.to_string()))?;
        self.machine.send(&line, MARGIN)?;
        let end = Instant::now() + deadline + MARGIN;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let message = self.message(left).map_err(|error| match error {
                Error::Machine(MachineError::Channel(ChannelError::Timeout { .. })) => lost(format!(
                    "the guest hangs: its agent did not answer {what} within {:.1} s, nor {} s more",
                    deadline.as_secs_f64(),
                    MARGIN.as_secs()
                )),
                other => other,
            })?;
            match message {
                Message::Reply(Reply {
                    id: Some(found),
                    result,
                }) if found == id => {
                    return Result::from(result).map_err(|failure| Error::Guest {
                        request: what,
                        failure,
                    });
                }
                Message::Reply(reply) if reply.id.is_some_and(|found| found < id) => {}
                // The channel's log keeps unsolicited messages.
                Message::Event(_) => {}
                other => {
                    return Err(lost(format!(
                        "expected the guest's answer to {what} (request {id}) and found {other:?}"
                    )))
                }
            }
        }
    }

    fn message(&mut self, timeout: Duration) -> Result<Message, Error> {
        let line = self.machine.receive_line(timeout)?;
        let text = std::str::from_utf8(&line).map_err(|error| {
            lost(format!(
                "the guest printed garbage on the channel: expected a line of JSON and found bytes that are not UTF-8 from {} on: {}",
                error.valid_up_to(),
                line[..line.len().min(80)].escape_ascii()
            ))
        })?;
        match read_message(text) {
            Ok(Ok(message)) => Ok(message),
            Ok(Err(mismatch)) => Err(lost(mismatch.to_string())),
            Err(error) => Err(lost(format!(
                "the guest printed garbage on the channel: {error}"
            ))),
        }
    }
}

impl Drop for Link {
    /// At the end of a guest it is known whether its logs are whole.
    fn drop(&mut self) {
        if let Some(why) = self.unlogged() {
            complain(&why);
        }
    }
}

fn lost(what: String) -> Error {
    Error::GuestLost { what }
}

/// Returns the command's name in the protocol, with the operation's where it is one.
fn name(command: &Command) -> String {
    let value = serde_json::to_value(command).unwrap_or_default();
    let key = |value: &serde_json::Value| {
        value
            .as_object()
            .and_then(|object| object.keys().next().cloned())
    };
    match (key(&value), key(&value["op"]["op"])) {
        (_, Some(operation)) => operation,
        (Some(command), None) => command,
        (None, None) => format!("{command:?}"),
    }
}
