// SPDX-License-Identifier: GPL-2.0-only
//! `folioscope ps`: the tasks of a guest, from its memory alone.

use clap::Args;

use super::{output, Outcome};
use crate::inside::{InsideOptions, ListingFormat};
use crate::{Error, EXIT_OK};

/// List the tasks of a guest, read from its memory alone, live or from a core of all RAM
#[derive(Args, Debug)]
#[command(after_help = "Example: folioscope ps full.core")]
pub struct Ps {
    #[command(flatten)]
    pub inside: InsideOptions,
}

impl Ps {
    pub fn run(self) -> Outcome {
        let (seen, _) = self.inside.see(None)?;
        let tasks = seen.listing();
        match self.inside.format {
            ListingFormat::Json => output::line(format_args!("{:#}", serde_json::json!(tasks)))?,
            ListingFormat::Text => tasks
                .write(&mut output::stdout())
                .map_err(Error::io(output::STDOUT))?,
        }
        Ok(EXIT_OK)
    }
}
