// SPDX-License-Identifier: GPL-2.0-only
//! Finds and reads the rings of all CPUs.

use super::decode::{decode_ring, touch_ring};
use super::{KernelReader, OrderError, OrderRecords};

/// Places of the rings, as runtime addresses (link address plus KASLR slide).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingAddresses {
    /// `anon_order_ring` or `anon_order_rings`, the per-CPU variable.
    pub rings: u64,
    /// True if the variable is a pointer to the ring, null before the first record was asked for. Otherwise the
    /// variable is the ring.
    pub pointers: bool,
    /// `__per_cpu_offset`, the array.
    pub per_cpu_offset: u64,
    /// `anon_order_recording`, the static key that switches them on; `None` on a kernel that always keeps them.
    pub recording: Option<u64>,
}

impl RingAddresses {
    /// Returns whether the kernel keeps records. `struct static_key_false` begins with `key.enabled.counter`.
    fn is_on(&self, read: &mut KernelReader<'_>) -> Result<bool, OrderError> {
        let Some(va) = self.recording else {
            return Ok(true);
        };
        let mut enabled = [0; 4];
        read(va, &mut enabled).map_err(|why| OrderError::Unreadable { cpu: 0, va, why })?;
        Ok(i32::from_le_bytes(enabled) > 0)
    }

    /// Returns the ring of one CPU; `None` if it has none yet.
    fn ring(&self, read: &mut KernelReader<'_>, cpu: u32) -> Result<Option<u64>, OrderError> {
        let mut word = |va: u64| {
            let mut bytes = [0; 8];
            read(va, &mut bytes).map_err(|why| OrderError::Unreadable { cpu, va, why })?;
            Ok(u64::from_le_bytes(bytes))
        };
        let offset = word(self.per_cpu_offset.wrapping_add(8 * u64::from(cpu)))?;
        let variable = self.rings.wrapping_add(offset);
        match self.pointers {
            true => Ok(Some(word(variable)?).filter(|&ring| ring != 0)),
            false => Ok(Some(variable)),
        }
    }
}

impl OrderRecords {
    /// Reads the rings of `cpus` CPUs.
    ///
    /// # Errors
    /// If a ring differs from the patch's format, and if recording is off. Later faults without a record may have
    /// changed the memory since.
    pub fn read(
        read: &mut KernelReader<'_>,
        at: RingAddresses,
        cpus: u32,
    ) -> Result<OrderRecords, OrderError> {
        if !at.is_on(read)? {
            return Err(OrderError::Off);
        }
        let mut all = OrderRecords::default();
        for cpu in 0..cpus {
            let Some(ring) = at.ring(read, cpu)? else {
                continue;
            };
            let ring = decode_ring(read, ring, cpu)?;
            all.records.extend(ring.records);
            all.lost = all.lost.saturating_add(ring.lost);
            all.being_written += ring.being_written;
        }
        all.records
            .sort_by_key(|record| (record.time_ns, record.cpu, record.seq));
        Ok(all)
    }

    /// Reads one byte of every page that [`OrderRecords::read`] would read, and decodes nothing. It serves a caller
    /// that copies the pages now, and reads the records from the copy later.
    pub fn touch(
        read: &mut KernelReader<'_>,
        at: RingAddresses,
        cpus: u32,
    ) -> Result<(), OrderError> {
        at.is_on(read)?;
        for cpu in 0..cpus {
            if let Some(ring) = at.ring(read, cpu)? {
                touch_ring(read, ring, cpu)?;
            }
        }
        Ok(())
    }
}
