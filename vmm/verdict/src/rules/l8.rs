//! L8 on one process: entries keep to their VMA. The half that looks across mappings is
//! [`super::l8_sharing`].

use linux::pte::Pte;
use linux::vma::Vma;

use super::rule::{Need, Releases, Report, Rule, Tier};
use crate::group::Group;
use crate::mapped::of_frames;
use crate::RuleId;

pub(super) const RULE: Rule = Rule {
    id: RuleId::L8,
    title: "entries keep to their VMA, and writable private pages to one mapping",
    asserts: "Present entries only inside VMAs; entries that EL0 may write only where the VMA allows it (special and \
              devmap entries excepted: their driver chose the protection), and the zero page nowhere; a page that is \
              writable in private memory is mapped nowhere else (special, devmap, pfnmap and hugetlb excepted), as far as processes were given; by its \
              folio it is anonymous, and exclusive to one mapping. A page that is exclusive is mapped no more than once, and \
              no swap entry leads to its slot in swap.",
    tier: Tier::Linux,
    sources: &[
        "mm/memory.c, unmap_page_range(), maybe_mkwrite()",
        "include/linux/page-flags.h, PageAnonExclusive()",
        "mm/rmap.c, __folio_add_anon_rmap()",
        "mm/memory.c, do_anonymous_page(), do_swap_page()",
    ],
    needs: &[Need::Vmas, Need::Processes, Need::Folios],
    releases: Releases::WIDELY,
    known: &[],
    synthetic: &[
        "l8_outside_every_vma",
        "l8_writable_where_the_vma_is_not",
        "l8_a_zero_page_that_may_be_written",
        "a_page_that_one_may_write_and_the_other_maps",
        "one_process_that_maps_a_writable_page_twice",
        "l8_a_writable_page_that_is_not_exclusive",
        "l8_an_exclusive_page_that_is_mapped_twice",
        "l8_an_exclusive_page_that_another_has_in_swap",
    ],
    live: &[
        "test_l8_outside_every_vma",
        "test_l8_outside_by_unmapping",
        "test_l8_writable_in_readonly_area",
        "test_l8_page_written_by_two",
        "test_l8_page_that_is_not_exclusive",
        "test_l8_zero_page_that_may_be_written",
        "test_l8_exclusive_page_of_two",
        "test_l8_exclusive_page_in_swap",
    ],
};

/// What one group has that its VMAs do not allow: the first place, and how many.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Misplaced {
    outside: Option<(usize, usize)>,
    writable: Option<(usize, usize)>,
    zero: Option<(usize, usize)>,
}

impl Misplaced {
    /// Looks at entries from `at` on that are no table descriptors, and alike but for their addresses.
    pub fn see(&mut self, (at, count): (usize, usize), pte: Pte, leaf: bool, vma: Option<&Vma>) {
        let Some(vma) = vma else {
            if pte.present() {
                self.outside.get_or_insert((at, 0)).1 += count;
            }
            return;
        };
        let by_kernel = pte.special() || pte.devmap();
        let may_write = pte.user() && (pte.write() || !pte.rdonly());
        if leaf && !vma.permissions.write && may_write && !by_kernel {
            self.writable.get_or_insert((at, 0)).1 += count;
        }
        // Where no page frames are mapped, what is special is the zero page. Of one that is contiguous L3 tells.
        let zero = pte.special() && vma.pfn_mapped() == Some(false) && !of_frames(vma);
        let zero = zero && !pte.valid_cont();
        if leaf && may_write && zero {
            self.zero.get_or_insert((at, 0)).1 += count;
        }
    }

    /// The findings. `vma_at` is the VMA that an address lies in.
    pub fn check<'v>(
        &self,
        group: &Group<'_>,
        vma_at: impl Fn(u64) -> Option<&'v Vma>,
        report: &mut Report<'_>,
    ) {
        if let Some((first, count)) = self.outside {
            report(
                RuleId::L8,
                format!(
                    "{count} present entries from VA 0x{:016x} on lie outside every VMA: there must be none",
                    group.va_of(first)
                ),
            );
        }
        if let Some((first, count)) = self.writable {
            let va = group.va_of(first);
            report(
                RuleId::L8,
                format!(
                    "{count} entries from VA 0x{va:016x} on are writable in a VMA that is {}: they must not be",
                    vma_at(va).map_or(String::new(), |vma| vma.permissions.text())
                ),
            );
        }
        if let Some((first, count)) = self.zero {
            report(
                RuleId::L8,
                format!(
                    "{count} entries from VA 0x{:016x} on map the zero page (PTE_SPECIAL, in a VMA without page frames) and are \
                     writable: a write must get a page of its own",
                    group.va_of(first)
                ),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::guest::*;
    use crate::RuleId;

    #[test]
    fn l8_outside_every_vma() {
        for mut guest in Guest::all() {
            guest.spread(0, written());
            guest.assert_legal();
            let beyond = VA + 4 * guest.block;
            guest
                .tables
                .map_page(beyond, PA + 4 * guest.block, written(), false);
            assert_eq!(guest.errors(), [RuleId::L8]);
        }
        // PROT_NONE is present too; what was swapped out is not.
        let mut guest = Guest::new();
        guest.tables.poke(VA - 4096, 3, 2 << 6 | 7 << 12);
        guest.assert_legal();
        guest.tables.poke(VA - 4096, 3, prot_none(PA));
        assert_eq!(guest.errors(), [RuleId::L8]);
    }

    #[test]
    fn l8_writable_where_the_vma_is_not() {
        let maps = "40000000-40010000 r--p 00000000 00:00 0 \n40010000-40020000 rw-p 0 00:00 0 ";
        let mut guest = Guest::new().maps(maps);
        guest.spread(0, read_only());
        guest.spread(1, written());
        guest.assert_legal();
        guest.change(9, |word| word | WRITE);
        assert_eq!(guest.errors(), [RuleId::L8]);
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
        assert_eq!(guest.errors(), [RuleId::L8]);
        let message = &guest.judge().findings[0].message;
        assert!(message.contains("0x0000000040009000"), "{message}");
        // A driver's page frames are as it wants them.
        guest.vmas = smaps("rd wr mr mw me pf ac");
        guest.assert_legal();
    }
}
