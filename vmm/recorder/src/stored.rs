// SPDX-License-Identifier: GPL-2.0-only
//! The origin of an action: an instruction of the trace.

/// An instruction that was part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The CPU.
    pub cpu: u16,
    /// Its address.
    pub pc: u64,
    /// The number of the event in the trace, from 1.
    pub event: u64,
    /// Its call chain: [`crate::Judge::chain`].
    pub chain: u32,
    /// CONTEXTIDR_EL1: the PID of the running thread, if the kernel writes it; else 0.
    pub pid: u32,
}
