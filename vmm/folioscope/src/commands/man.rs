// SPDX-License-Identifier: GPL-2.0-only
//! `folioscope man`: writes man pages, from the definitions of the command line.

use std::fs;
use std::path::PathBuf;

use clap::{Args, CommandFactory as _};

use super::{Cli, Outcome};
use crate::{Error, EXIT_OK};

/// Write a man page for each command
#[derive(Args, Debug)]
#[command(
    hide = true,
    after_help = "Example: folioscope man ~/.local/share/man/man1"
)]
pub struct Man {
    /// The directory, which is made where it is not there
    #[arg(value_name = "DIRECTORY")]
    man: PathBuf,
}

impl Man {
    pub fn run(self) -> Outcome {
        // The settings of the user who writes the pages are not in them.
        let command = Cli::command()
            .mut_subcommands(|command| command.mut_args(|argument| argument.hide_env_values(true)));
        fs::create_dir_all(&self.man)
            .and_then(|()| clap_mangen::generate_to(command, &self.man))
            .map(|()| EXIT_OK)
            .map_err(Error::io("write man pages"))
    }
}
