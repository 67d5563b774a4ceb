// SPDX-License-Identifier: GPL-2.0-only
//! Stops an external QEMU's guest, and resumes it whatever has gone wrong meanwhile.

use std::time::{Duration, Instant};

use serde_json::json;

use super::stub::CONNECT;
use super::{AttachError, Attached};
use crate::private;
use crate::qemu::COMMAND;
use crate::qmp::Qmp;
use crate::stream::Stream;
use crate::QmpError;

/// Maximum time for which a QEMU that does not answer is asked again to resume its guest.
const PATIENCE: Duration = Duration::from_secs(60);

impl Attached {
    pub(super) fn stop(&mut self) -> Result<(), AttachError> {
        if self.ran {
            // Earlier events do not belong to this stop.
            self.qmp.events()?;
            // The answer comes when all vCPU threads have stopped (QEMU's pause_all_vcpus).
            self.stopped = true;
            self.qmp.execute("stop", json!({}), COMMAND)?;
        }
        Ok(())
    }

    pub(super) fn go_on(&mut self) -> Result<(), AttachError> {
        if !self.stopped {
            return Ok(());
        }
        let events = self.qmp.events();
        // The guest is resumed whatever the result of that. A guest that QEMU refuses to resume has ended.
        let went = self.qmp.execute("cont", json!({}), COMMAND);
        self.stopped = !matches!(went, Ok(_) | Err(QmpError::Refused { .. }));
        let disturbed = events?.iter().any(|event| event["event"] == "RESUME");
        went?;
        match disturbed {
            true => Err(AttachError::Disturbed),
            false => Ok(()),
        }
    }

    /// Resumes the guest after a failure: by a new connection, as QEMU drops the requests of one that closes, and for
    /// as long as there is hope.
    pub(super) fn insist(&mut self) -> Result<(), QmpError> {
        let until = Instant::now() + PATIENCE;
        loop {
            // The existing connection closes first: QEMU serves one at a time.
            let (ours, _) = Stream::pair().map_err(|source| QmpError::Io {
                command: "cont".into(),
                source,
            })?;
            self.qmp = Qmp::new(ours);
            let again = private::connect(&self.path, CONNECT).and_then(Stream::new);
            let again = again.map_err(|source| QmpError::Io {
                command: "cont".into(),
                source,
            });
            let left = until.saturating_duration_since(Instant::now());
            let went = again.and_then(|stream| {
                self.qmp = Qmp::new(stream);
                self.qmp.handshake(left)?;
                self.qmp.execute("cont", json!({}), left)
            });
            match went {
                Ok(_) | Err(QmpError::Refused { .. }) => {
                    self.stopped = false;
                    return Ok(());
                }
                // No process listens: QEMU has ended, and its guest with it.
                Err(QmpError::Io { source, .. })
                    if source.kind() == std::io::ErrorKind::ConnectionRefused
                        || source.kind() == std::io::ErrorKind::NotFound =>
                {
                    return Ok(())
                }
                Err(error) if Instant::now() >= until => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::{UnixListener, UnixStream};

    use std::path::Path;

    use super::super::{Found, HeldBack};
    use super::*;

    const GREETING: &str =
        r#"{"QMP": {"version": {"qemu": {"micro": 2, "minor": 0, "major": 10}}}}"#;

    /// Serves one connection as QEMU does, and returns the commands. It closes after `least` of them, or with the other
    /// end.
    fn serve(stream: UnixStream, least: usize) -> Vec<String> {
        let mut commands = Vec::new();
        let mut to = stream.try_clone().unwrap();
        to.write_all(format!("{GREETING}\r\n").as_bytes()).unwrap();
        for line in BufReader::new(stream).lines() {
            let Ok(line) = line else { break };
            let command: serde_json::Value = serde_json::from_str(&line).unwrap();
            commands.push(command["execute"].as_str().unwrap().to_owned());
            if commands.len() == least {
                break;
            }
            let answer = json!({"return": {}, "id": command["id"]});
            if to.write_all(format!("{answer}\r\n").as_bytes()).is_err() {
                break;
            }
        }
        commands
    }

    /// Returns a guest that we stopped, and the other end of its monitor's connection.
    fn stopped(path: &Path) -> (Attached, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let attached = Attached {
            path: path.into(),
            qmp: Qmp::new(Stream::new(ours).unwrap()),
            stub: None,
            banks: Vec::new(),
            threads: Vec::new(),
            found: Found {
                version: [10, 0, 2],
                machine: "virt".into(),
                accelerator: "tcg",
                pid: 0,
                status: "running".into(),
                ram: Vec::new(),
                left_out: Vec::new(),
                stub: String::new(),
            },
            ran: true,
            stopped: true,
            signals: HeldBack::new(),
        };
        (attached, theirs)
    }

    #[test]
    fn words_that_make_no_sense_do_not_keep_the_guest() {
        let (attached, theirs) = stopped(Path::new("/nonexistent"));
        (&theirs).write_all(b"no JSON\r\n").unwrap();
        let monitor = std::thread::spawn(move || serve(theirs, 2));
        drop(attached);
        assert_eq!(monitor.join().unwrap(), ["cont"]);
    }

    #[test]
    fn a_connection_that_is_lost_does_not_keep_the_guest() {
        let place = std::env::temp_dir().join(format!("folioscope-insist-{}", std::process::id()));
        let listener = UnixListener::bind(&place).unwrap();
        let monitor = std::thread::spawn(move || {
            // The first that comes again is lost as well.
            let before = serve(listener.accept().unwrap().0, 1);
            (before, serve(listener.accept().unwrap().0, 3))
        });
        let (attached, theirs) = stopped(&place);
        drop(theirs);
        drop(attached);
        std::fs::remove_file(&place).unwrap();
        let (before, then) = monitor.join().unwrap();
        assert_eq!(before, ["qmp_capabilities"]);
        assert_eq!(then, ["qmp_capabilities", "cont"]);
    }
}
