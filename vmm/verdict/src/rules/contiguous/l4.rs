// SPDX-License-Identifier: GPL-2.0-only
//! L4: the bit on valid entries only.

use linux::pte::{bits, Pte};
use linux::release::Release;

use crate::check::Check;
use crate::group::Group;
use crate::rules::rule::{Identity, KnownFault, Need, OnBreak, Releases, Rule, Tier, V6_12_117};

/// The finding's words, and the mark of the mended fault.
const KEEP: &str = "are PROT_NONE (present, not valid) and keep bit 52";

pub(crate) static RULE: Rule = Rule {
    name: "L4",
    title: "the Contiguous bit is on valid entries only",
    asserts: "No present entry that is not valid (PROT_NONE, NUMA hints) keeps bit 52. In a swap entry that bit is \
              part of the offset and never read. hugetlb VMAs, and files that may be hugetlb, are excepted.",
    tier: Tier::Linux,
    sources: &["arch/arm64/include/asm/pgtable.h, pte_valid_cont(), set_ptes()"],
    needs: &[Need::Vmas.all(), Need::VmFlags.less()],
    releases: Releases::WIDELY,
    known: &[KnownFault {
        mark: KEEP,
        commit: "arm64: mm: restrict transparent contpte mappings to valid PTEs",
        mended: &[V6_12_117, Release::new(7, 3, 0)],
    }],
    identity: Identity::Words,
    on_break: OnBreak::GoOn,
    checks: &[Check::Group(check)],
    synthetic: &[
        "l4_a_prot_none_page_that_keeps_the_bit",
        "l4_names_the_commit_where_the_kernel_lacks_it",
        "hugetlb_may_keep_the_bit_in_entries_that_are_not_valid",
        "a_swap_entry_with_bit_52_of_its_offset_set_is_not_read_as_contiguous",
    ],
    live: &["test_l4_contiguous_protnone", "test_l4_not_in_swap_entries"],
};

/// A file that may or may not be hugetlb gets the benefit of the doubt.
fn check(group: &Group<'_>, hugetlb: Option<bool>) -> Option<String> {
    if hugetlb != Some(false) {
        return None;
    }
    let keeps = |word: &&u64| Pte(**word).present_invalid() && **word & bits::CONT != 0;
    let count = group.words.iter().filter(keeps).count();
    (count > 0).then(|| {
        format!(
            "{count} of {} entries {KEEP}: the Contiguous bit must be on valid entries only",
            group.words.len()
        )
    })
}

#[cfg(test)]
mod tests {
    use crate::testing::id;
    use crate::tests::guest::*;
    use linux::release::Release;

    fn keeping() -> Guest {
        let mut guest = Guest::new();
        for at in 0..16 {
            let word = prot_none(PA + at * 4096);
            guest.tables.poke(VA + at * 4096, 3, word);
        }
        guest.assert_legal();
        guest.change(7, |word| word | CONT);
        guest
    }

    #[test]
    fn l4_a_prot_none_page_that_keeps_the_bit() {
        assert_eq!(keeping().errors(), [id("L4")]);
    }

    #[test]
    fn l4_names_the_commit_where_the_kernel_lacks_it() {
        let remarks = |release| {
            let mut guest = keeping();
            guest.release = Release::parse(release);
            let verdict = guest.judge();
            verdict.findings[0].remarks.clone()
        };
        for lacks in ["6.12.116", "6.18.15+deb14-arm64", "7.2.13"] {
            let remarks = remarks(lacks);
            let [remark] = remarks.as_slice() else {
                panic!("{lacks}: {remarks:?}");
            };
            for part in [
                "restrict transparent contpte mappings to valid PTEs",
                "6.12.117 and 7.3",
            ] {
                assert!(remark.contains(part), "{remark}");
            }
        }
        assert_eq!(remarks("6.12.117"), Vec::<String>::new());
        // The last has the commit, and is newer than what the rule was tried on.
        let newer = remarks("99.1").join("\n");
        assert!(newer.contains("99.1 is newer than"), "{newer}");
        assert!(!newer.contains("contpte"), "{newer}");
    }
}
