// SPDX-License-Identifier: GPL-2.0-only
//! QEMU's machine protocol: one JSON object per line, commands and their answers, and events.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{json, Value};

use crate::error::{excerpt, QmpError};
use crate::stream::{Deadline, Stream};

/// The longest message that is taken for one, in bytes.
const MOST_MESSAGE: usize = 64 << 20;

/// Stands for a command while the greeting is awaited.
pub(crate) const GREETING: &str = "the greeting";

/// Maximum number of events that are kept until they are read. QEMU sends some dozens in a guest's life.
const MOST_EVENTS: usize = 1 << 16;

/// Maximum time for reading answers that no command awaits, while events are looked for.
const FLOOD: Duration = Duration::from_secs(1);

/// Number of commands that this process has sent, on all its connections.
static COMMANDS: AtomicU64 = AtomicU64::new(0);

/// Prefix of the identifiers of this process's commands. Processes in two containers may have the same number, so it
/// includes the time in nanoseconds.
static OURS: LazyLock<String> = LazyLock::new(|| {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    format!("folioscope-{}-{}", std::process::id(), now.as_nanos())
});

/// A monitor of QEMU.
///
/// One client follows another on a socket, and QEMU sends its answers to the current one. It executes the rest of a
/// killed client's commands, and the next client gets the answers, before its greeting and behind it (seen on 10.0: one
/// connection in 700 right after). An answer is therefore recognised by an identifier that no other client has.
#[derive(Debug)]
pub(crate) struct Qmp {
    stream: Stream,
    buffer: Vec<u8>,
    events: VecDeque<Value>,
    /// Deadline of all commands together.
    until: Option<Instant>,
}

impl Qmp {
    pub(crate) fn new(stream: Stream) -> Self {
        Self {
            stream,
            buffer: Vec::new(),
            events: VecDeque::new(),
            until: None,
        }
    }

    /// Limits all commands from now on to `budget` together, or each to its own time again. A server that answers each
    /// command just before its time is over would take hours.
    pub(crate) fn limit(&mut self, budget: Option<Duration>) {
        self.until = budget.map(|budget| Deadline::after(budget).at);
    }

    /// Returns the deadline of a command that may take so long.
    fn deadline(&self, timeout: Duration) -> Deadline {
        let mut deadline = Deadline::after(timeout);
        deadline.at = self
            .until
            .map_or(deadline.at, |until| until.min(deadline.at));
        deadline
    }

    /// Takes QEMU's greeting and leaves the mode in which it takes no commands; gives QEMU's
    /// version (major, minor, micro).
    pub(crate) fn handshake(&mut self, timeout: Duration) -> Result<[u64; 3], QmpError> {
        let command = GREETING;
        let deadline = self.deadline(timeout);
        let greeting = loop {
            let message = self.message(command, deadline)?;
            if message.get("event").is_some() {
                self.keep(message)?;
            } else if message.get("return").is_none() && message.get("error").is_none() {
                break message;
            }
            in_time(command, deadline)?;
        };
        let version = &greeting["QMP"]["version"]["qemu"];
        let part = |name: &str| {
            version[name].as_u64().ok_or_else(|| QmpError::Garbage {
                command: command.into(),
                found: excerpt(greeting.to_string().as_bytes()).into(),
            })
        };
        let version = [part("major")?, part("minor")?, part("micro")?];
        match self.execute("qmp_capabilities", json!({}), timeout) {
            // One of the last client's has left that mode already. Where none has, the next command is refused.
            Ok(_) | Err(QmpError::Refused { .. }) => Ok(version),
            Err(error) => Err(error),
        }
    }

    /// Executes one command and returns its result.
    pub(crate) fn execute(
        &mut self,
        command: &str,
        arguments: Value,
        timeout: Duration,
    ) -> Result<Value, QmpError> {
        self.ask(command, arguments, None, timeout)
    }

    /// Executes one command that hands over a descriptor: QEMU's `getfd`, the only one that takes one.
    pub(crate) fn hand_over(
        &mut self,
        name: &str,
        fd: BorrowedFd<'_>,
        timeout: Duration,
    ) -> Result<(), QmpError> {
        let arguments = json!({"fdname": name});
        self.ask("getfd", arguments, Some(fd), timeout).map(drop)
    }

    fn ask(
        &mut self,
        command: &str,
        arguments: Value,
        fd: Option<BorrowedFd<'_>>,
        timeout: Duration,
    ) -> Result<Value, QmpError> {
        let nth = COMMANDS.fetch_add(1, Ordering::Relaxed);
        let id = json!(format!("{}-{nth}", *OURS));
        let request = json!({"execute": command, "arguments": arguments, "id": id});
        let request = format!("{request}\n");
        let deadline = self.deadline(timeout);
        let written = match fd {
            None => self.stream.write_all(request.as_bytes(), deadline.at),
            Some(fd) => (self.stream).write_with(request.as_bytes(), &fd, deadline.at),
        };
        written.map_err(|error| failed(command, error, deadline))?;
        loop {
            let mut message = self.message(command, deadline)?;
            if message.get("event").is_some() {
                self.keep(message)?;
            } else if message["id"] != id {
                // The answer to a command that we gave up waiting for, or to another client's.
            } else if let Some(error) = message.get("error") {
                return Err(QmpError::Refused {
                    command: command.into(),
                    reason: match error["desc"].as_str() {
                        Some(text) => text.into(),
                        None => error.to_string().into(),
                    },
                });
            } else {
                return Ok(message["return"].take());
            }
            in_time(command, deadline)?;
        }
    }

    /// Keeps an event until it is read.
    fn keep(&mut self, event: Value) -> Result<(), QmpError> {
        if self.events.len() == MOST_EVENTS {
            return Err(QmpError::Garbage {
                command: "an event".into(),
                found: format!("more than {MOST_EVENTS} of them").into(),
            });
        }
        self.events.push_back(event);
        Ok(())
    }

    /// Executes a command of the monitor for people and returns its output.
    pub(crate) fn human(
        &mut self,
        line: &str,
        cpu: Option<usize>,
        timeout: Duration,
    ) -> Result<String, QmpError> {
        let mut arguments = json!({"command-line": line});
        if let Some(cpu) = cpu {
            arguments["cpu-index"] = json!(cpu);
        }
        let answer = self.execute("human-monitor-command", arguments, timeout)?;
        match answer {
            Value::String(text) => Ok(text),
            other => Err(QmpError::Garbage {
                command: line.into(),
                found: excerpt(other.to_string().as_bytes()).into(),
            }),
        }
    }

    /// Returns the events that have come so far, without waiting.
    pub(crate) fn events(&mut self) -> Result<VecDeque<Value>, QmpError> {
        let now = Deadline::after(Duration::ZERO);
        loop {
            match self.message("an event", now) {
                Ok(message) if message.get("event").is_some() => self.keep(message)?,
                // Answers that no command awaits; an endless series of them is not read on.
                Ok(_) if now.at.elapsed() < FLOOD => (),
                Ok(_) => return Ok(std::mem::take(&mut self.events)),
                Err(QmpError::Timeout { .. }) => return Ok(std::mem::take(&mut self.events)),
                // Events before the end are still to be returned.
                Err(_) if !self.events.is_empty() => return Ok(std::mem::take(&mut self.events)),
                Err(error) => return Err(error),
            }
        }
    }

    fn message(&mut self, command: &str, deadline: Deadline) -> Result<Value, QmpError> {
        let mut searched = 0;
        loop {
            let rest = &self.buffer[searched..];
            if let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=searched + end).collect();
                return serde_json::from_slice(&line).map_err(|_| QmpError::Garbage {
                    command: command.into(),
                    found: excerpt(&line).into(),
                });
            }
            searched = self.buffer.len();
            if searched > MOST_MESSAGE {
                return Err(QmpError::Garbage {
                    command: command.into(),
                    found: excerpt(&self.buffer).into(),
                });
            }
            match self.stream.fill(&mut self.buffer, deadline.at) {
                Ok(0) => return Err(QmpError::Closed(command.into())),
                // Endless bytes are never waited for, so the time is checked here.
                Ok(count) if !self.buffer[self.buffer.len() - count..].contains(&b'\n') => {
                    in_time(command, deadline)?;
                }
                Ok(_) => (),
                Err(error) => return Err(failed(command, error, deadline)),
            }
        }
    }
}

/// Returns an error once the deadline has passed.
fn in_time(command: &str, deadline: Deadline) -> Result<(), QmpError> {
    match Instant::now() < deadline.at {
        true => Ok(()),
        false => Err(failed(command, io::ErrorKind::TimedOut.into(), deadline)),
    }
}

impl AsFd for Qmp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn failed(command: &str, source: io::Error, deadline: Deadline) -> QmpError {
    let command = command.into();
    match source.kind() {
        io::ErrorKind::TimedOut => QmpError::Timeout {
            command,
            waited: deadline.timeout,
        },
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => QmpError::Closed(command),
        _ => QmpError::Io { command, source },
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    /// Returns a monitor that greets with the first text and answers each command with the next, in which `ID` is the
    /// command's.
    fn monitor(texts: &'static [&'static str]) -> Qmp {
        let (ours, theirs) = UnixStream::pair().unwrap();
        std::thread::spawn(move || {
            let mut commands = BufReader::new(theirs.try_clone().unwrap()).lines();
            let (mut theirs, mut id) = (theirs, String::new());
            for text in texts {
                theirs
                    .write_all(text.replace("ID", &id).as_bytes())
                    .unwrap();
                theirs.write_all(b"\r\n").unwrap();
                let Some(Ok(command)) = commands.next() else {
                    return;
                };
                id = serde_json::from_str::<Value>(&command).unwrap()["id"].to_string();
            }
        });
        Qmp::new(Stream::new(ours).unwrap())
    }

    const GREETS: &str = r#"{"QMP": {"version": {"qemu": {"micro": 2, "minor": 0, "major": 10},
        "package": ""}, "capabilities": []}}"#;

    fn greeting() -> &'static str {
        // One line on the wire.
        Box::leak(GREETS.replace('\n', "").into_boxed_str())
    }

    #[test]
    fn answers_are_found_between_events() {
        let texts = vec![
            greeting(),
            r#"{"return": {}, "id": ID}"#,
            "{\"event\": \"STOP\"}\n{\"return\": {}, \"id\": 1}\n{\"return\": 7, \"id\": ID}",
            r#"{"error": {"class": "GenericError", "desc": "not today"}, "id": ID}"#,
        ];
        let mut qmp = monitor(texts.leak());
        assert_eq!(qmp.handshake(LONG).unwrap(), [10, 0, 2]);
        assert_eq!(qmp.execute("stop", json!({}), LONG).unwrap(), json!(7));
        let error = qmp.execute("cont", json!({}), LONG).unwrap_err();
        assert_eq!(error.to_string(), "QEMU refused cont: not today");
        assert_eq!(qmp.events().unwrap(), [json!({"event": "STOP"})]);
        let end = qmp.execute("quit", json!({}), LONG).unwrap_err();
        assert!(matches!(end, QmpError::Closed(_)), "{end}");
    }

    #[test]
    fn what_is_said_to_the_client_before_us_is_not_for_us() {
        let answers = concat!(
            "{\"return\": {}, \"id\": \"folioscope-1-0\"}\n",
            "{\"error\": {\"class\": \"GenericError\", \"desc\": \"gone\"}}\n",
            "{\"event\": \"RESUME\"}\n"
        );
        let texts = vec![
            &*Box::leak(
                format!("{answers}{}\n{}", greeting(), answers.trim_end()).into_boxed_str(),
            ),
            r#"{"error": {"class": "CommandNotFound", "desc": "already complete"}, "id": ID}"#,
            r#"{"return": 7, "id": ID}"#,
        ];
        let mut qmp = monitor(texts.leak());
        assert_eq!(qmp.handshake(LONG).unwrap(), [10, 0, 2]);
        assert_eq!(qmp.execute("stop", json!({}), LONG).unwrap(), json!(7));
        assert_eq!(
            qmp.events().unwrap(),
            [json!({"event": "RESUME"}), json!({"event": "RESUME"})]
        );
    }

    #[test]
    fn a_flood_ends_in_time() {
        let floods = [
            &b"{\"event\": \"STOP\"}\n"[..],
            b"{\"return\": {}, \"id\": 7}\n",
            b"{}\n",
            b"x",
        ];
        for flood in floods {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            let piece = flood.repeat(4096);
            // Ends with our end of the pair.
            let writer = std::thread::spawn(move || while theirs.write_all(&piece).is_ok() {});
            let mut qmp = Qmp::new(Stream::new(ours).unwrap());
            let start = Instant::now();
            let timeout = Duration::from_millis(200);
            qmp.handshake(timeout).unwrap_err();
            let _ = qmp.execute("stop", json!({}), timeout).unwrap_err();
            let _ = qmp.events();
            assert!(start.elapsed() < Duration::from_secs(15), "{flood:?}");
            assert!(
                qmp.events.len() <= MOST_EVENTS && qmp.buffer.len() <= MOST_MESSAGE + (1 << 20)
            );
            drop(qmp);
            writer.join().unwrap();
        }
    }

    #[test]
    fn all_commands_together_have_a_limit() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let slow = std::thread::spawn(move || {
            let mut to = theirs.try_clone().unwrap();
            for line in BufReader::new(theirs).lines() {
                let command: Value = serde_json::from_str(&line.unwrap()).unwrap();
                std::thread::sleep(Duration::from_millis(40));
                let answer = json!({"return": {}, "id": command["id"]});
                if writeln!(to, "{answer}").is_err() {
                    break;
                }
            }
        });
        let mut qmp = Qmp::new(Stream::new(ours).unwrap());
        qmp.limit(Some(Duration::from_millis(300)));
        let mut ask = || (0..1000).try_for_each(|_| qmp.execute("stop", json!({}), LONG).map(drop));
        let error = ask().unwrap_err();
        assert!(matches!(error, QmpError::Timeout { .. }), "{error}");
        qmp.limit(None);
        qmp.execute("stop", json!({}), LONG).unwrap();
        drop(qmp);
        slow.join().unwrap();
    }

    #[test]
    fn garbage_and_silence_are_told_apart() {
        let garbage = monitor(&["SSH-2.0-OpenSSH"]).handshake(LONG).unwrap_err();
        assert!(garbage.to_string().contains("SSH-2.0"), "{garbage}");
        let other = monitor(&[r#"{"hello": 1}"#]).handshake(LONG).unwrap_err();
        assert!(matches!(other, QmpError::Garbage { .. }), "{other}");
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let mut silent = Qmp::new(Stream::new(ours).unwrap());
        let timeout = silent.handshake(Duration::from_millis(10)).unwrap_err();
        assert!(matches!(timeout, QmpError::Timeout { .. }), "{timeout}");
        assert!(silent.events().unwrap().is_empty());
    }
}
