//! `folioscope session`: a guest that obeys line by line, for pytest and other programs.

use std::io::Write as _;

use clap::Args;
use serde_json::json;

use super::Outcome;
use crate::control;
use crate::guest::Guest;
use crate::options::GuestOptions;
use crate::{Error, EXIT_NOT_JUDGED, EXIT_OK};

/// Boot a guest and obey JSON lines on standard input; the guest ends with the input
#[derive(Args, Debug)]
#[command(after_help = "Example: echo '{\"id\":1,\"method\":\"machine\"}' | folioscope session")]
pub struct Session {
    #[command(flatten)]
    pub(super) guest: GuestOptions,
}

impl Session {
    pub fn run(self) -> Outcome {
        let mut output = std::io::stdout().lock();
        let say = |output: &mut std::io::StdoutLock<'_>, value: serde_json::Value| {
            writeln!(output, "{value}")
                .and_then(|()| output.flush())
                .map_err(Error::io("write to standard output"))
        };
        let mut guest = match Guest::boot(&self.guest) {
            Ok(guest) => guest,
            Err(error) => {
                say(
                    &mut output,
                    json!({"error": {"kind": "boot", "message": error.to_string(), "lost": true}}),
                )?;
                return Ok(EXIT_NOT_JUDGED);
            }
        };
        say(
            &mut output,
            json!({"ready": {"hello": guest.hello(), "seconds": guest.ready_after().as_secs_f64()}}),
        )?;
        control::serve(&mut guest, &self.guest.out, std::io::stdin().lock(), output)
            .map_err(Error::io("serve on standard input and output"))?;
        Ok(EXIT_OK)
    }
}
