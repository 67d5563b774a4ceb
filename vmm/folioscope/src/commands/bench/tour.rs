// SPDX-License-Identifier: GPL-2.0-only
//! The whole of a warm `folioscope run`.

use std::process::Stdio;
use std::time::Instant;

use serde_json::json;

use super::row::{Row, Target, Times};
use super::{ourselves, Helper, Progress};
use crate::options::GuestOptions;
use crate::Error;

const ROUNDS: usize = 3;

pub fn measure(options: &GuestOptions, progress: &Progress) -> Result<Vec<Row>, Error> {
    let (mut times, mut status) = (Vec::new(), None);
    for round in 0..ROUNDS {
        progress.say(&format!("the tour, {} of {ROUNDS}", round + 1));
        let mut command = ourselves(&["run"], options)?;
        let start = Instant::now();
        let mut run = Helper::start(command.stdin(Stdio::null()).stdout(Stdio::null()))?;
        let ended = run.0.wait().map_err(Error::io("wait for folioscope run"))?;
        times.push(start.elapsed());
        status = ended.code();
    }
    let times = Times::new(times);
    Ok(vec![Row {
        name: "warm folioscope run".into(),
        value: times.median(),
        unit: "s",
        target: Target::AtMost(15.0),
        method: format!(
            "boot, ten workloads, verdict; median of {ROUNDS}, best {:.1}, exit status {}",
            times.best(),
            status.map_or_else(|| "none".into(), |code| code.to_string())
        ),
        detail: json!({"run": times.detail(), "exit_status": status}),
    }])
}
