// SPDX-License-Identifier: GPL-2.0-only
//! Layouts and helpers that several tests share.
#![allow(dead_code)] // each test file takes its part

use proptest::prelude::*;
use stage1::testing::{Layout, TableBuilder};
use stage1::{check, check_plainly, Granule, Half, Regime, Violation, VirtualAddress};

/// Returns every granule with every size of VA that the tables of the issue need, both forms of descriptors, and both
/// halves.
pub fn all_layouts() -> Vec<Layout> {
    let mut layouts = Vec::new();
    for half in Half::ALL {
        for granule in Granule::ALL {
            for va_bits in 36..=52 {
                let layout = Layout::new(granule, half, va_bits);
                layouts.push(layout);
                if layout != layout.wide() {
                    layouts.push(layout.wide());
                }
                // 52-bit VAs without 52-bit PAs: FEAT_LVA without FEAT_LPA, at 64K only.
                if va_bits > 48 && granule == Granule::K64 {
                    layouts.push(Layout {
                        pa_bits: 48,
                        ..layout
                    });
                }
            }
        }
    }
    layouts
}

/// Returns the sizes of VA at which the first level or its size changes, and 48.
pub fn telling_layouts() -> Vec<Layout> {
    let telling = |layout: &Layout| matches!(layout.va_bits, 36 | 39 | 42 | 47 | 48 | 52);
    all_layouts().into_iter().filter(telling).collect()
}

/// Returns the smallest VA sizes, of FEAT_TTST.
pub fn small_layouts() -> Vec<Layout> {
    let sizes = |granule| {
        if granule == Granule::K64 {
            17..=35
        } else {
            16..=35
        }
    };
    let each = |granule| sizes(granule).map(move |bits| Layout::new(granule, Half::Lower, bits));
    Granule::ALL.into_iter().flat_map(each).collect()
}

pub fn any_layout() -> impl Strategy<Value = Layout> {
    (
        proptest::sample::select(all_layouts()),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(layout, ha, hd)| Layout { ha, hd, ..layout })
}

pub fn regime(tables: &TableBuilder) -> Regime {
    Regime::new(&tables.registers(), tables.layout().half).expect("the layout's registers")
}

/// Returns all violations by the quick path, and asserts that the plain reading agrees.
pub fn violations(tables: &TableBuilder) -> Vec<Violation> {
    let regime = regime(tables);
    violations_of(tables, &regime, regime.first, regime.last)
}

pub fn violations_of(
    tables: &TableBuilder,
    regime: &Regime,
    first: VirtualAddress,
    last: VirtualAddress,
) -> Vec<Violation> {
    let mut found = Vec::new();
    let quick = check(tables.memory(), regime, first, last, &mut |v| found.push(v));
    let mut plainly = Vec::new();
    let budget = stage1::DEFAULT_BUDGET;
    let mut sink = |v| plainly.push(v);
    let plain = check_plainly(tables.memory(), regime, first, last, budget, &mut sink);
    assert_eq!(
        found, plainly,
        "the quick path found something else than the plain one"
    );
    assert_eq!(
        quick, plain,
        "the quick path counted something else than the plain one"
    );
    assert_eq!(quick.violations, found.len() as u64);
    found
}

/// Returns the ids of the rules broken, in order, each once.
pub fn rules(tables: &TableBuilder) -> Vec<&'static str> {
    let mut ids: Vec<_> = violations(tables).iter().map(|v| v.rule.id()).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// Returns a VA in the half's middle that is aligned to a group of `level`, and a PA likewise.
pub fn addresses(layout: &Layout, level: i8) -> (u64, u64) {
    let bytes = layout.entry_size(level) * layout.group(level).max(1);
    let middle = 1_u64 << (layout.va_bits - 1);
    // With the smallest VAs the middle may be within the only group.
    let va = layout.first_va() + middle / bytes * bytes;
    let pa = (1_u64 << (layout.pa_bits - 1)) + bytes;
    (va, pa)
}
