// SPDX-License-Identifier: GPL-2.0-only
//! Tests of what must never be an error: the "never assert" list, and everything else that a stock kernel
//! may leave in a user table.

use super::guest::*;
use crate::testing::id;
use crate::{BlockState, Reason};
use linux::release::Release;
use stage1::testing::{Attributes, Layout};
use stage1::{Granule, Half};

fn state_of(guest: &Guest, block: u64) -> (BlockState, Option<Reason>) {
    let verdict = guest.judge();
    let at = VA + block * guest.block;
    let rows = verdict.vmas.iter().flat_map(|vma| &vma.rows);
    let row = rows
        .into_iter()
        .find(|row| row.va.0 <= at && at < row.end.0);
    let row = row.expect("a row");
    (row.state, row.reason.clone())
}

#[test]
fn eligible_and_not_set_is_information() {
    for mut guest in Guest::all() {
        guest.spread(0, written());
        guest.assert_legal();
        let verdict = guest.judge();
        assert_eq!(verdict.findings.len(), 1);
        assert_eq!(verdict.findings[0].rule, id("I-eligible"));
        let expected = (BlockState::Eligible, Some(Reason::FilledOtherwise));
        assert_eq!(state_of(&guest, 0), expected);
    }
}

#[test]
fn eligible_with_a_record_of_a_smaller_order_has_that_reason() {
    let mut guest = Guest::new();
    guest.spread(0, written());
    guest.record(VA + 0x1000, 2);
    guest.assert_legal();
    let expected = (
        BlockState::NotEligible,
        Some(Reason::SmallFolio { order: 2 }),
    );
    assert_eq!(state_of(&guest, 0), expected);
}

#[test]
fn af_and_dirty_that_differ_do_not_keep_a_block_from_being_eligible() {
    // ptep_set_access_flags() never refolds; __contpte_try_fold() would not look at these.
    let mut guest = Guest::new();
    guest.spread(0, written());
    guest.change(3, |word| word & !AF);
    guest.change(5, |word| word & !DIRTY | RDONLY);
    guest.assert_legal();
    assert_eq!(state_of(&guest, 0).0, BlockState::Eligible);
}

#[test]
fn a_folded_block_over_two_vmas_stays_folded() {
    let maps =
        "40000000-40008000 rw-p 00000000 00:00 0 \n40008000-40010000 rw-p 0 00:00 0 [anon:b]";
    let mut guest = Guest::new().maps(maps);
    guest.fold(0, written());
    guest.assert_legal();
    let verdict = guest.judge();
    assert_eq!(verdict.vmas[0].rows[0].state, BlockState::Folded);
    assert_eq!(verdict.vmas[1].rows[0].state, BlockState::Folded);
    assert_eq!(verdict.vmas[0].rows[0].pages, "========        ");
    assert_eq!(verdict.vmas[1].contiguous, 0x8000);
}

#[test]
fn old_entries_of_fault_around_are_legal() {
    // With HA Linux maps what it read ahead as old; the CPU then sets AF in any of a group.
    let mut guest = Guest::of(Layout::new(Granule::K4, Half::Lower, 48).hardware_dirty());
    guest.fold(
        0,
        Attributes {
            af: false,
            ..read_only()
        },
    );
    guest.change(7, |word| word | AF);
    guest.assert_legal();
}

#[test]
fn hardware_dirty_in_one_member_and_what_fork_makes_of_it() {
    let layout = Layout::new(Granule::K4, Half::Lower, 48).hardware_dirty();
    let mut guest = Guest::of(layout);
    // Clean and writable; the CPU writes to the fifth.
    guest.fold(
        0,
        Attributes {
            ap: 0b11,
            software: 0,
            ..written()
        },
    );
    guest.change(4, |word| word & !RDONLY);
    guest.assert_legal();
    // wrprotect_ptes() of the whole block: that one gets the software dirty bit, the others not.
    for at in 0..16 {
        guest.change(at, |word| {
            let dirty = if word & RDONLY == 0 { DIRTY } else { 0 };
            (word | RDONLY | dirty) & !WRITE
        });
    }
    guest.assert_legal();
}

#[test]
fn a_swap_entry_with_bit_52_of_its_offset_set_is_not_read_as_contiguous() {
    for mut guest in Guest::all() {
        for at in 0..guest.members {
            let word = 1 << 6 | (1 << 40 | at) << 12;
            assert_eq!(word & CONT, CONT);
            guest.tables.poke(VA + at * guest.page, 3, word);
        }
        guest.assert_legal();
        assert_eq!(state_of(&guest, 0).0, BlockState::Away);
        // Next to valid pages, too.
        guest.tables.map_page(VA, PA, written(), false);
        guest.assert_legal();
        assert_eq!(state_of(&guest, 0).0, BlockState::Partial);
    }
}

#[test]
fn migration_markers_poison_and_guards_are_legal() {
    let mut guest = Guest::new();
    guest.spread(0, written());
    // Types 28 to 30 (migration), 31 (marker: uffd-wp 1, poisoned 2, guard 4), with uffd-wp and
    // exclusive bits.
    let words = [
        28 << 6 | PA,
        29 << 6 | PA | 1 << 2,
        30 << 6 | (PA >> 12 | 1 << 41) << 12,
        31 << 6 | 1 << 12,
        31 << 6 | 2 << 12 | 1 << 3,
        31 << 6 | 4 << 12,
    ];
    for (at, word) in words.into_iter().enumerate() {
        guest.change(at as u64, |_| word);
    }
    guest.assert_legal();
    let entries = guest.judge().entries;
    assert_eq!((entries.moving, entries.other), (3, 3));
}

#[test]
fn prot_none_and_numa_hints_next_to_valid_pages_are_legal() {
    let mut guest = Guest::new();
    guest.spread(0, written());
    guest.change(0, |_| prot_none(PA));
    // A NUMA hint on a page that was dirty keeps DIRTY.
    guest.change(1, |_| prot_none(PA + 0x1000) | DIRTY);
    guest.assert_legal();
    assert_eq!(guest.judge().entries.present_invalid, 2);
}

#[test]
fn holes_misaligned_and_scattered_blocks_have_their_reason() {
    let mut guest = Guest::new();
    guest.spread(0, written());
    guest.change(3, |_| 0);
    assert_eq!(
        state_of(&guest, 0),
        (BlockState::Partial, Some(Reason::Holes { present: 15 }))
    );
    for at in 0..16 {
        let at = at * 4096;
        guest
            .tables
            .map_page(VA + 0x1_0000 + at, PA + 0x1000 + at, written(), false);
    }
    assert_eq!(
        state_of(&guest, 1),
        (BlockState::NotEligible, Some(Reason::Misaligned))
    );
    guest.spread(2, written());
    guest.change(40, |word| word ^ (1 << 30));
    assert_eq!(
        state_of(&guest, 2),
        (BlockState::NotEligible, Some(Reason::NotConsecutive))
    );
    guest.spread(3, written());
    guest.change(50, |word| word & !WRITE | RDONLY);
    let fields = Reason::Differs {
        fields: "DBM".into(),
    };
    assert_eq!(state_of(&guest, 3), (BlockState::NotEligible, Some(fields)));
    guest.change(50, |word| word | UFFD_WP);
    let fields = Reason::Differs {
        fields: "DBM, UFFD_WP".into(),
    };
    assert_eq!(state_of(&guest, 3), (BlockState::NotEligible, Some(fields)));
    guest.assert_legal();
}

#[test]
fn a_fork_that_left_one_page_read_only_is_legal() {
    let mut guest = Guest::new();
    guest.spread(
        0,
        Attributes {
            ap: 0b11,
            dbm: false,
            ..written()
        },
    );
    guest.change(6, |word| (word | WRITE) & !RDONLY);
    guest.assert_legal();
}

#[test]
fn the_zero_page_in_every_entry_is_legal() {
    let mut guest = Guest::new();
    for at in 0..16 {
        guest
            .tables
            .map_page(VA + at * 4096, PA, read_only(), false);
        guest.change(at, |word| word | SPECIAL);
    }
    guest.assert_legal();
    assert_eq!(
        state_of(&guest, 0),
        (BlockState::NotEligible, Some(Reason::Special))
    );
}

#[test]
fn hugetlb_may_keep_the_bit_in_entries_that_are_not_valid() {
    let maps = "40000000-40010000 rw-p 00000000 00:0f 9 /anon_hugepage (deleted)";
    let mut guest = Guest::new().maps(maps);
    for at in 0..16 {
        let word = prot_none(PA + at * 4096) | CONT;
        guest.tables.poke(VA + at * 4096, 3, word);
    }
    guest.assert_legal();
    // A file of which VmFlags are not known may be hugetlb.
    let maps = "40000000-40010000 rw-s 00000000 00:0f 9 /mnt/huge/file";
    let guest = guest.maps(maps);
    guest.assert_legal();
    let smaps = format!("{maps}\nVmFlags: rd wr sh mr mw me ms\n");
    let guest = guest.smaps(&smaps);
    assert_eq!(guest.errors(), [id("L4")]);
}

#[test]
fn blocks_and_contiguous_blocks_of_hugetlb_are_legal() {
    let maps = "40000000-48000000 rw-p 00000000 00:0f 9 /anon_hugepage (deleted)";
    let mut guest = Guest::new().maps(maps);
    guest.tables.map_group(VA, PA, 2, written());
    guest
        .tables
        .map(VA + 0x400_0000, PA + 0x400_0000, 2, written(), false);
    // pmd_mkinvalid() of a block that is being split.
    guest
        .tables
        .map(VA + 0x420_0000, PA + 0x420_0000, 2, written(), false);
    guest.tables.change(VA + 0x420_0000, 2, |word| word & !1);
    guest.assert_legal();
    assert_eq!(state_of(&guest, 0).0, BlockState::ContiguousBlock);
    assert_eq!(state_of(&guest, 0x400_0000 / 0x1_0000).0, BlockState::Block);
    let verdict = guest.judge();
    assert_eq!(verdict.entries.blocks[&2], 17);
    assert_eq!(verdict.entries.contiguous_blocks[&2], 16);
    assert_eq!(verdict.vmas[0].mapped, 34 << 20);
    assert_eq!(verdict.vmas[0].largest_run, 32 << 20);
}

#[test]
fn drivers_and_the_vdso_choose_their_own_protection() {
    let maps = "\
40000000-40001000 r--s 00000000 00:05 77 /dev/something
40001000-40002000 r--p 00000000 00:00 0 [vvar]
40002000-40003000 r-xp 00000000 00:00 0 [vdso]
";
    let mut guest = Guest::new().maps(maps);
    guest.tables.map_page(VA, PA, written(), false);
    guest.change(0, |word| word | SPECIAL);
    guest
        .tables
        .map_page(VA + 0x1000, PA + 0x1000, read_only(), false);
    guest.change(1, |word| word | SPECIAL);
    let text = Attributes {
        uxn: false,
        ..read_only()
    };
    guest.tables.map_page(VA + 0x2000, PA + 0x2000, text, false);
    guest.assert_legal();
}

#[test]
fn execute_only_and_bti_and_tagged_memory_is_legal() {
    let mut guest = Guest::new().maps("40000000-40040000 r-xp 00000000 00:00 0 ");
    guest.fold(
        0,
        Attributes {
            uxn: false,
            ap: 0b10,
            ..read_only()
        },
    );
    guest.fold(
        1,
        Attributes {
            uxn: false,
            gp: true,
            ..read_only()
        },
    );
    guest.fold(
        2,
        Attributes {
            attr_indx: 1,
            ..read_only()
        },
    );
    guest.assert_legal();
}

#[test]
fn an_old_or_unknown_kernel_gets_the_architecture_only() {
    let mut guest = Guest::new();
    guest.fold(0, written());
    guest.change(3, |_| 0);
    assert_eq!(guest.errors(), [id("L1")]);
    for release in [Release::parse("6.1.0-48-arm64"), None] {
        guest.release = release;
        guest.assert_legal();
        assert_eq!(guest.judge().notes.len(), 1);
    }
    guest.change(4, |word| word & !CONT);
    assert_eq!(guest.errors(), [id("A4")]);
}
