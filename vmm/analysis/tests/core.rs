// SPDX-License-Identifier: GPL-2.0-only
//! A core is judged as a program of a user's own does it, by the example.

use std::path::PathBuf;

use snapshot::{Checkpoint, Cpu, Memory, Notes, Process, Range, RangeSet, Region, Snapshot};
use stage1::testing::{Attributes, Layout, TableBuilder};
use stage1::{Granule, Half, PhysMemory, PhysicalAddress};
use verdict::{Outcome, RuleId, Severity};

/// The rule of this name.
fn id(name: &str) -> verdict::RuleId {
    verdict::RuleId::named(name).unwrap()
}

#[allow(dead_code)]
#[path = "../examples/judge.rs"]
mod example;

const VA: u64 = 0x4000_0000;
const BLOCK: u64 = 16 * 4096;
const CONTIGUOUS: u64 = 1 << 52;

/// A process that waits on the only CPU, with one block that is folded.
fn tables() -> TableBuilder {
    let mut tables = TableBuilder::new(Layout::new(Granule::K4, Half::Lower, 48));
    tables.map_group(VA, 0x8000_0000, 3, Attributes::default());
    tables
}

fn snapshot(tables: &TableBuilder) -> Snapshot {
    let checkpoint = Checkpoint {
        pc_first: 0x1000,
        pc_end: 0x1010,
        register: 19,
        nonce: 7,
    };
    let mut cpu = Cpu {
        system: tables.registers(),
        ..Cpu::default()
    };
    cpu.general.pc = checkpoint.pc_first;
    cpu.general.x[19] = checkpoint.nonce;
    let base = PhysicalAddress(tables.root());
    let mut words = Vec::new();
    while let Some(page) = tables
        .memory()
        .words(PhysicalAddress(base.0 + 8 * words.len() as u64), 512)
    {
        words.extend_from_slice(page);
    }
    let ram = vec![Range::new(base, 8 * words.len() as u64).unwrap()];
    Snapshot {
        cpus: vec![cpu],
        memory: Memory::new(vec![Region::owned(base, words)], ram).unwrap(),
        notes: Notes {
            kernel_release: "6.12.117".into(),
            page_size: 4096,
            processes: vec![Process {
                pid: 42,
                name: "made-up".into(),
                checkpoint: Some(checkpoint),
                maps: format!("{VA:x}-{:x} rw-p 00000000 00:00 0 ", VA + BLOCK),
                ..Process::default()
            }],
            ..Notes::now("qemu-tcg", String::new())
        },
    }
}

/// Written to a file of this test's own.
fn saved(name: &str, snapshot: &Snapshot) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let memory = &snapshot.memory;
    let ranges: RangeSet = memory.regions().iter().map(Region::range).collect();
    let mut file = std::fs::File::create(&path).unwrap();
    snapshot::write_core(&mut file, &snapshot.cpus, &ranges, memory, &snapshot.notes).unwrap();
    path
}

#[test]
fn a_core_is_judged_by_the_example() {
    let whole = example::judge(&saved("whole.core", &snapshot(&tables()))).unwrap();
    let [process] = whole.processes.as_slice() else {
        panic!("{whole:?}");
    };
    assert_eq!(
        (process.process.pid, process.entries.contiguous_pages),
        (42, 16)
    );
    assert_eq!(whole.findings().count(), 0, "{whole:?}");
    // Its only CPU is in user mode, so no CPU shows the kernel half.
    assert_eq!(whole.outcome(), Outcome::NotJudged);

    let mut broken = tables();
    broken.change(VA + 3 * 4096, 3, |word| word & !CONTIGUOUS);
    let broken = example::judge(&saved("broken.core", &snapshot(&broken))).unwrap();
    let errors = broken.findings();
    let errors = errors.filter(|finding| finding.severity == Severity::Error);
    let found: Vec<RuleId> = errors.map(|finding| finding.rule).collect();
    assert_eq!(found, [id("A4")]);
    assert_eq!(broken.outcome(), Outcome::Errors);
}
