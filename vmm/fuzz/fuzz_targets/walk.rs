// SPDX-License-Identifier: GPL-2.0-only
//! Reads arbitrary registers and arbitrary memory: walk, rules and look-ups neither panic nor hang.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| stage1::testing::read_anything(input));
