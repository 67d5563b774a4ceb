// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's log in its own memory: the ring buffer of `kernel/printk/printk_ringbuffer.c`.
//!
//! A record has a descriptor, an info and its text, each in a ring of its own. The descriptor's state says whether the
//! other two are the record's. The ring has no lock: of a guest that runs, a record is taken only if its descriptor was
//! the same before and after all was read.

use stage1::PhysMemory;

use crate::kernel::View;
use crate::types::Member;
use crate::{Kernel, StructureError};

/// `DESC_FLAGS_SHIFT`: the state is in the two highest bits of `state_var`, the id below them.
const STATE_SHIFT: u32 = 62;
const ID: u64 = (1 << STATE_SHIFT) - 1;
/// `desc_committed`: the text is whole so far, and its writer may add to it.
const COMMITTED: u64 = 1;
/// `desc_finalized`.
const FINALIZED: u64 = 2;
/// `LPOS_DATALESS()`: bit 0 of both positions of a record without text.
const NO_TEXT: u64 = 1;
/// `LOG_KERN`. What a program writes to /dev/kmsg has another facility: `devkmsg_write()` takes no 0.
const LOG_KERN: u64 = 0;
/// More than `LOG_BUF_LEN_MAX` (`kernel/printk/printk.c`, 2 GiB) is none; of more than this little would be gained.
const MOST_BITS: u64 = 26;
/// `PRB_AVGBITS` is 5: a descriptor for each 32 bytes of text.
const MOST_COUNT_BITS: u64 = MOST_BITS - 5;

const WHAT: &str = "the kernel's log";

/// Layout of this kernel's log.
#[derive(Debug)]
pub struct Layout {
    /// The address of `prb`, which leads to the ring in use.
    ring: u64,
    count_bits: Member,
    descriptors: Member,
    infos: Member,
    tail: Member,
    head: Member,
    size_bits: Member,
    data: Member,
    descriptor: u64,
    state: Member,
    begin: Member,
    next: Member,
    info: u64,
    sequence: Member,
    at: Member,
    length: Member,
    facility: Member,
}

/// The log at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// The kernel's own records, oldest first.
    pub records: Vec<Record>,
    /// Number of records before the oldest that have been overwritten, whatever wrote them.
    pub overwritten: u64,
}

/// One record of the kernel's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// When it was written, in nanoseconds of `local_clock()`.
    pub at_ns: u64,
    /// Its text, which may have several lines.
    pub text: Vec<u8>,
}

impl Layout {
    /// As this kernel has it.
    ///
    /// # Errors
    /// What it does not have.
    pub fn new(kernel: &Kernel) -> Result<Layout, StructureError> {
        if !kernel.symbols.has_printk() {
            return Err(StructureError::NotBuilt(
                "CONFIG_PRINTK, so it reports nothing of itself",
            ));
        }
        let types = &kernel.types;
        let ring = |path| types.member("printk_ringbuffer", path);
        let descriptor = |path| types.member("prb_desc", path);
        let info = |path| types.member("printk_info", path);
        Ok(Layout {
            ring: kernel.variable("prb")?,
            count_bits: ring("desc_ring.count_bits")?,
            descriptors: ring("desc_ring.descs")?,
            infos: ring("desc_ring.infos")?,
            tail: ring("desc_ring.tail_id")?,
            head: ring("desc_ring.head_id")?,
            size_bits: ring("text_data_ring.size_bits")?,
            data: ring("text_data_ring.data")?,
            descriptor: types.size("prb_desc")?,
            state: descriptor("state_var")?,
            begin: descriptor("text_blk_lpos.begin")?,
            next: descriptor("text_blk_lpos.next")?,
            info: types.size("printk_info")?,
            sequence: info("seq")?,
            at: info("ts_nsec")?,
            length: info("text_len")?,
            facility: info("facility")?,
        })
    }

    /// Reads the log.
    ///
    /// # Errors
    /// Where it is not there, or its rings make no sense.
    pub fn read<M: PhysMemory + ?Sized>(&self, view: View<'_, M>) -> Result<Log, StructureError> {
        let pointer = Member {
            offset: 0,
            size: 8,
            elements: 1,
        };
        let ring = view.number(WHAT, self.ring, pointer)?;
        let of_ring = |member| view.number(WHAT, ring, member);
        let wrong = |why| StructureError::Inconsistent {
            what: WHAT,
            va: ring,
            why,
        };
        let (count_bits, size_bits) = (of_ring(self.count_bits)?, of_ring(self.size_bits)?);
        if !(1..=MOST_COUNT_BITS).contains(&count_bits) || !(3..=MOST_BITS).contains(&size_bits) {
            return Err(wrong(format!(
                "it has 2 to the power of {count_bits} records and 2 to the power of {size_bits} bytes of text"
            )));
        }
        let count = 1 << count_bits;
        let descriptors = of_ring(self.descriptors)?;
        let read_descriptors = || view.bytes(WHAT, descriptors, count * self.descriptor);
        let before = read_descriptors()?;
        let rings = Rings {
            before,
            infos: view.bytes(WHAT, of_ring(self.infos)?, count * self.info)?,
            text: view.bytes(WHAT, of_ring(self.data)?, 1 << size_bits)?,
            count,
            tail: of_ring(self.tail)? & ID,
            head: of_ring(self.head)? & ID,
            after: read_descriptors()?,
        };
        self.log(&rings).map_err(wrong)
    }

    fn log(&self, rings: &Rings) -> Result<Log, String> {
        let (tail, head, count) = (rings.tail, rings.head, rings.count);
        let newest = head.wrapping_sub(tail) & ID;
        if newest >= count {
            return Err(format!(
                "its oldest record is {tail:#x} and its newest {head:#x}, of {count}"
            ));
        }
        let mut log = Log::default();
        let mut first = None;
        for step in 0..=newest {
            let id = tail.wrapping_add(step) & ID;
            let index = (id & (count - 1)) as usize;
            let all = [&rings.before, &rings.after].map(|it| element(it, index, self.descriptor));
            let ([Some(descriptor), after], Some(info)) =
                (all, element(&rings.infos, index, self.info))
            else {
                continue;
            };
            let state = number(descriptor, self.state);
            let is_whole = matches!(state >> STATE_SHIFT, COMMITTED | FINALIZED);
            if state & ID != id || !is_whole || after != Some(descriptor) {
                continue;
            }
            first.get_or_insert(number(info, self.sequence));
            if number(info, self.facility) != LOG_KERN {
                continue;
            }
            let block = (
                number(descriptor, self.begin),
                number(descriptor, self.next),
            );
            let length = number(info, self.length) as usize;
            if let Some(text) = text_of(&rings.text, (id, block), length) {
                log.records.push(Record {
                    at_ns: number(info, self.at),
                    text: text.to_vec(),
                });
            }
        }
        log.overwritten = first.unwrap_or(0);
        Ok(log)
    }
}

/// The text of a record, from the ring of texts: none where it has none, or its block is another's.
fn text_of(ring: &[u8], (id, (begin, next)): (u64, (u64, u64)), length: usize) -> Option<&[u8]> {
    if begin & next & NO_TEXT != 0 {
        return None;
    }
    let size = ring.len() as u64;
    let (wrap, index) = (|at: u64| at / size, |at: u64| at % size);
    let wraps = wrap(begin.wrapping_add(size)) == wrap(next);
    // get_data(): a block that does not fit before the ring's end lies at its start. One that just fits does so too on
    // kernels that then add its size to `next`, and stays where it is on those that do not.
    let (start, end) = match () {
        () if wrap(begin) == wrap(next) && begin < next => (index(begin), index(next)),
        () if wraps && index(next) == 0 => (index(begin), size),
        () if wraps => (0, index(next)),
        () => return None,
    };
    // `struct prb_data_block`: its id, then the text.
    let (own, text) = ring
        .get(start as usize..end as usize)?
        .split_at_checked(8)?;
    if u64::from_le_bytes(own.try_into().ok()?) != id {
        return None;
    }
    Some(&text[..length.min(text.len())])
}

/// The rings, as they lie in memory.
#[derive(Debug)]
struct Rings {
    /// The descriptors, before all else was read and after it.
    before: Vec<u8>,
    after: Vec<u8>,
    infos: Vec<u8>,
    text: Vec<u8>,
    /// How many descriptors and infos there are.
    count: u64,
    /// The ids of the oldest and of the newest record.
    tail: u64,
    head: u64,
}

fn element(bytes: &[u8], index: usize, size: u64) -> Option<&[u8]> {
    let (start, size) = (index.checked_mul(size as usize)?, size as usize);
    bytes.get(start..start.checked_add(size)?)
}

/// A little-endian number; 0 where it is not among the bytes.
fn number(bytes: &[u8], member: Member) -> u64 {
    let start = member.offset as usize;
    let bytes = bytes.get(start..start + member.size.min(8) as usize);
    let bytes = bytes.unwrap_or_default().iter().rev();
    bytes.fold(0, |all, byte| all << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests;
