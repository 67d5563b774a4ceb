//! What is said of a process as a whole: its counters, and what was not judged of its folios.

use super::FoliosSeen;
use crate::{rules, Lack, ProcessInput, RuleId, Structures};

impl FoliosSeen {
    /// What is said of the process as a whole: whether its counters are right, what was not judged, and notes on what
    /// was left out. `swapped` entries lead to swap, `moving` ones to pages that are on their way.
    pub fn finish(
        &mut self,
        input: &ProcessInput<'_>,
        (swapped, moving): (u64, u64),
        any_broken: bool,
    ) -> Whole {
        let mut whole = Whole::default();
        let structures = match input.structures {
            Ok(structures) => structures,
            Err(not_known) => {
                use RuleId::{L10, L12, L13, L14, L15, L16, L18, L2, L7, L8, L9};
                let said = format!(
                    "L2, L7, L9, L10, L12 to L16, L18 and what L8 says of folios were not judged: {}",
                    not_known.why
                );
                // What is said of all memory is said by the structures of all processes.
                let rules = [L2, L7, L8, L9, L10, L12, L13, L14, L15, L16, L18];
                match not_known.later {
                    true => whole.not_judged.push(said),
                    false => self.lacks.push(Lack::new(rules, said)),
                }
                return whole;
            }
        };
        if self.unread > 0 {
            whole.not_judged.push(format!(
                "L2, L7 and L9 were not judged for {} entries whose page could not be read: {}",
                self.unread,
                self.first.as_deref().unwrap_or_default()
            ));
        }
        if structures.numbering.is_none() || self.unnumbered {
            let why = "the process's VMAs were just being changed";
            whole.not_judged.push(format!("L7 was not judged: {why}"));
        }
        if input.vmas.iter().any(|vma| vma.flags.is_none()) {
            let said = "L7 and what L8 says of folios were not judged for VMAs whose VmFlags are not known (smaps)";
            self.lacks.push(Lack::new([RuleId::L7, RuleId::L8], said));
        }
        if self.not_one_by_one > 0 {
            whole.notes.push(format!(
                "L9 was not judged page by page for {} entries of large folios: the kernel may not count so (CONFIG_NO_PAGE_MAPCOUNT)",
                self.not_one_by_one
            ));
        }
        // An entry that is wrong is told of by its own rule, and one that could not be read was told of.
        if any_broken || self.unread > 0 {
            return whole;
        }
        self.counted.swapped = swapped as i64;
        if moving > 0 {
            whole.notes.push(format!(
                "the process's RSS and bytes of page tables were not judged (L9): {moving} of its entries may be of pages on their way, or of poison"
            ));
            return whole;
        }
        if structures.table_locked {
            whole.not_judged.push(
                "the process's RSS and bytes of page tables were not judged (L9): somebody held the lock of one of its tables"
                    .into(),
            );
            return whole;
        }
        match structures.tables_bytes {
            Some(bytes) if self.tables.unsure == 0 => {
                let size = input.regime.granule.bytes();
                whole.broken.extend(rules::l9::tables(bytes, self.tables, size));
            }
            Some(_) => whole.notes.push(format!(
                "the process's bytes of page tables were not judged (L9): {} of its tables could not be read, or are blocks that a driver or DAX may have made",
                self.tables.unsure
            )),
            None if structures.numbering.is_some() => {
                let said = "the process's bytes of page tables were not judged (L9): they could not be read";
                whole.notes.push(said.into());
            }
            // As with its RSS.
            None => {}
        }
        whole.hugetlb(structures, self.hugetlb);
        match structures.rss {
            Some(rss) => whole.broken.extend(rules::l9::rss(rss, self.counted)),
            // Where its VMAs are known nobody was changing it.
            None if structures.numbering.is_some() => {
                let said = "the process's RSS was not judged (L9): its counters could not be read, or exec() was counting its arguments";
                whole.notes.push(said.into());
            }
            None => whole.not_judged.push(
                "the process's RSS and bytes of page tables were not judged (L9): it was just being changed".into(),
            ),
        }
        whole
    }
}

/// What is said of a process as a whole.
#[derive(Debug, Default)]
pub(crate) struct Whole {
    /// The sentences where L9 is broken.
    pub broken: Vec<String>,
    /// What could not be judged.
    pub not_judged: Vec<String>,
    /// What was left out.
    pub notes: Vec<String>,
}

impl Whole {
    /// Holds what the process counts of hugetlb to the `pages` of it that its entries map.
    fn hugetlb(&mut self, structures: Structures<'_>, pages: i64) {
        match structures.hugetlb {
            Some(usage) if usage.may_share && (usage.pages != 0 || pages != 0) => {
                let said = "the process's count of hugetlb pages was not judged (L9): it is so large that it may have shared page tables, whose pages are counted of who faulted them in";
                self.notes.push(said.into());
            }
            Some(usage) => self.broken.extend(rules::l9::hugetlb(usage.pages, pages)),
            None if structures.numbering.is_some() && pages != 0 => {
                let said = "the process's count of hugetlb pages was not judged (L9): it could not be read";
                self.notes.push(said.into());
            }
            // As with its RSS.
            None => {}
        }
    }
}
