//! Policy `adaptive`: what the patched kernel remembers of a VMA, and why it left an order out (`adapt_to()`, mm/anon_order.c).

use super::{OrderRecord, Policy, Reason};

/// `ADAPT_RAISE`: so many faults in a row raise the order.
const RAISE: u8 = 4;
/// `ADAPT_LOWER`: so many scattered ones lower it.
const LOWER: u8 = 4;
/// `ADAPT_ORDER`, `ADAPT_RUN`, `ADAPT_SCATTER`: shift and mask.
const ORDER: (u32, u64) = (0, 0xf);
const RUN: (u32, u64) = (4, 3);
const SCATTERED: (u32, u64) = (6, 3);
/// `ADAPT_HINTED` and `ADAPT_KNOWN`.
const HINTED: u64 = 1 << 8;
const KNOWN: u64 = 1 << 9;

/// What is remembered of a VMA: `vm_area_struct.anon_order_state`, one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// The order to be tried next.
    pub order: u8,
    /// Faults in a row until now.
    pub run: u8,
    /// Scattered faults until now.
    pub scattered: u8,
    /// The VMA was hinted at the last fault.
    pub hinted: bool,
    /// The page of the last fault, by its address.
    pub last: u64,
}

impl State {
    /// Decodes the word; `None` where there was no fault yet. `page` is in bytes.
    pub fn decode(word: u64, page: u64) -> Option<State> {
        let field = |(shift, mask): (u32, u64)| (word >> shift & mask) as u8;
        (word & KNOWN != 0).then(|| State {
            order: field(ORDER),
            run: field(RUN),
            scattered: field(SCATTERED),
            hinted: word & HINTED != 0,
            last: word & !(page - 1),
        })
    }

    /// For people.
    pub fn text(self) -> String {
        let State {
            order,
            run,
            scattered,
            last,
            ..
        } = self;
        let hinted = if self.hinted { "hinted" } else { "not hinted" };
        format!(
            "order {order} is next, {run} of {RAISE} faults in a row, {scattered} of {LOWER} scattered, {hinted}, last fault in the page at {last:#x}"
        )
    }
}

impl OrderRecord {
    /// Why policy `adaptive` left an allowed order out; `None` for other policies, and where it did not.
    pub fn adaptive_reason(&self, order: u8, page: u64) -> Option<String> {
        let left_out = |order: u8| self.reasons[usize::from(order)] == Reason::Policy;
        if self.policy != Policy::Adaptive || !left_out(order) {
            return None;
        }
        let pages = (self.vm_end - self.vm_start) / page;
        let (most, what) = match self.hinted {
            true => (pages, "the VMA"),
            false => ((pages / 4).max(1), "a quarter of a VMA that is not hinted"),
        };
        if 1 << order > most {
            return Some(format!("it would be larger than {what} ({most} pages)"));
        }
        let allowed = self.allowed.as_ref()?.iter().copied();
        let tried = allowed.filter(|order| !left_out(*order)).max().unwrap_or(0);
        Some(format!(
            "in this VMA it was at order {tried}, which {RAISE} faults in a row raise and {LOWER} scattered ones lower"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_a_vma() {
        assert_eq!(State::decode(0, 4096), None);
        // adapt_to(): page | KNOWN | HINTED | scattered << 6 | run << 4 | order.
        let word = 0xffff_f7c0_5000 | 1 << 9 | 1 << 8 | 2 << 6 | 1 << 4 | 3;
        let state = State::decode(word, 4096).unwrap();
        assert_eq!((state.order, state.run, state.scattered), (3, 1, 2));
        assert_eq!((state.hinted, state.last), (true, 0xffff_f7c0_5000));
        assert_eq!(
            state.text(),
            "order 3 is next, 1 of 4 faults in a row, 2 of 4 scattered, hinted, last fault in the page at 0xfffff7c05000"
        );
    }
}
