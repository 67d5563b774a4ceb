// SPDX-License-Identifier: GPL-2.0-only
//! Copy after copy of a real kernel's tables while it boots: each is the copy that would be made from nothing.
//!
//! The writes between two copies are found by comparing all of memory, which gives an exact record. Environment as in
//! `qemu.rs`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use machine::qemu::{Config, Qemu};
use machine::Machine;
use snapshot::{Cpu, LastCopy, Memory, Range, RangeSet, Recording, Wanted, PAGE};
use stage1::{walk, Half, PhysMemory, PhysicalAddress, Regime, Visitor};

const MEMORY: u64 = 256 << 20;
const BOOT: Duration = Duration::from_secs(120);
/// Run time of the guest between two copies.
const RUNS: Duration = Duration::from_millis(30);
const WORDS: usize = PAGE as usize / 8;

struct Nothing;
impl Visitor<'_> for Nothing {}

fn page(memory: &impl PhysMemory, at: u64) -> &[u64] {
    memory.words(PhysicalAddress(at), WORDS).unwrap()
}

fn pages(range: Range) -> impl Iterator<Item = u64> {
    (range.base.0..range.end()).step_by(PAGE as usize)
}

/// Returns what differs from `before`, which is brought up to date.
fn written(before: &mut [u64], memory: &Memory) -> RangeSet {
    let mut written = RangeSet::new();
    let base = memory.ram()[0].base.0;
    for (index, old) in before.chunks_exact_mut(WORDS).enumerate() {
        let at = base + index as u64 * PAGE;
        let now = page(memory, at);
        if old != now {
            old.copy_from_slice(now);
            written.extend(Range::new(PhysicalAddress(at), PAGE));
        }
    }
    written
}

/// Returns both halves of every CPU that has its MMU on.
fn regimes(cpus: &[Cpu]) -> Vec<Regime> {
    let of = |cpu: &Cpu| Half::ALL.map(|half| Regime::new(&cpu.system, half).ok());
    cpus.iter().flat_map(of).flatten().collect()
}

#[test]
fn copies_of_a_kernel_that_boots_are_whole() {
    let path = |name| std::env::var_os(name).map(PathBuf::from);
    let image = path("FOLIOSCOPE_TEST_IMAGE");
    let initrd = path("FOLIOSCOPE_TEST_INITRD");
    let (Some(image), Some(initrd)) = (image, initrd) else {
        let demanded = std::env::var_os("FOLIOSCOPE_TEST_REQUIRE_GUEST").is_some_and(|v| v == "1");
        let message = "no guest to test: set FOLIOSCOPE_TEST_IMAGE and FOLIOSCOPE_TEST_INITRD";
        assert!(!demanded, "{message}");
        eprintln!("NOT TESTED: {message}");
        return;
    };
    let work = std::env::temp_dir().join(format!("folioscope-again-{}", std::process::id()));
    let mut config = Config::new(image, &work);
    config.initrd = Some(initrd);
    config.memory_bytes = MEMORY;
    config.cmdline = "console=ttyAMA0 rdinit=/init".into();
    let mut machine = Qemu::start(&config).unwrap();

    let mut before = vec![0; MEMORY as usize / 8];
    let (mut last, mut copies, mut spared, mut most) = (LastCopy::default(), 0, 0, 0);
    let started = Instant::now();
    // Until the agent has sent its first line, and some time more.
    let mut ready = None;
    while ready.is_none_or(|at: Instant| at.elapsed() < Duration::from_secs(1)) {
        assert!(started.elapsed() < BOOT, "the agent said nothing");
        if machine.receive_line(RUNS).is_ok() && ready.is_none() {
            ready = Some(Instant::now());
        }
        let paused = machine.pause().unwrap();
        let regimes = regimes(&paused.cpus);
        let written = written(&mut before, &paused.memory);
        let recording = Recording::new(&paused.memory);
        for regime in &regimes {
            walk(&recording, regime, regime.first, regime.last, &mut Nothing);
        }
        let whole = recording.into_ranges();
        let others = RangeSet::new();
        let granule = regimes
            .first()
            .map_or(PAGE, |regime| regime.granule.bytes());
        let wanted = Wanted {
            regimes: &regimes,
            others: &others,
            unit: granule,
        };
        let (copy, read_again) = last
            .copy_again(&paused.memory, &wanted, Some(&written))
            .unwrap();
        let held: RangeSet = copy.regions().iter().map(|region| region.range()).collect();
        assert_eq!(held, whole, "the pages of copy {copies}");
        for at in whole.iter().flat_map(pages) {
            assert!(page(&copy, at) == page(&paused.memory, at), "page {at:#x}");
        }
        copies += 1;
        spared += read_again.of - read_again.tables;
        most = most.max(read_again.of);
        paused.resume().unwrap();
    }
    eprintln!("{copies} copies, of {most} tables at most; {spared} were not read again");
    assert!(copies > 10 && spared > most);
    drop(machine);
    let _ = std::fs::remove_dir_all(&work);
}
