// SPDX-License-Identifier: GPL-2.0-only
//! A small thing that is wrong at one checkpoint: a rule must name it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An error to make, and its place.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Spoil {
    /// The checkpoint.
    pub label: String,
    /// The area of its process, and the page in it.
    pub area: usize,
    /// The page in it.
    pub page: u64,
    /// The bit of its entry that is inverted for the time of the look.
    #[serde(default)]
    pub bit: Option<u8>,
    /// Its first word in memory is another from then on.
    #[serde(default)]
    pub memory: bool,
}
