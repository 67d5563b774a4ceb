// SPDX-License-Identifier: GPL-2.0-only
//! Writes cores, and a bundle of a guest that is lost.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use evidence::{Capture, Extent, Facts, Work};
use machine::{private, Machine};
use snapshot::{write_core, Cpu, Notes, RangeSet, Snapshot, SparseFile};

use crate::kernel::Kernel;
use crate::link::Link;
use crate::replace::replace_private;
use crate::scratch;
use crate::Error;

/// Number of QEMU's last lines that are shown below the sentence.
const LINES: usize = 20;

/// Creates a directory of our own below `out`, for the logs of a guest.
///
/// # Errors
/// If it cannot be made.
pub fn scratch(out: &Path) -> Result<PathBuf, Error> {
    scratch::make(&out.join("guests"))
}

/// Writes a bundle of a guest that never came up, and adds its place to the error.
pub fn failed(link: &mut Link, kernel: &Kernel, out: &Path, error: Error) -> Error {
    let capture = capture_all(link, kernel.symbols.as_ref(), Notes::default());
    let error = match &capture {
        Ok(capture) => standing(error, &capture.snapshot.cpus, kernel),
        Err(_) => error,
    };
    let kept = bundle_directory(out).and_then(|directory| {
        bundle(
            link.machine.as_ref(),
            capture.as_ref().ok(),
            &directory,
            &error.to_string(),
            kernel,
        )
    });
    with_bundle(error, kept)
}

/// Adds the place of each CPU to the error.
fn standing(error: Error, cpus: &[Cpu], kernel: &Kernel) -> Error {
    let mut what = error.to_string();
    for cpu in cpus {
        what.push('\n');
        what.push_str(&place(cpu, kernel));
    }
    Error::GuestLost { what }
}

/// Adds the place of the bundle to the error.
pub fn with_bundle(error: Error, kept: Result<PathBuf, Error>) -> Error {
    let place = match kept {
        Ok(path) => format!("what there was of it is in {}", path.display()),
        Err(why) => format!("nothing of it could be kept: {why}"),
    };
    // QEMU's output may be many lines: the sentence comes first, with the place of the rest.
    let text = error.to_string();
    let (sentence, more) = text.split_once('\n').unwrap_or((&text, ""));
    let mut what = format!("{sentence}; {place}");
    let lines: Vec<&str> = more.trim_end().lines().collect();
    for line in &lines[lines.len().saturating_sub(LINES)..] {
        what.push('\n');
        what.push_str(line.trim_end());
    }
    Error::GuestLost { what }
}

/// Returns a directory that no other bundle has.
///
/// # Errors
/// If it cannot be made.
pub fn bundle_directory(out: &Path) -> Result<PathBuf, Error> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let bundles = out.join("bundles");
    let name = format!("{}-{}", now.as_secs(), std::process::id());
    scratch::kept(&bundles, &name).map_err(Error::io(format!(
        "make a directory in {}",
        bundles.display()
    )))
}

/// Stops the guest wherever it is and copies the tables of every CPU, both halves, and the order records.
///
/// # Errors
/// If the machine cannot be stopped or read.
pub fn capture_all(
    link: &mut Link,
    symbols: Option<&linux::symbols::Symbols>,
    mut notes: Notes,
) -> Result<Capture, Error> {
    let mut paused = link.machine.pause()?;
    let facts = Facts::new(symbols, &paused.cpus);
    let pages = evidence::pages_of_all(&paused.memory, &paused.cpus, facts);
    let memory = evidence::copy(&paused.memory, &pages);
    let ran_ns = paused.ran_ns();
    let work = Work::of(&paused.memory, &paused.cpus, ran_ns);
    let cpus = paused.cpus.clone();
    let stopped = paused.resume()?;
    facts.keep(&mut notes);
    Ok(Capture {
        companions: Vec::new(),
        work,
        extent: Extent::KERNEL,
        snapshot: Snapshot {
            cpus,
            memory: memory?,
            notes,
        },
        stopped,
    })
}

/// Writes all that is known of a guest: the reason, its command, console, channel, registers, tables, architecture
/// findings.
///
/// # Errors
/// If the directory or a file cannot be written.
pub fn bundle(
    machine: &dyn Machine,
    capture: Option<&Capture>,
    directory: &Path,
    why: &str,
    kernel: &Kernel,
) -> Result<PathBuf, Error> {
    let write = |name: &str, text: &str| {
        let path = directory.join(name);
        private::write(&path, text).map_err(Error::io(format!("write {}", path.display())))
    };
    private::directory_all(directory).map_err(Error::io(format!(
        "make the directory {}",
        directory.display()
    )))?;
    write("why.txt", &format!("{why}\n"))?;
    write("command.txt", &format!("{}\n", machine.command_line()))?;
    write("console.log", &machine.console().tail())?;
    if let Some(capture) = capture {
        write("registers.txt", &registers(&capture.snapshot.cpus, kernel))?;
        write("findings.txt", &findings(&capture.snapshot))?;
        save(&capture.snapshot, &directory.join("tables.core"))?;
    }
    Ok(directory.to_path_buf())
}

/// Writes a snapshot as an ELF core, with all the memory that it holds.
///
/// # Errors
/// If the file cannot be written.
pub fn save(snapshot: &Snapshot, path: &Path) -> Result<(), Error> {
    let attempt = || format!("write the snapshot {}", path.display());
    let ranges: RangeSet = snapshot
        .memory
        .regions()
        .iter()
        .map(snapshot::Region::range)
        .collect();
    let failed = |error| Error::io(attempt())(error);
    replace_private(path, failed, |file| {
        let mut out = SparseFile::new(file.try_clone().map_err(failed)?);
        write_core(
            &mut out,
            &snapshot.cpus,
            &ranges,
            &snapshot.memory,
            &snapshot.notes,
        )?;
        out.finish().map_err(failed)?;
        Ok(())
    })
}

fn registers(cpus: &[Cpu], kernel: &Kernel) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    for cpu in cpus {
        let _ = writeln!(text, "{}", place(cpu, kernel));
        for (row, values) in cpu.general.x.chunks(4).enumerate() {
            let cells: Vec<String> = values
                .iter()
                .enumerate()
                .map(|(at, value)| format!("x{:<2} {value:#018x}", row * 4 + at))
                .collect();
            let _ = writeln!(text, "  {}", cells.join("  "));
        }
        let _ = writeln!(text, "  {:#018x?}", cpu.system);
    }
    text
}

/// Returns the place of a CPU, by symbol if there is one.
fn place(cpu: &Cpu, kernel: &Kernel) -> String {
    let symbols = kernel.symbols.as_ref();
    let slide = symbols.and_then(|symbols| evidence::slide(symbols, std::slice::from_ref(cpu)));
    let pc = cpu.general.pc.wrapping_sub(slide.unwrap_or(0));
    let symbol = symbols.and_then(|symbols| symbols.name(pc));
    let symbol = symbol.map_or(String::new(), |(name, offset)| {
        format!(" <{name}+{offset:#x}>")
    });
    format!(
        "CPU {} at EL{}: PC {:#018x}{symbol} PSTATE {:#x} SP {:#018x}",
        cpu.index,
        cpu.el(),
        cpu.general.pc,
        cpu.general.pstate,
        cpu.general.sp
    )
}

/// Applies the architecture's rules to the tables that the CPUs were using.
fn findings(snapshot: &Snapshot) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    for cpu in &snapshot.cpus {
        for half in [stage1::Half::Lower, stage1::Half::Upper] {
            let regime = match stage1::Regime::new(&cpu.system, half) {
                Ok(regime) => regime,
                Err(error) => {
                    let _ = writeln!(text, "CPU {} {half:?} half: not judged: {error}", cpu.index);
                    continue;
                }
            };
            let mut found = 0;
            let mut sink = |violation: stage1::Violation| {
                found += 1;
                let _ = writeln!(
                    text,
                    "CPU {} {half:?} half: {:?} {}: {}",
                    cpu.index, violation.rule, violation.va, violation.sentence
                );
            };
            let summary = stage1::check(
                &snapshot.memory,
                &regime,
                regime.first,
                regime.last,
                &mut sink,
            );
            let _ = writeln!(
                text,
                "CPU {} {half:?} half: {found} violations of the architecture's rules; {summary:?}",
                cpu.index
            );
        }
    }
    text
}
