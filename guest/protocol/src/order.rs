//! The order in which a range is touched.

use serde::{Deserialize, Serialize};

use crate::pattern;

/// The order of the steps of a touch. Step `i` of a range is at `address + i * stride`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Order {
    /// From the first step to the last.
    #[default]
    Forward,
    /// From the last step to the first.
    Backward,
    /// Every step once, in an order that depends on the seed alone.
    Random {
        /// The seed.
        seed: u64,
    },
    /// Exactly these steps; a step may come more than once.
    List {
        /// Their indexes.
        steps: Vec<u64>,
    },
}

impl Order {
    /// Returns how many steps a range of `count` steps takes in this order.
    pub fn len(&self, count: u64) -> u64 {
        match self {
            Self::List { steps } => steps.len() as u64,
            Self::Forward | Self::Backward | Self::Random { .. } => count,
        }
    }

    /// Returns whether nothing would be touched.
    pub fn is_empty(&self, count: u64) -> bool {
        self.len(count) == 0
    }

    /// Returns the step at place `i` of a range of `count` steps. It needs no memory of its own, so that a workload can
    /// follow it without growing its heap.
    pub fn step(&self, i: u64, count: u64) -> u64 {
        match self {
            Self::Forward => i,
            Self::Backward => count - 1 - i,
            Self::Random { seed } => permute(i, count, *seed),
            Self::List { steps } => steps[i as usize],
        }
    }
}

/// Permutes `0..count`: a Feistel network over the next even number of bits, whose results beyond the range are
/// permuted again until they are within.
fn permute(i: u64, count: u64, seed: u64) -> u64 {
    let half = (64 - count.saturating_sub(1).leading_zeros())
        .div_ceil(2)
        .max(1);
    let mask = (1u64 << half) - 1;
    let mut at = i;
    loop {
        let (mut left, mut right) = (at >> half, at & mask);
        for round in 0..4 {
            let mixed = pattern(right, seed.wrapping_add(round)) & mask;
            (left, right) = (right, left ^ mixed);
        }
        at = left << half | right;
        if at < count {
            return at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(order: &Order, count: u64) -> Vec<u64> {
        (0..order.len(count))
            .map(|i| order.step(i, count))
            .collect()
    }

    #[test]
    fn plain_orders() {
        assert_eq!(steps(&Order::Forward, 3), [0, 1, 2]);
        assert_eq!(steps(&Order::Backward, 3), [2, 1, 0]);
        assert_eq!(steps(&Order::List { steps: vec![5, 5] }, 9), [5, 5]);
        assert!(Order::Forward.is_empty(0));
    }

    #[test]
    fn random_is_a_permutation_that_the_seed_decides() {
        for count in [1, 2, 3, 16, 17, 100, 1000, 4096] {
            let order = steps(&Order::Random { seed: 7 }, count);
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..count).collect::<Vec<_>>(), "{count}");
            assert_eq!(order, steps(&Order::Random { seed: 7 }, count));
            if count >= 16 {
                assert_ne!(order, steps(&Order::Random { seed: 8 }, count));
                assert_ne!(order, sorted);
            }
        }
    }
}
