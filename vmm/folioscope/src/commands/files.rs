// SPDX-License-Identifier: GPL-2.0-only
//! Checks files of the command line before any is read or written: an input that is no file, an output that would
//! overwrite an input or another output, and one that cannot be written.
//!
//! The files come from the command line's definition, so that an option has to be in [`use_of`] only; a test goes
//! through all options.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use clap::{ArgMatches, Command};
use report::formats::FORMATS;

use crate::paths::{is_stdout, kind, stdout};
use crate::replace::open_fifo;
use crate::Error;

/// The major number of the memory devices: null, zero, full (Documentation/admin-guide/devices.txt).
const MEMORY_DEVICES: u64 = 1;
/// Symbolic links that are followed, as the kernel does.
const MOST_LINKS: usize = 40;

/// The use of a file that an option names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// It is read, and contains this.
    Input(&'static str),
    /// It is written from its beginning to its end: a pipe or a terminal suffices.
    Stream,
    /// It is written in any order, or read again: it must be a file.
    Output,
    /// A directory that files are written in, and made where it is not there.
    Place,
    /// It is started, or given to the guest, if it has a slash.
    Program,
    /// It is connected to.
    Socket,
    /// No file, or not for us to judge: a socket that is made, a directory that is there.
    Other,
}

/// Returns the use of the file that an option names; `None` for an unknown option.
fn use_of(id: &str, command: &str) -> Option<Use> {
    Some(match (id, command) {
        ("core" | "since" | "before" | "after", _) => {
            Use::Input("a snapshot that `folioscope save` wrote")
        }
        ("kernel" | "bare", _) | ("file", "image") => Use::Input("a kernel image"),
        ("vmlinux", _) => Use::Input("a vmlinux"),
        ("initrd", _) => Use::Input("an initramfs"),
        ("plugin" | "counter", _) => Use::Input("a plugin that vmm/setup/plugin.sh builds"),
        ("functions", _) => Use::Input("a list of functions"),
        ("judge", _) => Use::Input("a trace that `folioscope record` wrote"),
        (name, _) if FORMATS.iter().any(|format| format.name == name) => Use::Stream,
        ("trace" | "text", _) => Use::Stream,
        ("marks" | "executed", _) | ("file", "save") => Use::Output,
        ("out" | "man", _) => Use::Place,
        ("socket", "serve") | ("writable", _) => Use::Other,
        ("guest" | "socket", _) => Use::Socket,
        ("qemu" | "kvmtool", _) | ("program", "record") => Use::Program,
        _ => return None,
    })
}

/// A file of the command line.
#[derive(Debug)]
struct Named {
    /// The option, or the argument's name.
    option: String,
    path: PathBuf,
    used: Use,
}

/// Files that the command reads without an option that names them.
pub(super) type Defaults = Vec<(&'static str, PathBuf)>;

/// Refuses combinations that make no sense.
///
/// # Errors
/// If an input is no file, an output is an input or another output, or an output cannot be written to.
pub(super) fn check(
    command: &Command,
    matches: &ArgMatches,
    defaults: Defaults,
) -> Result<(), Error> {
    let mut named = Vec::new();
    collect(command, matches, &mut named);
    named.extend(defaults.into_iter().map(|(option, path)| Named {
        option: option.to_owned(),
        path,
        used: Use::Input("a file"),
    }));
    for file in &named {
        match file.used {
            Use::Input(what) => check_input(file, what)?,
            Use::Stream | Use::Output => check_output(file)?,
            Use::Place => check_name(file)?,
            Use::Socket => check_socket(file)?,
            Use::Program | Use::Other => {}
        }
    }
    named.retain(|file| !matches!(file.used, Use::Place | Use::Socket));
    check_apart(&named)
}

/// Adds the files of a command and of the one below it.
fn collect(command: &Command, matches: &ArgMatches, named: &mut Vec<Named>) {
    for argument in command.get_arguments() {
        let id = argument.get_id().as_str();
        let Some(used) = use_of(id, command.get_name()) else {
            continue;
        };
        if used == Use::Other || !matches.try_contains_id(id).unwrap_or(false) {
            continue;
        }
        let option = match argument.get_long() {
            Some(long) => format!("--{long}"),
            None => id.to_uppercase(),
        };
        let values = matches.get_raw(id).into_iter().flatten();
        let values = values.map(|path| Named {
            option: option.clone(),
            path: path.into(),
            used,
        });
        match used {
            // Its arguments are its own.
            Use::Program => named.extend(
                values
                    .take(1)
                    .filter(|named| named.path.as_os_str().as_bytes().contains(&b'/')),
            ),
            _ => named.extend(values),
        }
    }
    if let Some((name, matches)) = matches.subcommand() {
        if let Some(command) = command.find_subcommand(name) {
            collect(command, matches, named);
        }
    }
}

/// Checks an input. A missing one is refused by the function that opens it, in words on how to get it.
fn check_input(file: &Named, what: &str) -> Result<(), Error> {
    match fs::metadata(&file.path) {
        Ok(about) if !about.is_file() && !about.is_dir() => Err(Error::Input(format!(
            "expected {what} for {} and found {}: {} is not a regular file",
            file.option,
            kind(about.file_type()),
            file.path.display()
        ))),
        _ => Ok(()),
    }
}

/// Checks a socket. A missing one is refused by the function that connects to it, and so is one without a server.
fn check_socket(file: &Named) -> Result<(), Error> {
    match fs::metadata(&file.path) {
        Ok(about) if !about.file_type().is_socket() => Err(Error::Input(format!(
            "expected a socket for {} and found {}: {} is none{}",
            file.option,
            kind(about.file_type()),
            file.path.display(),
            match file.option.as_str() {
                "SOCKET" => "; give the one of QEMU's option -qmp",
                "--guest" if about.is_file() =>
                    "; a saved snapshot is named without an option, as CORE",
                _ => "",
            }
        ))),
        _ => Ok(()),
    }
}

/// Refuses the name by which other programs mean standard output. Here it would be a file's name, and printed output
/// goes to standard output anyway.
fn check_name(file: &Named) -> Result<(), Error> {
    if file.path.as_os_str() != "-" {
        return Ok(());
    }
    let (what, instead) = match file.used {
        Use::Stream => (
            "a file to write",
            "/dev/stdout for standard output, beside what is printed there, or ",
        ),
        Use::Place => ("a directory", ""),
        _ => ("a file to write", ""),
    };
    Err(Error::Input(format!(
        "expected {what} for {} and found -: give {instead}./- for one of that name",
        file.option
    )))
}

fn check_output(file: &Named) -> Result<(), Error> {
    check_name(file)?;
    let Ok(about) = fs::metadata(&file.path) else {
        return Ok(());
    };
    let refused = |found: &str| {
        Err(Error::Input(format!(
            "expected a file to write for {} and found {found}: {}",
            file.option,
            file.path.display()
        )))
    };
    let found = about.file_type();
    if found.is_dir() || found.is_socket() || found.is_block_device() {
        return refused(kind(found));
    }
    if file.used == Use::Output {
        if !about.is_file() && !is_memory_device(&about) {
            return refused(kind(found));
        }
        if is_stdout(&about) {
            return refused("standard output");
        }
    }
    if found.is_fifo() {
        match open_fifo(&file.path) {
            // Its reader would see the end of the file if it were closed now.
            Ok(open) => std::mem::forget(open),
            Err(error) => return refused(&format!("a FIFO, and {error}")),
        }
    }
    Ok(())
}

fn is_memory_device(about: &Metadata) -> bool {
    about.file_type().is_char_device() && rustix::fs::major(about.rdev()) as u64 == MEMORY_DEVICES
}

/// Identity of a file, by any path to it.
#[derive(Debug, PartialEq, Eq)]
enum Identity {
    /// Device and inode.
    There(u64, u64),
    /// A missing file: device and inode of its directory, and its name.
    Missing(u64, u64, OsString),
}

/// Returns the identity of a file; `None` for one that may be written twice, or that cannot be.
fn identity(path: &Path) -> Option<Identity> {
    if let Ok(about) = fs::metadata(path) {
        return (!is_memory_device(&about)).then(|| Identity::There(about.dev(), about.ino()));
    }
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        let Ok(target) = fs::read_link(&path) else {
            break;
        };
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let about = fs::metadata(parent).ok()?;
    Some(Identity::Missing(
        about.dev(),
        about.ino(),
        path.file_name()?.to_owned(),
    ))
}

fn check_apart(named: &[Named]) -> Result<(), Error> {
    let identities: Vec<Option<Identity>> = named.iter().map(|file| identity(&file.path)).collect();
    let stdout = stdout().map(|about| Identity::There(about.dev(), about.ino()));
    let is_output = |file: &Named| matches!(file.used, Use::Stream | Use::Output);
    let refused = |file: &Named, what: &str, other: &str| {
        Err(Error::Input(format!(
            "{} would overwrite {what}: {} is the file of {other} too; give it another name",
            file.option,
            file.path.display()
        )))
    };
    for (at, file) in named.iter().enumerate().filter(|(_, file)| is_output(file)) {
        let Some(identity) = &identities[at] else {
            continue;
        };
        // This name means standard output.
        let by_name = ["/dev/", "/proc/"]
            .iter()
            .any(|start| file.path.starts_with(start));
        if stdout.as_ref() == Some(identity) && !by_name {
            return refused(file, "what is printed", "standard output");
        }
        for (other_at, other) in named.iter().enumerate() {
            if other_at == at || identities[other_at].as_ref() != Some(identity) {
                continue;
            }
            if !is_output(other) {
                return refused(file, "an input", &other.option);
            }
            if other_at < at {
                return refused(file, "another output", &other.option);
            }
        }
    }
    for (at, file) in named
        .iter()
        .enumerate()
        .filter(|(_, file)| !is_output(file))
    {
        if stdout.is_some() && stdout == identities[at] {
            return Err(Error::Input(format!(
                "standard output would overwrite an input: {} is the file of {} too; print to another file",
                file.path.display(),
                file.option
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::{Arg, CommandFactory as _};

    use super::*;
    use crate::commands::Cli;

    /// Every option with a path has a use here, so that a new one is not forgotten.
    #[test]
    fn every_option_with_a_path_is_known() {
        let mut seen = 0;
        let mut commands = vec![Cli::command()];
        while let Some(command) = commands.pop() {
            commands.extend(command.get_subcommands().cloned());
            for argument in command.get_arguments() {
                let is_path = |argument: &&Arg| {
                    let parser = argument.get_value_parser();
                    parser.type_id() == clap::builder::ValueParser::path_buf().type_id()
                };
                if Some(argument).filter(is_path).is_none() {
                    continue;
                }
                seen += 1;
                let (id, command) = (argument.get_id().as_str(), command.get_name());
                assert!(use_of(id, command).is_some(), "{command}: {id}");
            }
        }
        assert!(seen > 50, "{seen}");
    }

    #[test]
    fn one_file_by_several_paths_is_one() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::write(at("file"), "").unwrap();
        fs::hard_link(at("file"), at("hard")).unwrap();
        std::os::unix::fs::symlink("file", at("soft")).unwrap();
        std::os::unix::fs::symlink("missing", at("dangling")).unwrap();
        fs::create_dir(at("below")).unwrap();
        let file = identity(&at("file"));
        assert!(file.is_some());
        for same in ["hard", "soft", "below/../file", "./file"] {
            assert_eq!(identity(&at(same)), file, "{same}");
        }
        let missing = identity(&at("missing"));
        assert!(missing.is_some() && missing != file);
        for same in ["dangling", "below/../missing"] {
            assert_eq!(identity(&at(same)), missing, "{same}");
        }
        assert_ne!(identity(&at("other")), missing);
        assert_ne!(identity(&at("below/missing")), missing);
        assert_eq!(identity(Path::new("/dev/null")), None);
        assert_eq!(identity(&at("no/such")), None);
    }
}
