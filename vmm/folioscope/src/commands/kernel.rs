// SPDX-License-Identifier: GPL-2.0-only
//! `folioscope kernel`: prints the sizes by which the kernel half is mapped.

use clap::Args;

use super::{output, Outcome};
use crate::inside::{InsideOptions, ListingFormat};
use crate::{Error, EXIT_OK};

/// Show the sizes by which the kernel half is mapped, part by part, and each area of vmalloc with its caller
#[derive(Args, Debug)]
#[command(after_help = "Example: folioscope kernel full.core")]
pub struct Kernel {
    #[command(flatten)]
    pub inside: InsideOptions,
}

impl Kernel {
    pub fn run(self) -> Outcome {
        let map = self.inside.kernel_map()?;
        match self.inside.format {
            ListingFormat::Json => output::line(format_args!("{:#}", serde_json::json!(map)))?,
            ListingFormat::Text => map
                .write(&mut output::stdout())
                .map_err(Error::io(output::STDOUT))?,
        }
        Ok(EXIT_OK)
    }
}
