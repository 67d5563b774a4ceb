//! Looks at a process that waits for us, until it is sure what is wrong.

use crate::settle::settle;
use crate::{Look, Sight};

impl Look {
    /// Looks until what is wrong is known to stay wrong; `look` makes one look after the other. Errors that are not
    /// known to stay are taken back, counted, and said to be not judged.
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
