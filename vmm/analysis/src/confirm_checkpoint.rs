// SPDX-License-Identifier: GPL-2.0-only
//! Repeats the look at a process at a checkpoint until its errors are confirmed.

use crate::confirm::settle;
use crate::{Look, Sight};

impl Look {
    /// Calls `look` until every error is confirmed or gone. Unconfirmed errors are removed, counted, and listed as not judged.
    ///
    /// # Errors
    /// As `look`.
    pub fn settled<E>(mut look: impl FnMut() -> Result<Self, E>) -> Result<Self, E> {
        let (mut last, settled) = settle(true, std::thread::sleep, |_| look())?;
        let sight = Sight::new(&settled, true);
        sight.keep(&mut last.capture.snapshot.notes);
        let gone = sight.hold(&mut last.judged);
        if let Some(verdict) = last.judged.processes.first_mut() {
            verdict.not_judged.extend(gone);
        }
        Ok(last)
    }
}
