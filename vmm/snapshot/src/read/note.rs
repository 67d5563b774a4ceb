// SPDX-License-Identifier: GPL-2.0-only
//! One note of a core: its bytes and their decoding.

use stage1::PhysicalAddress;

use crate::elf::{self, RamNote, RegistersNote};
use crate::elf_file::offset_in;
use crate::notes::hex;
use crate::{CoreError, Cpu, Notes, Range, NOTES_SCHEMA, SYSTEM_REGISTERS};

/// Returns whether a note of version `found` can be read by a program whose own is `newest`.
fn is_read(found: u32, newest: u32) -> bool {
    (1..=newest).contains(&found)
}

/// Contents of one note.
pub struct Note<'a> {
    name: &'static str,
    /// Offset of its content in the file.
    offset: u64,
    pub kind: u32,
    body: &'a [u8],
}

impl<'a> Note<'a> {
    pub fn new(core: &[u8], owner: &[u8], kind: u32, body: &'a [u8]) -> Self {
        let name = match kind {
            _ if owner == elf::CORE => "CORE PRSTATUS",
            elf::NT_REGISTERS => "FOLIOSCOPE registers",
            elf::NT_RAM => "FOLIOSCOPE RAM",
            _ => "FOLIOSCOPE metadata",
        };
        Self {
            name,
            offset: offset_in(core, body),
            kind,
            body,
        }
    }

    pub fn damaged(&self, problem: String) -> CoreError {
        CoreError::Note {
            note: self.name,
            offset: self.offset,
            problem,
        }
    }

    fn json<T: serde::de::DeserializeOwned>(&self, newest: u32) -> Result<T, CoreError> {
        #[derive(serde::Deserialize)]
        struct Version {
            schema: u32,
        }
        let wrong = |error: serde_json::Error| self.damaged(format!("its JSON says: {error}"));
        // A copy, which no task changes: text in it is checked once.
        let body = self.body.to_vec();
        // The version alone first: the rest of a later version may not be readable at all.
        let version: Version = serde_json::from_slice(&body).map_err(wrong)?;
        if !is_read(version.schema, newest) {
            return Err(CoreError::Schema {
                note: self.name,
                offset: self.offset,
                found: version.schema,
                newest,
            });
        }
        serde_json::from_slice(&body).map_err(wrong)
    }

    pub fn prstatus(&self) -> Result<Cpu, CoreError> {
        if self.body.len() != elf::PRSTATUS_BYTES {
            return Err(self.damaged(format!(
                "expected the {} bytes of arm64's elf_prstatus, found {}",
                elf::PRSTATUS_BYTES,
                self.body.len()
            )));
        }
        let mut registers = self.body[elf::PRSTATUS_REG..]
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().expect("a chunk of eight bytes")));
        let mut next = || registers.next().expect("34 registers, by the length above");
        let mut cpu = Cpu::default();
        cpu.general.x.fill_with(&mut next);
        cpu.general.sp = next();
        cpu.general.pc = next();
        cpu.general.pstate = next();
        Ok(cpu)
    }

    pub fn registers(&self, cpu: &mut Cpu) -> Result<(), CoreError> {
        let note: RegistersNote = self.json(elf::CORE_SCHEMA)?;
        cpu.index = note.cpu;
        let value = |name: &str| match note.registers.get(name) {
            None => Ok(None),
            Some(text) => match hex::parse(text) {
                Ok(value) => Ok(Some(value)),
                Err(problem) => Err(self.damaged(format!("{name}: {problem}"))),
            },
        };
        for row in &SYSTEM_REGISTERS {
            match value(row.name)? {
                Some(value) => (row.set)(&mut cpu.system, value),
                None if row.required => {
                    return Err(self.damaged(format!("expected {}, found none", row.name)))
                }
                None => (),
            }
        }
        cpu.general.sp_el0 = value(elf::SP_EL0)?;
        Ok(())
    }

    pub fn ram(&self) -> Result<Vec<Range>, CoreError> {
        let note: RamNote = self.json(elf::CORE_SCHEMA)?;
        note.ranges
            .iter()
            .map(|ram| {
                Range::new(PhysicalAddress(ram.base), ram.bytes).ok_or_else(|| {
                    self.damaged(format!(
                        "RAM of {:#x} bytes at {:#x} reaches beyond the address space",
                        ram.bytes, ram.base
                    ))
                })
            })
            .collect()
    }

    pub fn notes(&self) -> Result<Notes, CoreError> {
        self.json(NOTES_SCHEMA)
    }
}

#[cfg(test)]
mod tests {
    use super::is_read;

    #[test]
    fn a_program_reads_its_own_version_and_all_before() {
        assert!(is_read(1, 2) && is_read(2, 2));
        assert!(!is_read(0, 2) && !is_read(3, 2));
    }
}
