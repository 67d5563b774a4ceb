// SPDX-License-Identifier: GPL-2.0-only
//! The `folioscope` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    folioscope::commands::main()
}
