//! The `folioscope` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    folioscope::commands::main()
}
