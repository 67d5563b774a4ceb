// SPDX-License-Identifier: GPL-2.0-only
//! `--machine kvm-in-tcg`: runs the same command again, as its arm64 build in a carrier, with `--machine kvm`.

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};

use clap::CommandFactory as _;

use super::carrier::{connect, end_as, exec, CarrierOptions};
use super::terminal::Raw;
use super::{Cli, Command, Outcome};
use crate::kernel::check_16k;
use crate::machines::{MachineChoice, CARRIED};
use crate::options::{CarrierMode, GranuleName, GuestOptions};
use crate::scratch;
use crate::Error;

/// Memory of a carrier besides the guest's, in bytes.
const OVERHEAD: u64 = 1 << 30;

/// Memory of the largest guest of `bench`, in bytes.
const BENCH_MEMORY: u64 = 4 << 30;

/// Options of the carrier, and the machine itself.
const LEFT_OUT: [&str; 4] = ["machine", "carrier-mode", "cpu", "qemu"];

/// Path of the arm64 build of this command, unless FOLIOSCOPE_ARM64 names another.
const PROGRAM: &str = "out/folioscope-arm64";

/// Runs this command line in a carrier, if its options ask for one.
pub fn run(command: &Command) -> Option<Outcome> {
    let guest = command.guest()?;
    matches!(guest.machine, MachineChoice::Carried).then(|| carry(guest, command.types()))
}

fn carry(guest: &GuestOptions, types: bool) -> Outcome {
    if guest.kernel.is_none() && guest.granule == GranuleName::K16 {
        check_16k("the pinned kernel", &guest.cpu)?;
    }
    let program = program()?;
    let arguments = std::env::args_os()
        .skip(1)
        .map(|argument| argument.into_string())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|bad| {
            Error::Input(format!(
                "expected arguments in UTF-8 and found {bad:?}; a carrier takes no others"
            ))
        })?;
    let mut argv = vec![program.to_string_lossy().into_owned()];
    argv.extend(rewritten(&arguments, |name| takes_value(&arguments, name)));
    let set = |name: &str| (name.to_owned(), "1".to_owned());
    let mut extra = vec![set(CARRIED)];
    if io::stdout().is_terminal() {
        // Inside, it is a pipe.
        extra.push(set("CLICOLOR_FORCE"));
    }
    // Inside, standard input is a pipe too: the terminal is here. Not before the carrier is ready, since Ctrl-C ends
    // that.
    let exec = |connection| {
        let raw = types.then(Raw::new).transpose();
        let _raw = raw.map_err(Error::io("put the terminal into raw mode"))?;
        exec(connection, argv, extra)
    };
    let ended = match std::env::var_os("FOLIOSCOPE_CARRIER") {
        Some(socket) => exec(connect(Path::new(&socket))?)?,
        None => {
            let out =
                std::path::absolute(&guest.out).map_err(Error::io("find the working directory"))?;
            std::fs::create_dir_all(&out)
                .map_err(Error::io(format!("make the directory {}", out.display())))?;
            let command = arguments.first().map(String::as_str);
            let memory = match command {
                Some("bench") => guest.memory.max(BENCH_MEMORY),
                _ => guest.memory,
            };
            let carrier = CarrierOptions {
                cpu: guest.cpu.clone(),
                nvhe: guest.carrier_mode == CarrierMode::Nvhe,
                qemu: guest.qemu.clone(),
                writable: vec![out.clone()],
                out: guest.out.clone(),
                memory: memory.saturating_add(OVERHEAD).max(CarrierOptions::MEMORY),
                ..CarrierOptions::default()
            }
            .start()?;
            if command == Some("boot") && !types {
                // Other users cannot look into the guest from outside the carrier. The carrier's own directory is
                // absolute, so that its line is valid in any directory.
                let place = scratch::make(&guest.out.join("carriers"))?;
                let socket = std::path::absolute(place.join("carrier.sock"))
                    .map_err(Error::io("find the working directory"))?;
                carrier.listen(&socket)?;
                eprintln!(
                    "folioscope: the commands to look are for inside: FOLIOSCOPE_CARRIER={} folioscope carrier exec -- {} check",
                    socket.display(),
                    program.display()
                );
            }
            exec(carrier.connect()?)?
        }
    };
    end_as(ended)
}

fn program() -> Result<PathBuf, Error> {
    let path = std::env::var_os("FOLIOSCOPE_ARM64").map_or_else(|| PROGRAM.into(), PathBuf::from);
    // Not the link, whose target inside may be on another file system of the outside.
    path.canonicalize().map_err(|error| {
        Error::Input(format!(
            "expected the arm64 build of folioscope at {} and could not find it ({error}); build it with: vmm/setup/build.sh --carrier 4k",
            path.display()
        ))
    })
}

/// Returns the command line for inside: the subcommand, its machine, and the other options.
fn rewritten(arguments: &[String], takes_value: impl Fn(&str) -> bool) -> Vec<String> {
    let mut all = Vec::new();
    let mut rest = arguments.iter();
    all.extend(rest.next().cloned());
    all.extend(["--machine".to_owned(), "kvm".to_owned()]);
    while let Some(argument) = rest.next() {
        let (name, value) = match argument.strip_prefix("--") {
            Some(option) if !option.is_empty() => match option.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (option, None),
            },
            _ => {
                all.push(argument.clone());
                continue;
            }
        };
        let next = (value.is_none() && takes_value(name))
            .then(|| rest.next())
            .flatten();
        if !LEFT_OUT.contains(&name) {
            all.push(argument.clone());
            all.extend(next.cloned());
        }
    }
    all
}

/// Returns whether an option of the subcommand is followed by its value.
fn takes_value(arguments: &[String], option: &str) -> bool {
    let cli = Cli::command();
    let subcommand = arguments.first().and_then(|name| cli.find_subcommand(name));
    let mut known = subcommand
        .into_iter()
        .flat_map(clap::Command::get_arguments);
    known.any(|known| known.get_long() == Some(option) && known.get_action().takes_values())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words: &str) -> String {
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        rewritten(&words, |name| takes_value(&words, name)).join(" ")
    }

    #[test]
    fn what_is_the_carrier_s_is_left_out() {
        assert_eq!(
            line("run --machine kvm-in-tcg --granule 16k --cpu=cortex-a72 --qemu q --append=--cpu --smp 4"),
            "run --machine kvm --granule 16k --append=--cpu --smp 4"
        );
        assert_eq!(
            line("session --carrier-mode nvhe --machine=kvm-in-tcg"),
            "session --machine kvm"
        );
    }

    #[test]
    fn a_value_is_no_option() {
        assert_eq!(
            line("run --append --cpu --machine kvm-in-tcg --only anon"),
            "run --machine kvm --append --cpu --only anon"
        );
        // A flag has none.
        assert_eq!(
            line("run --information --cpu max"),
            "run --machine kvm --information"
        );
    }

    #[test]
    fn the_left_out_options_are_those_that_there_are() {
        let words = ["session".to_owned()];
        assert!(LEFT_OUT.iter().all(|option| takes_value(&words, option)));
    }
}
