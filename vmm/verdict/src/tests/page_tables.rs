// SPDX-License-Identifier: GPL-2.0-only
//! The half of L9 that holds a process's bytes of page tables to its tables.

use crate::testing::id;
use linux::folio::{HugeZero, Kind, Numbering, Rss};
use linux::vma::parse_smaps;

use super::guest::*;
use crate::testing::folios::{errors, good, ANON_VMA};

#[test]
fn l9_bytes_of_page_tables() {
    for guest in Guest::all() {
        let mut guest = good(guest);
        let (page, right) = (guest.page as i64, guest.kernel().tables_bytes.unwrap());
        for wrong in [right + page, right - page, right + 8, 0, i64::MIN] {
            guest.kernel().tables_bytes = Some(wrong);
            let verdict = guest.judge();
            assert_eq!(errors(&verdict), [id("L9")], "{wrong}");
            let message = &verdict.findings[0].message;
            assert!(message.contains("pgtables_bytes"), "{message}");
        }
    }
}

#[test]
fn l9_a_table_without_a_vma() {
    for guest in Guest::all() {
        let mut guest = good(guest);
        let (page, span) = (guest.page, guest.page / 8 * guest.page);
        // Far behind all VMAs, and without an entry.
        let va = VA + 16 * span;
        guest.tables.map(va, PA, 3, written(), false);
        guest.tables.change(va, 3, |_| 0);
        let tables = guest.kernel().tables_bytes.unwrap();
        guest.kernel().tables_bytes = Some(tables + page as i64);
        let verdict = guest.judge();
        assert_eq!(errors(&verdict), [id("L9")]);
        let message = &verdict.findings[0].message;
        assert!(
            message.contains(&format!("for VA 0x{va:016x} and on has no VMA")),
            "{message}"
        );
    }
}

/// The good guest with a block of 2 MiB of this kind behind it, in a VMA of its own, and the block's first page frame.
fn with_block(kind: Kind, line: &str, word: impl Fn(u64) -> u64) -> (Guest, u64) {
    let mut guest = good(Guest::new());
    let (va, pa) = (VA + (2 << 20), PA + (2 << 20));
    let end = va + (2 << 20);
    let more = parse_smaps(&format!("{va:x}-{end:x} {line}\n")).unwrap();
    guest.vmas.extend(more);
    guest.kernel().numbering.push(Numbering {
        start: va,
        end,
        file: 0,
        anonymous: va >> 12,
        of: None,
        order_state: None,
        found_by: Some(Ok(vec![ANON_VMA])),
    });
    guest.tables.map(va, pa, 2, written(), false);
    guest.tables.change(va, 2, word);
    let (anonymous, shmem) = match kind {
        Kind::Anonymous => (512, 0),
        Kind::File => (0, 512),
        _ => (0, 0),
    };
    let index = if shmem > 0 { 0 } else { va >> 12 };
    guest.kernel().folio(pa >> 12, 9, index);
    guest.kernel().change(pa >> 12, |page| page.kind = kind);
    guest.kernel().rss = Some(Rss {
        anonymous: 32 + anonymous,
        shmem,
        ..Rss::default()
    });
    (guest, pa >> 12)
}

/// Bytes of page tables that break no rule with such a block, in tables beyond those of the good guest.
fn right_with_block(kind: Kind, line: &str, word: impl Fn(u64) -> u64) -> Vec<i64> {
    let (mut guest, _) = with_block(kind, line, word);
    let good = guest.kernel().tables_bytes.unwrap();
    let beyond = (-1..4).filter(|beyond| {
        guest.kernel().tables_bytes = Some(good + beyond * 4096);
        let found = errors(&guest.judge());
        assert!(found.iter().all(|rule| *rule == id("L9")), "{found:?}");
        found.is_empty()
    });
    beyond.collect()
}

#[test]
fn l9_blocks_of_anonymous_memory_have_a_table_ready() {
    let private = "rw-p 00000000 00:00 0 \nVmFlags: rd wr mr mw me ac ";
    let shared = "rw-s 00000000 00:01 5 /f\nVmFlags: rd wr sh mr mw me ms ";
    let same = |word| word;
    assert_eq!(right_with_block(Kind::Anonymous, private, same), [1]);
    assert_eq!(right_with_block(Kind::File, shared, same), [0]);
    // The huge zero page, which later kernels make special.
    let zero = |word: u64| (word | 1 << 7) & !(1 << 51 | 1 << 55);
    assert_eq!(right_with_block(Kind::Unowned, private, zero), [1]);
    let special = |word| zero(word) | 1 << 56;
    assert_eq!(right_with_block(Kind::Unowned, private, special), [1]);
    // In a file it may be DAX's, and nothing is said.
    let all = [-1, 0, 1, 2, 3];
    assert_eq!(right_with_block(Kind::Unowned, shared, special), all);
}

#[test]
fn l9_references_on_the_huge_zero_folio() {
    let of = |references, holders, is_holder| HugeZero {
        pfn: 0,
        references,
        holders,
        is_holder,
        bit: 18,
    };
    let private = "rw-p 00000000 00:00 0 \nVmFlags: rd wr mr mw me ac ";
    for special in [0, 1 << 56] {
        let word = |word: u64| (word | 1 << 7 | special) & !(1 << 51 | 1 << 55);
        let judged = |folio: HugeZero, mapped: bool| {
            let (mut guest, pfn) = with_block(Kind::Unowned, private, word);
            let kernel = guest.kernel();
            kernel.tables_bytes = kernel.tables_bytes.map(|bytes| bytes + 4096);
            kernel.huge_zero = Some(HugeZero {
                pfn: pfn + u64::from(!mapped),
                ..folio
            });
            guest.judge()
        };
        // Its own and the kernel's; one of another process too; more, as of an address space that has ended.
        for (references, holders) in [(2, 1), (3, 2), (7, 2)] {
            assert_eq!(errors(&judged(of(references, holders, true), true)), []);
        }
        for (folio, said) in [
            (
                of(2, 1, false),
                "bit 18 of its flags (MMF_HUGE_ZERO_FOLIO) is 0 and must be 1",
            ),
            (
                of(2, 2, true),
                "huge_zero_refcount is 2: it must be at least 3",
            ),
            (
                of(0, 1, true),
                "huge_zero_refcount is 0: it must be at least 2",
            ),
        ] {
            let verdict = judged(folio, true);
            assert_eq!(errors(&verdict), [id("L9")]);
            let message = &verdict.findings[0].message;
            assert!(message.contains(said), "{message}");
            // It maps another folio.
            assert_eq!(errors(&judged(folio, false)), []);
        }
    }
}
