// SPDX-License-Identifier: GPL-2.0-only
//! Pages of ranges of which a checkpoint states that no other mapping ever had them.

use linux::folio::{NoPage, Page};
use linux::structures::Folios;

use super::checks::CHECKS;
use super::unheld::{mapped, Found, Open};
use crate::check::ExclusiveSeen;
use crate::entries::Entries;
use crate::ProcessVerdict;

/// Asks the rules of each page.
pub(super) fn judge(
    entries: &Entries,
    folios: &dyn Folios,
    verdicts: &[ProcessVerdict],
    page_size: u64,
) -> (Vec<Found>, Open) {
    let (mut found, mut open) = (Vec::new(), Open::new());
    // A block has the flag of all its pages in the first one.
    let flagged = |pfn: u64| -> Result<Page, NoPage> {
        let page = folios.page(pfn)?;
        match entries.blocks.within(&(pfn..pfn + 1)) {
            0 => Ok(page),
            _ => folios.page(page.head),
        }
    };
    for (owner, verdict) in verdicts.iter().enumerate() {
        for (pfn, va) in mapped(verdict, &verdict.exclusive, page_size) {
            let page = match flagged(pfn) {
                Ok(page) => page,
                // Told of at its entry.
                Err(NoPage::Wild(_)) => continue,
                Err(NoPage::Unreadable(why)) => {
                    for (rule, _) in &CHECKS.exclusive {
                        open.entry(*rule).or_insert((0, why.clone())).0 += 1;
                    }
                    continue;
                }
            };
            let seen = ExclusiveSeen { page, va };
            let checks = CHECKS.exclusive.iter();
            let wrong = checks.filter_map(|(rule, check)| Some((*rule, check(&seen)?)));
            found.extend(wrong.map(|(rule, message)| (rule, owner, va, message)));
        }
    }
    (found, open)
}
