// SPDX-License-Identifier: GPL-2.0-only
//! The guest's RAM: memfds of ours that QEMU maps too.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{fcntl_add_seals, ftruncate, memfd_create, MemfdFlags, SealFlags};
use snapshot::{Mapping, Memory, MemoryError, Range, Region};
use stage1::PhysicalAddress;

use crate::MachineError;

/// The RAM of one NUMA node.
#[derive(Debug)]
pub(crate) struct Backend {
    /// Its name in QEMU.
    pub(crate) id: String,
    pub(crate) bytes: u64,
    mapping: Arc<Mapping>,
}

/// A part of a backend at its place in the guest's physical address space.
#[derive(Debug)]
pub(crate) struct Bank {
    range: Range,
    mapping: Arc<Mapping>,
    /// Its offset in the backend.
    offset: u64,
}

impl Backend {
    /// Makes a backend and gives the descriptor that QEMU inherits.
    pub(crate) fn new(id: String, bytes: u64) -> io::Result<(Self, OwnedFd)> {
        let fd = memfd(c"folioscope-ram", bytes)?;
        let mapping = Arc::new(Mapping::shared(&fd.as_fd(), bytes as usize)?);
        Ok((Self { id, bytes, mapping }, fd))
    }
}

/// Creates memory with no name in any file system. Its size is sealed: if QEMU truncated it, our reads would end in
/// SIGBUS.
fn memfd(name: &CStr, bytes: u64) -> io::Result<OwnedFd> {
    let fd = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&fd, bytes)?;
    fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(fd)
}

impl Bank {
    pub(crate) fn range(&self) -> Range {
        self.range
    }
}

/// Returns the guest's memory, to be read in place.
///
/// # Safety
/// Until the result is dropped, only it may write to the guest's RAM: the caller has stopped all vCPUs and devices, and
/// keeps them stopped.
pub(crate) unsafe fn live(banks: &[Bank]) -> Result<Memory, MemoryError> {
    let region = |bank: &Bank| {
        // SAFETY: our caller's promise is the one that is required here, and the size of the file is sealed.
        unsafe { Region::live(bank.range, Arc::clone(&bank.mapping), bank.offset as usize) }
    };
    let regions = banks.iter().map(region).collect();
    Memory::new(regions, banks.iter().map(Bank::range).collect())
}

/// Finds the addresses of `backends` in the output of QEMU's `info mtree -f`.
///
/// `virt` puts RAM at 0x4000_0000, one node behind the other; this checks it.
pub(crate) fn locate(backends: &[Backend], mtree: &str) -> Result<Vec<Bank>, MachineError> {
    let mut banks = Vec::new();
    for line in system_memory(mtree) {
        let Some(ram) = RamLine::parse(line) else {
            continue;
        };
        let Some(backend) = backends.iter().find(|backend| backend.id == ram.name) else {
            continue;
        };
        let inside = ram
            .offset
            .checked_add(ram.range.bytes)
            .is_some_and(|end| end <= backend.bytes);
        if inside {
            banks.push(Bank {
                range: ram.range,
                mapping: Arc::clone(&backend.mapping),
                offset: ram.offset,
            });
        }
    }
    let expected = backends.iter().map(|backend| backend.bytes).sum();
    let found = banks.iter().map(|bank| bank.range.bytes).sum();
    if expected != found {
        return Err(MachineError::Ram { expected, found });
    }
    Ok(banks)
}

/// Returns the lines of the flat view that is the CPUs' own: the one named `memory`.
pub(super) fn system_memory(mtree: &str) -> impl Iterator<Item = &str> {
    mtree
        .split("FlatView #")
        .find(|view| view.lines().any(|line| line.starts_with(" AS \"memory\"")))
        .unwrap_or_default()
        .lines()
}

/// A line such as `  0000000050000000-000000005fffffff (prio 0, ram): ram1 @0000000000001000`.
pub(super) struct RamLine<'a> {
    pub(super) range: Range,
    /// The backend's: as an id it holds no space.
    pub(super) name: &'a str,
    offset: u64,
}

impl<'a> RamLine<'a> {
    pub(super) fn parse(line: &'a str) -> Option<Self> {
        let (addresses, rest) = line.trim().split_once(' ')?;
        let (first, last) = addresses.split_once('-')?;
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let (first, last) = (hex(first)?, hex(last)?);
        let (_, name) = rest.split_once(", ram): ")?;
        let (name, offset) = match name.split_once(" @") {
            Some((name, offset)) => (name, hex(offset.split_whitespace().next()?)?),
            None => (name, 0),
        };
        let bytes = last.checked_sub(first)?.checked_add(1)?;
        Some(Self {
            range: Range::new(PhysicalAddress(first), bytes)?,
            // With KVM there is that word behind it.
            name: name.trim_end().trim_end_matches(" KVM"),
            offset,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    const MTREE: &str = r#"FlatView #0
 AS "I/O", root: io
 Root memory region: io
  0000000000000000-000000000000ffff (prio 0, i/o): io

FlatView #2
 AS "memory", root: system
 AS "cpu-memory-0", root: system
 Root memory region: system
  0000000000000000-0000000003ffffff (prio 0, romd): virt.flash0
  0000000009000000-0000000009000fff (prio 0, i/o): pl011
  0000000040000000-00000000401fffff (prio 0, ram): ram0
  0000000040200000-00000000405fffff (prio 0, ram): ram1
  0000000100000000-00000001001fffff (prio 0, ram): ram0 @0000000000200000
  0000000200000000-00000002001fffff (prio 0, ram): other.device
"#;

    fn backends() -> Vec<Backend> {
        ["ram0", "ram1"]
            .map(|id| Backend::new(id.into(), 4 << 20).unwrap().0)
            .into()
    }

    #[test]
    fn banks_are_where_the_memory_map_has_them() {
        let banks = locate(&backends(), MTREE).unwrap();
        let found: Vec<_> = banks
            .iter()
            .map(|bank| (bank.range.base.0, bank.range.bytes, bank.offset))
            .collect();
        assert_eq!(
            found,
            [
                (0x4000_0000, 2 << 20, 0),
                (0x4020_0000, 4 << 20, 0),
                (0x1_0000_0000, 2 << 20, 2 << 20)
            ]
        );
        // SAFETY: no machine runs on this memory.
        let mut memory = unsafe { live(&banks) }.unwrap();
        memory.write(PhysicalAddress(0x1_0000_0008), &[7]).unwrap();
        // SAFETY: as above.
        assert_eq!(unsafe { banks[0].mapping.words((2 << 20) + 8, 1) }, [7]);
    }

    #[test]
    fn missing_ram_is_noticed() {
        let without = MTREE.replace("ram): ram1", "ram): elsewhere");
        let error = locate(&backends(), &without).unwrap_err().to_string();
        assert!(
            error.contains("0x800000") && error.contains("0x400000"),
            "{error}"
        );
        assert!(locate(&backends(), "").is_err());
        assert!(locate(&backends(), "garbage - (prio, ram): ram0 @").is_err());
    }

    proptest::proptest! {
        #[test]
        fn any_memory_map_is_taken_or_refused(
            first: u64, last: u64, offset: u64, text in "[-0-9a-f @,():ram]{0,60}",
        ) {
            let ours = [Backend::new("ram".into(), 1 << 20).unwrap().0];
            let line = format!("{first:016x}-{last:016x} (prio 0, ram): ram @{offset:x}");
            let view = format!("FlatView #\n AS \"memory\", root\n  {line}\n  {text}");
            // No map of this kind has the one place that would do.
            assert!(locate(&ours, &view).is_err());
        }
    }

    #[test]
    fn the_size_is_sealed() {
        let (_, fd) = Backend::new("ram0".into(), 1 << 20).unwrap();
        assert!(File::from(fd).set_len(4096).is_err());
    }
}
