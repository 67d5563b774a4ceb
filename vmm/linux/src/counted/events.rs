// SPDX-License-Identifier: GPL-2.0-only
//! Events that a kernel counts from boot on.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Counts over all CPUs, by their names in `/proc/vmstat` (`enum vm_event_item`); a kernel does not have each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Events(pub BTreeMap<String, u64>);

/// Pages that were migrated, hugetlb's too.
pub const PGMIGRATE_SUCCESS: &str = "pgmigrate_success";
/// Pages that were read from a swap area.
pub const PSWPIN: &str = "pswpin";
/// Pages of a swap area that were known to be zero.
pub const SWPIN_ZERO: &str = "swpin_zero";
/// Pages that zswap gave back.
pub const ZSWPIN: &str = "zswpin";
/// Blocks that were allocated to make one of pages.
pub const THP_COLLAPSE_ALLOC: &str = "thp_collapse_alloc";
/// KSM's pages that were copied.
pub const COW_KSM: &str = "cow_ksm";
/// Faults, also those of the kernel on behalf of a process.
pub const PGFAULT: &str = "pgfault";
/// Folios of any order that were split: the sum of `stats/split` of all sizes, in which `/proc/vmstat` has no part.
pub const FOLIO_SPLIT: &str = "folio_split";

/// Names of the events that are read.
pub const NAMES: [&str; 7] = [
    PGMIGRATE_SUCCESS,
    PSWPIN,
    SWPIN_ZERO,
    ZSWPIN,
    THP_COLLAPSE_ALLOC,
    COW_KSM,
    PGFAULT,
];

impl Events {
    /// Returns the number of events since `before`; `None` if one of the two lacks the count.
    #[must_use]
    pub fn since(&self, before: &Events, name: &str) -> Option<u64> {
        let (now, was) = (self.0.get(name)?, before.0.get(name)?);
        Some(now.wrapping_sub(*was))
    }
}
