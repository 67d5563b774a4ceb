// SPDX-License-Identifier: GPL-2.0-only
//! Judges what a saved core holds: a process that a CPU is proved to run, and the kernel half.
//!
//! `cargo run -p analysis --example judge -- saved.core`

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use verdict::Step;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let path = std::env::args_os().nth(1);
    let path = path.ok_or("expected the path of a core that `folioscope save` has written")?;
    let step = judge(path.as_ref())?;
    for finding in step.findings() {
        println!(
            "{} {:?} at {}: {}",
            finding.rule, finding.severity, finding.va, finding.message
        );
    }
    for open in step.all_not_judged() {
        println!("not judged: {}", open.reason);
    }
    println!("{} error(s): {:?}", step.errors(), step.outcome());
    Ok(ExitCode::from(step.outcome().exit_status()))
}

/// Returns the verdict on a core that holds one process, or of a guest without an agent.
pub fn judge(path: &Path) -> Result<Step, Box<dyn Error>> {
    let snapshot = snapshot::read_core(path)?;
    Ok(analysis::step(&snapshot, None)?)
}
