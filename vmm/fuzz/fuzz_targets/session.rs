// SPDX-License-Identifier: GPL-2.0-only
//! A line of arbitrary text that a client sends: a request, which is written out as it was understood, or one sentence.
#![no_main]

use folioscope::control::Request;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|line: &str| {
    match Request::read(line) {
        Ok(request) => {
            let written = serde_json::to_string(&request).expect("a request can be written");
            let again = Request::read(&written).expect("what was written can be read");
            assert_eq!(written, serde_json::to_string(&again).expect("as before"));
        }
        Err(unread) => assert!(!unread.why.is_empty() && unread.why.len() < 4096),
    }
});
