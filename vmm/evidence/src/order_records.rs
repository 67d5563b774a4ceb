// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's order records, out of its own memory.

use linux::order::{OrderError, OrderRecords, RingAddresses};
use snapshot::Cpu;
use stage1::{PhysMemory, Regime};

use crate::cpus::came;

/// Reads what [`read_orders`] will read of the copy.
pub fn touch_orders<M: PhysMemory + ?Sized>(
    memory: &M,
    upper: &Regime,
    rings: RingAddresses,
    cpus: &[Cpu],
) -> Result<(), OrderError> {
    let mut read =
        |va: u64, buffer: &mut [u8]| linux::kernel_memory::read(memory, upper, va, buffer);
    OrderRecords::touch(
        &mut read,
        rings,
        u32::try_from(came(cpus)).unwrap_or(u32::MAX),
    )
}

/// Reads the order rings of a snapshot: those of the CPUs that ever came up.
///
/// # Errors
/// Where they are not as the patch writes them.
pub fn read_orders<M: PhysMemory + ?Sized>(
    memory: &M,
    upper: &Regime,
    rings: RingAddresses,
    cpus: &[Cpu],
) -> Result<OrderRecords, OrderError> {
    let mut read =
        |va: u64, buffer: &mut [u8]| linux::kernel_memory::read(memory, upper, va, buffer);
    OrderRecords::read(
        &mut read,
        rings,
        u32::try_from(came(cpus)).unwrap_or(u32::MAX),
    )
}
