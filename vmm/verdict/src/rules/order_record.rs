// SPDX-License-Identifier: GPL-2.0-only
//! L11: a folio that was just faulted in is whole and aligned.

use linux::order::OrderRecord;
use linux::pte::Pte;

use crate::check::{Check, FreshFolio, Told};
use crate::group::group_at;
use crate::rules::rule::{Identity, Need, OnBreak, Releases, Rule, Tier};

pub(crate) static RULE: Rule = Rule {
    name: "L11",
    title: "a fresh anonymous folio is whole and naturally aligned",
    asserts: "A folio that was just faulted in is mapped whole, consecutive, and aligned to its size in virtual and \
              physical address. Only where an order record names the folio and the checkpoint calls the range \
              `freshly-faulted`; where the kernel's own pages are known that folio is the one: anonymous, of the recorded \
              order, and its first page is mapped first; where the record of a large folio names a page frame whose folio still \
              is that place's, it is that one. A larger one is left alone: khugepaged may have made it meanwhile. Records older \
              than one that was overwritten are left alone. \
              Folios that no record names are not judged: mremap, partial unmapping, copy on write and migration break them legally \
              later. Of each large folio that a first write to anonymous memory, a write to the zero page, a copy on write, a fault \
              on shmem or a swap-in was given, fresh or not, the record itself says an order that was allowed there, and a range that lies within the VMA of that time.",
    tier: Tier::Linux,
    sources: &["mm/memory.c, alloc_anon_folio(), do_anonymous_page()"],
    needs: &[Need::Records.all(), Need::Expectations.all()],
    releases: Releases::PATCHED,
    known: &[],
    identity: Identity::Words,
    on_break: OnBreak::Ends,
    checks: &[Check::Record(decision),
        Check::Fresh(fresh)],
    synthetic: &[
        "l11_a_fresh_folio_that_is_torn_or_misaligned",
        "l11_a_fresh_folio_of_another_order",
        "l11_a_folio_that_the_record_does_not_name",
        "l11_a_decision_that_cannot_be",
    ],
    live: &["test_l11_fresh_folio", "test_l11_folio_of_another_order"],
};

/// On what a record says of a folio and of the place that it was chosen for: the sentence where both cannot be true.
fn decision(record: &OrderRecord, (start, size): (u64, u64)) -> Option<String> {
    let order = record.chosen.filter(|&order| order > 0)?;
    let allowed = record.allowed.as_ref()?;
    let (first, end) = (record.vm_start, record.vm_end);
    if !allowed.contains(&order) {
        return Some(format!(
            "the record says order {order} at VA 0x{start:016x} ({}), and that only {allowed:?} were allowed there: the order of a \
             large folio must be one of those",
            record.path.words()
        ));
    }
    let within = start >= first && start.saturating_add(size) <= end;
    (!within).then(|| {
        format!(
            "the record says order {order} at VA 0x{start:016x} ({}), and that the VMA was 0x{first:016x}-0x{end:016x}: all of a large \
             folio's {size:#x} bytes must lie within it",
            record.path.words()
        )
    })
}

/// On one folio that was just faulted in: whether it is mapped whole, and the one that the record names.
fn fresh(seen: &FreshFolio<'_>) -> Told {
    let mut told = Told::default();
    let range = seen.start..seen.start + seen.size;
    let found = match whole(seen) {
        Ok(None) => folio(seen).map(|message| (seen.start, message)),
        Ok(found) => found,
        Err(why) => {
            let why = format!("folio at VA 0x{:016x}: {why}", seen.start);
            told.not_judged.push(why);
            None
        }
    };
    told.broken
        .extend(found.map(|(va, message)| (va, range, message)));
    told
}

/// On one folio: the address and the sentence where it is broken.
fn whole(seen: &FreshFolio<'_>) -> Result<Option<(u64, String)>, String> {
    let (start, size, regime) = (seen.start, seen.size, seen.input.regime);
    let order = seen.record.chosen.unwrap_or(0);
    let page = regime.granule.bytes();
    let mut base = None;
    let mut va = start;
    while va < start + size {
        let group = group_at(seen.memory, regime, va)?;
        let at = ((va - group.va) / group.step()) as usize;
        let word = group.words[at];
        if !group.is_leaf(word) {
            let message = format!(
                "the record says order {order} at VA 0x{start:016x}, and the page at 0x{va:016x} \
                 is not mapped: all {} pages must be",
                size / page
            );
            return Ok(Some((va, message)));
        }
        let found = group.output(word) + (va - group.va_of(at));
        let folio = found.wrapping_sub(va - start);
        let expected = *base.get_or_insert(folio);
        if folio != expected || expected % size != 0 {
            let message = format!(
                "the record says order {order} at VA 0x{start:016x}, and the page at 0x{va:016x} \
                 is at physical 0x{found:x}: all pages must be in one range that is aligned to {size:#x}"
            );
            return Ok(Some((va, message)));
        }
        va += page;
    }
    Ok(None)
}

/// On one folio that is mapped whole: the sentence where it is not the one that the record names.
fn folio(seen: &FreshFolio<'_>) -> Option<String> {
    let (input, record, start) = (seen.input, seen.record, seen.start);
    let structures = input.structures.ok()?;
    let group = group_at(seen.memory, input.regime, start).ok()?;
    let at = ((start - group.va) / group.step()) as usize;
    let word = group.words[at];
    // The zero page, which KSM and the split of a folio may put in place of one that is all zeroes.
    if Pte(word).special() {
        return None;
    }
    let first = group.output(word) + (start - group.va_of(at));
    let pfn = first / input.regime.granule.bytes();
    // What cannot be read, and what leads nowhere, is told of at its entry.
    let page = structures.folios.page(pfn).ok()?;
    let (order, anonymous) = (record.chosen.unwrap_or(0), page.kind.anonymous());
    // The folio of the record, where it has not been freed since: then it is this place's, and no other can be. Not so of a
    // single page: copy on write makes another of the same place and leaves no record, and the first may live on in a child.
    let recorded = record.pfn.filter(|&recorded| recorded != pfn && order > 0);
    let recorded = recorded.and_then(|recorded| structures.folios.page(recorded).ok());
    if let Some(kept) = recorded.filter(|kept| {
        kept.kind.anonymous()
            && (kept.head, kept.order) == (kept.pfn, order)
            && (kept.mapping, kept.index) == (page.mapping, page.index_of_page())
    }) {
        let message = format!(
            "the record says page frame 0x{:x} at VA 0x{start:016x}, which is still an anonymous folio of that place, and page frame \
             0x{pfn:x} is mapped there: nothing but the folio that was faulted in may be",
            kept.pfn
        );
        return Some(message);
    }
    let same = page.order == order && page.head == pfn;
    // collapse_huge_page() leaves no record.
    let larger = page.order > order;
    (!anonymous || !(same || larger)).then(|| {
        format!(
            "the record says order {order} at VA 0x{start:016x}, and page frame 0x{pfn:x} there is of a folio of order {} from 0x{:x} that is {}: it must be the first of an anonymous folio of order {order}",
            page.order,
            page.head,
            if anonymous { "anonymous" } else { "not anonymous" }
        )
    })
}

pub(super) static RULES: &[&Rule] = &[&RULE];

#[cfg(test)]
mod tests {
    use crate::testing::id;
    use linux::order::{OrderRecord, Path};

    use crate::tests::guest::*;
    use crate::Expected;

    #[test]
    fn l11_a_decision_that_cannot_be() {
        for (path, judged) in [
            (Path::Anonymous, true),
            (Path::Shmem, true),
            (Path::SwapIn, true),
            (Path::ZeroPage, true),
            (Path::Copy, true),
            (Path::Reuse, false),
        ] {
            let mut guest = Guest::new();
            guest.fold(0, written());
            guest.record(VA + 0x2000, 4);
            let found = |guest: &mut Guest, change: fn(&mut OrderRecord)| {
                let before = guest.orders.clone();
                let record = &mut guest.orders.as_mut().unwrap().records[0];
                (record.path, record.allowed) = (path, Some(vec![2, 3, 4]));
                change(record);
                let errors = guest.errors();
                guest.orders = before;
                errors
            };
            let wrong = if judged { vec![id("L11")] } else { vec![] };
            assert_eq!(found(&mut guest, |_| ()), []);
            assert_eq!(found(&mut guest, |it| it.allowed = None), []);
            assert_eq!(found(&mut guest, |it| it.allowed = Some(vec![2, 3])), wrong);
            assert_eq!(found(&mut guest, |it| it.vm_start = VA + 0x1000), wrong);
            assert_eq!(found(&mut guest, |it| it.vm_end = VA + 0xf000), wrong);
            // A single page is always allowed, and always fits.
            let single = |it: &mut OrderRecord| {
                (it.chosen, it.allowed) = (Some(0), Some(vec![]));
            };
            assert_eq!(found(&mut guest, single), []);
        }
    }

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
            assert_eq!(errors, [id("L11")], "order {chosen}");
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
        assert_eq!(guest.errors(), [id("L11")]);
    }
}
