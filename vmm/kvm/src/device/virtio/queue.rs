// SPDX-License-Identifier: GPL-2.0-only
//! Split virtqueues (2.7): chains of buffers out of the available ring, and back into the used ring.

use std::collections::VecDeque;
use std::num::Wrapping;
use std::sync::atomic::Ordering;

use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress, GuestMemory, GuestMemoryMmap, Permissions};

use super::written::Written;

/// The most entries of a queue. Linux gives each entry of a receiving queue a page, of up to 64 KiB.
pub(super) const MOST_ENTRIES: u16 = 32;

/// The driver's violation of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken(pub(super) &'static str);

/// Direction of a chain's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// The guest has written them, and the device reads.
    FromGuest,
    /// The device writes them.
    ToGuest,
}

/// A virtqueue, and the values of its registers.
#[derive(Debug)]
pub(super) struct Virtqueue {
    ring: Queue,
    /// The driver's settings until the queue is ready: entries, and the addresses of the descriptor table, the driver's
    /// area and the device's area.
    pub(super) size: u32,
    pub(super) descriptors: u64,
    pub(super) available: u64,
    pub(super) used: u64,
}

impl Virtqueue {
    /// Creates a queue that is not ready.
    pub(super) fn new() -> Self {
        Self {
            ring: Queue::new(MOST_ENTRIES).expect("a power of two"),
            size: 0,
            descriptors: 0,
            available: 0,
            used: 0,
        }
    }

    /// Returns whether the driver has made the queue ready.
    pub(super) fn is_ready(&self) -> bool {
        self.ring.ready()
    }

    /// Returns how many entries the queue has.
    pub(super) fn entries(&self) -> usize {
        usize::from(self.ring.size())
    }

    /// Starts the queue, from its first entry. It must lie in RAM, aligned as 2.7 requires.
    pub(super) fn start(&mut self, memory: &GuestMemoryMmap) -> Result<(), Broken> {
        let ring = &mut self.ring;
        ring.reset();
        u16::try_from(self.size)
            .ok()
            .and_then(|size| ring.try_set_size(size).ok())
            .ok_or(Broken("a queue of a size that is not offered"))?;
        ring.try_set_desc_table_address(GuestAddress(self.descriptors))
            .and_then(|()| ring.try_set_avail_ring_address(GuestAddress(self.available)))
            .and_then(|()| ring.try_set_used_ring_address(GuestAddress(self.used)))
            .map_err(|_| Broken("a queue that is not aligned"))?;
        ring.set_ready(true);
        if !ring.is_valid(memory) {
            ring.reset();
            return Err(Broken("a queue outside RAM"));
        }
        Ok(())
    }

    /// Stops the queue.
    pub(super) fn stop(&mut self) {
        self.ring.reset();
    }

    /// Returns whether the driver has made buffers available.
    pub(super) fn has_buffers(&self, memory: &GuestMemoryMmap) -> bool {
        let index = || self.ring.avail_idx(memory, Ordering::Acquire).ok();
        self.ring.ready() && index().is_some_and(|at| at != Wrapping(self.ring.next_avail()))
    }

    /// Returns the next chain that the driver has made available, without the buffers of the other direction.
    pub(super) fn pop(
        &mut self,
        memory: &GuestMemoryMmap,
        direction: Direction,
    ) -> Result<Option<Chain>, Broken> {
        if !self.ring.ready() {
            return Ok(None);
        }
        let most = self.entries();
        let mut available = self
            .ring
            .iter(memory)
            .map_err(|_| Broken("an available ring with more entries than it has"))?;
        let Some(descriptors) = available.next() else {
            return Ok(None);
        };
        let mut chain = Chain {
            head: descriptors.head_index(),
            buffers: VecDeque::new(),
            written: 0,
        };
        let writable = direction == Direction::ToGuest;
        // The iterator ends alike at the end of a chain, at a descriptor that cannot be, and in a loop:
        // only the first has no next.
        let mut continues = true;
        for (count, descriptor) in descriptors.enumerate() {
            if count == most {
                return Err(Broken("a chain longer than its queue"));
            }
            let (address, bytes) = (descriptor.addr(), descriptor.len());
            if !memory.check_range(address, bytes as usize, Permissions::ReadWrite) {
                return Err(Broken("a buffer outside RAM"));
            }
            if descriptor.is_write_only() == writable && bytes > 0 {
                chain.buffers.push_back((address, bytes));
            }
            continues = descriptor.has_next();
        }
        if continues {
            return Err(Broken("a chain that does not end"));
        }
        Ok(Some(chain))
    }

    /// Gives a chain back to the driver as used.
    pub(super) fn give_back(
        &mut self,
        memory: &GuestMemoryMmap,
        chain: &Chain,
        written: &mut Written,
    ) -> Result<(), Broken> {
        // 2.7.8: two words of flags and index, then elements of eight bytes.
        let slot = u64::from(self.ring.next_used() % self.ring.size());
        written.add(self.ring.used_ring(), 4);
        written.add(self.ring.used_ring() + 4 + 8 * slot, 8);
        self.ring
            .add_used(memory, chain.head, chain.written)
            .map_err(|_| Broken("a chain that cannot be given back"))
    }
}

/// The buffers of a chain that are still to be read or written.
#[derive(Debug)]
pub(super) struct Chain {
    head: u16,
    buffers: VecDeque<(GuestAddress, u32)>,
    written: u32,
}

impl Chain {
    /// Returns whether no buffer is left.
    pub(super) fn is_empty(&self) -> bool {
        self.buffers.is_empty()
    }

    /// Returns how many bytes are left in the buffers.
    pub(super) fn bytes(&self) -> usize {
        let bytes = |&(_, bytes): &(GuestAddress, u32)| bytes as usize;
        self.buffers.iter().map(bytes).sum()
    }

    /// Continues to read into `bytes`, and returns the number of bytes read.
    pub(super) fn read(
        &mut self,
        memory: &GuestMemoryMmap,
        bytes: &mut [u8],
    ) -> Result<usize, Broken> {
        self.each(bytes.len(), |address, range| {
            memory.read_slice(&mut bytes[range], address).is_ok()
        })
    }

    /// Continues to write from `bytes`, and returns the number of bytes written.
    pub(super) fn write(
        &mut self,
        memory: &GuestMemoryMmap,
        bytes: &[u8],
        written: &mut Written,
    ) -> Result<usize, Broken> {
        let count = self.each(bytes.len(), |address, range| {
            written.add(address.0, range.len() as u64);
            memory.write_slice(&bytes[range], address).is_ok()
        })?;
        // It fits: a chain has fewer than 4 GiB.
        self.written += count as u32;
        Ok(count)
    }

    /// Goes through the next `most` bytes of the buffers, piece by piece.
    fn each(
        &mut self,
        most: usize,
        mut piece: impl FnMut(GuestAddress, std::ops::Range<usize>) -> bool,
    ) -> Result<usize, Broken> {
        let mut done = 0;
        while let Some((address, bytes)) = self.buffers.front_mut() {
            let count = (most - done).min(*bytes as usize);
            if count == 0 {
                break;
            }
            if !piece(*address, done..done + count) {
                return Err(Broken("a buffer that is not in RAM"));
            }
            done += count;
            *bytes -= count as u32;
            address.0 += count as u64;
            if *bytes == 0 {
                self.buffers.pop_front();
            }
        }
        Ok(done)
    }
}
