// SPDX-License-Identifier: GPL-2.0-only
//! Reads arbitrary bytes as a trace, for the fuzz target and a property test.

use recorder::trace::{Reader, MAGIC, VERSION};
use recorder::{Judge, Limits};
use stage1::BbmLevel;

/// Small limits, so that they are reached.
pub const LIMITS: Limits = Limits {
    table_bytes: 1 << 18,
    stale: 64,
    findings: 8,
};

/// Judges `records` as those of a trace. Neither a panic nor more memory than allowed may come of it.
pub fn judge(records: &[u8]) -> Judge {
    let mut trace = MAGIC.to_vec();
    trace.extend(VERSION.to_le_bytes());
    trace.extend(records);
    let mut judge = Judge::new(LIMITS, BbmLevel::Zero);
    let mut reader = Reader::new(&trace[..]).expect("the header is good");
    loop {
        match reader.next() {
            Ok(Some(event)) => judge.event(&event),
            Ok(None) => break,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                assert!(
                    matches!(reader.next(), Ok(None)),
                    "nothing comes after an error"
                );
                break;
            }
        }
        let summary = judge.summary();
        assert!(summary.stale <= LIMITS.stale, "{summary:?}");
        assert!(summary.table_bytes <= LIMITS.table_bytes * 2, "{summary:?}");
        assert!(judge.findings().kept().len() <= LIMITS.findings);
    }
    for finding in judge.findings().kept() {
        assert!(!finding.to_string().is_empty());
    }
    judge
}
