// SPDX-License-Identifier: GPL-2.0-only
//! Policy `adaptive`: the state that the patched kernel keeps of a VMA (`adapt_next()`, mm/anon_order.c).

use schemars::JsonSchema;
use serde::Serialize;

/// `ADAPT_EVERY`: one block in so many is a probe at first.
const EVERY: u32 = 4;
/// `ADAPT_SPEND`: the number of faults with nothing beside them after which a hinted VMA goes by the row.
const SPEND: u8 = 5;
/// `ADAPT_TRUST_MAX`, and `ADAPT_HINT`: the value of a hint, in dense probes, until it is spent.
const MOST: u8 = 4;
const HINT: u8 = 1;

/// The state of a VMA: `vm_area_struct.anon_order_trust`, one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct State {
    /// Number of dense probes since the last one that was not, at most 4. Each makes probes half as frequent.
    pub trust: u8,
    /// Number of faults of a hinted VMA without a neighbour, at most 5, less dense probes.
    pub spent: u8,
}

/// The input of policy `adaptive` in a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Adapted {
    /// Number of touched pages in a row right beside the fault, at most those of the largest order.
    pub run: u16,
    /// The state of the VMA after the fault.
    pub state: State,
    /// The fault was in a block that probes: only pages of this block counted.
    pub probe: bool,
}

impl State {
    /// Decodes the byte: `ADAPT_TRUST` and `ADAPT_SPENT`.
    #[must_use]
    pub fn decode(byte: u8) -> State {
        State {
            trust: byte & 7,
            spent: byte >> 3 & 7,
        }
    }

    /// Returns the state in words, for people.
    #[must_use]
    pub fn text(self, hinted: bool) -> String {
        let State { trust, spent } = self;
        let trusted = trust + u8::from(hinted && spent < SPEND) * HINT;
        let every = EVERY << trusted.min(MOST);
        let spent = match hinted {
            true => format!(", {spent} of {SPEND} faults with nothing beside them"),
            false => String::new(),
        };
        format!("one block in {every} is a probe ({trust} came out dense){spent}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_a_vma() {
        // ADAPT_TRUST is GENMASK(2, 0), ADAPT_SPENT GENMASK(5, 3).
        let state = State::decode(3 | 2 << 3);
        assert_eq!((state.trust, state.spent), (3, 2));
        assert_eq!(
            state.text(true),
            "one block in 64 is a probe (3 came out dense), 2 of 5 faults with nothing beside them"
        );
        assert_eq!(
            State::decode(0).text(false),
            "one block in 4 is a probe (0 came out dense)"
        );
    }
}
