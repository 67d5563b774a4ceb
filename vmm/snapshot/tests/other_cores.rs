// SPDX-License-Identifier: GPL-2.0-only
//! ELF cores of other programs, laid out as by QEMU, the kernel's /proc/vmcore and makedumpfile; and files that are not
//! ELF.

mod hostile;

use hostile::Victim;
use proptest::prelude::*;
use proptest::sample::Index;
use snapshot::{open_core, Core, CoreError, OtherCore, PAGE};
use stage1::{PhysMemory as _, PhysicalAddress};

const RAM: u64 = 0x4000_0000;
const EHDR: usize = 64;
const PHDR: usize = 56;

/// A PT_LOAD: its address, the bytes in the file, and its length in the machine.
struct Load {
    address: u64,
    data: Vec<u8>,
    bytes: u64,
}

impl Load {
    /// Creates whole pages, each filled with its number in `pages`.
    fn new(address: u64, pages: &[u8]) -> Self {
        let data: Vec<u8> = pages
            .iter()
            .flat_map(|page| [*page; PAGE as usize])
            .collect();
        let bytes = data.len() as u64;
        Self {
            address,
            data,
            bytes,
        }
    }
}

fn note(name: &[u8], kind: u32, body: &[u8]) -> Vec<u8> {
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
}

/// Returns the `elf_prstatus` of a CPU with this program counter and PSTATE.
fn prstatus(pc: u64, pstate: u64) -> Vec<u8> {
    let mut body = vec![0; 392];
    body[112 + 32 * 8..][..8].copy_from_slice(&pc.to_le_bytes());
    body[112 + 33 * 8..][..8].copy_from_slice(&pstate.to_le_bytes());
    note(b"CORE", 1, &body)
}

/// Returns a core whose memory begins right behind the notes, as QEMU writes it.
fn core(notes: &[u8], loads: &[Load]) -> Vec<u8> {
    let headers = 1 + loads.len();
    let mut out = b"\x7fELF\x02\x01\x01".to_vec();
    out.resize(16, 0);
    // ET_CORE, EM_AARCH64.
    out.extend([4, 0, 183, 0]);
    out.extend(1u32.to_le_bytes());
    for word in [0, EHDR as u64, 0] {
        out.extend(word.to_le_bytes());
    }
    out.extend(0u32.to_le_bytes());
    for half in [EHDR, PHDR, headers, 0, 0, 0] {
        out.extend((half as u16).to_le_bytes());
    }
    let mut offset = (EHDR + headers * PHDR) as u64;
    let mut header = |kind: u32, address: u64, held: u64, bytes: u64| {
        out.extend(kind.to_le_bytes());
        out.extend(0u32.to_le_bytes());
        for word in [offset, 0, address, held, bytes, 0] {
            out.extend(word.to_le_bytes());
        }
        offset += held;
    };
    header(4, 0, notes.len() as u64, notes.len() as u64);
    for load in loads {
        header(1, load.address, load.data.len() as u64, load.bytes);
    }
    out.extend(notes);
    out.extend(loads.iter().flat_map(|load| load.data.clone()));
    out
}

fn open(bytes: Vec<u8>) -> Result<OtherCore, CoreError> {
    let victim = Victim::new(bytes);
    match open_core(&victim.path())? {
        Core::Other(core) => Ok(*core),
        Core::Ours(core) => panic!("taken for one of ours: {core:?}"),
    }
}

/// Returns what the pages hold; `None` for one that is not there.
fn pages(core: &OtherCore, at: impl IntoIterator<Item = u64>) -> Vec<Option<u8>> {
    let page = |at| {
        let words = core.memory.words(PhysicalAddress(at), PAGE as usize / 8)?;
        assert!(words.iter().all(|word| *word == words[0]));
        Some(words[0] as u8)
    };
    at.into_iter().map(page).collect()
}

#[test]
fn cpus_kernel_and_memory_are_read_wherever_memory_begins() {
    for padding in 0..9 {
        let mut notes = [prstatus(0x1234, 0x5), prstatus(0x5678, 0)].concat();
        notes.extend(note(b"VMCOREINFO", 0, b"OSRELEASE=6.12\nPAGESIZE=4096\n"));
        notes.extend(note(b"QEMU", 0, &vec![0; padding]));
        let loads = [Load::new(RAM + 0x8000, &[3, 4]), Load::new(RAM, &[1, 0, 2])];
        let core = open(core(&notes, &loads)).unwrap();
        let cpus = core.cpus.iter();
        let cpus: Vec<_> = cpus
            .map(|cpu| (cpu.index, cpu.general.pc, cpu.el()))
            .collect();
        assert_eq!(cpus, [(0, 0x1234, 1), (1, 0x5678, 0)]);
        let info = core.vmcoreinfo.as_deref();
        assert_eq!(info, Some("OSRELEASE=6.12\nPAGESIZE=4096\n"));
        let places = [0, 0x1000, 0x2000, 0x3000, 0x8000, 0x9000].map(|at| RAM + at);
        let expected = [Some(1), Some(0), Some(2), None, Some(3), Some(4)];
        assert_eq!(pages(&core, places), expected);
        assert!(!core.memory.has_pages_left_out());
    }
}

/// /proc/vmcore has the kernel's image by itself, and again in the memory around it.
#[test]
fn memory_that_two_headers_name_is_there_once() {
    let loads = [
        Load::new(RAM + 0x1000, &[2, 3]),
        Load::new(RAM, &[1, 2, 3, 4]),
        Load::new(RAM + 0x3000, &[4, 5]),
    ];
    let core = open(core(&[], &loads)).unwrap();
    let all = (0..6).map(|page| RAM + page * PAGE);
    let expected = [1, 2, 3, 4, 5].map(Some);
    assert_eq!(pages(&core, all)[..5], expected);
    let held: u64 = core
        .memory
        .regions()
        .iter()
        .map(|region| region.range().bytes)
        .sum();
    assert_eq!(held, 5 * PAGE);
    let ram = core.memory.ram();
    assert_eq!((ram.len(), ram[0].bytes), (1, 5 * PAGE));
}

/// makedumpfile leaves pages out by a p_filesz below p_memsz: their contents are unknown.
#[test]
fn pages_that_are_left_out_are_not_zeros() {
    let mut first = Load::new(RAM, &[1, 2]);
    first.bytes = 4 * PAGE;
    let core = open(core(&[], &[first, Load::new(RAM + 4 * PAGE, &[5])])).unwrap();
    let all = (0..6).map(|page| RAM + page * PAGE);
    assert_eq!(
        pages(&core, all),
        [Some(1), Some(2), None, None, Some(5), None]
    );
    assert!(core.memory.has_pages_left_out());
    assert!((0..5).all(|page| core.memory.is_ram(PhysicalAddress(RAM + page * PAGE))));
    assert!(!core.memory.is_ram(PhysicalAddress(RAM + 5 * PAGE)));
}

#[test]
fn a_part_of_a_page_is_left_out() {
    let mut load = Load::new(RAM + 0x800, &[1, 1, 1]);
    load.bytes = 3 * PAGE;
    let core = open(core(&[], &[load])).unwrap();
    let all = (0..4).map(|page| RAM + page * PAGE);
    assert_eq!(pages(&core, all), [None, Some(1), Some(1), None]);
}

#[test]
fn pages_are_found_by_how_they_begin() {
    let loads = [
        Load::new(RAM, &[1, 7, 0, 7]),
        Load::new(RAM + 0x10000, &[7]),
    ];
    for padding in [0, 3] {
        let notes = note(b"QEMU", 0, &vec![0; padding]);
        let core = open(core(&notes, &loads)).unwrap();
        let found = core.memory.pages_that_begin_with(0x0707_0707_0707_0707, 8);
        let expected = [0x1000, 0x3000, 0x10000].map(|at| PhysicalAddress(RAM + at));
        assert_eq!(found, expected);
        let found = core.memory.pages_that_begin_with(0x0707_0707_0707_0707, 2);
        assert_eq!(found, expected[..2]);
    }
}

#[test]
fn headers_that_make_no_sense_are_told() {
    let whole = core(&prstatus(0, 0), &[Load::new(RAM, &[1])]);
    let with = |at: usize, value: u64| {
        let mut bytes = whole.clone();
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        open(bytes).map(|_| ()).map_err(|error| error.to_string())
    };
    let (load, address) = (EHDR + PHDR, EHDR + PHDR + 24);
    assert_eq!(with(address, RAM), Ok(()));
    for (at, value, words) in [
        (address, u64::MAX - 7, "beyond the address space"),
        (load + 40, u64::MAX, "beyond the address space"),
        (load + 8, u64::MAX, "the memory of program header 1"),
        (load + 32, 1 << 40, "the memory of program header 1"),
        (EHDR + 32, 1 << 40, "the notes"),
    ] {
        let said = with(at, value).unwrap_err();
        assert!(said.contains(words) && !said.contains('\n'), "{said}");
    }
}

#[test]
fn what_is_no_elf_file_is_told_by_its_name() {
    let cases: [(&[u8], &[&str]); 13] = [
        (b"DISKDUMP\x06\0\0\0", &["diskdump", "makedumpfile -E"]),
        (b"QEVM\0\0\0\x03", &["migrate", "dump-guest-memory"]),
        (b"QFI\xfb\0\0\0\x03", &["qcow2", "dump-guest-memory"]),
        (b"\x28\xb5\x2f\xfd\0", &["zstd", "unpack"]),
        (b"\x1f\x8b\x08\0", &["gzip", "unpack"]),
        (b"\xfd7zXZ\0", &["xz", "unpack"]),
        (b"BZh9", &["bzip2", "unpack"]),
        (b"\x04\x22\x4d\x18", &["lz4", "unpack"]),
        (b"FOLIOREC\x04\0", &["a trace", "record --judge"]),
        (b"\x89LZO\0\r\n", &["lzop", "unpack"]),
        (b"\0\0\0\0\0\0\0\0", &["[00, 00, 00, 00]", "pmemsave"]),
        (b"\x7fEL", &["[7f, 45, 4c]"]),
        (b"", &["found []"]),
    ];
    for (begins, words) in cases {
        let said = open(begins.to_vec()).unwrap_err().to_string();
        assert!(
            said.starts_with("not an ELF file") && !said.contains('\n'),
            "{said}"
        );
        for word in words {
            assert!(said.contains(word), "{word} in {said}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// A damaged core gives an error with a sentence, or memory that can be read.
    #[test]
    fn damaged_cores_of_others_are_read_or_refused(
        edits in prop::collection::vec((any::<Index>(), any::<u8>()), 1..6),
        cut in any::<Index>(),
        whole in any::<bool>(),
    ) {
        let notes = [prstatus(0, 5), note(b"VMCOREINFO", 0, b"PAGESIZE=4096\n")].concat();
        let mut bytes = core(&notes, &[Load::new(RAM, &[1, 2]), Load::new(RAM + 0x1000, &[2, 3])]);
        for (place, byte) in edits {
            // Headers and notes; the memory may hold anything.
            let place = place.index(EHDR + 3 * PHDR + notes.len());
            bytes[place] = byte;
        }
        if !whole {
            bytes.truncate(cut.index(bytes.len()));
        }
        Victim::new(bytes).is_taken();
    }
}
