// SPDX-License-Identifier: GPL-2.0-only
//! Commands that are programs of their own beside this one: started in its place, by a script of the checkout.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use super::Outcome;
use crate::Error;

/// Becomes the script, whose path is relative to the root of a checkout, as `out/` is.
pub fn start(script: &str, what: &str, words: Vec<String>) -> Outcome {
    if !Path::new(script).is_file() {
        return Err(Error::Input(format!(
            "expected {what} at {script} and found none; go to the root of a checkout of folioscope"
        )));
    }
    let error = Command::new(script).args(words).exec();
    Err(Error::Input(format!(
        "{script} could not be started: {error}"
    )))
}
