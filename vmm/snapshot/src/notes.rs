// SPDX-License-Identifier: GPL-2.0-only
//! Notes on a guest, beyond its registers and memory.

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use untrusted::Text;

use crate::Cpu;

/// The version of [`Notes`] that this program writes, and the newest that it reads: it reads all
/// before, too.
pub const NOTES_SCHEMA: u32 = 1;

/// Metadata of a snapshot; saved in the core as JSON.
///
/// An unknown field is empty or zero. This version skips a field that a later minor version adds. A change that would
/// be misread raises [`NOTES_SCHEMA`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Notes {
    /// The version of this structure.
    pub schema: u32,
    /// When the snapshot was taken, in seconds since 1970 (UTC).
    #[serde(default)]
    pub taken_at: u64,
    /// The machine on which the guest ran, such as `qemu-tcg` or `kvm`.
    #[serde(default)]
    pub machine: String,
    /// The command that started the machine.
    #[serde(default)]
    pub machine_command: String,
    /// The kernel's release, as `uname -r` prints it.
    #[serde(default)]
    pub kernel_release: String,
    /// The kernel's command line.
    #[serde(default)]
    pub command_line: String,
    /// The base page size of the kernel, in bytes.
    #[serde(default)]
    pub page_size: u64,
    /// The processes that were looked at.
    #[serde(default)]
    pub processes: Vec<Process>,
    /// Further notes that the writer keeps with the snapshot.
    #[serde(default)]
    pub extra: BTreeMap<String, serde_json::Value>,
}

/// One process of the guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Its process id in the guest.
    pub pid: u32,
    /// Its name, as in `/proc/PID/comm`.
    #[serde(default)]
    pub name: Text,
    /// The index of the CPU whose TTBR0_EL1 is the process's table, if it is known.
    #[serde(default)]
    pub cpu: Option<usize>,
    /// The place where the process waited for the snapshot.
    #[serde(default)]
    pub checkpoint: Option<Checkpoint>,
    /// The text of `/proc/PID/maps` (or `smaps`) at that time.
    #[serde(default)]
    pub maps: String,
    /// Further notes on the process.
    #[serde(default)]
    pub extra: BTreeMap<String, serde_json::Value>,
}

/// Proof that a CPU runs a process, and so that its TTBR0_EL1 is the process's table.
///
/// The process waits at EL0 in a short run of instructions, with a register that holds a number drawn for this wait. A
/// CPU in the kernel, in another process or in an earlier wait of the same one does not have all three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The VA of the first instruction of the wait.
    #[serde(with = "hex")]
    pub pc_first: u64,
    /// The VA right behind the last one.
    #[serde(with = "hex")]
    pub pc_end: u64,
    /// The number of the X register that holds the nonce.
    pub register: u8,
    /// The nonce.
    #[serde(with = "hex")]
    pub nonce: u64,
}

impl Checkpoint {
    /// Returns whether `cpu` is in this wait.
    pub fn holds(&self, cpu: &Cpu) -> bool {
        let pc = cpu.general.pc;
        cpu.el() == 0
            && pc >= self.pc_first
            && pc < self.pc_end
            && cpu.general.x.get(usize::from(self.register)) == Some(&self.nonce)
    }
}

impl Notes {
    /// Notes about a machine of that kind, started so, as it is now.
    pub fn now(machine: impl Into<String>, machine_command: String) -> Self {
        let taken_at = SystemTime::UNIX_EPOCH.elapsed();
        Self {
            taken_at: taken_at.map_or(0, |since| since.as_secs()),
            machine: machine.into(),
            machine_command,
            ..Self::default()
        }
    }
}

impl Default for Notes {
    fn default() -> Self {
        Self {
            schema: NOTES_SCHEMA,
            taken_at: 0,
            machine: String::new(),
            machine_command: String::new(),
            kernel_release: String::new(),
            command_line: String::new(),
            page_size: 0,
            processes: Vec::new(),
            extra: BTreeMap::new(),
        }
    }
}

/// Serialises 64-bit values as hex strings, since JSON readers that hold numbers as doubles would round them.
pub(crate) mod hex {
    use serde::{de::Error, Deserialize, Deserializer, Serializer};

    pub(crate) fn parse(text: &str) -> Result<u64, String> {
        text.strip_prefix("0x")
            .and_then(|digits| u64::from_str_radix(digits, 16).ok())
            .ok_or_else(|| {
                format!("expected a 64-bit hex number such as \"0x1f\", found \"{text}\"")
            })
    }

    pub(crate) fn serialize<S: Serializer>(value: &u64, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&format!("{value:#x}"))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        parse(&String::deserialize(from)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_holds_only_with_level_place_and_nonce() {
        let checkpoint = Checkpoint {
            pc_first: 0x1000,
            pc_end: 0x1008,
            register: 9,
            nonce: 42,
        };
        let mut cpu = Cpu::default();
        cpu.general.pc = 0x1004;
        cpu.general.x[9] = 42;
        assert!(checkpoint.holds(&cpu));
        for change in [
            |cpu: &mut Cpu| cpu.general.pstate = 5,
            |cpu: &mut Cpu| cpu.general.pc = 0x1008,
            |cpu: &mut Cpu| cpu.general.x[9] = 43,
        ] {
            let mut other = cpu;
            change(&mut other);
            assert!(!checkpoint.holds(&other));
        }
        let nowhere = Checkpoint {
            register: 31,
            ..checkpoint
        };
        assert!(!nowhere.holds(&cpu));
    }

    #[test]
    fn fields_of_a_later_writer_are_skipped() {
        let notes: Notes =
            serde_json::from_str(r#"{"schema":1,"page_size":4096,"later":[1]}"#).unwrap();
        assert_eq!(notes.page_size, 4096);
    }
}
