// SPDX-License-Identifier: GPL-2.0-only
//! gdb's remote serial protocol, as much of it as reading registers needs.
//!
//! A packet is `$body#checksum`. QEMU acknowledges ours with `+`. We acknowledge none of its own: it takes the next `$`
//! for an acknowledgement, and a `+` that arrives while the guest runs would stop it. For the same reason nothing is
//! sent unless the guest is stopped.

use std::io;
use std::time::{Duration, Instant};

use crate::error::{excerpt, GdbError};
use crate::stream::{Deadline, Stream};

/// The longest packet that is taken for one, in bytes; QEMU's are at most 8 KiB.
const MOST_PACKET: usize = 64 * 1024;

/// Maximum number of parts of an object. QEMU's have 4 KiB except for the last.
const MOST_PARTS: usize = 2048;

/// A connection to QEMU's gdb stub.
#[derive(Debug)]
pub(crate) struct Rsp {
    stream: Stream,
    buffer: Vec<u8>,
    /// Deadline of all requests together.
    until: Option<Instant>,
}

impl Rsp {
    pub(crate) fn new(stream: Stream) -> Self {
        Self {
            stream,
            buffer: Vec::new(),
            until: None,
        }
    }

    /// Has all requests from now on end within `budget` together.
    pub(crate) fn limit(&mut self, budget: Duration) {
        self.until = Some(Deadline::after(budget).at);
    }

    /// Sends one request and gives its reply.
    pub(crate) fn request(&mut self, body: &str, timeout: Duration) -> Result<Vec<u8>, GdbError> {
        let replies = self.batch(&[body], timeout)?;
        Ok(replies.into_iter().next().expect("as many as requests"))
    }

    /// Sends all of `bodies` at once and gives their replies, in one round trip.
    pub(crate) fn batch<S: AsRef<str>>(
        &mut self,
        bodies: &[S],
        timeout: Duration,
    ) -> Result<Vec<Vec<u8>>, GdbError> {
        let mut deadline = Deadline::after(timeout);
        deadline.at = self
            .until
            .map_or(deadline.at, |until| until.min(deadline.at));
        let name = bodies.first().map_or("", AsRef::as_ref);
        let mut all = Vec::new();
        for body in bodies {
            // Names of threads and documents are the stub's own words.
            if !is_plain(body.as_ref()) {
                return Err(GdbError::Protocol {
                    expected: "names of letters, digits and .-_".into(),
                    found: excerpt(body.as_ref().as_bytes()),
                });
            }
            encode(body.as_ref(), &mut all);
        }
        self.stream
            .write_all(&all, deadline.at)
            .map_err(|error| failed(name, error, deadline))?;
        let mut replies = Vec::with_capacity(bodies.len());
        while replies.len() < bodies.len() {
            let request = bodies[replies.len()].as_ref();
            let reply = self.packet(request, deadline)?;
            // "The guest has stopped (or ended)": true, and known from the monitor.
            if !matches!(reply.first(), Some(b'T' | b'S' | b'W' | b'X')) {
                replies.push(reply);
            } else if Instant::now() >= deadline.at {
                // Endless bytes are never waited for.
                return Err(failed(request, io::ErrorKind::TimedOut.into(), deadline));
            }
        }
        Ok(replies)
    }

    /// Reads a whole object by `qXfer`.
    pub(crate) fn transfer(
        &mut self,
        object: &str,
        annex: &str,
        most: usize,
        timeout: Duration,
    ) -> Result<Vec<u8>, GdbError> {
        let mut all = Vec::new();
        for _ in 0..MOST_PARTS {
            let request = format!("qXfer:{object}:read:{annex}:{:x},ff0", all.len());
            let reply = self.request(&request, timeout)?;
            let broken = |expected: &str| GdbError::Protocol {
                expected: format!("{expected} in answer to {request}"),
                found: excerpt(&reply),
            };
            match reply.split_first() {
                Some((b'm', data)) if !data.is_empty() => all.extend_from_slice(data),
                Some((b'l', data)) => {
                    all.extend_from_slice(data);
                    return Ok(all);
                }
                _ => return Err(broken("m or l and data")),
            }
            if all.len() > most {
                return Err(broken("an object that ends"));
            }
        }
        Err(GdbError::Protocol {
            expected: format!("{object} in at most {MOST_PARTS} parts"),
            found: excerpt(&all),
        })
    }

    fn packet(&mut self, request: &str, deadline: Deadline) -> Result<Vec<u8>, GdbError> {
        loop {
            if let Some((packet, used)) = decode(&self.buffer)? {
                self.buffer.drain(..used);
                return Ok(packet);
            }
            // Acknowledgements are not kept, and endless bytes are never waited for.
            let acknowledged = self.buffer.iter().take_while(|&&byte| byte == b'+').count();
            self.buffer.drain(..acknowledged);
            match self.stream.fill(&mut self.buffer, deadline.at) {
                Ok(0) => return Err(GdbError::Closed(request.into())),
                Ok(_) if Instant::now() >= deadline.at => {
                    return Err(failed(request, io::ErrorKind::TimedOut.into(), deadline));
                }
                Ok(_) => (),
                Err(error) => return Err(failed(request, error, deadline)),
            }
        }
    }
}

fn failed(request: &str, source: io::Error, deadline: Deadline) -> GdbError {
    let request = request.into();
    match source.kind() {
        io::ErrorKind::TimedOut => GdbError::Timeout {
            request,
            waited: deadline.timeout,
        },
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => GdbError::Closed(request),
        _ => GdbError::Io { request, source },
    }
}

fn checksum(body: &[u8]) -> u8 {
    body.iter().fold(0, |sum, &byte| sum.wrapping_add(byte))
}

/// Returns whether a request has none of the characters that would have to be escaped. Ours have none.
fn is_plain(body: &str) -> bool {
    let special = |byte: u8| !byte.is_ascii_graphic() || b"$#}*".contains(&byte);
    !body.bytes().any(special)
}

fn encode(body: &str, out: &mut Vec<u8>) {
    out.push(b'$');
    out.extend_from_slice(body.as_bytes());
    out.extend_from_slice(format!("#{:02x}", checksum(body.as_bytes())).as_bytes());
}

/// Returns the first whole packet in `bytes`, unescaped, and the number of bytes up to its end. `None`: more bytes are
/// needed.
fn decode(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, GdbError> {
    let broken = |expected: &str, found: &[u8]| {
        Err(GdbError::Protocol {
            expected: expected.into(),
            found: excerpt(found),
        })
    };
    let Some(start) = bytes.iter().position(|&byte| byte != b'+') else {
        return Ok(None);
    };
    if bytes[start] != b'$' {
        return broken("$, the start of a packet", &bytes[start..]);
    }
    let raw = &bytes[start + 1..];
    let Some(end) = raw.iter().position(|&byte| byte == b'#') else {
        return if raw.len() > MOST_PACKET {
            broken("the end of a packet", raw)
        } else {
            Ok(None)
        };
    };
    let (raw, sum) = (&raw[..end], &raw[end + 1..]);
    let Some(sum) = sum.get(..2) else {
        return Ok(None);
    };
    let expected = format!("{:02x}", checksum(raw));
    if !sum.eq_ignore_ascii_case(expected.as_bytes()) {
        return broken(&format!("checksum {expected}"), sum);
    }
    let mut body = Vec::with_capacity(raw.len());
    let mut rest = raw.iter();
    while let Some(&byte) = rest.next() {
        match byte {
            b'}' => match rest.next() {
                Some(escaped) => body.push(escaped ^ 0x20),
                None => return broken("a character after }", raw),
            },
            // The last character again, so often.
            b'*' => match (body.last().copied(), rest.next()) {
                (Some(last), Some(&count @ b' '..=b'~')) => {
                    body.resize(body.len() + usize::from(count - 29), last);
                }
                _ => return broken("a character before * and a count after it", raw),
            },
            _ => body.push(byte),
        }
    }
    Ok(Some((body, start + 1 + end + 3)))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    fn packet(body: &[u8]) -> Vec<u8> {
        [b"$", body, format!("#{:02x}", checksum(body)).as_bytes()].concat()
    }

    #[test]
    fn packets_are_taken_apart() {
        let body = |bytes: &[u8]| decode(bytes).unwrap().map(|(body, _)| body);
        assert_eq!(decode(b"++$OK#9arest").unwrap(), Some((b"OK".to_vec(), 8)));
        assert_eq!(body(&packet(b"")), Some(vec![]));
        assert_eq!(body(&packet(b"a}\x03b")), Some(b"a#b".to_vec()));
        assert_eq!(body(&packet(b"0* x")), Some(b"0000x".to_vec()));
        for short in [&b""[..], b"+", b"$OK", b"$OK#9"] {
            assert_eq!(decode(short).unwrap(), None);
        }
        for bad in [&b"-$OK#9a"[..], b"$OK#9b", b"$}#7d", b"$* #4a", b"OK"] {
            assert!(decode(bad).is_err(), "{bad:?}");
        }
        assert!(decode(&[b"$", &vec![b'0'; MOST_PACKET + 1][..]].concat()).is_err());
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_taken_or_refused(bytes: Vec<u8>) {
            if let Ok(Some((_, used))) = decode(&packet(&bytes)) {
                assert!(used <= bytes.len() + 4);
            }
            // Any result is right, but a panic is not.
            let _ = decode(&bytes);
        }
    }

    fn stub(replies: &[&[u8]]) -> Rsp {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        for reply in replies {
            theirs.write_all(&packet(reply)).unwrap();
        }
        // Kept open so that a missing reply is a timeout.
        std::mem::forget(theirs);
        Rsp::new(Stream::new(ours).unwrap())
    }

    #[test]
    fn stop_replies_do_not_count() {
        let mut rsp = stub(&[b"T05thread:p01.01;", b"OK", b"T02thread:p01.02;", b"00ff"]);
        assert_eq!(
            rsp.batch(&["Hgp1.1", "p1"], LONG).unwrap(),
            [b"OK".to_vec(), b"00ff".to_vec()]
        );
        let error = rsp.request("g", Duration::from_millis(10)).unwrap_err();
        assert!(matches!(error, GdbError::Timeout { .. }), "{error}");
    }

    #[test]
    fn what_comes_without_end_ends_in_time() {
        for piece in [packet(b"T05"), b"+".to_vec()] {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            let piece = piece.repeat(1000);
            let writer = std::thread::spawn(move || while theirs.write_all(&piece).is_ok() {});
            let mut rsp = Rsp::new(Stream::new(ours).unwrap());
            let error = rsp.request("g", Duration::from_millis(100)).unwrap_err();
            assert!(matches!(error, GdbError::Timeout { .. }), "{error}");
            assert!(rsp.buffer.len() < 1 << 20);
            drop(rsp);
            writer.join().unwrap();
        }
    }

    /// The stub's own words become parts of requests: the names of its threads, of documents.
    #[test]
    fn a_request_ends_where_it_ends() {
        for body in ["Hgp01.01#00$k", "Hg*", "Hg}", "Hg\n", "Hgé"] {
            let error = stub(&[b"OK"]).request(body, LONG).unwrap_err();
            assert!(matches!(error, GdbError::Protocol { .. }), "{error}");
        }
        assert_eq!(stub(&[b"OK"]).request("Hgp01.-1", LONG).unwrap(), b"OK");
    }

    #[test]
    fn objects_come_in_parts_and_end() {
        let mut rsp = stub(&[b"mab", b"lc"]);
        assert_eq!(rsp.transfer("features", "x", 100, LONG).unwrap(), b"abc");
        let mut endless = stub(&[b"maaaa", b"maaaa"]);
        assert!(endless.transfer("features", "x", 6, LONG).is_err());
        for refused in [&b""[..], b"E01", b"m"] {
            assert!(stub(&[refused]).transfer("features", "x", 6, LONG).is_err());
        }
    }
}
