//! The rules' names, and what each of them asserts.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A rule, or a kind of information.
///
/// A fault is reported by one rule: where two would see it, the one that is named here does.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum RuleId {
    /// A contiguous group is naturally aligned in its table.
    A1,
    /// A group's output range is aligned to the group's size.
    A2,
    /// Its output addresses are consecutive.
    A3,
    /// All *valid* members of a group agree on the Contiguous bit.
    A4,
    /// Attributes and permissions of valid members are equal (AF apart, and AP\[2\] where the CPU
    /// updates it).
    A5,
    /// The Contiguous bit where it is reserved.
    A6,
    /// Reserved descriptor types, output addresses beyond the output size, RES0 bits.
    A7,
    /// A block at a level where the granule has none.
    A8,
    /// Tables can be walked: no loop, no table outside RAM or beyond the output size.
    W1,
    /// No member of a contiguous group is non-valid. (Valid ones without the bit are A4's.)
    L1,
    /// No contiguous entry is special. Judged by `PTE_SPECIAL` alone; what lies behind the page
    /// frame is not looked at.
    L3,
    /// The bit on valid entries only. Of the non-valid ones only those that Linux calls present
    /// (PROT_NONE, NUMA hints) have it at all; in a swap entry bit 52 is part of the offset and
    /// never read. hugetlb VMAs, and files that may be hugetlb, are excepted.
    L4,
    /// Where the CPU does not update them, AF (TCR_EL1.HA is 0) and the software dirty bit (HD is
    /// 0) are equal across a group; the software bits special, devmap and uffd-wp always are.
    /// (AP\[2\] is A5's.)
    L5,
    /// Never WRITE and DIRTY and RDONLY at once, on valid entries. A page that the workload wrote
    /// is dirty, one that it never wrote is not: only in ranges that the checkpoint names.
    L6,
    /// Present entries only inside VMAs; entries that EL0 may write only where the VMA allows it
    /// (special and devmap entries excepted: their driver chose the protection); a page that is
    /// writable in private memory is mapped nowhere else (special, devmap, pfnmap and hugetlb
    /// excepted), as far as processes were given.
    L8,
    /// A folio that was just faulted in is mapped whole, consecutive, and aligned to its size in
    /// virtual and physical address. Only where an order record names the folio *and* the
    /// checkpoint calls the range freshly faulted: mremap, partial unmapping, copy on write and
    /// migration break it legally later.
    L11,
    /// Must be contiguous, right after the step: a freshly faulted folio of at least a group's
    /// order, and ranges that the checkpoint names.
    C1,
    /// Must not be contiguous: ranges that the checkpoint names.
    C2,
    /// Kernel memory: no Contiguous bit on vmalloc, vmemmap and fixmap, at level 3 only in the
    /// kernel image, and none on the linear map with `rodata=full`. Only where the layout is known.
    K1,
    /// Kernel read-write entries of linear map and image carry the software dirty bit.
    K2,
    /// Information: a block that could carry the bit and does not.
    #[serde(rename = "I-eligible")]
    Eligible,
    /// Something that could not be judged.
    #[serde(rename = "N")]
    NotJudged,
}

impl RuleId {
    /// What the rule asserts, in a few words.
    pub fn title(self) -> &'static str {
        match self {
            RuleId::A1 => "a contiguous group is naturally aligned in its table",
            RuleId::A2 => "the output range of a contiguous group is aligned to its size",
            RuleId::A3 => "the output addresses of a contiguous group are consecutive",
            RuleId::A4 => "all valid members of a group agree on the Contiguous bit",
            RuleId::A5 => "the attributes of a contiguous group are equal",
            RuleId::A6 => "the Contiguous bit is not set where it is reserved",
            RuleId::A7 => "no reserved type, no set RES0 bit, no address beyond the output size",
            RuleId::A8 => "blocks only at levels where the granule has them",
            RuleId::W1 => "every table can be walked",
            RuleId::L1 => "a contiguous group is complete",
            RuleId::L3 => "a contiguous entry is not special",
            RuleId::L4 => "the Contiguous bit is on valid entries only",
            RuleId::L5 => "AF, dirty and software bits are equal across a contiguous group",
            RuleId::L6 => "dirty state is consistent, and true",
            RuleId::L8 => "entries keep to their VMA, and writable private pages to one mapping",
            RuleId::L11 => "a fresh anonymous folio is whole and naturally aligned",
            RuleId::C1 => "the block must be contiguous",
            RuleId::C2 => "the block must not be contiguous",
            RuleId::K1 => "kernel memory is contiguous only where Linux makes it so",
            RuleId::K2 => "writable kernel memory is dirty",
            RuleId::Eligible => "could be contiguous and is not",
            RuleId::NotJudged => "could not be judged",
        }
    }
}

impl fmt::Display for RuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RuleId::Eligible => f.pad("I-eligible"),
            RuleId::NotJudged => f.pad("N"),
            other => f.pad(&format!("{other:?}")),
        }
    }
}
