// SPDX-License-Identifier: GPL-2.0-only
//! Measures start-up on KVM: the time from starting our own command to the agent's greeting, and the exits to the
//! monitor.

use std::time::{Duration, Instant};

use serde_json::json;

use super::boot::session;
use super::row::{Row, Target, Times};
use super::Progress;
use crate::boot;
use crate::guest::Guest;
use crate::kernel::Kernel;
use crate::machines;
use crate::options::GuestOptions;
use crate::Error;

const ROUNDS: usize = 7;
/// Duration of counting bare exits.
const BARE: Duration = Duration::from_secs(2);

/// A kernel that only leaves the guest: an arm64 Image (Documentation/arch/arm64/booting.rst) whose CPU stores for ever
/// to an address without a device.
const LEAVES: [u32; 4] = [
    0x1400_0010, // b +64, behind the header
    0xd2a1_4201, // mov x1, #0xa100000
    0xb900_003f, // str wzr, [x1]
    0x17ff_ffff, // b -4
];

const IMAGE_BYTES: usize = 4096;

pub fn measure(options: &GuestOptions, progress: &Progress) -> Result<Vec<Row>, Error> {
    let options = GuestOptions {
        smp: 1,
        ..options.clone()
    };
    let mut times = Vec::new();
    for round in 1..=ROUNDS {
        progress.say(&format!("boot, {round} of {ROUNDS}"));
        times.push(session(&options)?.0);
    }
    progress.say("counting the exits of a boot");
    let mut guest = Guest::boot(&options)?;
    let reasons = guest.machine().exits().unwrap_or_default();
    let until_ready: u64 = reasons.iter().map(|(_, count)| count).sum();
    drop(guest);
    progress.say("leaving a guest as fast as it goes");
    let bare = bare(&options)?;

    let times = Times::new(times);
    let detail = json!({"ready": times.detail(), "exits": reasons, "bare_exit_us": bare * 1e6});
    let row = Row::of(&detail);
    let listed: Vec<String> = reasons
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(what, count)| format!("{count} {what}"))
        .collect();
    let share = until_ready as f64 * bare / times.median();
    Ok(vec![
        row(
            "start to agent ready, on KVM",
            times.median(),
            "s",
            Target::None,
            format!(
                "exec of folioscope session to its ready line, 1 CPU, median of {ROUNDS}; best {:.2} s",
                times.best()
            ),
        ),
        row("  exits until ready", until_ready as f64, "", Target::None, listed.join(", ")),
        row(
            "  a bare exit",
            bare * 1e6,
            "us",
            Target::None,
            format!(
                "a store to nothing, for {} s; exits are {:.0} % of the time to ready",
                BARE.as_secs(),
                share * 100.0
            ),
        ),
    ])
}

/// Returns the seconds of one exit and one entry.
fn bare(options: &GuestOptions) -> Result<f64, Error> {
    let scratch = boot::scratch(&options.out)?;
    let path = scratch.join("leaves");
    let mut image = vec![0; 64];
    image[..4].copy_from_slice(&LEAVES[0].to_le_bytes());
    // image_size, flags (little endian, 4K, anywhere) and the magic.
    image[16..24].copy_from_slice(&(IMAGE_BYTES as u64).to_le_bytes());
    image[24..32].copy_from_slice(&0xau64.to_le_bytes());
    image[56..60].copy_from_slice(b"ARM\x64");
    image.extend(LEAVES[1..].iter().flat_map(|word| word.to_le_bytes()));
    image.resize(IMAGE_BYTES, 0);
    std::fs::write(&path, image).map_err(Error::io(format!("write {}", path.display())))?;
    let options = GuestOptions {
        kernel: Some(path),
        ..options.clone()
    };
    let kernel = Kernel::prepare(&options, &scratch)?;
    let machine = machines::start(
        options.machine(),
        &options.launch(&kernel.image, &options.initrd_path()?, &scratch),
    )?;
    let count = || -> u64 {
        let reasons = machine.exits().unwrap_or_default();
        reasons.iter().map(|(_, count)| count).sum()
    };
    let (start, before) = (Instant::now(), count());
    std::thread::sleep(BARE);
    let (took, exits) = (start.elapsed(), count() - before);
    if exits == 0 {
        return Err(Error::GuestLost {
            what: "a guest that only leaves the guest never did; see whether KVM works here: folioscope boot".into(),
        });
    }
    Ok(took.as_secs_f64() / exits as f64)
}
