// SPDX-License-Identifier: GPL-2.0-only
//! Feeds arbitrary output of a QEMU's monitor and gdb stub to our clients; shared by the tests and the fuzz targets.

use std::io::{BufRead, BufReader, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::{json, Value};

use super::attach::{ram_of_this_process, AttachError};
use crate::qmp::Qmp;
use crate::registers::RegisterReader;
use crate::rsp::Rsp;
use crate::stream::Stream;

/// All that a conversation may take; its other end is closed before.
const LIMIT: Duration = Duration::from_secs(20);

/// Talks to a monitor that sends these lines, as attaching does. Returns whether all of it was understood.
///
/// A line after the greeting that contains `ID` waits for a command, whose identifier replaces it. The connection ends
/// behind the last line, or if no command comes within `patience`: one side may wait for an answer to bytes that the
/// other has not understood.
pub fn monitor_is_understood(lines: &[u8], patience: Duration) -> bool {
    let Ok((ours, theirs)) = UnixStream::pair() else {
        return false;
    };
    let lines: Vec<Vec<u8>> = lines
        .split(|&byte| byte == b'\n')
        .map(<[u8]>::to_vec)
        .collect();
    let server = std::thread::spawn(move || serve(theirs, &lines, patience));
    let understood = Stream::new(ours).is_ok_and(|stream| {
        let mut qmp = Qmp::new(stream);
        qmp.limit(Some(LIMIT));
        let greeted = qmp.handshake(LIMIT).is_ok();
        let status = qmp.execute("query-status", json!({}), LIMIT);
        // Their memory is looked for in this process, and is not there.
        let found = ram_of_this_process(&mut qmp);
        let events = qmp.events().is_ok();
        let found = matches!(found, Ok(_) | Err(AttachError::NoRam));
        greeted && status.is_ok() && found && events
    });
    let _ = server.join();
    understood
}

/// Sends the lines.
fn serve(theirs: UnixStream, lines: &[Vec<u8>], patience: Duration) {
    let Ok(mut to) = theirs.try_clone() else {
        return;
    };
    let _ = theirs.set_read_timeout(Some(patience));
    let mut commands = BufReader::new(theirs).lines();
    let mut greeted = false;
    for line in lines {
        let mut line = line.clone();
        let mark = line.windows(2).position(|two| two == b"ID");
        if let Some(at) = mark.filter(|_| greeted) {
            let Some(Ok(command)) = commands.next() else {
                return;
            };
            let command: Value = serde_json::from_str(&command).unwrap_or_default();
            line.splice(at..at + 2, command["id"].to_string().into_bytes());
        }
        greeted |= line.windows(3).any(|three| three == b"QMP");
        line.push(b'\n');
        if to.write_all(&line).is_err() {
            return;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// Reads the registers of two CPUs from a stub that sends these lines as packets, or as raw bytes if a line begins with
/// `!`. Returns whether they were read.
pub fn stub_is_understood(lines: &[u8]) -> bool {
    let Ok((ours, mut theirs)) = UnixStream::pair() else {
        return false;
    };
    let mut sent = Vec::new();
    for line in lines.split(|&byte| byte == b'\n') {
        match line.split_first() {
            Some((b'!', raw)) => sent.extend(raw),
            _ => {
                let sum = line.iter().fold(0u8, |sum, &byte| sum.wrapping_add(byte));
                sent.push(b'$');
                sent.extend(line);
                sent.extend(format!("#{sum:02x}").bytes());
            }
        }
    }
    // Bytes that do not fit are not sent, and the connection ends there.
    let _ = theirs.set_nonblocking(true);
    let _ = theirs.write_all(&sent);
    let _ = theirs.shutdown(Shutdown::Write);
    let Ok(stream) = Stream::new(ours) else {
        return false;
    };
    let reader = RegisterReader::attach(Rsp::new(stream), 2, LIMIT);
    reader.is_ok_and(|mut reader| reader.read().is_ok_and(|cpus| cpus.len() == 2))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MONITOR: &[u8] = include_bytes!("../../../fuzz/seeds/qmp/virt");
    const STUB: &[u8] = include_bytes!("../../../fuzz/seeds/gdbstub/two-cpus");

    #[test]
    fn the_fuzz_targets_seeds_are_understood() {
        assert!(monitor_is_understood(MONITOR, LIMIT));
        assert!(stub_is_understood(STUB));
    }

    /// Changes of a seed: bytes in the place of others, and an end.
    fn damage(seed: &'static [u8]) -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![any::<u8>(), prop::sample::select(seed)];
        let edits = prop::collection::vec((0..seed.len(), byte), 1..10);
        (edits, 0..2 * seed.len()).prop_map(|(edits, cut)| {
            let mut bytes = seed.to_vec();
            for (at, byte) in edits {
                bytes[at] = byte;
            }
            bytes.truncate(cut);
            bytes
        })
    }

    proptest! {
        #[test]
        fn any_monitor_is_understood_or_refused(lines in damage(MONITOR)) {
            monitor_is_understood(&lines, Duration::from_millis(5));
        }

        #[test]
        fn any_stub_is_understood_or_refused(lines in damage(STUB)) {
            stub_is_understood(&lines);
        }
    }
}
