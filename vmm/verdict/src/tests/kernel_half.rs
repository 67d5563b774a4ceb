// SPDX-License-Identifier: GPL-2.0-only
//! The upper half: K1 and K2 both ways.

use super::guest::*;
use crate::testing::id;
use crate::{judge_kernel, KernelLayout, KernelVerdict, LinearBit, Region, RuleId};
use linux::release::Release;
use stage1::testing::{Attributes, Layout, TableBuilder};
use stage1::{Granule, Half, Regime};

const LINEAR: u64 = 0xffff_0000_0000_0000;
/// `_PAGE_END(48)`: behind the linear map.
const IMAGE: u64 = 0xffff_8000_8000_0000;
const VMALLOC: u64 = 0xffff_8000_9000_0000;

fn kernel() -> TableBuilder {
    TableBuilder::at(Layout::new(Granule::K4, Half::Upper, 48), 0x8000_0000)
}

/// PAGE_KERNEL: read-write at EL1, dirty.
fn rw() -> Attributes {
    Attributes {
        ap: 0b00,
        ..Attributes::default()
    }
}

fn judged(tables: &TableBuilder, rodata_full: Option<bool>, release: &str) -> KernelVerdict {
    let regime = Regime::new(&tables.registers(), Half::Upper).unwrap();
    let layout = KernelLayout::new(
        &regime,
        Release::parse(release),
        Some(IMAGE..IMAGE + 0x200_0000),
        rodata_full,
    );
    judge_kernel(tables.memory(), &regime, layout.as_ref())
}

fn errors(tables: &TableBuilder, rodata_full: Option<bool>) -> Vec<RuleId> {
    let verdict = judged(tables, rodata_full, "6.12.117");
    verdict
        .findings
        .iter()
        .map(|finding| finding.rule)
        .collect()
}

#[test]
fn the_layout_of_6_12() {
    let tables = kernel();
    let regime = Regime::new(&tables.registers(), Half::Upper).unwrap();
    let layout = KernelLayout::new(&regime, Release::parse("6.12"), None, None).unwrap();
    assert_eq!(layout.linear, LINEAR..0xffff_8000_0000_0000);
    assert_eq!(
        KernelLayout::new(&regime, Release::parse("6.1"), None, None),
        None
    );
}

#[test]
fn the_linear_map_ends_where_the_smallest_va_says() {
    for (granule, va_bits, end) in [
        (Granule::K4, 39, 0xffff_ffc0_0000_0000),
        (Granule::K4, 48, 0xffff_8000_0000_0000),
        (Granule::K4, 52, 0xffff_8000_0000_0000),
        (Granule::K16, 47, 0xffff_c000_0000_0000),
        (Granule::K16, 48, 0xffff_8000_0000_0000),
        (Granule::K16, 52, 0xffff_c000_0000_0000),
        (Granule::K64, 52, 0xffff_8000_0000_0000_u64),
    ] {
        let layout = Layout::new(granule, Half::Upper, va_bits);
        let regime = Regime::new(&layout.registers(0x8000_0000), Half::Upper).unwrap();
        let layout = KernelLayout::new(&regime, Release::parse("6.12"), None, None).unwrap();
        assert_eq!(layout.linear.end, end, "{granule}, {va_bits} bits");
    }
}

/// 6.18 may have blocks with rodata=full, where it splits them.
#[test]
fn rodata_full_since_6_18() {
    let mut tables = kernel();
    tables.map_group(LINEAR, PA, 3, rw());
    let regime = Regime::new(&tables.registers(), Half::Upper).unwrap();
    let of = |release: &str, full, splits: bool| {
        let release = Release::parse(release);
        let image = Some(IMAGE..IMAGE + 0x1_0000);
        let layout = KernelLayout::new(&regime, release, image, full).unwrap();
        match splits {
            true => layout,
            false => layout.without_splits(full),
        }
    };
    let said = |tables: &TableBuilder, layout: &KernelLayout| {
        let verdict = judge_kernel(tables.memory(), &regime, Some(layout));
        let notes = verdict.notes.iter().filter(|note| note.contains("BBML2"));
        (verdict.findings.len(), notes.count())
    };
    for splits in [false, true] {
        let full = of("6.17.8", Some(true), splits);
        assert_eq!(full.linear_bit, LinearBit::None);
        assert_eq!(said(&tables, &full), (1, 0));
        let not_full = of("6.17.8", Some(false), splits);
        assert_eq!(not_full.linear_bit, LinearBit::EveryRun);
    }
    // Where the image is: its alias stays as it was mapped, which before 6.18 is in pages.
    let mut aliased = tables.clone();
    aliased.map_page(IMAGE, PA + 0xf000, rw(), false);
    tables.map_page(IMAGE, PA + 0x1_0000, rw(), false);
    for release in ["6.18.15", "7.3.4"] {
        let full = |splits| of(release, Some(true), splits);
        assert_eq!(said(&tables, &full(true)), (0, 1), "{release}");
        assert_eq!(said(&tables, &full(false)), (1, 0), "{release}");
        assert_eq!(said(&aliased, &full(false)), (0, 0), "{release}");
        let not_full = of(release, Some(false), false);
        assert_eq!(not_full.linear_bit, LinearBit::EveryRun);
        assert_eq!(of(release, None, false).linear_bit, LinearBit::Unknown);
    }
    let before = of("6.17.8", Some(true), false);
    assert_eq!(said(&aliased, &before), (1, 0));
    // Where the alias lies is not known, nothing is said of it, and that is told.
    let mut nowhere = kernel();
    nowhere.map_group(LINEAR, PA, 3, rw());
    for (release, full, findings, told) in [
        ("6.17.8", true, 1, 0),
        ("6.17.8", false, 0, 1),
        ("7.3.4", true, 0, 1),
        ("7.3.4", false, 0, 1),
    ] {
        let layout = of(release, Some(full), false);
        let verdict = judge_kernel(nowhere.memory(), &regime, Some(&layout));
        let notes = verdict.notes.iter().filter(|note| note.contains("alias"));
        assert_eq!(
            (verdict.findings.len(), notes.count()),
            (findings, told),
            "{release} {full}"
        );
    }
}

/// Without rodata=full every aligned run of the linear map is folded, pages and blocks; what touches the image's
/// alias, is incomplete, out of step or of two kinds is none.
#[test]
fn k1_each_run_of_the_linear_map() {
    let read_only = Attributes { ap: 0b10, ..rw() };
    let with_image = |change: &dyn Fn(&mut TableBuilder)| {
        let mut tables = kernel();
        // The image is at PA; its alias in the linear map is in pages, and ends within a group.
        tables.map_page(IMAGE, PA, rw(), false);
        for page in 0..0x200_8000 / 4096 {
            tables.map_page(LINEAR + page * 4096, PA + page * 4096, rw(), false);
        }
        change(&mut tables);
        tables
    };
    let run = |tables: &mut TableBuilder, pa: u64, pages: u64| {
        for page in 0..pages {
            tables.map_page(
                LINEAR + 0x1000_0000 + page * 4096,
                pa + page * 4096,
                rw(),
                false,
            );
        }
    };
    let pa = PA + 0x1000_0000;
    for rodata in [Some(true), None] {
        assert_eq!(
            errors(&with_image(&|tables| run(tables, pa, 16)), rodata),
            []
        );
    }
    let of = |change: &dyn Fn(&mut TableBuilder)| errors(&with_image(change), Some(false));
    assert_eq!(of(&|_| ()), []);
    assert_eq!(of(&|tables| run(tables, pa, 16)), [id("K1")]);
    assert_eq!(of(&|tables| run(tables, pa, 48)), [id("K1"); 3]);
    assert_eq!(of(&|tables| run(tables, pa, 15)), []);
    assert_eq!(of(&|tables| run(tables, pa + 4096, 16)), []);
    let other = |tables: &mut TableBuilder| {
        run(tables, pa, 15);
        let last = LINEAR + 0x1000_0000 + 15 * 4096;
        tables.map_page(last, pa + 15 * 4096, read_only, false);
    };
    assert_eq!(of(&other), []);
    // Sixteen blocks of 2 MiB, aligned to 32 MiB or not.
    let blocks = |tables: &mut TableBuilder, pa: u64| {
        for block in 0..16 {
            let (va, pa) = (LINEAR + 0x4000_0000 + (block << 21), pa + (block << 21));
            tables.map(va, pa, 2, rw(), false);
        }
    };
    assert_eq!(of(&|tables| blocks(tables, PA + 0x4000_0000)), [id("K1")]);
    assert_eq!(of(&|tables| blocks(tables, PA + 0x4020_0000)), []);
    // Outside the linear map nothing has to be folded.
    let vmalloc = |tables: &mut TableBuilder| {
        for page in 0..16 {
            tables.map_page(VMALLOC + page * 4096, pa + page * 4096, rw(), false);
        }
    };
    assert_eq!(of(&vmalloc), []);
}

/// With KASAN the end of what is the linear map elsewhere is its shadow, whose pages lie as they come, and whose tables are
/// few where nothing is shadowed.
#[test]
fn kasan_s_shadow_is_no_linear_map() {
    const SHADOW: u64 = 0xffff_6000_0000_0000;
    let mut tables = kernel();
    tables.map_page(IMAGE, PA, rw(), false);
    let mut shared = 0;
    for page in 0..16 {
        let (va, pa) = (SHADOW + page * 4096, PA + 0x1000_0000 + page * 4096);
        tables.map_page(va, pa, rw(), false);
    }
    tables.change(SHADOW, 1, |word| {
        shared = word;
        word
    });
    for gib in 1..512 {
        tables.map_page(SHADOW + (gib << 30), PA, rw(), false);
        tables.change(SHADOW + (gib << 30), 1, |_| shared);
    }
    let regime = Regime::new(&tables.registers(), Half::Upper).unwrap();
    let image = Some(IMAGE..IMAGE + 0x200_0000);
    let layout = KernelLayout::new(&regime, Release::parse("6.12"), image, Some(false)).unwrap();
    let judged = |layout: &KernelLayout| judge_kernel(tables.memory(), &regime, Some(layout));
    assert!(judged(&layout)
        .findings
        .iter()
        .all(|it| it.rule == id("K1")));
    assert_eq!(judged(&layout).errors(), 512);
    for (scale, first) in [(3, SHADOW), (4, 0xffff_7000_0000_0000)] {
        let layout = layout.clone().with_shadow(&regime, Some(scale));
        assert_eq!(layout.linear, LINEAR..first);
        assert_eq!(layout.shadow, Some(first..0xffff_8000_0000_0000));
    }
    let verdict = judged(&layout.clone().with_shadow(&regime, Some(3)));
    assert_eq!(verdict.findings, []);
    assert_eq!(verdict.mapped[&Region::Shadow]["PTE"], 16 * 4096);
    assert!(!verdict.mapped.contains_key(&Region::Linear));
    assert_eq!(layout.clone().with_shadow(&regime, None), layout);
}

#[test]
fn contiguous_where_linux_makes_it_so_is_legal() {
    let mut tables = kernel();
    tables.map_group(LINEAR, PA, 3, rw());
    tables.map_group(LINEAR + 0x200_0000, PA + 0x200_0000, 2, rw());
    tables.map_group(IMAGE, PA, 3, rw());
    tables.map_page(VMALLOC, PA, rw(), false);
    assert_eq!(errors(&tables, Some(false)), []);
    let verdict = judged(&tables, Some(false), "6.12.117");
    assert_eq!(verdict.mapped[&Region::Linear]["CONTPTE"], 64 << 10);
    assert_eq!(verdict.mapped[&Region::Linear]["CONTPMD"], 32 << 20);
    assert_eq!(verdict.mapped[&Region::Rest]["PTE"], 4096);
}

#[test]
fn k1_on_vmalloc_image_and_linear_map() {
    let mut tables = kernel();
    tables.map_group(VMALLOC, PA, 3, rw());
    assert_eq!(errors(&tables, None), [id("K1")]);
    // 6.16 made vmalloc contiguous; an unknown kernel is not judged.
    assert_eq!(judged(&tables, None, "6.16.0").findings, []);
    assert_eq!(judged(&tables, None, "?").findings, []);
    let mut tables = kernel();
    tables.map_group(IMAGE, PA, 2, rw());
    assert_eq!(errors(&tables, None), [id("K1")]);
    let mut tables = kernel();
    tables.map_group(LINEAR, PA, 3, rw());
    assert_eq!(errors(&tables, Some(true)), [id("K1")]);
    assert_eq!(errors(&tables, None), []);
    assert_eq!(judged(&tables, None, "6.12").notes.len(), 1);
}

#[test]
fn k2_a_writable_entry_that_is_clean() {
    let mut tables = kernel();
    tables.map_page(LINEAR, PA, rw(), false);
    // Memory-mapped devices live in vmalloc and are not dirty.
    tables.map_page(
        VMALLOC,
        PA,
        Attributes {
            software: 0,
            ..rw()
        },
        false,
    );
    assert_eq!(errors(&tables, Some(true)), []);
    tables.change(LINEAR, 3, |word| word & !DIRTY);
    assert_eq!(errors(&tables, Some(true)), [id("K2")]);
}

#[test]
fn the_architecture_holds_in_the_kernel_too() {
    let mut tables = kernel();
    tables.map_group(IMAGE, PA, 3, rw());
    tables.change(IMAGE + 0x3000, 3, |word| word ^ CONT);
    let found = errors(&tables, None);
    assert_eq!(found, [id("A4")]);
    let finding = &judged(&tables, None, "6.12").findings[0];
    assert_eq!(finding.process, None);
    assert_eq!(finding.va.0, IMAGE);
}
