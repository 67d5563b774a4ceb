// SPDX-License-Identifier: GPL-2.0-only
//! `folioscope matrix`, `series`, `bisect` and `reply`: campaigns of many cells, a program of their own beside the command.

use clap::Args;

use super::{beside, Outcome};

/// Becomes the program of campaigns, with one of its commands.
fn start(command: &str, words: Vec<String>) -> Outcome {
    let words = [command.to_owned()].into_iter().chain(words).collect();
    beside::start("vmm/setup/campaign.sh", "campaigns", words)
}

/// Prints the schema of one of their files.
pub fn schema(of: &str) -> Outcome {
    start("schema", vec![of.to_owned()])
}

/// Run the cells of a matrix (kernels, machines, policies, tests), here or on many machines: FILE.toml [--dry-run]
#[derive(Args, Debug)]
#[command(after_help = "Example: folioscope matrix matrix.toml --dry-run\n\
                  Exit status: 1 where a cell is not as expected, 2 where one has no verdict, 130 interrupted")]
pub struct Matrix {
    /// FILE.toml [--store PLACE] [--engine local|dask=ADDRESS] [--jobs N] [--out DIR] [--again] [--dry-run]; --help behind FILE says more
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "WORD"
    )]
    words: Vec<String>,
}

impl Matrix {
    pub fn run(self) -> Outcome {
        start("matrix", self.words)
    }
}

/// Build and judge each patch of a series: RANGE|MBOX|MAILDIR --tree DIR
#[derive(Args, Debug)]
#[command(
    after_help = "Example: folioscope series v6.12..topic --tree ~/linux\n\
                  Exit status: 1 where a patch does not build or brings a finding, 2 where something has no verdict, \
                  130 interrupted"
)]
pub struct Series {
    /// RANGE|MBOX|MAILDIR --tree DIR [--base REV] [--store PLACE] and more; --help behind them says all
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "WORD"
    )]
    words: Vec<String>,
}

impl Series {
    pub fn run(self) -> Outcome {
        start("series", self.words)
    }
}

/// Find the commit with which a condition on the verdict begins to hold: GOOD BAD --tree DIR --when EXPR
#[derive(Args, Debug)]
#[command(
    after_help = "Example: folioscope bisect v6.12 topic --tree ~/linux --when 'rule(\"L6\") or coverage < 0.9'\n\
                  Exit status: 2 where commits that gave no answer are left beside the one that is looked for, \
                  or for bad input, 130 interrupted"
)]
pub struct Bisect {
    /// GOOD BAD --tree DIR --when EXPR|FILE.py [--repeat N] [--store PLACE] and more; --help behind them says all
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "WORD"
    )]
    words: Vec<String>,
}

impl Bisect {
    pub fn run(self) -> Outcome {
        start("bisect", self.words)
    }
}

/// Print what a series came to as text for a mail: STORE
#[derive(Args, Debug)]
#[command(after_help = "Example: folioscope reply ~/campaigns")]
pub struct Reply {
    /// STORE [--series KEY]; --help behind STORE says more
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "WORD"
    )]
    words: Vec<String>,
}

impl Reply {
    pub fn run(self) -> Outcome {
        start("reply", self.words)
    }
}
