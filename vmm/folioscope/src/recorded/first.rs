// SPDX-License-Identifier: GPL-2.0-only
//! The first finding of each cause, and the events that were not judged.

use std::collections::HashSet;

use recorder::{Finding, Judge};

use super::end::End;

/// Returns the first finding of each cause, which stands for all.
pub(super) fn first_of_each(judge: &Judge) -> impl Iterator<Item = &Finding> {
    let mut told = HashSet::new();
    let kept = judge.findings().kept().iter();
    kept.filter(move |finding| told.insert((finding.rule, finding.made.pc, finding.cause)))
}

/// Returns a sentence for the pages that one thread mapped before another's TLBI, if there are some.
pub(super) fn overtaken(judge: &Judge) -> Option<String> {
    let pages = judge.summary().overtaken;
    (pages > 0).then(|| {
        format!(
            "{pages} pages were mapped by one thread before another's TLBI for the old ones: no break-before-make, which Linux \
             allows (S2, S3)"
        )
    })
}

pub(super) fn not_judged(judge: &Judge, end: &End) -> Vec<String> {
    let mut not_judged = judge.not_judged().sentences();
    not_judged.extend(end.said.iter().cloned());
    if judge.summary().stores == 0 {
        not_judged.push("no store to a table was seen".into());
    }
    not_judged
}
