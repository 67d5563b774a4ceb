//! Who did a thing: an instruction of the trace.

/// An instruction that was part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Which CPU.
    pub cpu: u16,
    /// Its address.
    pub pc: u64,
    /// Which event of the trace, from 1.
    pub event: u64,
    /// Its call chain: [`crate::Judge::chain`].
    pub chain: u32,
    /// What CONTEXTIDR_EL1 held: the PID of who ran, where the kernel writes it; else 0.
    pub pid: u32,
}
