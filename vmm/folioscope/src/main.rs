// SPDX-License-Identifier: GPL-2.0-only
//! The `folioscope` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Set by vmm/setup/build.sh: the last commit that changed the sources of the command.
    folioscope::commands::main(option_env!("FOLIOSCOPE_COMMIT"))
}
