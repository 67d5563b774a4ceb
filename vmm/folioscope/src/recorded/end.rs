// SPDX-License-Identifier: GPL-2.0-only
//! The end of a trace.

/// The end of a trace.
#[derive(Clone, Debug, Default)]
pub struct End {
    /// Bytes of it.
    pub bytes: u64,
    /// One sentence for each part that is missing.
    pub said: Vec<String>,
}

impl End {
    /// Returns whether any of a trace came: if QEMU or its plugin never began, there is nothing to report.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.bytes > 0
    }
}
