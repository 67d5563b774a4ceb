//! The upper half: K1 and K2 both ways.

use super::guest::*;
use crate::{judge_kernel, KernelLayout, KernelVerdict, Region, RuleId};
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
    assert_eq!(errors(&tables, None), [RuleId::K1]);
    // 6.16 made vmalloc contiguous; an unknown kernel is not judged.
    assert_eq!(judged(&tables, None, "6.16.0").findings, []);
    assert_eq!(judged(&tables, None, "?").findings, []);
    let mut tables = kernel();
    tables.map_group(IMAGE, PA, 2, rw());
    assert_eq!(errors(&tables, None), [RuleId::K1]);
    let mut tables = kernel();
    tables.map_group(LINEAR, PA, 3, rw());
    assert_eq!(errors(&tables, Some(true)), [RuleId::K1]);
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
    assert_eq!(errors(&tables, Some(true)), [RuleId::K2]);
}

#[test]
fn the_architecture_holds_in_the_kernel_too() {
    let mut tables = kernel();
    tables.map_group(IMAGE, PA, 3, rw());
    tables.change(IMAGE + 0x3000, 3, |word| word ^ CONT);
    let found = errors(&tables, None);
    assert_eq!(found, [RuleId::A4]);
    let finding = &judged(&tables, None, "6.12").findings[0];
    assert_eq!(finding.process, None);
    assert_eq!(finding.va.0, IMAGE);
}
