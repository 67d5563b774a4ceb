// SPDX-License-Identifier: GPL-2.0-only
//! Dumps that are compressed by page, laid out as by QEMU and makedumpfile, plain and flattened.

// It is shared, and read here in another way.
#[allow(dead_code)]
mod hostile;

use std::io::Write as _;

use flate2::write::ZlibEncoder;
use flate2::Compression;
use hostile::Victim;
use proptest::prelude::*;
use proptest::sample::Index;
use snapshot::{open_core, Core, CoreError, OtherCore, PAGE};
use stage1::{PhysMemory as _, PhysicalAddress};

/// A page: none there, there and left out, as it is, or by zlib.
#[derive(Clone, Copy)]
enum Page {
    None,
    LeftOut,
    Plain(u8),
    Zlib(u8),
}

fn put(file: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    file.resize(file.len().max(at + bytes.len()), 0);
    file[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Returns the `elf_prstatus` of a CPU with this program counter, and a VMCOREINFO.
fn notes(pc: u64) -> Vec<u8> {
    let mut body = vec![0; 392];
    body[112 + 32 * 8..][..8].copy_from_slice(&pc.to_le_bytes());
    let note = |name: &[u8], kind: u32, body: &[u8]| {
        let mut out = Vec::new();
        for word in [name.len() as u32 + 1, body.len() as u32, kind] {
            out.extend(word.to_le_bytes());
        }
        out.extend(name);
        out.push(0);
        out.resize(out.len().next_multiple_of(4), 0);
        out.extend(body);
        out.resize(out.len().next_multiple_of(4), 0);
        out
    };
    [
        note(b"CORE", 1, &body),
        note(b"VMCOREINFO", 0, b"OSRELEASE=6.12\n"),
    ]
    .concat()
}

fn dump(block: usize, pages: &[Page]) -> Vec<u8> {
    let mut file = b"KDUMP   ".to_vec();
    put(&mut file, 8, &6u32.to_le_bytes());
    for (at, value) in [(424, 1), (428, block as u32), (432, 1), (436, 2)] {
        put(&mut file, at, &value.to_le_bytes());
    }
    let notes = notes(0x1234);
    for (at, value) in [
        (48, block as u64 + 128),
        (56, notes.len() as u64),
        (96, pages.len() as u64),
    ] {
        put(&mut file, block + at, &value.to_le_bytes());
    }
    put(&mut file, block + 128, &notes);
    put(&mut file, 5 * block, &[]);
    let mut descriptor = 4 * block;
    let mut data = 5 * block;
    for (number, page) in pages.iter().enumerate() {
        let bit = 1 << (number % 8);
        if !matches!(page, Page::None) {
            file[2 * block + number / 8] |= bit;
        }
        let (flags, bytes) = match page {
            Page::None | Page::LeftOut => continue,
            Page::Plain(byte) => (0u32, vec![*byte; block]),
            Page::Zlib(byte) => {
                let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
                zlib.write_all(&vec![*byte; block]).unwrap();
                (1, zlib.finish().unwrap())
            }
        };
        file[3 * block + number / 8] |= bit;
        put(&mut file, data, &bytes);
        put(&mut file, descriptor, &(data as u64).to_le_bytes());
        put(
            &mut file,
            descriptor + 8,
            &(bytes.len() as u32).to_le_bytes(),
        );
        put(&mut file, descriptor + 12, &flags.to_le_bytes());
        descriptor += 24;
        data += bytes.len();
    }
    file
}

/// Returns the dump in records of this length; the last one comes first.
fn flattened(dump: &[u8], length: usize) -> Vec<u8> {
    let mut file = b"makedumpfile\0".to_vec();
    file.resize(4096, 0);
    let mut record = |offset: i64, bytes: &[u8]| {
        file.extend(offset.to_be_bytes());
        file.extend((bytes.len() as i64).to_be_bytes());
        file.extend(bytes);
    };
    // A header that is written first and again when all is known.
    record(0, &vec![0xee; length.min(dump.len())]);
    let records = dump.chunks(length).enumerate();
    for (number, bytes) in records.collect::<Vec<_>>().into_iter().rev() {
        record((number * length) as i64, bytes);
    }
    file.extend([0xff; 16]);
    file
}

fn open(bytes: Vec<u8>) -> Result<OtherCore, CoreError> {
    let victim = Victim::new(bytes);
    match open_core(&victim.path())? {
        Core::Other(core) => Ok(*core),
        Core::Ours(core) => panic!("taken for one of ours: {core:?}"),
    }
}

fn byte(core: &OtherCore, at: u64) -> Option<u8> {
    let words = core.memory.words(PhysicalAddress(at), PAGE as usize / 8)?;
    assert!(words.iter().all(|word| *word == words[0]));
    Some(words[0] as u8)
}

#[test]
fn pages_of_every_kind_are_read_as_they_are_and_flattened() {
    use Page::{LeftOut, Plain, Zlib};
    let pages = [
        Page::None,
        Zlib(7),
        Plain(8),
        LeftOut,
        Zlib(0),
        Page::None,
        Zlib(9),
    ];
    for block in [4096, 65536] {
        let dump = dump(block, &pages);
        for file in [
            dump.clone(),
            flattened(&dump, 1000),
            flattened(&dump, 1 << 20),
        ] {
            let core = open(file).unwrap();
            assert_eq!(core.cpus.len(), 1);
            assert_eq!(core.cpus[0].general.pc, 0x1234);
            assert_eq!(core.vmcoreinfo.as_deref(), Some("OSRELEASE=6.12\n"));
            let block = block as u64;
            // The last page of each block.
            let found: Vec<_> = (1..=7).map(|at| byte(&core, at * block - PAGE)).collect();
            let expected = [None, Some(7), Some(8), None, Some(0), None, Some(9)];
            assert_eq!(found, expected);
            assert!(core.memory.has_pages_left_out());
            let ram: Vec<_> = core
                .memory
                .ram()
                .iter()
                .map(|it| (it.base.0, it.bytes))
                .collect();
            assert_eq!(ram, [(block, 4 * block), (6 * block, block)]);
            let nines = core.memory.pages_that_begin_with(0x0909_0909_0909_0909, 1);
            assert_eq!(nines, [PhysicalAddress(6 * block)]);
        }
    }
    assert!(!open(dump(4096, &[Zlib(1)]))
        .unwrap()
        .memory
        .has_pages_left_out());
}

#[test]
fn what_is_not_read_is_told() {
    let whole = dump(4096, &[Page::Zlib(7)]);
    let with = |at: usize, value: u32| {
        let mut bytes = whole.clone();
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        open(bytes).unwrap_err().to_string()
    };
    for (at, value, words) in [
        (8, 5, "version 6"),
        (424, 2, "by lzo, and only zlib is read"),
        (424, 4, "by snappy"),
        (424, 0x20, "makedumpfile -c DUMP NEW"),
        (424, 9, "not complete"),
        (428, 0, "blocks of 4096, 16384 or 65536"),
        (432, u32::MAX, "ends before its bitmaps"),
        (436, 0, "bitmaps of at least 0x1"),
        (4096 + 56, u32::MAX, "ends before its notes"),
        (4096 + 100, u32::MAX, "beyond physical addresses"),
    ] {
        let said = with(at, value);
        assert!(said.contains(words) && !said.contains('\n'), "{said}");
    }
    for (length, words) in [
        (100, "its header"),
        (4100, "its sub header"),
        (9000, "bitmaps"),
    ] {
        let said = open(whole[..length].to_vec()).unwrap_err().to_string();
        assert!(said.contains("kdump") && said.contains(words), "{said}");
    }
    let flat = flattened(&whole, 5000);
    let said = open(flat[..flat.len() - 20].to_vec())
        .unwrap_err()
        .to_string();
    assert!(said.contains("flattened records end"), "{said}");
}

#[test]
fn what_else_is_flattened_is_to_be_joined() {
    let said = open(flattened(b"\x7fELF and what follows", 7))
        .unwrap_err()
        .to_string();
    assert!(
        said.contains("flattened") && said.contains("makedumpfile -R DUMP < FLATTENED"),
        "{said}"
    );
}

/// A page whose data does not match its descriptor is absent.
#[test]
fn a_damaged_page_is_not_there() {
    let mut bytes = dump(4096, &[Page::Zlib(7), Page::Plain(8)]);
    bytes[5 * 4096 + 5] ^= 0xff;
    let core = open(bytes).unwrap();
    assert_eq!([0, PAGE].map(|at| byte(&core, at)), [None, Some(8)]);
}

proptest! {
    /// A damaged dump gives an error with a sentence, or memory that can be read.
    #[test]
    fn damaged_dumps_are_read_or_refused(
        flat in any::<bool>(),
        edits in prop::collection::vec((any::<Index>(), any::<Index>(), any::<u8>()), 1..6),
        cut in any::<Index>(),
        is_cut in any::<bool>(),
    ) {
        let whole = dump(4096, &[Page::Zlib(7), Page::LeftOut, Page::Plain(1)]);
        let mut bytes = if flat { flattened(&whole, 3000) } else { whole };
        for (near, at, byte) in edits {
            // Each second time among its first bytes.
            let most = [bytes.len(), 500, 4096 + 200, 5 * 4096][near.index(4)];
            let at = at.index(most);
            bytes[at] = byte;
        }
        if is_cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(core) = open(bytes) {
            for region in core.memory.regions() {
                let _ = core.memory.words(region.range().base, 512);
            }
        }
    }
}
