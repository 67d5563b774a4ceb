// SPDX-License-Identifier: GPL-2.0-only
//! `folioscope maps`: the address space of a process, from the guest's memory alone.

use clap::Args;
use report::map::MapOptions;
use untrusted::Filter;

use super::{output, Outcome};
use crate::inside::{InsideOptions, ListingFormat};
use crate::{Error, EXIT_OK};

/// Show each VMA of a process: what is mapped, how much of it is contiguous, and why the rest is not
#[derive(Args, Debug)]
#[command(after_help = "Example: folioscope maps 42 full.core")]
pub struct Maps {
    /// The process, by its id in the guest (folioscope ps); it need not run
    #[arg(value_name = "PID")]
    pid: u32,
    #[command(flatten)]
    pub inside: InsideOptions,
}

impl Maps {
    pub fn run(self) -> Outcome {
        let (seen, memory) = self.inside.see(Some(self.pid))?;
        let space = seen
            .space
            .ok_or_else(|| Error::Input(format!("process {} was not read", self.pid)))?;
        let maps = space.maps(&memory);
        match self.inside.format {
            ListingFormat::Json => output::line(format_args!("{:#}", serde_json::json!(maps)))?,
            ListingFormat::Text => maps
                .write(
                    &mut Filter::new(anstream::stdout().lock(), true),
                    &MapOptions {
                        colour: true,
                        ..MapOptions::default()
                    },
                )
                .map_err(Error::io(output::STDOUT))?,
        }
        Ok(EXIT_OK)
    }
}
