// SPDX-License-Identifier: GPL-2.0-only
//! Results on a process as a whole: its counters, and the parts not judged of its folios.

use super::FoliosSeen;
use crate::check::{ProcessSeen, Whole};
use crate::rules::checks::CHECKS;
use crate::rules::rule::{Need, RuleId};
use crate::rules::without::{of_entries, without};
use crate::{Lack, ProcessInput};

/// Needs that the kernel's structures meet: without them nothing of it is known.
const STRUCTURES: [Need; 7] = [
    Need::Folios,
    Need::Sizes,
    Need::Queues,
    Need::Zones,
    Need::Memory,
    Need::Swap,
    Need::PageCaches,
];

impl FoliosSeen {
    /// Returns the results on the process as a whole: whether its counters are right, the parts not judged, and notes
    /// on what was left out. `swapped` entries lead to swap, `moving` ones to pages that are on their way. Gives the
    /// broken rules too.
    pub fn finish(
        &mut self,
        input: &ProcessInput<'_>,
        (swapped, moving): (u64, u64),
        any_broken: bool,
    ) -> (Vec<(RuleId, String)>, Whole) {
        let (mut broken, mut whole) = (Vec::new(), Whole::default());
        let structures = match &input.structures {
            Ok(structures) => structures,
            Err(not_known) => {
                // What is said of all memory is said by the structures of all processes.
                let without = without(&STRUCTURES);
                let said = format!("{}: {}", without.sentence(), not_known.why);
                match not_known.later {
                    true => whole.not_judged.push(said),
                    false => self.lacks.push(Lack::new(without.rules, said)),
                }
                return (broken, whole);
            }
        };
        if self.unread > 0 {
            whole.not_judged.push(format!(
                "{} for {} entries whose page could not be read: {}",
                of_entries().sentence(),
                self.unread,
                self.first.as_deref().unwrap_or_default()
            ));
        }
        if structures.numbering.is_none() || self.unnumbered {
            let why = "the process's VMAs were just being changed";
            let without = without(&[Need::Numbering, Need::Reverse]).sentence();
            whole.not_judged.push(format!("{without}: {why}"));
        } else if let Some(not_read) = self.unfound.take() {
            let without = without(&[Need::Reverse]);
            let said = format!("{}: {}", without.sentence(), not_read.why);
            match not_read.later {
                true => whole.not_judged.push(said),
                false => self.lacks.push(Lack::new(without.rules, said)),
            }
        }
        if input.vmas.iter().any(|vma| vma.flags.is_none()) {
            let without = without(&[Need::VmFlags]);
            let said = format!(
                "{} for VMAs whose VmFlags are not known (smaps)",
                without.sentence()
            );
            self.lacks.push(Lack::new(without.rules, said));
        }
        self.counted.swapped = swapped as i64;
        let seen = ProcessSeen {
            structures,
            vmas: input.vmas,
            regime: input.regime,
            is_sound: !any_broken && self.unread == 0,
            entries: self.counted,
            hugetlb: self.hugetlb,
            huge_zero: self.huge_zero,
            tables: self.tables,
            moving,
            not_one_by_one: self.not_one_by_one,
        };
        for (rule, check) in &CHECKS.process {
            check(&seen, &mut whole);
            broken.extend(whole.broken.drain(..).map(|message| (*rule, message)));
        }
        (broken, whole)
    }
}
