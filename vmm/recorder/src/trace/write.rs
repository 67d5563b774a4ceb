// SPDX-License-Identifier: GPL-2.0-only
//! Writing a trace.

use std::collections::HashMap;
use std::io::{self, Write};

use super::number::{put, zigzag};
use super::{table, Before, MAGIC, MOST_CHAINS, MOST_FRAMES, SAME_CPU, SAME_PC, VERSION};
use crate::{Barrier, Event, Folio, What};

/// A writer of events. If it is dropped without [`Writer::finish`], the trace is marked as cut.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: W,
    buffer: Vec<u8>,
    before: Before,
    /// Chains by number, and how many of them were written.
    chains: HashMap<Vec<u64>, usize>,
    told: usize,
}

/// Size of the buffer, in bytes.
const BUFFER: usize = 1 << 16;

impl<W: Write> Writer<W> {
    /// Writes the header.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        Ok(Self {
            out,
            buffer: Vec::with_capacity(BUFFER + 4096),
            before: Before::default(),
            chains: HashMap::new(),
            told: 0,
        })
    }

    /// Writes an event.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn event(&mut self, event: &Event) -> io::Result<()> {
        let kind = match event.what {
            What::Store { .. } => 1,
            What::Unknown { .. } => 2,
            What::Table { .. } => 12,
            What::NoTable { .. } => 4,
            What::Tlbi { .. } => 5,
            What::Barrier(_) => 6,
            What::Register { .. } => 7,
            What::Late { .. } => 8,
            What::Chain { .. } => 9,
            What::Mark { .. } => 10,
            What::Folio(_) => 11,
        };
        // Of those that are known the number alone is written; without end there may be none.
        let mut chain = 0;
        if let What::Chain { frames } = &event.what {
            let next = self.chains.len() + 1;
            chain = match self.chains.get(frames) {
                Some(number) => *number,
                None if next > MOST_CHAINS || frames.len() > MOST_FRAMES => 0,
                None => {
                    self.chains.insert(frames.clone(), next);
                    next
                }
            };
        }
        let fresh = chain == self.chains.len() && chain > self.told;
        self.told = self.told.max(chain);
        self.head(kind, event.cpu, event.pc);
        let (out, before) = (&mut self.buffer, &mut self.before);
        match &event.what {
            What::Store { address, word } => {
                let place = address / 8;
                put(out, zigzag(place.wrapping_sub(before.address)));
                put(out, zigzag(word.wrapping_sub(before.word)));
                (before.address, before.word) = (place, *word);
            }
            What::Unknown { address } | What::NoTable { address } | What::Late { address } => {
                put(out, address / 8)
            }
            What::Table { address, words } => table::put(out, *address, words),
            What::Tlbi { opcode, operand } => {
                put(out, u64::from(opcode >> 5 & 0x3fff));
                put(out, zigzag(operand.wrapping_sub(before.operand)));
                before.operand = *operand;
            }
            What::Chain { frames } => {
                put(out, chain as u64);
                if fresh {
                    put(out, frames.len() as u64);
                    let mut last = event.pc / 4;
                    for frame in frames {
                        put(out, zigzag((frame / 4).wrapping_sub(last)));
                        last = frame / 4;
                    }
                }
            }
            What::Mark { number } => put(out, *number),
            What::Folio(Folio {
                first,
                order,
                kind,
                index,
            }) => {
                put(out, zigzag(first.wrapping_sub(before.folio)));
                out.push(order | (*kind as u8) << 5);
                put(out, zigzag(index.wrapping_sub(before.index)));
                (before.folio, before.index) = (*first, *index);
            }
            What::Barrier(Barrier::Isb) => out.push(0),
            What::Barrier(Barrier::Dsb { domain, types }) => {
                out.push(1 + *domain as u8 * 3 + *types as u8);
            }
            What::Register { register, value } => {
                let which = *register as usize;
                out.push(which as u8);
                put(out, zigzag(value.wrapping_sub(before.registers[which])));
                before.registers[which] = *value;
            }
        }
        self.before.records += 1;
        if self.buffer.len() >= BUFFER {
            self.hand_on()?;
        }
        Ok(())
    }

    fn head(&mut self, kind: u8, cpu: u16, pc: u64) {
        let mut tag = kind;
        if cpu == self.before.cpu {
            tag |= SAME_CPU;
        }
        self.before.cpu = cpu;
        let last = std::mem::replace(self.before.pc(cpu), pc / 4);
        if last == pc / 4 {
            tag |= SAME_PC;
        }
        let out = &mut self.buffer;
        out.push(tag);
        if tag & SAME_CPU == 0 {
            put(out, u64::from(cpu));
        }
        if tag & SAME_PC == 0 {
            put(out, zigzag((pc / 4).wrapping_sub(last)));
        }
    }

    fn hand_on(&mut self) -> io::Result<()> {
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    /// Passes on the bytes that are not written yet.
    ///
    /// # Errors
    /// If that cannot be done.
    pub fn flush(&mut self) -> io::Result<()> {
        self.hand_on()?;
        self.out.flush()
    }

    /// Writes the end.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        let records = self.before.records;
        self.head(0, 0, 0);
        put(&mut self.buffer, records);
        self.flush()?;
        Ok(self.out)
    }
}
