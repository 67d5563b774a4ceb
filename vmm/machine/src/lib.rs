//! A guest that can be booted, paused, read and resumed.
//!
//! [`Machine`] is all that the rest of the rig knows of it. [`qemu::Qemu`] is the one that runs
//! anywhere: QEMU's TCG, with the guest's RAM in a memfd of ours.
//!
//! ```text
//!        ours                                   QEMU
//!   memfd, mapped  ======= guest RAM =======>   memory-backend-file, share=on
//!   qmp::Qmp       ------ stop, cont ------>    monitor
//!   rsp::Rsp       ------ registers ------->    gdbstub
//!   Console        <------- log ------------    PL011 #0 (ttyAMA0)
//!   Channel        <---- agent's lines ---->    virtio-serial port, and PL011 #1 (ttyAMA1)
//! ```
//!
//! Every line is a socket pair or a memfd that QEMU inherits: none has a name that two runs could
//! share, and nothing is left in the file system, however we end. QEMU itself dies with us: see
//! the module `process`.

pub mod qemu;

pub mod channel;
pub mod host;
pub mod log;
pub mod private;
pub mod process;
pub mod program;
pub mod stream;

mod console;
mod error;
mod limits;
mod paused;
mod qmp;
mod registers;
mod rsp;
mod target;

use std::fmt::Debug;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use snapshot::Range;

pub use console::{Console, Listener};
pub use error::{ChannelError, ConfigError, GdbError, MachineError, QmpError};
pub use paused::{Paused, Stopped};

/// A running guest, whatever runs it.
pub trait Machine: Debug + Send {
    /// What runs the guest, in a word: `qemu-tcg`, `kvm`.
    fn kind(&self) -> &'static str;

    /// How to start the same machine by hand, as a shell command.
    fn command_line(&self) -> String;

    /// The guest's RAM; several ranges where it has several NUMA nodes or a hole.
    fn ram(&self) -> Vec<Range>;

    /// The guest's console: what it printed so far, and a way to type.
    fn console(&self) -> &Console;

    /// How often the CPUs left the guest for the monitor so far, and why; `None` where that is not counted.
    fn exits(&self) -> Option<Vec<(&'static str, u64)>> {
        None
    }

    /// What the machine does now.
    fn status(&mut self) -> Status;

    /// An event that can be read from once the guest has ended; `None` where the console's end tells.
    fn end_event(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Stops all CPUs and devices and reads the registers; the guest goes on when the result is
    /// resumed or dropped.
    fn pause(&mut self) -> Result<Paused<'_>, MachineError>;

    /// Stops the machine as [`Machine::pause`] does, at the instant at which a waiting process rings the
    /// doorbell with `nonce`, if the machine has a doorbell and it rings soon. Elsewhere it is a plain
    /// pause, so the caller has to check where the CPUs stand, and to try again.
    fn pause_at(&mut self, nonce: u64) -> Result<Paused<'_>, MachineError> {
        let _ = nonce;
        self.pause()
    }

    /// Starts or ends a record of which pages of RAM are written to, which [`Paused::written`] reads.
    fn log_writes(&mut self, on: bool) -> Result<(), MachineError> {
        let _ = on;
        Err(MachineError::Unsupported {
            kind: self.kind(),
            what: "tell which pages were written to",
        })
    }

    /// Sends bytes to the agent in the guest, on the channel that it spoke on first.
    fn send(&mut self, bytes: &[u8], timeout: Duration) -> Result<(), MachineError>;

    /// The next line from the agent, without its line end.
    ///
    /// Ends early, with the reason, when the guest panics, powers off, or is lost.
    fn receive_line(&mut self, timeout: Duration) -> Result<Vec<u8>, MachineError>;

    /// Why the transcript of that channel is not whole, if it is not (no space, say).
    fn transcript_error(&self) -> Option<String>;

    /// Ends the machine at once. Dropping it does so too.
    fn kill(&mut self);

    /// Ends the machine in an orderly way, for which it may take `patience`: what it writes is written then.
    fn quit(&mut self, patience: Duration) {
        let _ = patience;
        self.kill();
    }
}

/// What a machine does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// Its CPUs run.
    Running,
    /// Its CPUs are stopped, at our demand.
    Paused,
    /// Its kernel has panicked. The memory can still be read.
    Panicked,
    /// It has powered off or asked for a reset. The memory can still be read.
    Ended {
        /// Whether it wanted to start again, as a kernel with `panic=-1` does.
        reset: bool,
    },
    /// The process that ran it is gone, with this exit status and these last words.
    Lost {
        /// The exit status or signal.
        status: String,
        /// The end of what it printed on standard error.
        stderr: String,
    },
}
