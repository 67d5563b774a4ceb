// SPDX-License-Identifier: GPL-2.0-only
//! Reads a trace. Its contents are untrusted.

use std::io::{self, Read};

use super::number::unzigzag;
use super::{Before, MAGIC, MOST_CHAINS, MOST_FRAMES, MOST_WORDS, SAME_CPU, SAME_PC, VERSION};
use crate::tracker::MOST_CPUS;
use crate::{Barrier, Domain, Event, Folio, FolioKind, Register, Types, What};

/// The reason why a trace cannot be read on.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be read.
    #[error("cannot read the trace: {0}")]
    Io(#[from] io::Error),
    /// The file is not a trace.
    #[error("expected a trace of `folioscope record`, which begins with FOLIOREC, and found {found:02x?}; check the file's name")]
    NotATrace {
        /// Its first bytes.
        found: Vec<u8>,
    },
    /// The trace has another version.
    #[error("the trace is of version {found} and this folioscope reads up to version {VERSION}; use the one that wrote it, or record again")]
    Version {
        /// Its version.
        found: u32,
    },
    /// The trace ends within a record, or without its end.
    #[error("the trace was cut after {records} records ({bytes} bytes); what it holds up to there is good")]
    Cut {
        /// Whole records before that.
        records: u64,
        /// Bytes before that.
        bytes: u64,
    },
    /// The trace contains a record that no writer writes.
    #[error("the trace is damaged behind record {records} (byte {bytes}): {what}; what it holds up to there is good")]
    Damaged {
        /// Whole records before that.
        records: u64,
        /// Bytes before that.
        bytes: u64,
        /// The value found.
        what: String,
    },
}

/// Reads events, one at a time and in bounded memory.
#[derive(Debug)]
pub struct Reader<R: Read> {
    input: io::BufReader<R>,
    before: Before,
    chains: Vec<Vec<u64>>,
    bytes: u64,
    ended: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// If it is not that of a trace of our version.
    pub fn new(input: R) -> Result<Self, TraceError> {
        let mut input = io::BufReader::with_capacity(1 << 16, input);
        let mut header = Vec::new();
        input.by_ref().take(12).read_to_end(&mut header)?;
        if header.len() < 8 || header[..8] != *MAGIC {
            header.truncate(8);
            return Err(TraceError::NotATrace { found: header });
        }
        let Ok(version) = header[8..].try_into().map(u32::from_le_bytes) else {
            return Err(TraceError::Cut {
                records: 0,
                bytes: header.len() as u64,
            });
        };
        if !(1..=VERSION).contains(&version) {
            return Err(TraceError::Version { found: version });
        }
        Ok(Self {
            input,
            before: Before::default(),
            chains: Vec::new(),
            bytes: 12,
            ended: false,
        })
    }

    /// Returns the next event; `None` behind the last one.
    ///
    /// # Errors
    /// If the trace was cut or is damaged. Nothing comes after that.
    #[allow(clippy::should_implement_trait)] // errors end it, so it is no iterator
    pub fn next(&mut self) -> Result<Option<Event>, TraceError> {
        if self.ended {
            return Ok(None);
        }
        let read = self.record();
        if !matches!(read, Ok(Some(_))) {
            self.ended = true;
        }
        read
    }

    /// Returns the bytes read so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn record(&mut self) -> Result<Option<Event>, TraceError> {
        let tag = self.byte()?;
        if tag & !(SAME_CPU | SAME_PC | 0xf) != 0 {
            return Err(self.damaged(format!("tag {tag:#x}")));
        }
        let cpu = if tag & SAME_CPU == 0 {
            self.at_most(MOST_CPUS as u64 - 1, "CPU")? as u16
        } else {
            self.before.cpu
        };
        let mut pc = *self.before.pc(cpu);
        if tag & SAME_PC == 0 {
            pc = pc.wrapping_add(self.delta()?) & u64::MAX >> 2;
        }
        self.before.cpu = cpu;
        *self.before.pc(cpu) = pc;
        let what = match tag & 0xf {
            0 => {
                let records = self.number()?;
                if records != self.before.records {
                    return Err(self.damaged(format!("an end that counts {records} records")));
                }
                return Ok(None);
            }
            1 => {
                let place = self.before.address.wrapping_add(self.delta()?) & u64::MAX >> 3;
                let word = self.before.word.wrapping_add(self.delta()?);
                (self.before.address, self.before.word) = (place, word);
                What::Store {
                    address: place * 8,
                    word,
                }
            }
            2 => What::Unknown {
                address: self.place()?,
            },
            3 => self.table(false)?,
            4 => What::NoTable {
                address: self.place()?,
            },
            5 => {
                let opcode = self.at_most(0x3fff, "TLBI")? as u32;
                let operand = self.before.operand.wrapping_add(self.delta()?);
                self.before.operand = operand;
                What::Tlbi {
                    opcode: 0xd508_0000 | opcode << 5,
                    operand,
                }
            }
            6 => {
                let byte = self.byte()?;
                What::Barrier(self.barrier(byte)?)
            }
            7 => {
                let which = self.byte()?;
                let Some(register) = Register::ALL.get(usize::from(which)).copied() else {
                    return Err(self.damaged(format!("register {which}")));
                };
                let delta = self.delta()?;
                let last = &mut self.before.registers[usize::from(which)];
                *last = last.wrapping_add(delta);
                What::Register {
                    register,
                    value: *last,
                }
            }
            8 => What::Late {
                address: self.place()?,
            },
            9 => self.chain(pc)?,
            10 => What::Mark {
                number: self.number()?,
            },
            11 => self.folio()?,
            12 => self.table(true)?,
            kind => return Err(self.damaged(format!("a record of kind {kind}"))),
        };
        self.before.records += 1;
        Ok(Some(Event {
            cpu,
            pc: pc << 2,
            what,
        }))
    }

    fn barrier(&self, byte: u8) -> Result<Barrier, TraceError> {
        const DOMAINS: [Domain; 4] = [
            Domain::NonShareable,
            Domain::InnerShareable,
            Domain::OuterShareable,
            Domain::System,
        ];
        const TYPES: [Types; 3] = [Types::Loads, Types::Stores, Types::All];
        let Some(code) = byte.checked_sub(1) else {
            return Ok(Barrier::Isb);
        };
        match DOMAINS.get(usize::from(code / 3)) {
            Some(domain) => Ok(Barrier::Dsb {
                domain: *domain,
                types: TYPES[usize::from(code % 3)],
            }),
            None => Err(self.damaged(format!("barrier {byte}"))),
        }
    }

    fn chain(&mut self, pc: u64) -> Result<What, TraceError> {
        let next = self.chains.len() + 1;
        let number = self.at_most(next.min(MOST_CHAINS) as u64, "call chain")? as usize;
        if number == next {
            let count = self.at_most(MOST_FRAMES as u64, "number of frames")?;
            let mut frames = Vec::with_capacity(count as usize);
            let mut last = pc;
            for _ in 0..count {
                last = last.wrapping_add(self.delta()?) & u64::MAX >> 2;
                frames.push(last << 2);
            }
            self.chains.push(frames);
        }
        let known = number.checked_sub(1).and_then(|at| self.chains.get(at));
        Ok(What::Chain {
            frames: known.cloned().unwrap_or_default(),
        })
    }

    fn folio(&mut self) -> Result<What, TraceError> {
        let first = self.before.folio.wrapping_add(self.delta()?) & u64::MAX >> 12;
        self.before.folio = first;
        let byte = self.byte()?;
        let index = self.before.index.wrapping_add(self.delta()?);
        self.before.index = index;
        let (order, kind) = (byte & 31, FolioKind::ALL.get(usize::from(byte >> 5)));
        match kind {
            Some(kind) if order <= Folio::LARGEST => Ok(What::Folio(Folio {
                first,
                order,
                kind: *kind,
                index,
            })),
            _ => Err(self.damaged(format!("folio {byte:#x}"))),
        }
    }

    /// Before version 4 there were no runs of one step.
    fn table(&mut self, by_steps: bool) -> Result<What, TraceError> {
        let address = self.place()?;
        let count = self.at_most(MOST_WORDS as u64, "number of descriptors")? as usize;
        let mut words = Vec::with_capacity(count);
        let mut last = 0_u64;
        while words.len() < count {
            let left = (count - words.len()) as u64;
            let zeros = self.at_most(left, "run of zeros")?;
            let most = left - zeros;
            let (others, even) = if by_steps {
                let number = self.at_most(most << 1 | 1, "run of words")?;
                (number >> 1, number & 1 != 0)
            } else {
                (self.at_most(most, "run of words")?, false)
            };
            if zeros + others == 0 {
                return Err(self.damaged("an empty run".into()));
            }
            words.resize(words.len() + zeros as usize, 0);
            let mut step = 0;
            for at in 0..others {
                if at == 0 || !even {
                    step = self.delta()?;
                }
                last = last.wrapping_add(step);
                words.push(last);
            }
        }
        Ok(What::Table { address, words })
    }

    fn place(&mut self) -> Result<u64, TraceError> {
        Ok((self.number()? & u64::MAX >> 3) * 8)
    }

    fn delta(&mut self) -> Result<u64, TraceError> {
        self.number().map(unzigzag)
    }

    fn at_most(&mut self, most: u64, what: &str) -> Result<u64, TraceError> {
        match self.number()? {
            number if number <= most => Ok(number),
            number => Err(self.damaged(format!("{what} {number}, beyond {most}"))),
        }
    }

    fn number(&mut self) -> Result<u64, TraceError> {
        let mut number = 0;
        for shift in (0..70).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(self.damaged("a number of more than 64 bits".into()))
    }

    fn byte(&mut self) -> Result<u8, TraceError> {
        let mut byte = [0];
        match self.input.read_exact(&mut byte) {
            Ok(()) => {
                self.bytes += 1;
                Ok(byte[0])
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(TraceError::Cut {
                records: self.before.records,
                bytes: self.bytes,
            }),
            Err(error) => Err(error.into()),
        }
    }

    fn damaged(&self, what: String) -> TraceError {
        TraceError::Damaged {
            records: self.before.records,
            bytes: self.bytes,
            what,
        }
    }
}
