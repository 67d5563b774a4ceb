// SPDX-License-Identifier: GPL-2.0-only
//! Cores are written, read back and damaged.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use snapshot::{
    read_core, write_core, Checkpoint, CoreError, Cpu, Memory, Notes, Process, Range, RangeSet,
    Region, SparseFile, PAGE, SYSTEM_REGISTERS,
};
use stage1::{PhysMemory, PhysicalAddress};

/// A file of one test, gone when the test is.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let file = format!("folioscope-core-{}-{name}", std::process::id());
        Self(std::env::temp_dir().join(file))
    }

    fn holding(name: &str, bytes: &[u8]) -> Self {
        let scratch = Self::new(name);
        fs::write(&scratch.0, bytes).unwrap();
        scratch
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn range(base: u64, pages: u64) -> Range {
    Range::new(PhysicalAddress(base), pages * PAGE).unwrap()
}

fn memory() -> Memory {
    let words = |seed: u64, pages: u64| {
        (0..pages * PAGE / 8)
            .map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed)
            .collect()
    };
    Memory::new(
        vec![
            Region::owned(PhysicalAddress(0x4000_0000), words(1, 16)),
            Region::owned(PhysicalAddress(0x4001_0000), words(2, 16)),
            Region::owned(PhysicalAddress(0x10_0000_0000), words(3, 8)),
        ],
        vec![
            range(0x4000_0000, 16),
            range(0x4001_0000, 0x1000),
            range(0x10_0000_0000, 0x1000),
        ],
    )
    .unwrap()
}

fn cpus() -> Vec<Cpu> {
    (0..3)
        .map(|index| {
            let mut cpu = Cpu {
                index,
                ..Cpu::default()
            };
            for (i, x) in cpu.general.x.iter_mut().enumerate() {
                *x = 0x1000 * index as u64 + i as u64;
            }
            cpu.general.sp = 0x7fff_ffff_f000;
            cpu.general.pc = 0xffff_8000_8001_0000 + index as u64;
            cpu.general.pstate = 0x6000_0005;
            cpu.general.sp_el0 = (index != 1).then_some(u64::MAX);
            for (i, row) in SYSTEM_REGISTERS.iter().enumerate() {
                if row.required || index != 2 {
                    (row.set)(&mut cpu.system, 0x8000_0000_0000_0000 + i as u64);
                }
            }
            cpu
        })
        .collect()
}

fn notes() -> Notes {
    Notes {
        kernel_release: "6.12.117".into(),
        page_size: 4096,
        command_line: "console=ttyAMA0 \"quoted\"".into(),
        machine: "qemu-tcg".into(),
        processes: vec![Process {
            pid: 77,
            name: "workload".into(),
            cpu: Some(1),
            checkpoint: Some(Checkpoint {
                pc_first: 0x40_1000,
                pc_end: 0x40_1008,
                register: 20,
                nonce: u64::MAX,
            }),
            maps: "00400000-00401000 r-xp 00000000 00:02 5 /init\n".into(),
            extra: BTreeMap::new(),
        }],
        extra: BTreeMap::from([("order".into(), serde_json::json!([4, 3]))]),
        ..Notes::default()
    }
}

fn ranges() -> RangeSet {
    // The middle one spans two regions of memory that touch.
    [
        range(0x4000_2000, 1),
        range(0x4000_f000, 2),
        range(0x10_0000_0000, 4),
    ]
    .into_iter()
    .collect()
}

fn core() -> Vec<u8> {
    let mut out = Vec::new();
    write_core(&mut out, &cpus(), &ranges(), &memory(), &notes()).unwrap();
    out
}

fn error(name: &str, bytes: &[u8]) -> CoreError {
    read_core(Scratch::holding(name, bytes).path()).expect_err("a core that is wrong")
}

#[test]
fn what_was_saved_is_read_back() {
    let file = Scratch::holding("round-trip", &core());
    let saved = read_core(file.path()).unwrap();
    assert_eq!(saved.cpus, cpus());
    assert_eq!(saved.notes, notes());
    assert_eq!(saved.memory.ram(), memory().ram());
    let original = memory();
    for range in ranges().iter() {
        for page in (range.base.0..range.end()).step_by(PAGE as usize) {
            let page = PhysicalAddress(page);
            assert_eq!(saved.memory.words(page, 512), original.words(page, 512));
        }
    }
    assert!(
        saved
            .memory
            .words(PhysicalAddress(0x4000_f000), 1024)
            .is_some(),
        "one range"
    );
    let not_saved = PhysicalAddress(0x4000_3000);
    assert!(saved.memory.words(not_saved, 1).is_none());
    assert!(saved.memory.is_ram(not_saved));
    assert!(!saved.memory.is_ram(PhysicalAddress(0x3fff_f000)));
}

#[test]
fn a_saved_snapshot_can_be_saved_again() {
    let file = Scratch::holding("again", &core());
    let saved = read_core(file.path()).unwrap();
    let mut again = Vec::new();
    let ranges = saved.memory.regions().iter().map(Region::range).collect();
    write_core(
        &mut again,
        &saved.cpus,
        &ranges,
        &saved.memory,
        &saved.notes,
    )
    .unwrap();
    assert_eq!(again, core());
}

#[test]
fn a_core_cannot_be_written_to() {
    let file = Scratch::holding("read-only", &core());
    let mut saved = read_core(file.path()).unwrap();
    let error = saved
        .memory
        .write(PhysicalAddress(0x4000_2000), &[1])
        .unwrap_err();
    assert!(error.to_string().contains("comes from a file"), "{error}");
}

#[test]
fn a_range_that_cannot_be_read_is_not_saved() {
    let ranges: RangeSet = [range(0x4002_0000, 1)].into_iter().collect();
    let mut out = Vec::new();
    let error = write_core(&mut out, &cpus(), &ranges, &memory(), &notes()).unwrap_err();
    assert!(error.to_string().contains("0x0000040020000"), "{error}");
    assert!(out.is_empty());
}

#[test]
fn more_ranges_than_e_phnum_holds() {
    const PAGES: u64 = 70_000;
    let base = PhysicalAddress(0x4000_0000);
    let ram = range(base.0, 2 * PAGES);
    let mapping = snapshot::Mapping::anonymous(ram.bytes as usize, PAGE as usize).unwrap();
    // SAFETY: no other code has the memory's address.
    let region = unsafe { Region::live(ram, std::sync::Arc::new(mapping), 0) };
    let memory = Memory::new(vec![region], vec![ram]).unwrap();
    let every_other: RangeSet = (0..PAGES)
        .map(|i| range(base.0 + 2 * i * PAGE, 1))
        .collect();
    let saved = Scratch::new("many");
    let mut out = SparseFile::new(File::create(saved.path()).unwrap());
    write_core(&mut out, &cpus(), &every_other, &memory, &notes()).unwrap();
    let written = out.finish().unwrap().metadata().unwrap();
    assert!(written.len() > PAGES * PAGE);
    assert!(written.blocks() * 512 < 8 << 20, "zeros take no room");
    let read = read_core(saved.path()).unwrap();
    assert_eq!(read.memory.regions().len(), PAGES as usize);
}

#[test]
fn each_kind_of_damage_has_its_sentence() {
    let good = core();
    let with = |offset: usize, bytes: &[u8]| {
        let mut bad = good.clone();
        bad[offset..offset + bytes.len()].copy_from_slice(bytes);
        bad
    };
    let load = 64 + 56;
    let json = |find: &str, replace: &str| {
        let at = good
            .windows(find.len())
            .position(|w| w == find.as_bytes())
            .expect(find);
        with(at, replace.as_bytes())
    };
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (vec![], "not an ELF file"),
        (b"MZ".to_vec(), "found [4d, 5a]"),
        (
            good[..63].to_vec(),
            "the ELF header needs bytes 0x0 to 0x40, but the file ends at 0x3f",
        ),
        (good[..100].to_vec(), "the table of 4 program headers needs"),
        (good[..600].to_vec(), "the notes needs"),
        (
            good[..good.len() - 1].to_vec(),
            "the memory of program header 3 needs",
        ),
        (
            with(4, &[1]),
            "EI_CLASS to be 2 (64 bit), found 1 at offset 0x4",
        ),
        (with(5, &[2]), "EI_DATA to be 1"),
        (with(16, &[2, 0]), "e_type to be 4 (ET_CORE), found 2"),
        (
            with(18, &[62, 0]),
            "e_machine to be 183 (EM_AARCH64), found 62",
        ),
        (with(54, &[57, 0]), "e_phentsize to be 56, found 57"),
        (with(load, &[4]), "expected one PT_NOTE, found another"),
        (with(load + 24, &[1]), "p_paddr to be a multiple of 0x1000"),
        (with(load + 8, &[1]), "p_offset to be a multiple of 0x1000"),
        (
            with(load + 40, &[0, 0x20]),
            "all of p_memsz 0x2000 in the file, found p_filesz 0x1000",
        ),
        (
            with(load + 24, &[0, 0, 0, 0x30]),
            "outside of the machine's RAM",
        ),
        (with(load + 24, &[0, 0, 1, 0x40]), "overlap"),
        (
            json("\"schema\":1", "\"schema\":2"),
            "has version 2, and this program reads version 1 and those before",
        ),
        (
            json("TTBR1_EL1", "TTBR9_EL1"),
            "expected TTBR1_EL1, found none",
        ),
        (
            json("\"0x8000000000000000\"", "\"0y8000000000000000\""),
            "a 64-bit hex number",
        ),
        (json("{\"schema\"", "[\"schema\""), "its JSON says"),
        (
            json("FOLIOSCOPE\0", "folioscope\0"),
            "no FOLIOSCOPE registers note",
        ),
    ];
    for (i, (bytes, expected)) in cases.iter().enumerate() {
        let sentence = error(&format!("damage-{i}"), bytes).to_string();
        assert!(
            sentence.contains(expected),
            "case {i}: {sentence:?} lacks {expected:?}"
        );
        assert!(
            !sentence.contains('\n'),
            "case {i}: {sentence:?} is one sentence"
        );
    }
}

#[test]
fn what_is_no_file_is_refused() {
    let missing = read_core(Path::new("/nonexistent/core")).unwrap_err();
    assert!(
        missing.to_string().contains("/nonexistent/core"),
        "{missing}"
    );
    let directory = read_core(&std::env::temp_dir()).unwrap_err();
    assert!(
        directory.to_string().contains("not a regular file"),
        "{directory}"
    );
}

/// Reads all that a snapshot offers; it must not panic.
fn exercise(path: &Path) {
    match read_core(path) {
        Ok(snapshot) => {
            for region in snapshot.memory.regions() {
                let range = region.range();
                let words = snapshot
                    .memory
                    .words(range.base, (range.bytes / 8) as usize);
                assert!(words.is_some(), "{range} is in the list but not readable");
            }
        }
        Err(error) => assert!(!error.to_string().contains('\n')),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_core_never_panics(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        head_only in any::<bool>(),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = core();
        let reach = if head_only { 64 + 4 * 56 } else { bytes.len() };
        for (index, value) in flips {
            bytes[index.index(reach)] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let thread = format!("{:?}", std::thread::current().id());
        exercise(Scratch::holding(&format!("flip-{thread}"), &bytes).path());
    }
}

#[test]
fn every_length_of_a_cut_core_is_refused() {
    let good = core();
    let notes_end = 64 + 4 * 56 + 4096;
    for length in (0..notes_end.min(good.len())).chain([good.len() - 1]) {
        error("cut", &good[..length]);
    }
}
