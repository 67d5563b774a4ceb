// SPDX-License-Identifier: GPL-2.0-only
//! `folioscope diff`: two snapshots of a guest, as events.

use std::path::PathBuf;

use analysis::diff::{diff, Instant};
use clap::Args;

use super::{output, Outcome};
use crate::inside::ListingFormat;
use crate::source::open_core;
use crate::{Error, EXIT_OK};

/// Show what happened between two snapshots of a guest: faults, folds, copies on write, migrations, ...
#[derive(Args, Debug)]
#[command(after_help = "Example: folioscope diff before.core after.core --pid 42")]
pub struct Diff {
    /// The earlier snapshot, of a process (`folioscope save`) or of all RAM (`save --full`), which has every process
    #[arg(value_name = "BEFORE")]
    before: PathBuf,
    /// The later one, of the same guest
    #[arg(value_name = "AFTER")]
    after: PathBuf,
    /// The process, by its pid in the guest [default: all that both snapshots have]
    #[arg(long)]
    pid: Option<u32>,
    /// How to print it
    #[arg(long, value_enum, default_value = "text")]
    format: ListingFormat,
}

impl Diff {
    pub fn run(self) -> Outcome {
        let (before, after) = (open_core(&self.before)?, open_core(&self.after)?);
        let found = diff(Instant::from(&before), Instant::from(&after), self.pid)?;
        match self.format {
            ListingFormat::Json => output::line(format_args!("{:#}", serde_json::json!(found)))?,
            ListingFormat::Text => found
                .write(&mut output::stdout())
                .map_err(Error::io(output::STDOUT))?,
        }
        Ok(EXIT_OK)
    }
}
