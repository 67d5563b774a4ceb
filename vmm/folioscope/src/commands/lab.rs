// SPDX-License-Identifier: GPL-2.0-only
//! `folioscope lab`: the laboratory, which is a program of its own beside the command.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use clap::Args;

use super::Outcome;
use crate::Error;

/// Its start script, relative to the root of a checkout, as `out/` is.
const SCRIPT: &str = "vmm/setup/lab.sh";

/// Run experiments on order policies, or compare what two of them have measured: compare A.json B.json [--threshold PERCENT]
#[derive(Args, Debug)]
#[command(
    after_help = "Example: folioscope lab compare before.json after.json --threshold 5\n\
                  Exit status of compare: 1 where anything takes so much more, 2 where not all could be judged"
)]
pub struct Lab {
    /// run [EXPERIMENT...] [--quick], compare A.json B.json, schema; --help behind one of them says more
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "WORD"
    )]
    words: Vec<String>,
}

impl Lab {
    pub fn run(self) -> Outcome {
        if !Path::new(SCRIPT).is_file() {
            return Err(Error::Input(format!(
                "expected the laboratory at {SCRIPT} and found none; go to the root of a checkout of folioscope, where make lab works too"
            )));
        }
        let error = Command::new(SCRIPT).args(self.words).exec();
        Err(Error::Input(format!(
            "{SCRIPT} could not be started: {error}"
        )))
    }
}
