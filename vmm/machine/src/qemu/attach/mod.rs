//! A guest that runs already, in a QEMU that somebody else has started.
//!
//! ```text
//!        ours                                      QEMU
//!   Qmp           ---- stop, cont, questions --->  -qmp unix:PATH,server=on,wait=off
//!   socket pair   <--- registers --------------->  gdb stub, for as long as we look
//!   FileMemory    <--- read, page by page -------  memory-backend-{memfd,file,shm}, share=on
//! ```
//!
//! QEMU and its guest are somebody else's: nothing is written to the guest, it stands still only while it
//! is read, and whatever was made in QEMU for that is taken away again. Signals that would end us
//! wait until then. What remains after SIGKILL is a guest that may stand still (`cont` lets it go on) and
//! a stub that nobody is connected to, which the next [`Attached`] takes away.

mod error;
mod go_on;
mod memory;
mod ram;
mod signals;
mod stub;

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

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

/// How long a free QMP socket may take to greet: QEMU does at once, but its main loop may have to wait.
const GREETING: Duration = Duration::from_secs(5);

/// How long all that is asked of QEMU until the guest has been found may take.
const TOGETHER: Duration = Duration::from_secs(60);

/// States of a guest that stands still and that nothing is under way in, by QEMU's names for them.
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

/// What was found at a socket.
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
    /// RAM that is not read: parts of pages, beside something else in the same page.
    pub left_out: Vec<Range>,
    /// The user's own gdb stub.
    pub stub: String,
}

/// Somebody else's QEMU. Dropping it leaves that as it was.
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
    /// Whether the guest ran when it was found.
    ran: bool,
    /// Whether it stands still by our doing.
    stopped: bool,
    // Last, so that a signal takes effect when all else is done.
    signals: HeldBack,
}

/// A guest that stands still to be read. It goes on, if it did before, when this is ended or dropped.
#[derive(Debug)]
pub struct Look<'a> {
    machine: &'a mut Attached,
    since: Instant,
    /// The CPUs.
    pub cpus: Vec<Cpu>,
    /// How long each CPU's thread had run by then, in nanoseconds; 0 where that cannot be told.
    pub ran_ns: Vec<u64>,
    memory: Option<FileMemory>,
}

impl Attached {
    /// Connects to the QMP socket at `path`, finds the guest's RAM, and gets at its registers. It is stopped for some
    /// ten milliseconds.
    ///
    /// To be called before the program starts any thread: see the module `signals`.
    ///
    /// # Errors
    /// What is in the way, and which of QEMU's options takes it away. The guest is as it was.
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

    /// What is there.
    pub fn found(&self) -> &Found {
        &self.found
    }

    /// Whether the guest ran when it was found, so that each look is at another instant.
    pub fn ran(&self) -> bool {
        self.ran
    }

    /// Stops the guest, if it runs, and reads its registers.
    ///
    /// # Errors
    /// Where QEMU cannot be asked, or a signal has come meanwhile: then it is time to drop this.
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
                // The first error is the one to tell.
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

    /// The guest's memory as it is by and by, while the guest runs: for what does not change.
    pub fn memory(&self) -> FileMemory {
        // The largest page, so that any page is in one piece.
        FileMemory::new(&self.banks, 64 << 10)
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // What went before may have used its time up.
        self.qmp.limit(Some(TOGETHER));
        // Nobody is left to hear of an error, but for one that concerns the guest.
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
    /// The guest's memory. What was read of it once stays as it was read.
    ///
    /// # Panics
    /// Never: it is there until the end.
    pub fn memory(&self) -> &FileMemory {
        self.memory.as_ref().expect("there until the end")
    }

    /// All of the guest's RAM, of which nothing is kept when it is read.
    pub fn ram(&self) -> AllRam<'_> {
        AllRam(&self.machine.banks)
    }

    /// Lets the guest go on; gives the memory that was read, and how long the guest stood still at most.
    ///
    /// # Errors
    /// Where QEMU cannot be asked, or where the guest did not stand still all the time.
    pub fn end(mut self) -> Result<(Vec<Cpu>, FileMemory, Duration), AttachError> {
        let memory = self.memory.take().expect("there until the end");
        self.machine.go_on()?;
        Ok((std::mem::take(&mut self.cpus), memory, self.since.elapsed()))
    }
}

impl Drop for Look<'_> {
    fn drop(&mut self) {
        // The machine's next call meets the error, if there is one.
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

/// Looks for the RAM that a monitor says this process has, for the fuzz targets.
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

/// The largest table that a walk may want in one piece.
fn unit(cpus: &[Cpu]) -> u64 {
    let halves = [Half::Lower, Half::Upper];
    let granules = cpus.iter().flat_map(|cpu| {
        let regime = |half| Regime::new(&cpu.system, half).ok();
        halves.into_iter().filter_map(regime).map(|it| it.granule)
    });
    granules.map(Granule::bytes).max().unwrap_or(4096)
}

/// The process at the other end (of a server: that which called `listen`); 0 where it is in another PID namespace.
pub fn peer(socket: &UnixStream) -> i32 {
    let mut peer = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the option is of type ucred, and `peer` and `length` are one and its size.
    unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &mut length,
        );
    }
    peer.pid
}
