// SPDX-License-Identifier: GPL-2.0-only
//! Symbols of small ELF files made here.

use super::*;

/// Returns an ELF64 file with one symbol table (address, name) and a build id note in a section.
fn elf(machine: u16, symbols: &[(u64, &str)], build_id: &[u8]) -> Vec<u8> {
    let mut strings = vec![0u8];
    let mut table = vec![0u8; 24];
    for (address, name) in symbols {
        table.extend((strings.len() as u32).to_le_bytes());
        table.extend([0x12, 0]); // global function
        table.extend(1u16.to_le_bytes());
        table.extend(address.to_le_bytes());
        table.extend(0u64.to_le_bytes());
        strings.extend(name.as_bytes());
        strings.push(0);
    }
    let mut note = Vec::new();
    for word in [4u32, build_id.len() as u32, 3] {
        note.extend(word.to_le_bytes());
    }
    note.extend(b"GNU\0");
    note.extend(build_id);
    let mut sections: Vec<(u32, u32, Vec<u8>)> =
        vec![(0, 0, Vec::new()), (7, 0, note), (3, 0, strings)];
    if !symbols.is_empty() {
        sections.push((2, 2, table));
    }
    let mut file = vec![0u8; 64];
    let mut headers = Vec::new();
    for (kind, link, data) in &sections {
        file.resize(file.len().next_multiple_of(8), 0);
        let offset = file.len() as u64;
        file.extend(data);
        for word in [0u32, *kind] {
            headers.extend(word.to_le_bytes());
        }
        for long in [0u64, 0, offset, data.len() as u64] {
            headers.extend(long.to_le_bytes());
        }
        headers.extend(link.to_le_bytes());
        headers.extend(0u32.to_le_bytes());
        headers.extend(4u64.to_le_bytes());
        let entry: u64 = if *kind == 2 { 24 } else { 0 };
        headers.extend(entry.to_le_bytes());
    }
    file.resize(file.len().next_multiple_of(8), 0);
    let at = file.len() as u64;
    file.extend(headers);
    file[..16].copy_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    file[16..18].copy_from_slice(&3u16.to_le_bytes());
    file[18..20].copy_from_slice(&machine.to_le_bytes());
    file[20..24].copy_from_slice(&1u32.to_le_bytes());
    file[40..48].copy_from_slice(&at.to_le_bytes());
    file[52..54].copy_from_slice(&64u16.to_le_bytes());
    file[58..60].copy_from_slice(&64u16.to_le_bytes());
    file[60..62].copy_from_slice(&(sections.len() as u16).to_le_bytes());
    file[62..64].copy_from_slice(&2u16.to_le_bytes());
    file
}

fn read(bytes: &[u8]) -> Result<Symbols, SymbolsError> {
    Symbols::read(Path::new("vmlinux"), bytes)
}

const KERNEL: &[(u64, &str)] = &[
    (0xffff_8000_8001_0000, "_text"),
    (0xffff_8000_8001_1800, "vectors"),
    (0xffff_8000_8001_3000, "__bp_harden_el1_vectors"),
    (0xffff_8000_8002_0000, "contpte_set_ptes"),
    (0xffff_8000_8002_0000, "$x"),
    (0xffff_8000_8003_0000, "twice"),
    (0xffff_8000_8004_0000, "twice"),
];

#[test]
fn symbols_are_found_both_ways() {
    let symbols = read(&elf(183, KERNEL, &[0xab; 20])).unwrap();
    assert_eq!(symbols.address("vectors"), Some(0xffff_8000_8001_1800));
    assert_eq!(symbols.address("vector"), None);
    assert_eq!(symbols.address("twice"), None);
    assert_eq!(symbols.name(0xffff_8000_8001_1804), Some(("vectors", 4)));
    assert_eq!(
        symbols.name(0xffff_8000_8002_0000),
        Some(("contpte_set_ptes", 0))
    );
    assert_eq!(symbols.name(0x1000), None);
    assert!(symbols.has_contpte());
    let error = symbols
        .require("anon_order_rings", ": no records")
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "vmlinux has no symbol `anon_order_rings`: no records"
    );
}

#[test]
fn a_function_goes_before_the_section_that_begins_or_ends_there() {
    let at = 0xffff_8000_8004_0000;
    for bound in [
        "__sched_text_start",
        "__noinstr_text_end",
        "__start_notes",
        "__stop_notes",
        "__end_rodata",
    ] {
        let (first, last) = ([(at, bound), (at, "x")], [(at, "x"), (at, bound)]);
        for both in [first, last] {
            let symbols = read(&elf(183, &both, &[1; 20])).unwrap();
            assert_eq!(symbols.name(at + 8), Some(("x", 8)), "{bound}");
        }
        let symbols = read(&elf(183, &[(at - 4, "x"), (at, bound)], &[1; 20])).unwrap();
        assert_eq!(symbols.name(at), Some((bound, 0)));
        assert_eq!(symbols.address(bound), Some(at));
    }
}

#[test]
fn the_running_kernel_is_recognised() {
    let symbols = read(&elf(183, KERNEL, &[0xab; 20])).unwrap();
    let ours = BuildId::parse(&"ab".repeat(20)).unwrap();
    assert_eq!(symbols.build_id(), Some(&ours));
    assert!(symbols.matches(&ours).is_ok());
    let error = symbols.matches(&BuildId(vec![1; 20])).unwrap_err();
    assert!(error.to_string().contains(&"01".repeat(20)), "{error}");
}

#[test]
fn the_slide_is_known_only_where_vbar_is_in_the_kernel() {
    let symbols = read(&elf(183, KERNEL, &[1; 20])).unwrap();
    assert_eq!(symbols.slide(0xffff_8000_8001_1800), Some(0));
    assert_eq!(symbols.slide(0xffff_a5c3_1a41_1800), Some(0x25c2_9a40_0000));
    // The second slot of the hardened vectors, 2 MiB up.
    assert_eq!(symbols.slide(0xffff_8000_8021_3800), Some(0x20_0000));
    assert_eq!(symbols.slide(0xffff_ffff_fe00_0000), None);
}

#[test]
fn what_is_not_a_vmlinux_is_said() {
    assert!(matches!(
        read(&elf(62, KERNEL, &[1; 20])),
        Err(SymbolsError::Machine { machine: 62, .. })
    ));
    assert!(matches!(
        read(&elf(183, &[], &[1; 20])),
        Err(SymbolsError::Stripped { .. })
    ));
    assert!(matches!(read(b"MZ..."), Err(SymbolsError::NotElf { .. })));
    let whole = elf(183, KERNEL, &[1; 20]);
    assert!(read(&whole[..whole.len() - 100]).is_err());
    let missing = Symbols::open(Path::new("/nonexistent/vmlinux")).unwrap_err();
    assert!(missing.to_string().starts_with("cannot read"), "{missing}");
}
