// SPDX-License-Identifier: GPL-2.0-only
//! Measures walk and architecture rules over 1.05 million descriptors, beside summing the same words and beside QEMU's
//! own way to read memory.

use std::hint::black_box;
use std::time::{Duration, Instant};

use machine::qemu::{Config, Qemu};
use machine::MachineError;
use serde_json::json;
use stage1::testing::scenario::{sum, tables, Scenario};
use stage1::{check, Half, Regime};

use super::row::{Row, Target, Times};
use super::{bare, Progress};
use crate::boot::scratch;
use crate::kernel::Kernel;
use crate::options::GuestOptions;
use crate::Error;

const ROUNDS: usize = 41;
/// Words that one `xp` prints.
const WORDS: u64 = 512;
/// Duration of repeated `xp` commands.
const ASKED: Duration = Duration::from_secs(2);

pub fn measure(options: &GuestOptions, progress: &Progress) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for scenario in Scenario::ALL {
        progress.say(&format!("walk and rules, {} tables", scenario.name()));
        rows.extend(rules(scenario)?);
    }
    if !options.machine().is_in_process {
        progress.say("QMP xp on a live guest");
        rows.push(xp(options)?);
    }
    Ok(rows)
}

fn rules(scenario: Scenario) -> Result<Vec<Row>, Error> {
    let builder = scenario.build();
    let memory = builder.memory();
    let regime = Regime::new(&builder.registers(), Half::Lower)?;
    let words = tables(memory, &regime);
    let (mut sums, mut checks, mut descriptors, mut violations) = (Vec::new(), Vec::new(), 0, 0);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        black_box(sum(black_box(&words)));
        sums.push(start.elapsed());
        let start = Instant::now();
        let mut sink = |violation| drop(black_box(violation));
        let found = check(memory, &regime, regime.first, regime.last, &mut sink);
        checks.push(start.elapsed());
        (descriptors, violations) = (found.descriptors, found.violations);
    }
    let (sums, checks) = (Times::new(sums), Times::new(checks));
    let detail = json!({
        "descriptors": descriptors,
        "violations": violations,
        "check": checks.detail(),
        "sum": sums.detail(),
        "ratio_of_medians": checks.median() / sums.median(),
    });
    let name = match scenario {
        Scenario::Broken => "broken (2048 findings)",
        other => other.name(),
    };
    let mut rows = vec![Row {
        name: format!("walk and rules, {name}"),
        value: descriptors as f64 / checks.best(),
        unit: "descr/s",
        target: Target::AtLeast(100e6),
        method: format!("stage1::check, {descriptors} descriptors, one core, best of {ROUNDS}"),
        detail: detail.clone(),
    }];
    // Each finding has a sentence for people; a ratio to a sum would show nothing of its cost.
    if scenario != Scenario::Broken {
        rows.push(Row {
            name: format!("  to summing the words, {name}"),
            value: checks.best() / sums.best(),
            unit: "x",
            target: Target::AtMost(3.0),
            method: format!(
                "the sum of the same words by vectors, in turn: {:.2} G/s",
                descriptors as f64 / sums.best() / 1e9
            ),
            detail,
        });
    }
    Ok(rows)
}

/// Measures the alternative to a mapping of guest memory: the monitor's `xp`.
fn xp(options: &GuestOptions) -> Result<Row, Error> {
    let scratch = scratch(&options.out)?;
    let kernel = Kernel::prepare(options, &scratch)?;
    let mut config = Config::new(&kernel.image, scratch.join("xp"));
    config.qemu.clone_from(&options.qemu);
    config.cpu.clone_from(&options.cpu);
    config.initrd = Some(bare::initramfs(&scratch, bare::Then::Waits)?);
    let mut qemu = Qemu::start(&config)?;
    // While the kernel boots both CPUs are busy; the measurement is of an idle guest.
    let console = machine::Machine::console(&qemu);
    let deadline = Instant::now() + bare::PATIENCE;
    while !console.tail().contains(bare::READY) {
        if Instant::now() > deadline {
            return Err(bare::silent());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let base = machine::Machine::ram(&qemu)[0].base.0;
    let (start, mut asked) = (Instant::now(), 0);
    while start.elapsed() < ASKED {
        let at = base + asked % 1024 * WORDS * 8;
        let text = qemu.monitor(&format!("xp /{WORDS}gx {at:#x}"))?;
        // Two words to a line, behind the address.
        if text.lines().count() as u64 != WORDS / 2 {
            return Err(Error::Machine(MachineError::System {
                what: "read memory by xp".into(),
                source: std::io::Error::other(format!("expected {WORDS} words, found {text:.80}")),
            }));
        }
        asked += 1;
    }
    Ok(Row {
        name: "  QMP xp, for comparison".into(),
        value: (asked * WORDS) as f64 / start.elapsed().as_secs_f64(),
        unit: "descr/s",
        target: Target::None,
        method: format!("xp /{WORDS}gx {asked} times on an idle guest; text is not parsed"),
        detail: json!({"commands": asked, "words_each": WORDS}),
    })
}
