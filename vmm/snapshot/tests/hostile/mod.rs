// SPDX-License-Identifier: GPL-2.0-only
//! Reads an untrusted core in every way; shared by the tests and the fuzz target `core`.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use rustix::fs::{memfd_create, MemfdFlags};
use snapshot::{open_core, read_core, write_core, Core, Memory, RangeSet, Region, Snapshot};
use stage1::PhysMemory as _;

/// A core in memory that is damaged and mended over and over.
#[derive(Debug)]
pub struct Victim {
    file: File,
    bytes: Vec<u8>,
}

impl Victim {
    /// Creates a file that holds `bytes`.
    pub fn new(bytes: Vec<u8>) -> Self {
        let file = File::from(memfd_create(c"core", MemfdFlags::CLOEXEC).unwrap());
        file.write_all_at(&bytes, 0).unwrap();
        Self { file, bytes }
    }

    /// Reads the core with `edits` (an offset, and the bytes to put there) and cut to `length`, then restores the file.
    /// Returns whether it was read as a core of ours. Its contents must not make the reader panic or hang. What is read
    /// can be saved, and is equal when it is read again.
    pub fn read_with(&self, edits: &[(usize, &[u8])], length: usize) -> bool {
        for (place, bytes) in edits {
            self.file.write_all_at(bytes, *place as u64).unwrap();
        }
        self.file.set_len(length as u64).unwrap();
        let taken = read(&self.file);
        let old = self.bytes.len();
        self.file.set_len(old as u64).unwrap();
        for (place, bytes) in edits {
            let end = (place + bytes.len()).min(old);
            let start = *place.min(&end);
            self.file
                .write_all_at(&self.bytes[start..end], start as u64)
                .unwrap();
        }
        if length < old {
            let cut = &self.bytes[length..];
            self.file.write_all_at(cut, length as u64).unwrap();
        }
        taken
    }

    /// Returns where it can be opened.
    #[allow(dead_code)]
    pub fn path(&self) -> PathBuf {
        path(&self.file)
    }

    /// Returns whether the unchanged core is read as one of ours.
    pub fn is_taken(&self) -> bool {
        self.read_with(&[], self.bytes.len())
    }
}

fn path(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Reads `file` in every way there is; returns whether it was read as a core of ours.
fn read(file: &File) -> bool {
    match open_core(&path(file)) {
        Ok(Core::Ours(snapshot)) => {
            let again = File::from(memfd_create(c"again", MemfdFlags::CLOEXEC).unwrap());
            save(&snapshot, &again);
            let second = read_core(&path(&again)).expect("what was read and saved is read again");
            assert_eq!(snapshot.cpus, second.cpus);
            assert_eq!(snapshot.notes, second.notes);
            assert_eq!(snapshot.memory.ram(), second.memory.ram());
            let third = File::from(memfd_create(c"third", MemfdFlags::CLOEXEC).unwrap());
            save(&second, &third);
            assert!(whole(&again) == whole(&third), "the same bytes");
            true
        }
        Ok(Core::Other(core)) => {
            readable(&core.memory);
            core.memory.pages_that_begin_with(0, 4);
            false
        }
        Err(error) => {
            assert!(!error.to_string().contains('\n'), "{error}");
            false
        }
    }
}

/// Asserts that all memory that is listed can be read.
fn readable(memory: &Memory) {
    for range in memory.regions().iter().map(Region::range) {
        let words = memory.words(range.base, (range.bytes / 8) as usize);
        assert!(words.is_some(), "{range} is in the list but not readable");
    }
}

fn save(snapshot: &Snapshot, to: &File) {
    readable(&snapshot.memory);
    let regions = snapshot.memory.regions();
    let ranges: RangeSet = regions.iter().map(Region::range).collect();
    write_core(
        &mut std::io::BufWriter::new(to),
        &snapshot.cpus,
        &ranges,
        &snapshot.memory,
        &snapshot.notes,
    )
    .unwrap();
}

fn whole(file: &File) -> Vec<u8> {
    let mut bytes = Vec::new();
    File::open(path(file))
        .and_then(|mut file| file.read_to_end(&mut bytes))
        .unwrap();
    bytes
}
