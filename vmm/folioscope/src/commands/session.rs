// SPDX-License-Identifier: GPL-2.0-only
//! `folioscope session`: a guest that executes requests line by line, for pytest and other programs.

use std::io::Write as _;
use std::path::PathBuf;

use clap::Args;

use super::Outcome;
use crate::control::{self, Failure, Greeting, Server};
use crate::guest::Guest;
use crate::options::GuestOptions;
use crate::recorded::PLUGIN;
use crate::{Error, EXIT_NOT_JUDGED, EXIT_OK};

/// Boot a guest and execute JSON lines from standard input; the guest ends with the input
#[derive(Args, Debug)]
#[command(after_help = "Example: echo '{\"id\":1,\"method\":\"machine\"}' | folioscope session")]
pub struct Session {
    #[command(flatten)]
    pub(super) guest: GuestOptions,
    /// Boot it with the recorder's plugin, for record_begin and record_end
    #[arg(long)]
    record: bool,
    /// The recorder's plugin, for --record
    #[arg(long, value_name = "FILE", default_value = PLUGIN)]
    plugin: PathBuf,
}

impl Session {
    pub fn run(mut self) -> Outcome {
        let mut output = std::io::stdout().lock();
        let booted = if self.record {
            Guest::boot_recorded(&mut self.guest, &self.plugin, None)
        } else {
            Guest::boot(&self.guest)
        };
        let mut guest = match booted {
            Ok(guest) => guest,
            Err(error) => {
                let greeting = Greeting::Error(Failure::boot(&error));
                output
                    .write_all(control::json(&greeting).as_bytes())
                    .and_then(|()| output.flush())
                    .map_err(Error::io("write to standard output"))?;
                return Ok(EXIT_NOT_JUDGED);
            }
        };
        let mut server = Server::new(&mut guest, &self.guest.out);
        control::serve(&mut server, std::io::stdin().lock(), output)
            .map_err(Error::io("serve on standard input and output"))?;
        Ok(EXIT_OK)
    }
}
