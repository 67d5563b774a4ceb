//! Tables of random words: everything ends, and nothing panics.

use super::guest::*;
use crate::dump::{dump, DumpOptions, Format};
use crate::map::{draw, MapOptions};
use crate::{judge_kernel, judge_sharing, Expected, KernelLayout};
use linux::release::Release;
use stage1::testing::{Layout, TableBuilder};
use stage1::{Granule, Half, Regime};

/// xorshift64*.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A word that is often a leaf, often near others, and sometimes anything.
    pub fn word(&mut self) -> u64 {
        let word = self.next();
        match word % 8 {
            0 => 0,
            1 => word,
            2 => word & !3,
            3 => (word & 0x0fff_0000_0000_0fff) | 3,
            4 => (word & !0xffff_ffff_f000) | PA | 1,
            _ => PA | (word & 0xf_f000) | (word & 0x07f8_0000_0000_0fc0) | 3,
        }
    }
}

#[test]
fn nothing_panics() {
    let mut random = Random(0x00f0_110a_5c0e_2024);
    for round in 0..8 {
        for mut guest in Guest::all() {
            for _ in 0..200 {
                let offset = random.next() % (8 * guest.block);
                let va = (VA + offset) / guest.page * guest.page;
                guest.tables.poke(va, 3, random.word());
            }
            if round % 4 == 0 {
                let word = random.word();
                guest.tables.poke(VA + (1 << 36), 2, word);
            }
            guest.record(
                VA + guest.page * (random.next() % 64),
                (random.next() % 6) as u8,
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
                let va = 0u64.wrapping_sub((1 + random.next() % 4096) * granule.bytes());
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
