// SPDX-License-Identifier: GPL-2.0-only
//! A core of a real guest, kept from when its version was the newest, is still read. Any damage to it gives an error
//! with a sentence, or another core that can be saved.

mod hostile;

use std::cell::Cell;
use std::io::Read as _;
use std::path::Path;

use flate2::read::GzDecoder;
use hostile::Victim;
use proptest::prelude::*;
use proptest::sample::Index;
use snapshot::{read_core, write_core, Range, Region, PAGE};
use stage1::{lookup, Half, Lookup, PhysicalAddress, Regime, VirtualAddress};

/// Offsets of the tables in a core.
const EHDR: usize = 64;
const PHDR: usize = 56;

fn core_of_schema_1() -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cores/schema-1.core.gz");
    let mut bytes = Vec::new();
    GzDecoder::new(std::fs::File::open(path).unwrap())
        .read_to_end(&mut bytes)
        .unwrap();
    bytes
}

/// Generates a number that is likely to be off by one, or to wrap around.
fn odd_number(file_bytes: u64) -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        Just(u64::MAX),
        (0u32..64, -1i64..=1).prop_map(|(bit, by)| (1u64 << bit).wrapping_add_signed(by)),
        (-4097i64..=4097).prop_map(move |by| file_bytes.wrapping_add_signed(by)),
        any::<u64>(),
    ]
}

/// An edit: an offset, and the bytes for it.
type Edit = (usize, Vec<u8>);

/// Generates edits of a core of `bytes` bytes whose notes end at `notes_end` and that has `headers` program headers.
fn edits(bytes: usize, headers: usize, notes_end: usize) -> impl Strategy<Value = Vec<Edit>> {
    let word = || odd_number(bytes as u64);
    let notes = EHDR + headers * PHDR;
    let edit = prop_oneof![
        // e_phoff, e_shoff; e_phnum and its like; a field of a program header; a note's sizes and type.
        (0usize..2, word())
            .prop_map(|(field, value)| (32 + 8 * field, value.to_le_bytes().to_vec())),
        (0usize..8, any::<u16>())
            .prop_map(|(field, value)| (48 + 2 * field, value.to_le_bytes().to_vec())),
        (0..headers, 0usize..7, word()).prop_map(|(header, field, value)| (
            EHDR + header * PHDR + 8 * field,
            value.to_le_bytes().to_vec()
        )),
        (notes / 4..notes_end / 4, word())
            .prop_map(|(place, value)| (place * 4, (value as u32).to_le_bytes().to_vec())),
        // A digit, a quote, a bracket of the JSON.
        (notes..notes_end, "[0-9\"{}\\[\\],:a-fx\\\\ -]")
            .prop_map(|(place, text)| (place, text.into_bytes())),
        (any::<Index>(), any::<u8>())
            .prop_map(move |(place, byte)| (place.index(bytes), vec![byte])),
    ];
    prop::collection::vec(edit, 1..5)
}

/// The expected values are from `readelf` and the text of the core's own notes.
#[test]
fn a_core_of_version_1_says_what_it_always_said() {
    let core = core_of_schema_1();
    let victim = Victim::new(core.clone());
    let saved = read_core(&victim.path()).unwrap();
    assert_eq!(saved.cpus.len(), 1);
    let cpu = &saved.cpus[0];
    assert_eq!(cpu.system.ttbr0_el1, 0x4197_3101);
    assert_eq!(cpu.system.ttbr1_el1, 0x6_0000_40ab_1001);
    assert_eq!(cpu.system.tcr2_el1, None);
    assert_eq!(cpu.general.sp_el0, Some(0xffff_ffff_e220));
    let ram = Range::new(PhysicalAddress(0x4000_0000), 128 << 20).unwrap();
    assert_eq!(saved.memory.ram(), [ram]);
    assert_eq!(saved.memory.regions().len(), 17);
    let bytes: u64 = saved
        .memory
        .regions()
        .iter()
        .map(|it| it.range().bytes)
        .sum();
    assert_eq!(bytes, 688 << 10);
    assert_eq!(saved.notes.kernel_release, "6.12.117");
    let process = &saved.notes.processes[0];
    assert_eq!((process.pid, &*process.name), (33, "boot"));
    assert!(std::ptr::eq(saved.root_of(process).unwrap(), cpu));
    // Of these 256 KiB the kernel counted 252 (Rss in the core's smaps): one page had been freed.
    let regime = Regime::new(&cpu.system, Half::Lower).unwrap();
    let missing: Vec<u64> = (0..64)
        .filter(|page| {
            let va = VirtualAddress(0xffff_f7c0_0000 + page * PAGE);
            !matches!(lookup(&saved.memory, &regime, va), Lookup::Mapped { .. })
        })
        .collect();
    assert_eq!(missing, [19]);
    // The bytes are the old writer's, and today's writer makes the same.
    let ranges = saved.memory.regions().iter().map(Region::range).collect();
    let mut again = Vec::new();
    write_core(
        &mut again,
        &saved.cpus,
        &ranges,
        &saved.memory,
        &saved.notes,
    )
    .unwrap();
    assert!(again == core, "{} bytes and {}", again.len(), core.len());
}

#[test]
fn a_damaged_real_core_is_refused_or_read_and_never_more() {
    let core = core_of_schema_1();
    let (bytes, headers) = (
        core.len(),
        usize::from(u16::from_le_bytes([core[56], core[57]])),
    );
    let word = |at: usize| u64::from_le_bytes(core[at..at + 8].try_into().unwrap()) as usize;
    // The first program header is that of the notes.
    let notes_end = word(EHDR + 8) + word(EHDR + 32);
    let victim = Victim::new(core.clone());
    assert!(victim.is_taken());
    let (taken, refused) = (Cell::new(0), Cell::new(0));
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(600));
    let cut = prop::option::weighted(0.1, any::<Index>());
    let result = runner.run(&(edits(bytes, headers, notes_end), cut), |(edits, cut)| {
        let edits: Vec<(usize, &[u8])> = edits
            .iter()
            .map(|(place, edit)| (*place, &edit[..]))
            .collect();
        let length = cut.map_or(bytes, |cut| cut.index(bytes));
        let count = match victim.read_with(&edits, length) {
            true => &taken,
            false => &refused,
        };
        count.set(count.get() + 1);
        Ok(())
    });
    result.unwrap();
    let (taken, refused) = (taken.get(), refused.get());
    // Edits of saved words and of harmless fields leave a core; those of sizes and places do not.
    assert!(
        taken > 30 && refused > 30,
        "{taken} taken, {refused} refused"
    );
    assert!(victim.is_taken(), "each edit was undone");
}
