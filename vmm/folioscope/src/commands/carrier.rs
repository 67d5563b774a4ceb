// SPDX-License-Identifier: GPL-2.0-only
//! `folioscope carrier`: arm64 programs on any host, in an emulated machine that has EL2 and KVM.

use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use ::carrier::client::{self, Streams};
use ::carrier::{Carrier, CarrierConfig};
use clap::{Args, Subcommand};
use machine::private;
use protocol::carrier::{Ended, Start, VERSION};
use serde_json::json;

use super::output::say;
use super::terminal::Raw;
use super::Outcome;
use crate::options::parse_size;
use crate::scratch;
use crate::signals::{self, Signals};
use crate::{Error, EXIT_NOT_JUDGED, EXIT_OK};

/// Maximum wait for a carrier whose backlog is full.
const PATIENCE: Duration = Duration::from_secs(20);

/// Run arm64 programs on any host, in an emulated machine that has EL2 and KVM
#[derive(Args, Debug)]
#[command(after_help = "Example: folioscope carrier exec -- out/folioscope-arm64 schema")]
pub struct CarrierCommand {
    #[command(subcommand)]
    command: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Serve(Serve),
    Exec(Exec),
}

/// Boot a carrier and run programs for others until standard input ends or SIGTERM comes
///
/// Prints a line of JSON when it is ready. Where standard input is /dev/null, as in a shell's background, only
/// the signal ends it.
#[derive(Args, Debug)]
struct Serve {
    /// The Unix socket to make, for FOLIOSCOPE_CARRIER
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    #[command(flatten)]
    options: CarrierOptions,
}

/// Run one program: its standard streams, exit status and signals are ours
#[derive(Args, Debug)]
#[command(
    after_help = "Example: CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER='folioscope carrier exec --' cargo test --target aarch64-unknown-linux-gnu"
)]
struct Exec {
    /// The socket of a carrier that serves [default: a carrier of its own, for this program]
    #[arg(long, value_name = "PATH", env = "FOLIOSCOPE_CARRIER")]
    socket: Option<PathBuf>,
    /// Put the terminal in raw mode while the program runs
    #[arg(long)]
    tty: bool,
    #[command(flatten)]
    options: CarrierOptions,
    /// The program, static and for arm64, and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<String>,
}

/// The carrier to boot.
#[derive(Args, Clone, Debug)]
pub struct CarrierOptions {
    /// CPU model, by QEMU's name; KVM is nVHE on one without FEAT_VHE, such as cortex-a72
    #[arg(long, value_name = "MODEL", default_value = "max")]
    pub cpu: String,
    /// Let KVM run as nVHE on a CPU that has VHE
    #[arg(long)]
    pub nvhe: bool,
    /// The version of its interrupt controller, which is that of its guests
    #[arg(long, value_name = "VERSION", default_value_t = 3, value_parser = clap::value_parser!(u8).range(2..=3))]
    pub gic: u8,
    /// The carrier's kernel
    #[arg(long, value_name = "FILE", default_value = Self::KERNEL)]
    pub kernel: PathBuf,
    /// The carrier's initramfs
    #[arg(long, value_name = "FILE", default_value = Self::INITRD)]
    pub initrd: PathBuf,
    /// The QEMU to run
    #[arg(long, value_name = "FILE", default_value = "qemu-system-aarch64")]
    pub qemu: PathBuf,
    /// Memory, in bytes or with a suffix K, M or G; the host gives it as it is used
    #[arg(long, value_name = "SIZE", default_value = "4G", value_parser = parse_size)]
    pub memory: u64,
    /// One more directory to be writable inside, besides the working directory and the temporary one
    #[arg(long, value_name = "DIR")]
    pub writable: Vec<PathBuf>,
    /// Where logs go
    #[arg(long, value_name = "DIR", default_value = "out")]
    pub out: PathBuf,
}

impl CarrierCommand {
    pub fn run(self) -> Outcome {
        match self.command {
            Action::Serve(serve) => serve.run(),
            Action::Exec(exec) => exec.run(),
        }
    }
}

impl Default for CarrierOptions {
    fn default() -> Self {
        Self {
            cpu: "max".into(),
            nvhe: false,
            gic: 3,
            kernel: Self::KERNEL.into(),
            initrd: Self::INITRD.into(),
            qemu: "qemu-system-aarch64".into(),
            memory: Self::MEMORY,
            writable: Vec::new(),
            out: "out".into(),
        }
    }
}

impl CarrierOptions {
    const KERNEL: &str = "out/carrier-kernel/Image";
    const INITRD: &str = "out/carrier.cpio";
    /// Memory of a carrier in bytes.
    pub const MEMORY: u64 = 4 << 30;

    /// Boots the carrier.
    ///
    /// # Errors
    /// As the carrier's.
    pub fn start(&self) -> Result<Carrier, Error> {
        let logs = scratch::make(&self.out.join("carriers"))?;
        let mut config = CarrierConfig::new(&self.kernel, &self.initrd, &logs);
        config.cpu.clone_from(&self.cpu);
        config.qemu.clone_from(&self.qemu);
        config.nvhe = self.nvhe;
        config.gic = self.gic;
        config.memory_bytes = self.memory;
        config.writable.push(here()?);
        for directory in &self.writable {
            let directory = directory
                .canonicalize()
                .map_err(Error::io(format!("find {}", directory.display())))?;
            config.writable.push(directory);
        }
        Ok(Carrier::start(&config)?)
    }
}

impl Serve {
    fn run(self) -> Outcome {
        let signals = Signals::block(&signals::ENDS);
        let carrier = self.options.start()?;
        carrier.listen(&self.socket)?;
        say!(
            "{}",
            json!({"ready": {
                "socket": self.socket, "hello": carrier.hello(), "seconds": carrier.ready_after().as_secs_f64(),
            }})
        );
        let (end, ended) = mpsc::channel();
        if ends_some_time() {
            let end = end.clone();
            std::thread::spawn(move || {
                let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
                let _ = end.send(());
            });
        }
        std::thread::spawn(move || {
            let _ = signals.wait();
            let _ = end.send(());
        });
        let outcome = loop {
            match ended.recv_timeout(std::time::Duration::from_millis(200)) {
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    if let Some(why) = carrier.lost() {
                        break Err(::carrier::CarrierError::Lost(why).into());
                    }
                }
                _ => break Ok(EXIT_OK),
            }
        };
        let _ = std::fs::remove_file(&self.socket);
        outcome
    }
}

/// Returns whether standard input is open and will be closed by its writer.
fn ends_some_time() -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    let file = io::stdin().as_fd().try_clone_to_owned().map(File::from);
    file.and_then(|file| file.metadata())
        .is_ok_and(|about| !about.file_type().is_char_device() || io::stdin().is_terminal())
}

impl Exec {
    fn run(self) -> Outcome {
        let raw = self
            .tty
            .then(Raw::new)
            .transpose()
            .map_err(Error::io("set the terminal to raw mode"))?;
        let ended = match &self.socket {
            Some(socket) => exec(connect(socket)?, self.program, None)?,
            None => {
                let carrier = self.options.start()?;
                exec(carrier.connect()?, self.program, None)?
            }
        };
        drop(raw);
        end_as(ended)
    }
}

/// Returns a connection to a carrier that serves.
///
/// # Errors
/// If no process listens there.
pub fn connect(socket: &std::path::Path) -> Result<UnixStream, Error> {
    private::connect(socket, PATIENCE).map_err(|error| {
        Error::Input(format!(
            "expected a carrier at the socket {} and found none ({error}); start it with: folioscope carrier serve --socket {}",
            socket.display(),
            socket.display()
        ))
    })
}

/// Runs a program with our standard streams and environment, and `extra` in it, until it ends.
///
/// # Errors
/// If it could not be started, or the carrier was lost.
pub fn exec(
    connection: UnixStream,
    argv: Vec<String>,
    extra: impl IntoIterator<Item = (String, String)>,
) -> Result<Ended, Error> {
    let text = |text: std::ffi::OsString| text.into_string().ok();
    let start = Start {
        version: VERSION,
        argv,
        env: std::env::vars_os()
            .filter_map(|(name, value)| Some((text(name)?, text(value)?)))
            .chain(extra)
            .collect(),
        cwd: here()?.to_string_lossy().into_owned(),
    };
    let copy = |fd: std::os::fd::BorrowedFd<'_>| {
        fd.try_clone_to_owned()
            .map(File::from)
            .map_err(Error::io("copy a standard stream"))
    };
    let streams = Streams {
        stdin: Box::new(copy(io::stdin().as_fd())?),
        stdout: Box::new(copy(io::stdout().as_fd())?),
        stderr: Box::new(copy(io::stderr().as_fd())?),
    };
    let signals = Signals::block(&signals::PASSED);
    let ended = client::run(connection, &start, streams, |program| {
        std::thread::spawn(move || loop {
            program.signal(signals.wait());
        });
    })?;
    Ok(ended)
}

/// Ends as the program did: with its status, or by the signal that ended it.
pub fn end_as(ended: Ended) -> Outcome {
    match ended {
        Ended::Exit(status) => Ok(status),
        Ended::Signal(number) => signals::die_of(i32::from(number)),
        Ended::NotStarted(_) | Ended::Lost(_) => Ok(EXIT_NOT_JUDGED),
    }
}

fn here() -> Result<PathBuf, Error> {
    std::env::current_dir().map_err(Error::io("find the working directory"))
}
