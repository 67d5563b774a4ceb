// SPDX-License-Identifier: GPL-2.0-only
//! A process of many VMAs and many pages under all rules, and the growth: four times as many should take four times
//! as long.

use std::time::Instant;

use linux::order::OrderRecords;
use linux::release::Release;
use linux::vma::parse_maps;
use serde_json::json;
use stage1::testing::{Attributes, Layout, TableBuilder};
use stage1::{Granule, Half, Regime};
use verdict::{judge, judge_sharing, Expectation, Expected, NotKnown, Process, ProcessInput};

use super::row::{Row, Target, Times};
use super::Progress;
use crate::Error;

static MADE_UP: NotKnown = NotKnown::never("a made-up process has none");
const ROUNDS: usize = 5;
const VMAS: u64 = 60_000;
/// 1.02 million pages in all.
const PAGES_EACH: u64 = 17;
const FIRST: u64 = 0x4000_0000;
const PAGE: u64 = 4096;
/// Distance from one VMA to the next, with a gap between.
const STRIDE: u64 = 32 * PAGE;

pub fn measure(progress: &Progress) -> Result<Vec<Row>, Error> {
    progress.say("all rules, a quarter of the VMAs");
    let quarter = time(VMAS / 4)?;
    progress.say("all rules, 60,000 VMAs and a million pages");
    let whole = time(VMAS)?;
    let pages = VMAS * PAGES_EACH;
    let detail = json!({
        "vmas": VMAS,
        "pages": pages,
        "whole": whole.detail(),
        "quarter": quarter.detail(),
    });
    Ok(vec![
        Row {
            name: "all rules, 60,000 VMAs".into(),
            value: pages as f64 / whole.best(),
            unit: "pages/s",
            target: Target::AtLeast(1e6),
            method: format!(
                "judge and judge_sharing, {pages} pages, an expectation for each VMA, best of {ROUNDS}"
            ),
            detail: detail.clone(),
        },
        Row {
            name: "  to a quarter of them".into(),
            value: whole.best() / quarter.best(),
            unit: "x",
            target: Target::AtMost(6.0),
            method: "4 where the time is that of the entries, 16 where every pair is looked at".into(),
            detail,
        },
    ])
}

fn time(vmas: u64) -> Result<Times, Error> {
    let mut tables = TableBuilder::at(Layout::new(Granule::K4, Half::Lower, 48), 0x8_0000_0000);
    let (mut maps, mut expectations) = (String::new(), Vec::new());
    for vma in 0..vmas {
        let start = FIRST + vma * STRIDE;
        let end = start + PAGES_EACH * PAGE;
        maps += &format!("{start:x}-{end:x} rw-p 00000000 00:00 0 \n");
        for page in 0..PAGES_EACH {
            // No two pages are neighbours in physical memory.
            let pa = (1 << 40) + (vma * PAGES_EACH + page) * 2 * PAGE;
            tables.map_page(start + page * PAGE, pa, Attributes::default(), false);
        }
        let what = Expected::Written;
        expectations.push(Expectation { start, end, what });
    }
    let regime = Regime::new(&tables.registers(), Half::Lower)?;
    let vmas = parse_maps(&maps).map_err(|error| Error::Input(error.to_string()))?;
    let process = Process {
        pid: 1,
        name: "bench".into(),
    };
    let input = ProcessInput {
        process: &process,
        regime: &regime,
        vmas: &vmas,
        orders: Some(&OrderRecords::default()),
        expectations: &expectations,
        release: Some(Release::new(6, 12, 117)),
        contpte: Some(true),
        structures: Err(&MADE_UP),
    };
    let times = (0..ROUNDS).map(|_| {
        let start = Instant::now();
        let mut verdicts = [judge(tables.memory(), &input)];
        judge_sharing(tables.memory(), &[regime], &mut verdicts);
        let took = start.elapsed();
        assert_eq!(verdicts[0].errors(), 0, "a good process has no error");
        took
    });
    Ok(Times::new(times.collect::<Vec<_>>()))
}
