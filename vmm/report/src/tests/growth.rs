// SPDX-License-Identifier: GPL-2.0-only
//! Nothing is quadratic: four times the process takes about four times as long, whatever there is many of.

use crate::map::{draw, MapOptions};
use verdict::testing::guest::*;
use verdict::{judge_sharing, Expected};

/// Time that this thread has run, in ns; sleeping and waiting for a CPU do not count.
fn ran() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// As many VMAs of a block each, with a gap between each two. No page goes on where the last one ends, every VMA has
/// an order record and two expectations, every other one is broken.
fn scattered(vmas: u64) -> Guest {
    let mut guest = Guest::new();
    let stride = 2 * guest.block;
    let line = |n: u64| {
        let start = VA + n * stride;
        format!(
            "{start:x}-{:x} rw-p 00000000 00:00 0 [anon:{n}]\n",
            start + guest.block
        )
    };
    let maps: String = (0..vmas).map(line).collect();
    let (block, page) = (guest.block, guest.page);
    guest = guest.maps(&maps);
    for n in 0..vmas {
        let start = VA + n * stride;
        for at in 0..16 {
            let pa = PA + (n * 16 + at) * 2 * page;
            let broken = if n % 2 == 0 && at == 3 { RDONLY } else { 0 };
            guest
                .tables
                .map_page(start + at * page, pa, written(), false);
            guest
                .tables
                .change(start + at * page, 3, |word| word | broken);
        }
        guest.record(start + 5 * page, 0);
        guest.expect(Expected::FreshlyFaulted, start, start + block);
        guest.expect(Expected::Written, start, start + block);
    }
    guest
}

/// The shortest of three times that judging and drawing took.
fn judged(guest: &Guest, vmas: u64) -> u64 {
    let regime = guest.regime();
    let once = |_| {
        let before = ran();
        let mut verdicts = [guest.judge(), guest.judge()];
        judge_sharing(guest.tables.memory(), &[regime, regime], &mut verdicts);
        assert_eq!(verdicts[0].errors(), vmas / 2);
        verdicts[0].gather();
        let mut out = Vec::new();
        draw(&mut out, &verdicts[0], &MapOptions::default()).unwrap();
        ran() - before
    };
    (0..3).map(once).min().unwrap()
}

#[test]
fn four_times_the_vmas_take_no_more_than_eight_times_as_long() {
    let (few, many) = (1500, 6000);
    let small = judged(&scattered(few), few);
    let large = judged(&scattered(many), many);
    // A pass over all pairs takes sixteen times as long.
    assert!(
        large < 8 * small.max(1_000_000),
        "{few} VMAs: {small} ns, {many} VMAs: {large} ns"
    );
}
