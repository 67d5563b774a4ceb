// SPDX-License-Identifier: GPL-2.0-only
//! Finds the RAM of an external QEMU: the file, and the offset in it.
//!
//! QEMU has the virtual address in its own process for a guest address (`gpa2hva`). The system has the file that is
//! mapped there (`/proc/PID/maps`). QEMU's descriptors (`/proc/PID/fd`) let that file be opened, whether it has a name
//! or not. Every kind of shared backend is thus found in one way.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use linux::vma::Vma;
use serde_json::{json, Value};
use snapshot::{Range, PAGE};
use stage1::PhysicalAddress;

use super::error::AttachError;
use super::memory::Bank;
use crate::error::excerpt;
use crate::qemu::ram::{system_memory, RamLine};
use crate::qemu::COMMAND;
use crate::qmp::Qmp;
use crate::QmpError;

/// The most pieces of RAM that a guest may have; a machine has some dozens.
const MOST_PIECES: usize = 4096;

/// A piece of the guest's RAM, for people.
#[derive(Clone, Debug)]
pub struct FoundRam {
    /// Its guest physical addresses.
    pub range: Range,
    /// The backend's name in QEMU.
    pub backend: String,
    /// The file, as `/proc/PID/maps` names it.
    pub file: untrusted::Text,
}

/// All RAM of the memory backends.
#[derive(Debug)]
pub(super) struct AllFound {
    /// Ranges to read.
    pub(super) banks: Vec<Bank>,
    /// The RAM as described to people.
    pub(super) ram: Vec<FoundRam>,
    /// RAM that shares its page with something else, such as a device. No table and no page of the guest is there.
    pub(super) left_out: Vec<Range>,
}

/// A memory backend.
struct Backend {
    id: String,
    size: u64,
    share: bool,
}

/// Finds all RAM of the memory backends.
pub(super) fn find(qmp: &mut Qmp, pid: i32) -> Result<AllFound, AttachError> {
    let backends = backends(qmp)?;
    let mtree = qmp.human("info mtree -f", None, COMMAND)?;
    let mut process = None;
    let (mut banks, mut all, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
    for line in system_memory(&mtree).filter_map(RamLine::parse) {
        let id = line.name.strip_prefix("/objects/").unwrap_or(line.name);
        let Some(backend) = backends.iter().find(|backend| backend.id == id) else {
            continue;
        };
        if !backend.share {
            return Err(private(qmp, backend));
        }
        let process = match &process {
            Some(process) => process,
            None => process.insert(Process::read(pid)?),
        };
        let (whole, parts) = whole_pages(line.range);
        left_out.extend(parts);
        let Some(whole) = whole else { continue };
        let address = host_address(qmp, whole.base)?;
        let mut done = 0;
        while done < whole.bytes {
            if all.len() == MOST_PIECES {
                return Err(AttachError::Pieces(MOST_PIECES));
            }
            let missing = AttachError::NotMapped {
                pid,
                id: id.into(),
                address: address + done,
            };
            let area = process.area(address + done).ok_or(missing)?;
            let inside = address + done - area.start;
            let bytes = (area.end - area.start - inside).min(whole.bytes - done);
            let base = PhysicalAddress(whole.base.0 + done);
            let range = Range::new(base, bytes).ok_or(AttachError::NoRam)?;
            banks.push(Bank {
                range,
                file: Arc::new(process.open(area, id)?),
                offset: area.offset + inside,
            });
            all.push(FoundRam {
                range,
                backend: id.into(),
                file: area.name.clone(),
            });
            done += bytes;
        }
    }
    if banks.is_empty() {
        return Err(AttachError::NoRam);
    }
    Ok(AllFound {
        banks,
        ram: all,
        left_out,
    })
}

/// Splits a range into its whole pages and the parts before and behind them.
fn whole_pages(range: Range) -> (Option<Range>, Vec<Range>) {
    let (start, end) = (range.base.0, range.end());
    let first = start.checked_next_multiple_of(PAGE).unwrap_or(end).min(end);
    let last = (end & !(PAGE - 1)).max(first);
    let part = |start, end| Range::new(PhysicalAddress(start), end - start);
    let parts = [part(start, first), part(last, end)];
    let parts = parts.into_iter().flatten();
    let parts = parts.filter(|part| part.bytes > 0).collect();
    (part(first, last).filter(|it| it.bytes > 0), parts)
}

fn backends(qmp: &mut Qmp) -> Result<Vec<Backend>, AttachError> {
    let all = qmp.execute("query-memdev", json!({}), COMMAND)?;
    let backend = |value: &Value| {
        Some(Backend {
            id: value["id"].as_str()?.into(),
            size: value["size"].as_u64()?,
            share: value["share"].as_bool()?,
        })
    };
    let all = all.as_array().into_iter().flatten();
    Ok(all.filter_map(backend).collect())
}

/// Returns a property of a backend, where it has it.
fn property(qmp: &mut Qmp, backend: &Backend, name: &str) -> Option<Value> {
    let path = format!("/objects/{}", backend.id);
    let arguments = json!({"path": path, "property": name});
    qmp.execute("qom-get", arguments, COMMAND).ok()
}

/// Returns the error with the options of QEMU by which this backend can be read.
fn private(qmp: &mut Qmp, backend: &Backend) -> AttachError {
    let kind = property(qmp, backend, "type");
    let kind = kind.as_ref().and_then(Value::as_str).unwrap_or("RAM");
    let path = property(qmp, backend, "mem-path");
    let size = size(backend.size);
    // The machine's own backend has a name that no user can give.
    let own = backend.id.contains('.');
    let id = if own { "ram" } else { &backend.id };
    let object = match (kind, path.as_ref().and_then(Value::as_str)) {
        ("memory-backend-file", Some(path)) if !own => {
            format!("memory-backend-file,id={id},size={size},mem-path={path},share=on")
        }
        _ => format!("memory-backend-memfd,id={id},size={size},share=on"),
    };
    let machine = if own {
        "-machine ...,memory-backend=ram "
    } else {
        ""
    };
    AttachError::PrivateRam {
        id: backend.id.clone(),
        kind: format!("{kind}, share=off"),
        instead: format!("{machine}-object {object}"),
        size,
    }
}

/// Formats a size as QEMU's options take it.
fn size(bytes: u64) -> String {
    let units = [(30, "G"), (20, "M"), (10, "K")];
    let unit = units.iter().find(|(shift, _)| bytes % (1 << shift) == 0);
    unit.map_or(bytes.to_string(), |(shift, name)| {
        format!("{}{name}", bytes >> shift)
    })
}

/// Returns where in QEMU a guest address is: `Host virtual address for 0x40000000 (ram) is 0x7fca1bfff000`.
fn host_address(qmp: &mut Qmp, guest: PhysicalAddress) -> Result<u64, AttachError> {
    let line = format!("gpa2hva {:#x}", guest.0);
    let answer = qmp.human(&line, None, COMMAND)?;
    let hex = answer.trim().rsplit_once(" is 0x").map(|(_, hex)| hex);
    let address = hex.and_then(|hex| u64::from_str_radix(hex, 16).ok());
    let garbage = || QmpError::Garbage {
        command: line,
        found: excerpt(answer.as_bytes()).into(),
    };
    Ok(address.ok_or_else(garbage)?)
}

/// QEMU, as the system shows it.
struct Process {
    pid: i32,
    areas: Vec<Vma>,
}

impl Process {
    fn read(pid: i32) -> Result<Self, AttachError> {
        let maps = match pid {
            ..=0 => Err(io::ErrorKind::NotFound.into()),
            _ => std::fs::read(format!("/proc/{pid}/maps")),
        };
        let maps = maps.map_err(|source| AttachError::Denied {
            what: "read the maps",
            pid,
            source,
        })?;
        let maps = String::from_utf8_lossy(&maps);
        Ok(Self {
            pid,
            areas: maps.lines().filter_map(shared).collect(),
        })
    }

    fn area(&self, address: u64) -> Option<&Vma> {
        let mut areas = self.areas.iter();
        areas.find(|area| (area.start..area.end).contains(&address))
    }

    /// Returns the file of an area, through QEMU's own descriptor, or by its name.
    fn open(&self, area: &Vma, id: &str) -> Result<File, AttachError> {
        let fds = format!("/proc/{}/fd", self.pid);
        let denied = |source| AttachError::Denied {
            what: "list the open files",
            pid: self.pid,
            source,
        };
        let mut why = String::new();
        let named = PathBuf::from(area.name.raw());
        let fds = std::fs::read_dir(fds).map_err(denied)?;
        let places = fds.flatten().map(|entry| entry.path());
        for place in places
            .filter(|place| names(place, &named))
            .chain([named.clone()])
        {
            match same_file(&place, area.inode) {
                Ok(Some(file)) => return Ok(file),
                Ok(None) => (),
                Err(error) if error.kind() == io::ErrorKind::NotFound => (),
                Err(error) => {
                    why = format!(": {error}; run this command as QEMU's user or as root")
                }
            }
        }
        Err(AttachError::NotOpened {
            id: id.into(),
            name: area.name.clone(),
            why,
        })
    }
}

/// Returns whether a descriptor's link shows this name.
fn names(place: &Path, name: &Path) -> bool {
    std::fs::read_link(place).is_ok_and(|target| target == name)
}

fn same_file(place: &Path, inode: u64) -> io::Result<Option<File>> {
    // The name may belong to a FIFO by now, whose opening waits.
    let metadata = std::fs::metadata(place)?;
    if !metadata.is_file() || metadata.ino() != inode {
        return Ok(None);
    }
    let file = File::open(place)?;
    Ok((file.metadata()?.ino() == inode).then_some(file))
}

/// Returns a line of `maps` that is a shared mapping of a file: `7fca1bfff000-7fca3bfff000 rw-s 00000000 00:01 7
/// /memfd:ram (deleted)`.
fn shared(line: &str) -> Option<Vma> {
    let area = linux::vma::parse_line(line).ok()?;
    area.permissions.shared.then_some(area)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_files_are_read_from_maps() {
        let line = "7fca1bfff000-7fca3bfff000 rw-s 00200000 00:01 7      /memfd:a b (deleted)";
        let found = shared(line).unwrap();
        assert_eq!(
            (found.start, found.end, found.offset, found.inode),
            (0x7fca_1bff_f000, 0x7fca_3bff_f000, 2 << 20, 7)
        );
        assert_eq!(found.name, "/memfd:a b (deleted)");
        assert_eq!(shared(&line.replace("rw-s", "rw-p")), None);
        for odd in ["", "7f-80 rw-s", "7f-80 rw-s x 00:01 7 name"] {
            assert_eq!(shared(odd), None);
        }
    }

    #[test]
    fn our_own_memory_is_found() {
        let path = std::env::temp_dir().join(format!("folioscope-maps-{}", std::process::id()));
        std::fs::write(&path, vec![1; 8192]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let mapping = snapshot::Mapping::shared(&file, 8192).unwrap();
        // Without a name only QEMU's descriptor leads to it.
        std::fs::remove_file(&path).unwrap();
        let process = Process::read(std::process::id() as i32).unwrap();
        // SAFETY: no task writes to the file.
        let address = unsafe { mapping.words(0, 1) }.as_ptr() as u64;
        let area = process.area(address + 4096).unwrap();
        let opened = process.open(area, "ram").unwrap();
        assert_eq!(opened.metadata().unwrap().len(), 8192);
        drop((file, mapping));
    }

    #[test]
    fn parts_of_pages_are_left_out() {
        let of = |start, bytes| {
            let (whole, parts) = whole_pages(Range::new(PhysicalAddress(start), bytes).unwrap());
            let pair = |range: Range| (range.base.0, range.bytes);
            (
                whole.map(pair),
                parts.into_iter().map(pair).collect::<Vec<_>>(),
            )
        };
        let whole = (0x4000_0000, 0x2000);
        assert_eq!(of(whole.0, whole.1), (Some(whole), vec![]));
        // raspi3b: behind a device's registers up to the end of their page.
        let behind = (0x3f00_3020, 0xfe0);
        assert_eq!(of(behind.0, behind.1), (None, vec![behind]));
        assert_eq!(
            of(0x1f00, 0x2200),
            (
                Some((0x2000, 0x2000)),
                vec![(0x1f00, 0x100), (0x4000, 0x100)]
            )
        );
        // Within one page.
        assert_eq!(of(0x1100, 0x200), (None, vec![(0x1100, 0x200)]));
        assert_eq!(of(0x1000, 0x200), (None, vec![(0x1000, 0x200)]));
    }

    #[test]
    fn sizes_are_written_as_qemu_takes_them() {
        assert_eq!(size(512 << 20), "512M");
        assert_eq!(size(4 << 30), "4G");
        assert_eq!(size(4096 + 512), "4608");
    }
}
