// SPDX-License-Identifier: GPL-2.0-only
//! `folioscope matrix`: campaigns of many cells, which are a program of their own beside the command.

use clap::Args;

use super::{beside, Outcome};

/// Run the cells of a matrix (kernels, machines, policies, tests), here or on many machines: FILE.toml [--dry-run]
#[derive(Args, Debug)]
#[command(after_help = "Example: folioscope matrix matrix.toml --dry-run\n\
                  Exit status: 1 where a cell is not as expected, 2 where one has no verdict, 130 interrupted")]
pub struct Matrix {
    /// FILE.toml [--store PLACE] [--engine local|dask=ADDRESS] [--jobs N] [--out DIR] [--dry-run]; --help behind FILE says more
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
        let words = ["matrix".to_owned()].into_iter().chain(self.words);
        beside::start("vmm/setup/campaign.sh", "campaigns", words.collect())
    }
}
