//! What a guest finds on its bus besides memory and the interrupt controller.

/// A device whose registers are memory-mapped.
///
/// The guest chooses offsets, lengths and values; any of them may be nonsense and must do no harm.
pub trait MmioDevice: Send {
    /// A load of `data.len()` bytes at `offset` from the device's start.
    fn read(&mut self, offset: u64, data: &mut [u8]);

    /// A store of `data` at `offset` from the device's start.
    fn write(&mut self, offset: u64, data: &[u8]);
}
