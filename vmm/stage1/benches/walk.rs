//! Descriptors per second of the walk with all architecture rules, beside merely summing the
//! words of the same tables. Prints one line of JSON per scenario: best and median of N.

use std::hint::black_box;
use std::time::{Duration, Instant};

use stage1::testing::{Attributes, Layout, TableBuilder};
use stage1::{check, walk, Descend, Granule, Half, PhysMemory, Regime, Table, Visitor};

/// 4 GiB of 4K pages: 2048 full tables.
const PAGES: u64 = 1 << 20;
const ROUNDS: usize = 41;

/// How the pages are mapped.
#[derive(Clone, Copy)]
enum Scenario {
    /// All of them in contiguous groups.
    Folded,
    /// None.
    Unfolded,
    /// Groups, single pages and holes in turn, with AF and the dirty state differing.
    Mixed,
    /// Folded, but in each table one group lost a member's bit: 2048 violations.
    Broken,
}

fn tables(scenario: Scenario) -> TableBuilder {
    let mut tables = TableBuilder::new(Layout::new(Granule::K4, Half::Lower, 48).hardware_dirty());
    let attributes = Attributes::default();
    let pa = 0x1_0000_0000;
    for page in 0..PAGES {
        let (block, member) = (page / 16, page % 16);
        let contiguous = match scenario {
            Scenario::Folded => true,
            Scenario::Unfolded => false,
            Scenario::Mixed => match block % 4 {
                0 | 1 => true,
                2 if member > 11 => continue,
                _ => false,
            },
            Scenario::Broken => page % 512 != 77,
        };
        let mixed = matches!(scenario, Scenario::Mixed);
        let attributes = Attributes {
            af: !mixed || page % 3 != 0,
            ap: if mixed && page % 5 == 0 { 0b11 } else { 0b01 },
            ..attributes
        };
        tables.map_page(page << 12, pa + (page << 12), attributes, contiguous);
    }
    tables
}

/// Where the tables are, so that they can be summed without walking.
#[derive(Default)]
struct Collect<'m>(Vec<&'m [u64]>);

impl<'m> Visitor<'m> for Collect<'m> {
    fn table(&mut self, table: &Table<'m>) -> Descend {
        self.0.push(table.words);
        Descend::Into
    }
}

#[inline(always)]
fn sum(tables: &[&[u64]]) -> u64 {
    let mut lanes = [0_u64; 16];
    for words in tables {
        for part in words.chunks_exact(16) {
            for (lane, word) in lanes.iter_mut().zip(part) {
                *lane = lane.wrapping_add(*word);
            }
        }
    }
    lanes.iter().fold(0, |all, lane| all.wrapping_add(*lane))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
// SAFETY: for the caller to see to: the CPU has AVX2. The body is safe code.
unsafe fn sum_avx2(tables: &[&[u64]]) -> u64 {
    sum(tables)
}

fn best_sum(tables: &[&[u64]]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has AVX2.
        return unsafe { sum_avx2(tables) };
    }
    sum(tables)
}

fn time(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

fn best_and_median(mut times: Vec<Duration>) -> (f64, f64) {
    times.sort();
    (times[0].as_secs_f64(), times[times.len() / 2].as_secs_f64())
}

fn measure(name: &str, scenario: Scenario) {
    let builder = tables(scenario);
    let memory: &dyn PhysMemory = builder.memory();
    let regime = Regime::new(&builder.registers(), Half::Lower).expect("registers of the layout");
    let mut collect = Collect::default();
    let walked = walk(memory, &regime, regime.first, regime.last, &mut collect);
    assert!(walked.complete && walked.tables > PAGES / 512);

    let (mut sums, mut checks, mut violations) = (Vec::new(), Vec::new(), 0);
    // In turn, so that a slow moment of the machine falls on both.
    for _ in 0..ROUNDS {
        sums.push(time(|| {
            black_box(best_sum(black_box(&collect.0)));
        }));
        checks.push(time(|| {
            let mut sink = |violation| drop(black_box(violation));
            let summary = check(memory, &regime, regime.first, regime.last, &mut sink);
            violations = black_box(summary).violations;
        }));
    }
    let descriptors = walked.descriptors as f64;
    let (sum, sum_median) = best_and_median(sums);
    let (check, check_median) = best_and_median(checks);
    println!(
        "{{\"bench\":\"stage1\",\"scenario\":\"{name}\",\"descriptors\":{},\"tables\":{},\
         \"violations\":{violations},\"check_per_second\":{:.0},\"sum_per_second\":{:.0},\
         \"ratio\":{:.2},\"ratio_of_medians\":{:.2}}}",
        walked.descriptors,
        walked.tables,
        descriptors / check,
        descriptors / sum,
        check / sum,
        check_median / sum_median,
    );
}

fn main() {
    measure("folded", Scenario::Folded);
    measure("unfolded", Scenario::Unfolded);
    measure("mixed", Scenario::Mixed);
    measure("broken", Scenario::Broken);
}
