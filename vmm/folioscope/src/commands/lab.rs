// SPDX-License-Identifier: GPL-2.0-only
//! `folioscope lab`: the laboratory, which is a program of its own beside the command.

use clap::Args;

use super::{beside, Outcome};

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
        beside::start("vmm/setup/lab.sh", "the laboratory", self.words)
    }
}
