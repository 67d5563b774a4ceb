// SPDX-License-Identifier: GPL-2.0-only
//! `folioscope rules`: prints what the rules assert.

use clap::Args;

use super::{output, Outcome};
use crate::EXIT_OK;

/// Columns of a line on a terminal.
const WIDTH: usize = 100;

/// Print the rules: what each asserts, its source, what it needs, the releases it was tried on
#[derive(Args, Debug)]
#[command(after_help = "Example: folioscope rules --markdown > docs/rules.md")]
pub struct Rules {
    /// As docs/rules.md, with the tests of each
    #[arg(long)]
    markdown: bool,
}

impl Rules {
    pub fn run(self) -> Outcome {
        let text = match self.markdown {
            true => verdict::rules::markdown(),
            false => verdict::rules::text(WIDTH),
        };
        output::bytes(text.as_bytes()).map(|()| EXIT_OK)
    }
}
