// SPDX-License-Identifier: GPL-2.0-only
//! The emulator in which a carrier runs: its start, its messages, and its end.

use std::fs;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use machine::process::Process;
use machine::program::Unstartable;
use machine::{private, Console};
use protocol::carrier::{Decoder, Hello, Kind, VERSION};

use crate::command::{arguments, Fds};
use crate::{CarrierConfig, CarrierError};

/// QEMU, and its messages.
#[derive(Debug)]
pub(crate) struct Emulator {
    pub(crate) process: Process,
    console: Console,
    log: std::path::PathBuf,
}

impl Emulator {
    pub(crate) fn start(config: &CarrierConfig) -> Result<(Self, UnixStream), CarrierError> {
        let pair = || UnixStream::pair().map_err(CarrierError::system("make a socket pair"));
        let create = |name: &str| {
            let path = config.logs.join(name);
            let file = private::create(&path);
            file.map_err(CarrierError::system(format!("write {}", path.display())))
        };
        let (console, console_fd) = pair()?;
        let (port, port_fd) = pair()?;
        let fds = Fds {
            console: console_fd.as_raw_fd(),
            port: port_fd.as_raw_fd(),
        };
        let output = create("qemu.log")?;
        let mut command = Command::new(&config.qemu);
        command
            .args(arguments(config, fds)?)
            .stdin(Stdio::null())
            .stdout(
                output
                    .try_clone()
                    .map_err(CarrierError::system("copy a descriptor"))?,
            )
            .stderr(output);
        let inherited = vec![OwnedFd::from(console_fd), OwnedFd::from(port_fd)];
        let process =
            Process::spawn(command, inherited).map_err(|error| {
                match Unstartable::new(&config.qemu, error) {
                    Unstartable::Missing => CarrierError::NoQemu(config.qemu.clone()),
                    Unstartable::Unfit(found) => CarrierError::UnfitQemu {
                        program: config.qemu.clone(),
                        found,
                    },
                    Unstartable::System(source) => {
                        CarrierError::system(format!("start {}", config.qemu.display()))(source)
                    }
                }
            })?;
        let console = Console::start(console, create("console.log")?)
            .map_err(CarrierError::system("start the console's thread"))?;
        let log = config.logs.join("qemu.log");
        Ok((
            Self {
                process,
                console,
                log,
            },
            port,
        ))
    }

    /// Waits for the first frame.
    pub(crate) fn receive_hello(
        &self,
        mut port: &UnixStream,
        config: &CarrierConfig,
        started: Instant,
    ) -> Result<(Hello, Decoder), CarrierError> {
        let mut decoder = Decoder::new();
        let mut chunk = [0; 4096];
        let frame = loop {
            let lost = |error: protocol::carrier::FrameError| CarrierError::Lost(error.to_string());
            if let Some(frame) = decoder.next_frame().map_err(lost)? {
                break frame;
            }
            let left = config.patience.saturating_sub(started.elapsed());
            if left.is_zero() {
                return Err(CarrierError::Silent {
                    waited: config.patience,
                    console: config.logs.join("console.log"),
                });
            }
            port.set_read_timeout(Some(left))
                .map_err(CarrierError::system("wait for the carrier"))?;
            match port.read(&mut chunk) {
                Ok(count @ 1..) => decoder.push(&chunk[..count]),
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                    ) => {}
                Ok(0) | Err(_) => return Err(CarrierError::Lost(self.why_lost())),
            }
        };
        let hello: Hello = match frame.kind {
            Kind::Hello => serde_json::from_slice(&frame.payload).ok(),
            _ => None,
        }
        .ok_or_else(|| {
            CarrierError::Lost(format!(
                "expected its hello and found a {:?} frame; build both sides from the same source",
                frame.kind
            ))
        })?;
        if hello.version != VERSION {
            return Err(CarrierError::Version {
                expected: VERSION,
                found: hello.version,
            });
        }
        Ok((hello, decoder))
    }

    /// Returns how the machine ended whose port has closed.
    pub(crate) fn why_lost(&self) -> String {
        // The socket closes a moment before the process ends.
        let status = self.process.wait(Duration::from_secs(2));
        let console = self.console.tail();
        let last = last_line(&console);
        if let Some(line) = console
            .lines()
            .rev()
            .find(|line| line.contains("Kernel panic"))
        {
            return format!("its kernel panicked ({})", line.trim());
        }
        if let Some(line) = console
            .lines()
            .rev()
            .find(|line| line.contains("folioscope-carrier: "))
        {
            return format!("its init ended ({})", line.trim());
        }
        match status {
            Some(status) if status.success() => {
                format!("it has switched itself off; its console ends with: {last}")
            }
            Some(status) => {
                let said = fs::read_to_string(&self.log).unwrap_or_default();
                format!("QEMU ended with {status}; it said: {}", last_line(&said))
            }
            None => format!("its port has closed; its console ends with: {last}"),
        }
    }
}

fn last_line(text: &str) -> &str {
    text.lines()
        .rev()
        .map(str::trim)
        .find(|line| !line.is_empty())
        .unwrap_or("(nothing)")
}
