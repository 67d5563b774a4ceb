// SPDX-License-Identifier: GPL-2.0-only
//! Sends arbitrary bytes on the channel: the same lines are found however the bytes are cut, and a line that is sent on
//! is read the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use protocol::{encode, read_message, read_request, LineDecoder};

/// The longest line: short, so that longer ones occur.
const LIMIT: usize = 512;

fuzz_target!(|input: &[u8]| {
    let Some((&cut, bytes)) = input.split_first() else {
        return;
    };
    let whole = lines(bytes, bytes.len().max(1));
    assert_eq!(whole, lines(bytes, 1 + usize::from(cut)));
    for line in whole {
        if let Ok(request) = read_request(&line) {
            assert_eq!(
                read_request(text(&encode(&request).unwrap())).unwrap(),
                request
            );
        }
        if let Ok(Ok(message)) = read_message(&line) {
            let again = read_message(text(&encode(&message).unwrap()));
            assert_eq!(again, Ok(Ok(message)));
        }
    }
});

/// Returns the lines in `bytes`, which come in pieces of `size`. Those of just the longest length are left out: a
/// carriage return at their end counts, as long as the newline has not come.
fn lines(bytes: &[u8], size: usize) -> Vec<String> {
    let mut decoder = LineDecoder::with_limit(LIMIT);
    let mut lines = Vec::new();
    for piece in bytes.chunks(size) {
        decoder.push(piece);
        while let Some(line) = decoder.next_line() {
            lines.extend(line.ok().filter(|line| line.len() < LIMIT));
        }
    }
    lines
}

/// Returns an encoded line as text.
fn text(line: &[u8]) -> &str {
    std::str::from_utf8(line).unwrap().trim_end()
}
