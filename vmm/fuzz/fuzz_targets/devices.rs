// SPDX-License-Identifier: GPL-2.0-only
//! Arbitrary accesses to the bus, the UART and virtio-console, and arbitrary guest memory.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../kvm/tests/misuse/mod.rs"]
mod misuse;

fuzz_target!(|input: &[u8]| misuse::use_devices(input));
