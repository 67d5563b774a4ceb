//! Linux's rules on one group of a user table: L1, L3, L4, L5 and the first half of L6.

use linux::pte::{bits, Pte};

use crate::group::{field_names, Group};
use crate::RuleId;

/// Applies them; `hugetlb` is what is known of the VMA. Each broken rule goes to `report` once.
pub(crate) fn user_group(
    group: &Group<'_>,
    hugetlb: Option<bool>,
    report: &mut impl FnMut(RuleId, String),
) {
    let mut contiguous = 0;
    let mut not_valid_contiguous = 0;
    let mut inconsistent = None;
    for (at, &word) in group.words.iter().enumerate() {
        let pte = Pte(word);
        if group.is_leaf(word) {
            contiguous += usize::from(pte.valid_cont());
            const ALL: u64 = bits::WRITE | bits::DIRTY | bits::RDONLY;
            if word & ALL == ALL && inconsistent.is_none() {
                inconsistent = Some(at);
            }
        } else if pte.present_invalid() && word & bits::CONT != 0 {
            not_valid_contiguous += 1;
        }
    }
    if let Some(at) = inconsistent {
        let va = group.va_of(at);
        let word = group.words[at];
        report(
            RuleId::L6,
            format!(
                "the entry for VA 0x{va:016x} ({word:#018x}) has WRITE, DIRTY and RDONLY at once: \
                 a writable dirty entry must have AP[2] (RDONLY) clear"
            ),
        );
    }
    // A file that may or may not be hugetlb gets the benefit of the doubt.
    if not_valid_contiguous > 0 && hugetlb == Some(false) {
        report(
            RuleId::L4,
            format!(
                "{not_valid_contiguous} of {} entries are PROT_NONE (present, not valid) and keep \
                 bit 52: the Contiguous bit must be on valid entries only",
                group.words.len()
            ),
        );
    }
    // Where the bit is reserved there is no group to be complete: that is A6's.
    if contiguous > 0 && group.regime.contiguous_entries(group.level).is_some() {
        contiguous_group(group, report);
    }
}

/// The rules on a group that has the bit.
fn contiguous_group(group: &Group<'_>, report: &mut impl FnMut(RuleId, String)) {
    let members = group.words.len();
    let missing: Vec<usize> = (0..members)
        .filter(|&at| group.words[at] & bits::VALID == 0)
        .collect();
    if let Some(&first) = missing.first() {
        report(
            RuleId::L1,
            format!(
                "{} of {members} members of a contiguous group are not valid (the first at VA \
                 0x{:016x}): all {members} must be valid and contiguous, or none contiguous",
                missing.len(),
                group.va_of(first)
            ),
        );
    }
    let special = group
        .leaves()
        .find(|(_, pte)| pte.valid_cont() && pte.special());
    if let Some((at, _)) = special {
        report(
            RuleId::L3,
            format!(
                "the contiguous entry for VA 0x{:016x} is special: the zero page and page frames \
                 without a folio must never be contiguous",
                group.va_of(at)
            ),
        );
    }
    unequal(group, report);
}

/// L5: what must be equal because nothing but the kernel writes it.
fn unequal(group: &Group<'_>, report: &mut impl FnMut(RuleId, String)) {
    let regime = group.regime;
    let mut mask = bits::SOFTWARE_SAME;
    let mut because = "only the kernel writes them";
    if !regime.ha {
        mask |= bits::AF;
        because = "TCR_EL1.HA is 0, so that only the kernel writes them";
    }
    if !regime.hd {
        // AP[2] that differs is A5's; DBM means nothing to the CPU then, but much to Linux.
        mask |= bits::DIRTY | bits::WRITE;
        because = "TCR_EL1.HA or HD is 0, so that only the kernel writes them";
    }
    let differing = group.differing_in(mask);
    if differing == 0 {
        return;
    }
    let names = [
        (bits::AF, "AF"),
        (bits::DIRTY, "DIRTY (bit 55)"),
        (bits::WRITE, "WRITE (DBM)"),
    ];
    let mut named: Vec<String> = names
        .iter()
        .filter(|(bit, _)| differing & bit != 0)
        .map(|(_, name)| (*name).to_owned())
        .collect();
    let rest = differing & bits::SOFTWARE_SAME;
    if rest != 0 {
        named.push(field_names(rest));
    }
    report(
        RuleId::L5,
        format!(
            "members of a contiguous group differ in {}: {because}, and they must be equal",
            named.join(", ")
        ),
    );
}
