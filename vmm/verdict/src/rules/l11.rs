//! L11: a folio that was just faulted in is whole and aligned.

use linux::order::OrderRecord;
use stage1::{PhysMemory, Regime};

use super::{group_at, Need, Releases, Rule, RuleId, Tier};
use crate::group::Group;

pub(super) const RULE: Rule = Rule {
    id: RuleId::L11,
    title: "a fresh anonymous folio is whole and naturally aligned",
    asserts: "A folio that was just faulted in is mapped whole, consecutive, and aligned to its size in virtual and \
              physical address. Only where an order record names the folio and the checkpoint calls the range \
              `freshly-faulted`: mremap, partial unmapping, copy on write and migration break it legally later.",
    tier: Tier::Linux,
    sources: &["mm/memory.c, alloc_anon_folio(), do_anonymous_page()"],
    needs: &[Need::Records, Need::Expectations],
    releases: Releases::PINNED,
    known: &[],
    synthetic: &["l11_a_fresh_folio_that_is_torn_or_misaligned"],
    live: &["test_l11_fresh_folio"],
};

/// On one folio: the group and the sentence where it is broken.
pub(super) fn whole<'m, M: PhysMemory + ?Sized>(
    memory: &'m M,
    regime: &'m Regime,
    record: &OrderRecord,
    (start, size): (u64, u64),
) -> Result<Option<(Group<'m>, String)>, String> {
    let order = record.chosen.unwrap_or(0);
    let page = regime.granule.bytes();
    let mut base = None;
    let mut va = start;
    while va < start + size {
        let group = group_at(memory, regime, va)?;
        let at = ((va - group.va) / group.step()) as usize;
        let word = group.words[at];
        if !group.is_leaf(word) {
            let message = format!(
                "the record says order {order} at VA 0x{start:016x}, and the page at 0x{va:016x} \
                 is not mapped: all {} pages must be",
                size / page
            );
            return Ok(Some((group, message)));
        }
        let found = group.output(word) + (va - group.va_of(at));
        let folio = found.wrapping_sub(va - start);
        let expected = *base.get_or_insert(folio);
        if folio != expected || expected % size != 0 {
            let message = format!(
                "the record says order {order} at VA 0x{start:016x}, and the page at 0x{va:016x} \
                 is at physical 0x{found:x}: all pages must be in one range that is aligned to {size:#x}"
            );
            return Ok(Some((group, message)));
        }
        va += page;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use crate::tests::guest::*;
    use crate::{Expected, RuleId};

    #[test]
    fn l11_a_fresh_folio_that_is_torn_or_misaligned() {
        for chosen in [2u8, 4] {
            let mut guest = Guest::new();
            match chosen {
                4 => guest.fold(0, written()),
                _ => guest.spread(0, written()),
            }
            guest.record(VA + 0x2000, chosen);
            // Nothing is asserted until the checkpoint says that the range is fresh.
            guest.change(1, |word| word + (0x100 << 12));
            guest.change(1, |word| word & !CONT);
            guest.expectations.clear();
            let before = guest.errors();
            guest.expect(Expected::FreshlyFaulted, VA, VA + 0x1_0000);
            let mut errors = guest.errors();
            errors.retain(|rule| !before.contains(rule));
            assert_eq!(errors, [RuleId::L11], "order {chosen}");
        }
        // Consecutive, and not aligned: order 2 at a physical address that is a multiple of 8K.
        let mut guest = Guest::new();
        for at in 0..4 {
            guest
                .tables
                .map_page(VA + at * 4096, PA + 0x2000 + at * 4096, written(), false);
        }
        guest.expect(Expected::FreshlyFaulted, VA, VA + 0x4000);
        guest.assert_legal();
        guest.record(VA, 2);
        assert_eq!(guest.errors(), [RuleId::L11]);
    }
}
