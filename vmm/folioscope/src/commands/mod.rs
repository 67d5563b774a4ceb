//! The subcommands, one module each.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::{Error, EXIT_NOT_JUDGED};

mod run;
mod session;

/// Reads an arm64 guest's page tables from outside, and judges them.
#[derive(Debug, Parser)]
#[command(
    name = "folioscope",
    version,
    about,
    after_help = "Exit status: 0 no error found; 1 errors found; 2 could not be judged."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Run),
    Session(session::Session),
}

/// Runs the command line.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() {
                EXIT_NOT_JUDGED
            } else {
                0
            });
        }
    };
    let outcome = match cli.command {
        Command::Run(run) => run.run(),
        Command::Session(session) => session.run(),
    };
    match outcome {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            anstream::eprintln!("folioscope: {error}");
            ExitCode::from(EXIT_NOT_JUDGED)
        }
    }
}

type Outcome = Result<u8, Error>;
