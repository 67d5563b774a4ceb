// SPDX-License-Identifier: GPL-2.0-only
//! Connects to a monitor that sends arbitrary lines: they are understood, or there is an error.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use machine::qemu::testing::monitor_is_understood;

fuzz_target!(|lines: &[u8]| {
    let _ = monitor_is_understood(lines, Duration::from_millis(5));
});
