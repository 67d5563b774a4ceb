// SPDX-License-Identifier: GPL-2.0-only
//! Measures the walk with all architecture rules, in descriptors per second, beside summing the words of the same
//! tables. Prints one line of JSON per scenario: best and median of N runs.

use std::hint::black_box;
use std::time::{Duration, Instant};

use stage1::testing::scenario::{sum, tables, Scenario};
use stage1::{check, Half, PhysMemory, Regime};

const ROUNDS: usize = 41;

fn time(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

fn best_and_median(mut times: Vec<Duration>) -> (f64, f64) {
    times.sort();
    (times[0].as_secs_f64(), times[times.len() / 2].as_secs_f64())
}

fn measure(scenario: Scenario) {
    let builder = scenario.build();
    let memory: &dyn PhysMemory = builder.memory();
    let regime = Regime::new(&builder.registers(), Half::Lower).expect("registers of the layout");
    let words = tables(memory, &regime);

    let (mut sums, mut checks, mut summary) = (Vec::new(), Vec::new(), None);
    // In turn, so that a slow moment of the machine affects both.
    for _ in 0..ROUNDS {
        sums.push(time(|| {
            black_box(sum(black_box(&words)));
        }));
        checks.push(time(|| {
            let mut sink = |violation| drop(black_box(violation));
            summary = Some(check(memory, &regime, regime.first, regime.last, &mut sink));
        }));
    }
    let summary = summary.expect("there are rounds");
    let descriptors = summary.descriptors as f64;
    let (sum, sum_median) = best_and_median(sums);
    let (check, check_median) = best_and_median(checks);
    println!(
        "{{\"bench\":\"stage1\",\"scenario\":\"{}\",\"descriptors\":{},\"tables\":{},\
         \"violations\":{},\"check_per_second\":{:.0},\"sum_per_second\":{:.0},\
         \"ratio\":{:.2},\"ratio_of_medians\":{:.2}}}",
        scenario.name(),
        summary.descriptors,
        summary.tables,
        summary.violations,
        descriptors / check,
        descriptors / sum,
        check / sum,
        check_median / sum_median,
    );
}

fn main() {
    Scenario::ALL.into_iter().for_each(measure);
}
