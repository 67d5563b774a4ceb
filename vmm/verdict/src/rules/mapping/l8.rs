// SPDX-License-Identifier: GPL-2.0-only
//! L8 on one process: entries keep to their VMA. The half that looks across mappings is
//! [`super::l8_sharing`].

use linux::vma::Vma;

use super::l8_exclusive;
use crate::check::Check;
use crate::group::Group;
use crate::placement::{vma_at, Placement};
use crate::rules::rule::{Identity, Need, OnBreak, Releases, Rule, Tier};

pub(crate) static RULE: Rule = Rule {
    name: "L8",
    title: "entries keep to their VMA, and writable private pages to one mapping",
    asserts: "Entries of any kind only inside VMAs, swap entries and markers too; entries that EL0 may write only where the VMA allows it (special and \
              devmap entries excepted: their driver chose the protection), and the zero page nowhere; userfaultfd's bit only in VMAs that one protects; a page that is \
              writable in private memory is mapped nowhere else (special, devmap, pfnmap and hugetlb excepted), as far as processes were given; by its \
              folio it is anonymous, and exclusive to one mapping. A page that is exclusive is mapped no more than once, and \
              no swap entry leads to its slot in swap. In ranges that the checkpoint calls `exclusive`, no other mapping ever had the \
              anonymous pages, and each is exclusive: fork() alone and KSM take that away, and swap and migration bring it back.",
    tier: Tier::Linux,
    sources: &[
        "mm/memory.c, unmap_vmas() (ZAP_FLAG_DROP_MARKER), unmap_page_range(), maybe_mkwrite()",
        "include/linux/userfaultfd_k.h, vma_has_uffd_without_event_remap(); mm/userfaultfd.c, userfaultfd_clear_vma()",
        "include/linux/page-flags.h, PageAnonExclusive()",
        "mm/rmap.c, __folio_add_anon_rmap()",
        "mm/memory.c, do_anonymous_page(), do_swap_page()",
        "include/linux/rmap.h, __folio_try_share_anon_rmap(); mm/migrate.c, remove_migration_pte()",
    ],
    needs: &[Need::Vmas.all(), Need::VmFlags.half("folios"), Need::Processes.less(), Need::Folios.half("folios")],
    releases: Releases::WIDELY,
    known: &[],
    identity: Identity::Words,
    on_break: OnBreak::GoesOnAndVoidsCounts,
    checks: &[Check::Placement(placed),
        Check::Entry(l8_exclusive::check),
        Check::Page(l8_exclusive::page),
        Check::Exclusive(l8_exclusive::alone),
        Check::Elsewhere("`judge_sharing()` (across processes)")],
    synthetic: &[
        "l8_outside_every_vma",
        "l8_left_outside_every_vma",
        "l8_writable_where_the_vma_is_not",
        "l8_a_zero_page_that_may_be_written",
        "l8_userfaultfds_bit_where_none_protects",
        "a_page_that_one_may_write_and_the_other_maps",
        "one_process_that_maps_a_writable_page_twice",
        "l8_a_writable_page_that_is_not_exclusive",
        "l8_an_exclusive_page_that_is_mapped_twice",
        "l8_an_exclusive_page_that_another_has_in_swap",
        "l8_a_page_that_is_not_exclusive_any_more",
    ],
    live: &[
        "test_l8_outside_every_vma",
        "test_l8_outside_by_unmapping",
        "test_l8_left_by_unmapping",
        "test_l8_writable_in_readonly_area",
        "test_l8_page_written_by_two",
        "test_l8_page_that_is_not_exclusive",
        "test_l8_zero_page_that_may_be_written",
        "test_l8_exclusive_page_of_two",
        "test_l8_exclusive_page_in_swap",
        "test_l8_page_that_was_exclusive",
    ],
};

/// Returns what its VMAs do not allow in one group: the first place, and a sentence with the number of places.
fn placed(group: &Group<'_>, placement: &Placement, vmas: &[Vma]) -> Vec<(usize, String)> {
    let outside = placement.outside.map(|(first, count)| {
        let message = format!(
            "{count} present entries from VA 0x{:016x} on lie outside every VMA: there must be none",
            group.va_of(first)
        );
        (first, message)
    });
    let left = placement.left.map(|(first, count)| {
        let message = format!(
            "{count} entries that are not present from VA 0x{:016x} on lie outside every VMA: who unmaps a range leaves \
             none, no swap entry and no marker",
            group.va_of(first)
        );
        (first, message)
    });
    let writable = placement.writable.map(|(first, count)| {
        let va = group.va_of(first);
        let message = format!(
            "{count} entries from VA 0x{va:016x} on are writable in a VMA that is {}: they must not be",
            vma_at(vmas, va).map_or(String::new(), |at| vmas[at].permissions.text())
        );
        (first, message)
    });
    let zero = placement.zero.map(|(first, count)| {
        let message = format!(
            "{count} entries from VA 0x{:016x} on map the zero page (PTE_SPECIAL, in a VMA without page frames) and are \
             writable: a write must get a page of its own",
            group.va_of(first)
        );
        (first, message)
    });
    let bit = placement.bit.map(|(first, count)| {
        let message = format!(
            "{count} entries from VA 0x{:016x} on have userfaultfd's bit in a VMA that no userfaultfd protects (uw, ur): \
             fork(), mremap() and the end of the userfaultfd take it away",
            group.va_of(first)
        );
        (first, message)
    });
    let all = [outside, left, writable, zero, bit];
    all.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use crate::testing::id;
    use crate::tests::guest::*;

    #[test]
    fn l8_outside_every_vma() {
        for mut guest in Guest::all() {
            guest.spread(0, written());
            guest.assert_legal();
            let beyond = VA + 4 * guest.block;
            guest
                .tables
                .map_page(beyond, PA + 4 * guest.block, written(), false);
            assert_eq!(guest.errors(), [id("L8")]);
        }
        // PROT_NONE is present too.
        let mut guest = Guest::new();
        guest.tables.poke(VA - 4096, 3, prot_none(PA));
        assert_eq!(guest.errors(), [id("L8")]);
    }

    #[test]
    fn l8_left_outside_every_vma() {
        // A swap entry, and a marker of poison.
        for word in [2 << 6 | 7 << 12, 31 << 6 | 2 << 12] {
            let mut guest = Guest::new();
            guest.tables.poke(VA, 3, word);
            assert!(!guest.errors().contains(&id("L8")));
            guest.tables.poke(VA - 4096, 3, word);
            assert!(guest.errors().contains(&id("L8")));
            let findings = guest.judge().findings;
            let message = &findings
                .iter()
                .find(|it| it.rule == id("L8"))
                .unwrap()
                .message;
            assert!(
                message.starts_with("1 entries that are not present from VA 0x000000003ffff000"),
                "{message}"
            );
        }
    }

    #[test]
    fn l8_writable_where_the_vma_is_not() {
        let maps = "40000000-40010000 r--p 00000000 00:00 0 \n40010000-40020000 rw-p 0 00:00 0 ";
        let mut guest = Guest::new().maps(maps);
        guest.spread(0, read_only());
        guest.spread(1, written());
        guest.assert_legal();
        guest.change(9, |word| word | WRITE);
        assert_eq!(guest.errors(), [id("L8")]);
        let message = &guest.judge().findings[0].message;
        assert!(
            message.contains("0x0000000040009000") && message.contains("r--p"),
            "{message}"
        );
    }

    #[test]
    fn l8_a_zero_page_that_may_be_written() {
        let smaps = |flags: &str| {
            let text = format!("40000000-40040000 rw-p 00000000 00:00 0 \nVmFlags: {flags}\n");
            linux::vma::parse_smaps(&text).unwrap()
        };
        let mut guest = Guest::new();
        guest.vmas = smaps("rd wr mr mw me ac");
        guest.spread(0, read_only());
        for at in 0..guest.members {
            guest.change(at, |word| word | SPECIAL);
        }
        guest.assert_legal();
        guest.change(9, |word| word | WRITE);
        assert_eq!(guest.errors(), [id("L8")]);
        let message = &guest.judge().findings[0].message;
        assert!(message.contains("0x0000000040009000"), "{message}");
        // A driver's page frames are as it wants them.
        guest.vmas = smaps("rd wr mr mw me pf ac");
        guest.assert_legal();
    }

    #[test]
    fn l8_userfaultfds_bit_where_none_protects() {
        let smaps = |flags: &str| {
            let text = format!("40000000-40040000 rw-p 00000000 00:00 0 \nVmFlags: {flags}\n");
            linux::vma::parse_smaps(&text).unwrap()
        };
        // A present page, and one in swap.
        for word in [prot_none(PA) | UFFD_WP, 2 << 6 | 7 << 12 | 1 << 3] {
            let mut guest = Guest::new();
            guest.vmas = smaps("rd wr mr mw me ac uw");
            guest.tables.poke(VA, 3, word);
            assert!(!guest.errors().contains(&id("L8")));
            guest.vmas = smaps("rd wr mr mw me ac");
            assert!(guest.errors().contains(&id("L8")));
            guest.vmas = smaps("rd wr mr mw me ac ur");
            assert!(!guest.errors().contains(&id("L8")));
        }
        // A marker that the protection has left says nothing of a page.
        let mut guest = Guest::new();
        guest.vmas = smaps("rd wr mr mw me ac");
        guest.tables.poke(VA, 3, 31 << 6 | 1 << 12);
        assert!(!guest.errors().contains(&id("L8")));
    }
}
