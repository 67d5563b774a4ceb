// SPDX-License-Identifier: GPL-2.0-only
//! Starts a guest from a [`Config`].

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::fs::MemfdFlags;

use super::command::{arguments, Fds};
use super::ram::{self, Backend};
use super::stub::Stub;
use super::{Config, Qemu, State, COMMAND};
use crate::channel::Channel;
use crate::host::quoted;
use crate::private;
use crate::process::Process;
use crate::program::{printed, Unstartable};
use crate::qmp::Qmp;
use crate::registers::RegisterReader;
use crate::rsp::Rsp;
use crate::stream::Stream;
use crate::{Console, MachineError, QmpError, Stopped};

/// The oldest QEMU whose monitor, stub and options are known to work (major, minor).
const OLDEST: [u64; 2] = [10, 0];

/// Maximum time until QEMU's greeting.
const GREETING: Duration = Duration::from_secs(60);

/// Maximum time until it prints its version.
const VERSION: Duration = Duration::from_secs(10);

impl Qemu {
    /// Boots the guest; it runs when this returns.
    pub fn start(config: &Config) -> Result<Self, MachineError> {
        config.validate()?;
        let system = |what: &'static str| {
            move |source| MachineError::System {
                what: what.into(),
                source,
            }
        };
        private::directory_all(&config.work_dir).map_err(|source| MachineError::System {
            what: format!("make the folder {}", config.work_dir.display()),
            source,
        })?;
        let log = config.work_dir.join("qemu.log");
        let output = create(&log)?;
        let console_log = create(&config.work_dir.join("console.log"))?;
        let transcript = create(&config.work_dir.join("channel.log"))?;

        let pair = || Stream::pair().map_err(system("make a socket pair"));
        let (qmp, qmp_fd) = pair()?;
        let (gdb, gdb_fd) = pair()?;
        let (agent, agent_fd) = pair()?;
        let (agent_uart, agent_uart_fd) = pair()?;
        let (console, console_fd) = UnixStream::pair().map_err(system("make a socket pair"))?;
        let console_fd = OwnedFd::from(console_fd);
        let mut backends = Vec::new();
        let mut inherited = Vec::new();
        let mut fds = Fds {
            qmp: qmp_fd.as_raw_fd(),
            gdb: gdb_fd.as_raw_fd(),
            console: console_fd.as_raw_fd(),
            agent: agent_fd.as_raw_fd(),
            agent_uart: agent_uart_fd.as_raw_fd(),
            ram: Vec::new(),
        };
        for node in 0..config.nodes {
            let (id, bytes) = (
                format!("ram{node}"),
                config.memory_bytes / u64::from(config.nodes),
            );
            let (backend, fd) =
                Backend::new(id.clone(), bytes).map_err(system("make the guest's memory"))?;
            fds.ram.push((id, bytes, fd.as_raw_fd()));
            backends.push(backend);
            inherited.push(fd);
        }
        inherited.extend([qmp_fd, gdb_fd, console_fd, agent_fd, agent_uart_fd]);

        let arguments = arguments(config, &fds);
        let words = [config.qemu.as_os_str()].into_iter();
        let command_line = quoted(words.chain(arguments.iter().map(OsString::as_os_str)));
        let mut command = Command::new(&config.qemu);
        let again = output.try_clone().map_err(system("copy a descriptor"))?;
        command
            .args(&arguments)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(again);
        let process =
            Process::spawn(command, inherited).map_err(|error| unstartable(&config.qemu, error))?;

        let mut qmp = Qmp::new(qmp);
        let early = |error| not_started(error, &process, config, &log);
        let version = qmp.handshake(GREETING).map_err(early)?;
        if version[..2] < OLDEST[..] {
            return Err(too_old(version));
        }
        let mtree = qmp.human("info mtree -f", None, COMMAND).map_err(early)?;
        let threads = super::cpu_threads(&mut qmp).map_err(early)?;
        let banks = ram::locate(&backends, &mtree)?;
        let cpus = config.smp as usize;
        let reader = RegisterReader::attach(Rsp::new(gdb), cpus, COMMAND)?;
        let console =
            Console::start(console, console_log).map_err(system("start the console's thread"))?;
        let mut machine = Self {
            process,
            qmp,
            stub: Stub::Ours(reader),
            console,
            channel: Channel::new(vec![agent, agent_uart], transcript),
            _backends: backends,
            banks,
            cpus,
            threads,
            command_line,
            cmdline: config.cmdline.clone(),
            log,
            state: State::Paused,
            version,
        };
        machine.resume()?;
        Ok(machine)
    }
}

fn unstartable(qemu: &Path, error: io::Error) -> MachineError {
    match Unstartable::new(qemu, error) {
        Unstartable::Missing => MachineError::NoQemu(qemu.into()),
        Unstartable::Unfit(found) => MachineError::UnfitQemu {
            program: qemu.into(),
            found,
        },
        Unstartable::System(source) => MachineError::System {
            what: format!("start {}", qemu.display()),
            source,
        },
    }
}

fn create(path: &Path) -> Result<File, MachineError> {
    private::create(path).map_err(|source| MachineError::System {
        what: format!("write {}", path.display()),
        source,
    })
}

fn too_old(version: [u64; 3]) -> MachineError {
    let text = |numbers: &[u64]| {
        let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
        numbers.join(".")
    };
    MachineError::TooOld {
        found: text(&version),
        expected: text(&OLDEST),
    }
}

/// Returns the reason for a missing greeting: mostly QEMU has ended, and an old one because it did not know an option.
fn not_started(error: QmpError, process: &Process, config: &Config, log: &Path) -> MachineError {
    let Some(status) = process.wait(Duration::from_secs(2)) else {
        return error.into();
    };
    let (status, stderr) = (status.to_string(), last_words(log));
    match program_version(&config.qemu) {
        Some(version) if version[..2] < OLDEST[..] => too_old(version),
        Some(_) => MachineError::NotStarted { status, stderr },
        None => MachineError::NotQemu {
            program: config.qemu.clone(),
            status,
            stderr,
        },
    }
}

/// Returns the version that the program itself prints, if it prints one in time.
fn program_version(qemu: &Path) -> Option<[u64; 3]> {
    /// Maximum number of bytes of its output that are read.
    const MOST: u64 = 4096;
    let printed = rustix::fs::memfd_create("version", MemfdFlags::CLOEXEC).ok()?;
    let mut printed = File::from(printed);
    let mut command = Command::new(qemu);
    command
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(printed.try_clone().ok()?)
        .stderr(Stdio::null());
    let process = Process::spawn(command, Vec::new()).ok()?;
    process.wait(VERSION)?;
    printed.rewind().ok()?;
    let mut text = Vec::new();
    printed.take(MOST).read_to_end(&mut text).ok()?;
    parse_version(&String::from_utf8_lossy(&text))
}

/// Parses a text such as `QEMU emulator version 7.2.19 (Debian 1:7.2+dfsg-7)`.
fn parse_version(text: &str) -> Option<[u64; 3]> {
    let version = text.strip_prefix("QEMU emulator version ")?;
    let version = version.split_whitespace().next()?;
    let mut parts = version.split('.').map(|part| part.parse().ok());
    Some([parts.next()??, parts.next()??, parts.next()??])
}

/// Returns the end of QEMU's output, as one line.
pub(super) fn last_words(log: &Path) -> String {
    const MOST: u64 = 4096;
    let read = || -> io::Result<String> {
        let mut file = File::open(log)?;
        let bytes = file.metadata()?.len();
        file.seek(SeekFrom::Start(bytes.saturating_sub(MOST)))?;
        let mut end = Vec::new();
        file.take(MOST).read_to_end(&mut end)?;
        Ok(printed(&String::from_utf8_lossy(&end)))
    };
    match read() {
        Ok(text) => text,
        Err(error) => format!("cannot read {}: {error}", log.display()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn versions_are_read() {
        let text = "QEMU emulator version 7.2.19 (Debian 1:7.2+dfsg-7+deb12u14)\nCopyright";
        assert_eq!(parse_version(text), Some([7, 2, 19]));
        assert_eq!(parse_version("bash, version 5.2"), None);
        let old = too_old([7, 2, 19]).to_string();
        assert!(
            old.contains("QEMU 7.2.19 is too old: version 10.0 or later"),
            "{old}"
        );
    }

    /// Starts a script in QEMU's place and gives the error.
    fn start(name: &str, script: Option<&str>) -> String {
        let folder = std::env::temp_dir();
        let folder = folder.join(format!("folioscope-start-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut image = vec![0; 64];
        image[56..60].copy_from_slice(b"ARM\x64");
        std::fs::write(folder.join("Image"), image).unwrap();
        let mut config = Config::new(folder.join("Image"), folder.join("work"));
        config.qemu = folder.join("qemu");
        if let Some(script) = script {
            std::fs::write(&config.qemu, format!("#!/bin/sh\n{script}\n")).unwrap();
            let executable = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(&config.qemu, executable).unwrap();
        }
        let error = Qemu::start(&config).unwrap_err().to_string();
        std::fs::remove_dir_all(&folder).unwrap();
        error
    }

    #[test]
    fn a_qemu_that_does_not_start_says_why() {
        let missing = start("missing", None);
        assert!(
            missing.contains("install Debian's qemu-system-arm"),
            "{missing}"
        );
        let refusing = "echo no such CPU >&2; printf '\\\\a\\033b' >&2; exit 1";
        let version = "test \"$1\" = --version && echo QEMU emulator version 10.0.2 && exit";
        let refused = start("refusing", Some(&format!("{version}\n{refusing}")));
        let said = r"exit status: 1; it said: no such CPU; \\a\u001bb";
        assert!(refused.ends_with(said), "{refused}");
        let other = start("other", Some(refusing));
        assert!(
            other.contains("exit status: 1, and is no QEMU by its --version; it said: no such CPU"),
            "{other}"
        );
        let old = start(
            "old",
            Some("test \"$1\" = --version && echo QEMU emulator version 7.2.19; exit 1"),
        );
        assert!(old.contains("QEMU 7.2.19 is too old"), "{old}");
    }
}
