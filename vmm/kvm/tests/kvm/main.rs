// SPDX-License-Identifier: GPL-2.0-only
//! Real guests on a real KVM.
//!
//! `FOLIOSCOPE_TEST_IMAGE` names the kernel, `FOLIOSCOPE_TEST_INITRD` an initramfs with the agent. Without them, or
//! without KVM, these tests have nothing to test. They print that, and fail if `FOLIOSCOPE_TEST_REQUIRE_GUEST=1`
//! requires a guest.

#![cfg(target_arch = "aarch64")]

mod boots;
mod ends;
mod guest;
mod looks;
