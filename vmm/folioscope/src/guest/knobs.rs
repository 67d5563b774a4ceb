// SPDX-License-Identifier: GPL-2.0-only
//! Sets the knobs that the user has named.

use super::Guest;
use crate::knob::Knob;
use crate::Error;

impl Guest {
    /// Sets knobs, in their order.
    ///
    /// # Errors
    /// Where the guest is lost, or has no such file, or refuses the text.
    pub(super) fn set_knobs(&mut self, knobs: &[Knob]) -> Result<(), Error> {
        for Knob { path, text } in knobs {
            self.write_file(path, text, None).map_err(|error| match error {
                Error::Guest { failure, .. } => Error::Input(format!(
                    "expected to write '{text}' to {path} of the guest (--knob), and it answered {failure}; \
                     has its kernel this file?"
                )),
                error => error,
            })?;
        }
        Ok(())
    }
}
