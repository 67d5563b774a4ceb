// SPDX-License-Identifier: GPL-2.0-only
//! Counts of each decision, which outlast the ring's records.

use schemars::JsonSchema;
use serde::Serialize;

use super::decode::{PATHS, POLICIES, REASONS};
use super::{Path, Policy, Reason, ORDERS};

/// "ao_count" as bytes, the first word.
const MAGIC: u64 = 0x746e_756f_635f_6f61;
/// Bytes of `struct anon_order_counts` before the counts: the magic and four dimensions.
pub const HEADER: u64 = 16;

/// Faults whose orders were decided alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Decision {
    /// The policy in force.
    pub policy: Policy,
    /// The kernel path that decided.
    pub path: Path,
    /// The order of the folio; `None` where the fault ended without one.
    pub chosen: Option<u8>,
    /// The result for the order that the policy would prefer.
    pub why: Reason,
    /// Number of faults.
    pub count: u64,
}

/// The table of one CPU (`struct anon_order_counts`, include/linux/anon_order.h of the patches), in its own words: policies,
/// paths, orders with "none" as the last, reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dimensions([usize; 4]);

impl Dimensions {
    /// Decodes the table's first [`HEADER`] bytes.
    ///
    /// # Errors
    /// If it is no such table, or has a value that this program does not know.
    pub fn decode(header: [u8; HEADER as usize]) -> Result<Self, String> {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| header[at + byte]));
        if word(0) != MAGIC {
            let magic = word(0);
            return Err(format!("its magic is {magic:#x}, {MAGIC:#x} expected"));
        }
        let found: [usize; 4] = std::array::from_fn(|at| (word(8) >> (16 * at)) as usize & 0xffff);
        let most = [POLICIES.len(), PATHS.len(), ORDERS + 1, REASONS.len()];
        // The table has one order more than this program, so its number must be exactly this.
        let known = found
            .iter()
            .zip(most)
            .all(|(&found, most)| (1..=most).contains(&found));
        match known && found[2] == most[2] {
            true => Ok(Self(found)),
            false => Err(format!(
                "it counts by {found:?} policies, paths, orders and reasons, and this program knows {most:?}"
            )),
        }
    }

    /// Returns the number of counts, of 8 bytes each.
    #[must_use]
    pub fn cells(self) -> usize {
        self.0.iter().product()
    }

    /// Returns what was counted, from the sum over all CPUs of each cell.
    #[must_use]
    pub fn decisions(self, cells: &[u64]) -> Vec<Decision> {
        let [_, paths, orders, reasons] = self.0;
        let counted = cells.iter().enumerate().filter(|(_, &count)| count > 0);
        counted
            .map(|(at, &count)| {
                let (at, why) = (at / reasons, REASONS[at % reasons]);
                let (at, chosen) = (at / orders, at % orders);
                Decision {
                    policy: POLICIES[at / paths],
                    path: PATHS[at % paths],
                    chosen: (chosen < ORDERS).then_some(chosen as u8),
                    why,
                    count,
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(dimensions: [u16; 4]) -> [u8; 16] {
        let mut bytes = *b"ao_count\0\0\0\0\0\0\0\0";
        for (at, dimension) in dimensions.iter().enumerate() {
            bytes[8 + 2 * at..10 + 2 * at].copy_from_slice(&dimension.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn a_cell_is_policy_path_order_reason() {
        let all = Dimensions::decode(header([6, 8, 17, 21])).unwrap();
        assert_eq!(all.cells(), 6 * 8 * 17 * 21);
        let mut cells = vec![0; all.cells()];
        let at = |policy: usize, path: usize, order: usize, reason: usize| {
            ((policy * 8 + path) * 17 + order) * 21 + reason
        };
        cells[at(3, 0, 4, 1)] = 7;
        cells[at(4, 7, 16, 9)] = 1;
        let expected = [
            Decision {
                policy: Policy::Variable,
                path: Path::Anonymous,
                chosen: Some(4),
                why: Reason::Chosen,
                count: 7,
            },
            Decision {
                policy: Policy::Retry,
                path: Path::SwapIn,
                chosen: None,
                why: Reason::Raced,
                count: 1,
            },
        ];
        assert_eq!(all.decisions(&cells), expected);
    }

    #[test]
    fn an_older_kernel_may_count_less() {
        let few = Dimensions::decode(header([2, 1, 17, 3])).unwrap();
        let mut cells = vec![0; few.cells()];
        cells[(17 + 2) * 3 + 2] = 5;
        let [only] = few.decisions(&cells)[..] else {
            panic!("one cell is not 0");
        };
        assert_eq!(
            (only.policy, only.path, only.chosen, only.why, only.count),
            (
                Policy::Baseline,
                Path::Anonymous,
                Some(2),
                Reason::NotAllowed,
                5
            )
        );
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for wrong in [
            [7, 8, 17, 21],
            [6, 9, 17, 21],
            [6, 8, 18, 21],
            [6, 8, 16, 21],
            [6, 8, 17, 22],
            [0, 8, 17, 21],
        ] {
            let said = Dimensions::decode(header(wrong)).unwrap_err();
            assert!(said.contains("this program knows [6, 8, 17, 21]"), "{said}");
        }
        let said = Dimensions::decode([0; 16]).unwrap_err();
        assert!(said.contains("its magic is 0x0"), "{said}");
    }
}
