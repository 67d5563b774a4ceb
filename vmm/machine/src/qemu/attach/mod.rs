// SPDX-License-Identifier: GPL-2.0-only
//! A running guest in an external QEMU.
//!
//! ```text
//!        ours                                      QEMU
//!   Qmp           ---- stop, cont, questions --->  -qmp unix:PATH,server=on,wait=off
//!   socket pair   <--- registers --------------->  gdb stub, for as long as we look
//!   FileMemory    <--- read, page by page -------  memory-backend-{memfd,file,shm}, share=on
//! ```
//!
//! QEMU and its guest are not ours. No byte is written to the guest, it is stopped only while it is read, and all that
//! was created in QEMU for that is removed again. Signals that would end us are held back until then. After SIGKILL the
//! guest may stay stopped (`cont` resumes it), and a stub without a client may stay, which the next [`Attached`]
//! removes.

mod error;
mod go_on;
mod memory;
mod ram;
mod signals;
mod stub;

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use serde_json::json;
use snapshot::{Cpu, Range};
use stage1::{Granule, Half, PhysMemory, PhysicalAddress, Regime};

use super::{cpu_threads, ran_ns_of, COMMAND};
use crate::error::excerpt;
use crate::private;
use crate::qmp::{self, Qmp};
use crate::stream::Stream;
use crate::{MachineError, QmpError};
use memory::Bank;
use signals::HeldBack;
use stub::{Borrowed, CONNECT};

pub use error::AttachError;
pub use memory::{AllRam, FileMemory};
pub use ram::FoundRam;

/// Maximum time for the greeting of a free QMP socket. QEMU greets at once, but its main loop may have to wait.
const GREETING: Duration = Duration::from_secs(5);

/// Maximum time for all commands to QEMU until the guest has been found.
const TOGETHER: Duration = Duration::from_secs(60);

/// States of a stopped guest in which no operation is under way, by QEMU's names for them.
const STILL: [&str; 8] = [
    "paused",
    "prelaunch",
    "shutdown",
    "guest-panicked",
    "io-error",
    "internal-error",
    "watchdog",
    "debug",
];

/// The machine found at a socket.
#[derive(Clone, Debug)]
pub struct Found {
    /// QEMU's version.
    pub version: [u64; 3],
    /// The machine's type, such as `virt-10.0`.
    pub machine: String,
    /// `tcg` or `kvm`.
    pub accelerator: &'static str,
    /// QEMU's process id; 0 where it is in another PID namespace.
    pub pid: i32,
    /// The guest's state, by QEMU's name for it.
    pub status: String,
    /// The guest's RAM.
    pub ram: Vec<FoundRam>,
    /// RAM that is not read: parts of pages that share their page with something else.
    pub left_out: Vec<Range>,
    /// The user's own gdb stub.
    pub stub: String,
}

/// An external QEMU. Drop restores it to the state in which it was found.
#[derive(Debug)]
pub struct Attached {
    /// The socket.
    path: PathBuf,
    qmp: Qmp,
    stub: Option<Borrowed>,
    banks: Vec<Bank>,
    /// The threads of QEMU that run the CPUs.
    threads: Vec<u64>,
    found: Found,
    /// True if the guest ran when it was found.
    ran: bool,
    /// True if we stopped it.
    stopped: bool,
    // Last, so that a signal takes effect after all else is done.
    signals: HeldBack,
}

/// A guest that is stopped to be read. If it ran before, it runs on when this is ended or dropped.
#[derive(Debug)]
pub struct Look<'a> {
    machine: &'a mut Attached,
    since: Instant,
    /// The CPUs.
    pub cpus: Vec<Cpu>,
    /// Run time of each CPU's thread by then, in nanoseconds; 0 if it is unknown.
    pub ran_ns: Vec<u64>,
    memory: Option<FileMemory>,
}

impl Attached {
    /// Connects to the QMP socket at `path`, finds the guest's RAM, and gets at its registers. It is stopped for some
    /// ten milliseconds.
    ///
    /// Must be called before the program starts any thread: see the module `signals`.
    ///
    /// # Errors
    /// The obstacle, and the option of QEMU that removes it. The guest is unchanged.
    pub fn to(path: &Path) -> Result<Self, AttachError> {
        let connect = |source| AttachError::Connect {
            path: path.into(),
            source,
        };
        let socket = private::connect(path, CONNECT).map_err(connect)?;
        let pid = peer(&socket);
        let mut qmp = Qmp::new(Stream::new(socket).map_err(connect)?);
        let version = qmp.handshake(GREETING).map_err(|error| match error {
            QmpError::Timeout { waited, command } if command == qmp::GREETING => {
                AttachError::Silent {
                    path: path.into(),
                    waited,
                }
            }
            QmpError::Garbage { found, command } if command == qmp::GREETING => {
                AttachError::NotQmp {
                    path: path.into(),
                    found: found.raw().to_owned(),
                }
            }
            QmpError::Closed(command) if command == qmp::GREETING => AttachError::NotQmp {
                path: path.into(),
                found: "nothing: it was closed".into(),
            },
            other => other.into(),
        })?;
        qmp.limit(Some(TOGETHER));
        let mut ask = |command: &str| qmp.execute(command, json!({}), COMMAND);
        let target = ask("query-target")?;
        let target = target["arch"].as_str().unwrap_or("nothing known");
        if target != "aarch64" {
            return Err(AttachError::Target(target.into()));
        }
        let kvm = ask("query-kvm").is_ok_and(|kvm| kvm["enabled"] == true);
        let machine = json!({"path": "/machine", "property": "type"});
        let machine = qmp.execute("qom-get", machine, COMMAND).ok();
        let machine = machine.as_ref().and_then(|name| name.as_str());
        let machine = machine.unwrap_or("unknown").trim_end_matches("-machine");
        let threads = cpu_threads(&mut qmp)?;
        let ram::AllFound {
            banks,
            ram,
            left_out,
        } = ram::find(&mut qmp, pid)?;

        let signals = HeldBack::new();
        let status = status(&mut qmp)?;
        let ran = status == "running";
        if !ran && !STILL.contains(&status.as_str()) {
            return Err(AttachError::State(status));
        }
        let mut attached = Self {
            path: path.into(),
            qmp,
            stub: None,
            banks,
            found: Found {
                version,
                machine: machine.into(),
                accelerator: if kvm { "kvm" } else { "tcg" },
                pid,
                status,
                ram,
                left_out,
                stub: String::new(),
            },
            threads,
            ran,
            stopped: false,
            signals,
        };
        attached.stop()?;
        let borrowed = Borrowed::new(&mut attached.qmp, pid, attached.threads.len())?;
        attached.found.stub.clone_from(&borrowed.place);
        attached.stub = Some(borrowed);
        attached.go_on()?;
        attached.qmp.limit(None);
        Ok(attached)
    }

    /// Returns what is there.
    pub fn found(&self) -> &Found {
        &self.found
    }

    /// Returns whether the guest ran when it was found, so that each look is at another instant.
    pub fn ran(&self) -> bool {
        self.ran
    }

    /// Stops the guest, if it runs, and reads its registers.
    ///
    /// # Errors
    /// If QEMU cannot be asked, or a signal has arrived meanwhile. The caller should then drop this.
    pub fn look(&mut self) -> Result<Look<'_>, AttachError> {
        if self.signals.any_came() {
            return Err(AttachError::Interrupted);
        }
        let since = Instant::now();
        self.stop()?;
        let ran_ns = ran_ns_of(self.found.pid, &self.threads);
        let stub = self.stub.as_mut().expect("there until the drop");
        let cpus = match stub.reader.read() {
            Ok(cpus) => cpus,
            Err(error) => {
                // The first error is the one to report.
                let _ = self.go_on();
                return Err(MachineError::from(error).into());
            }
        };
        let memory = FileMemory::new(&self.banks, unit(&cpus));
        Ok(Look {
            machine: self,
            since,
            cpus,
            ran_ns,
            memory: Some(memory),
        })
    }

    /// Returns the guest's memory while the guest runs, for data that does not change.
    pub fn memory(&self) -> FileMemory {
        // The largest page, so that any page is in one piece.
        FileMemory::new(&self.banks, 64 << 10)
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // Earlier commands may have used its time up.
        self.qmp.limit(Some(TOGETHER));
        // Drop cannot return an error, except for one that concerns the guest.
        if let Some(stub) = self.stub.take() {
            let _ = stub.give_back(&mut self.qmp);
        }
        let _ = self.go_on();
        if self.stopped {
            if let Err(error) = self.insist() {
                eprintln!(
                    "folioscope: QEMU (process {}) could not be told to let its guest go on ({}); the guest stands still until somebody gives QEMU the command cont",
                    self.found.pid,
                    untrusted::filtered(&error.to_string())
                );
            }
        }
    }
}

impl Look<'_> {
    /// Returns the guest's memory. A page that was read once keeps its contents.
    ///
    /// # Panics
    /// Never: it is there until the end.
    pub fn memory(&self) -> &FileMemory {
        self.memory.as_ref().expect("there until the end")
    }

    /// Returns all of the guest's RAM, of which nothing is kept when it is read.
    pub fn ram(&self) -> AllRam<'_> {
        AllRam(&self.machine.banks)
    }

    /// Resumes the guest. Returns the memory that was read, and the upper bound of the stop.
    ///
    /// # Errors
    /// If QEMU cannot be asked, or if the guest was not stopped all the time.
    pub fn end(mut self) -> Result<(Vec<Cpu>, FileMemory, Duration), AttachError> {
        let memory = self.memory.take().expect("there until the end");
        self.machine.go_on()?;
        Ok((std::mem::take(&mut self.cpus), memory, self.since.elapsed()))
    }
}

impl Drop for Look<'_> {
    fn drop(&mut self) {
        // The next call on the machine reports the error, if there is one.
        let _ = self.machine.go_on();
    }
}

impl PhysMemory for Look<'_> {
    fn words(&self, address: PhysicalAddress, count: usize) -> Option<&[u64]> {
        self.memory().words(address, count)
    }

    fn is_ram(&self, address: PhysicalAddress) -> bool {
        self.memory().is_ram(address)
    }
}

/// Searches the RAM that a monitor assigns to this process, for the fuzz targets.
#[cfg(any(test, feature = "testing"))]
pub(super) fn ram_of_this_process(qmp: &mut Qmp) -> Result<(), AttachError> {
    ram::find(qmp, std::process::id() as i32).map(drop)
}

fn status(qmp: &mut Qmp) -> Result<String, AttachError> {
    let status = qmp.execute("query-status", json!({}), COMMAND)?;
    match status["status"].as_str() {
        Some(status) => Ok(status.into()),
        None => Err(QmpError::Garbage {
            command: "query-status".into(),
            found: excerpt(status.to_string().as_bytes()).into(),
        }
        .into()),
    }
}

/// Returns the size of the largest table that a walk may need in one piece.
fn unit(cpus: &[Cpu]) -> u64 {
    let halves = [Half::Lower, Half::Upper];
    let granules = cpus.iter().flat_map(|cpu| {
        let regime = |half| Regime::new(&cpu.system, half).ok();
        halves.into_iter().filter_map(regime).map(|it| it.granule)
    });
    granules.map(Granule::bytes).max().unwrap_or(4096)
}

/// Returns the process at the other end (of a server: that which called `listen`); 0 where it is in another PID
/// namespace.
pub fn peer(socket: &UnixStream) -> i32 {
    getsockopt(socket, PeerCredentials).map_or(0, |peer| peer.pid())
}
