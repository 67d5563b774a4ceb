// SPDX-License-Identifier: GPL-2.0-only
//! Tables of random words: everything ends, and nothing panics.

use crate::dump::{dump, DumpOptions, Format};
use crate::map::{draw, MapOptions};
use linux::release::Release;
use stage1::testing::{Layout, TableBuilder};
use stage1::{Granule, Half, Regime};
use verdict::testing::guest::*;
use verdict::testing::random::Random;
use verdict::{judge_kernel, judge_sharing, Expected, KernelLayout};

#[test]
fn nothing_panics() {
    let mut random = Random(0x00f0_110a_5c0e_2024);
    for round in 0..8 {
        for mut guest in Guest::all() {
            for _ in 0..200 {
                let offset = random.any() % (8 * guest.block);
                let va = (VA + offset) / guest.page * guest.page;
                guest.tables.poke(va, 3, random.word());
            }
            if round % 4 == 0 {
                let word = random.word();
                guest.tables.poke(VA + (1 << 36), 2, word);
            }
            guest.record(
                VA + guest.page * (random.any() % 64),
                (random.any() % 6) as u8,
            );
            guest.expect(Expected::FreshlyFaulted, 0, u64::MAX);
            guest.expect(Expected::Written, VA + 123, VA + 2 * guest.block + 7);
            let mut verdict = [guest.judge()];
            let regime = guest.regime();
            judge_sharing(guest.tables.memory(), &[regime], &mut verdict);
            let mut out = Vec::new();
            draw(&mut out, &verdict[0], &MapOptions::default()).unwrap();
            for findings in [false, true] {
                let options = DumpOptions {
                    findings,
                    tables: true,
                    ..DumpOptions::default()
                };
                let memory = guest.tables.memory();
                dump(
                    &mut out,
                    memory,
                    &regime,
                    &guest.vmas,
                    Format::Json,
                    &options,
                )
                .unwrap();
            }
        }
    }
}

#[test]
fn nothing_panics_in_the_upper_half() {
    let mut random = Random(0x5ca1_ab1e);
    for granule in Granule::ALL {
        for _ in 0..10 {
            let layout = Layout::new(granule, Half::Upper, 48);
            let mut tables = TableBuilder::at(layout, 0x8000_0000);
            for _ in 0..200 {
                // Near the top, where the end of a group wraps around.
                let va = 0u64.wrapping_sub((1 + random.any() % 4096) * granule.bytes());
                tables.poke(va, 3, random.word());
            }
            let regime = Regime::new(&tables.registers(), Half::Upper).unwrap();
            let release = Release::parse("6.12.117");
            let image = Some(u64::MAX - (1 << 22)..u64::MAX - (1 << 21));
            let layout = KernelLayout::new(&regime, release, image, Some(true));
            judge_kernel(tables.memory(), &regime, layout.as_ref());
            let options = DumpOptions {
                findings: true,
                ..DumpOptions::default()
            };
            let mut out = Vec::new();
            dump(
                &mut out,
                tables.memory(),
                &regime,
                &[],
                Format::Csv,
                &options,
            )
            .unwrap();
        }
    }
}
