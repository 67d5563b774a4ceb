// SPDX-License-Identifier: GPL-2.0-only
//! A table in a trace: runs of zeros, of words that go up by one step, and of others.

use super::number::{put as number, zigzag};

/// Minimum number of words that are written as a run.
const RUN: usize = 3;

/// Appends it: address over 8, number of words, runs.
pub(super) fn put(out: &mut Vec<u8>, address: u64, words: &[u64]) {
    number(out, address / 8);
    number(out, words.len() as u64);
    let mut rest = words;
    let mut last = 0_u64;
    while !rest.is_empty() {
        let zeros = rest.iter().take_while(|word| **word == 0).count();
        number(out, zeros as u64);
        rest = &rest[zeros..];
        let even = steps(last, rest);
        if even >= RUN {
            number(out, (even as u64) << 1 | 1);
            number(out, zigzag(rest[0].wrapping_sub(last)));
            last = rest[even - 1];
            rest = &rest[even..];
            continue;
        }
        let others = others(last, rest);
        number(out, (others as u64) << 1);
        for word in &rest[..others] {
            number(out, zigzag(word.wrapping_sub(last)));
            last = *word;
        }
        rest = &rest[others..];
    }
}

/// Returns how many of the first words go up by the first one's step; none that is 0.
fn steps(last: u64, words: &[u64]) -> usize {
    let Some(first) = words.first() else { return 0 };
    let step = first.wrapping_sub(last);
    let mut expected = *first;
    let mut goes = |word: &&u64| {
        let same = **word == expected && expected != 0;
        expected = expected.wrapping_add(step);
        same
    };
    words.iter().take_while(|word| goes(word)).count()
}

/// Returns how many of the first words are neither 0 nor the first of a run.
fn others(last: u64, words: &[u64]) -> usize {
    let mut last = last;
    let ends = words.iter().enumerate().position(|(at, word)| {
        let ends = *word == 0 || at > 0 && steps(last, &words[at..]) >= RUN;
        last = *word;
        ends
    });
    ends.unwrap_or(words.len())
}
