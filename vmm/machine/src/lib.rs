// SPDX-License-Identifier: GPL-2.0-only
//! A guest that can be booted, paused, read and resumed.
//!
//! [`Machine`] is the interface for the rest of the rig. [`qemu::Qemu`] runs on any host: QEMU's TCG, with the guest's
//! RAM in a memfd of ours.
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
//! Every line is a socket pair or a memfd that QEMU inherits. None has a name that two runs could share, and nothing is
//! left in the file system, however we end. QEMU ends with us: see the module `process`.

pub mod qemu;

pub mod channel;
pub mod host;
pub mod log;
pub mod private;
pub mod process;
pub mod program;
pub mod signals;
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

/// A running guest on any kind of machine.
pub trait Machine: Debug + Send {
    /// Returns what runs the guest, in a word: `qemu-tcg`, `kvm`.
    fn kind(&self) -> &'static str;

    /// Returns the shell command that starts the same machine by hand.
    fn command_line(&self) -> String;

    /// Returns the guest's RAM; several ranges where it has several NUMA nodes or a hole.
    fn ram(&self) -> Vec<Range>;

    /// Returns the guest's console: its output so far, and a way to type.
    fn console(&self) -> &Console;

    /// Returns how often the CPUs left the guest for the monitor so far, by reason; `None` if that is not counted.
    fn exits(&self) -> Option<Vec<(&'static str, u64)>> {
        None
    }

    /// Returns what the machine does now.
    fn status(&mut self) -> Status;

    /// Returns an event that is readable once the guest has ended; `None` if the console's end shows it.
    fn end_event(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Stops all CPUs and devices and reads the registers. The guest runs on when the result is resumed or dropped.
    fn pause(&mut self) -> Result<Paused<'_>, MachineError>;

    /// Stops the machine as [`Machine::pause`] does, at the instant at which a waiting process rings the doorbell with
    /// `nonce`. If the machine has no doorbell, or it does not ring soon, this is a plain pause. The caller therefore
    /// has to check where the CPUs are, and try again.
    fn pause_at(&mut self, nonce: u64) -> Result<Paused<'_>, MachineError> {
        let _ = nonce;
        self.pause()
    }

    /// Starts or ends a record of the pages of RAM that are written to, which [`Paused::written`] reads.
    fn log_writes(&mut self, on: bool) -> Result<(), MachineError> {
        let _ = on;
        Err(MachineError::Unsupported {
            kind: self.kind(),
            what: "tell which pages were written to",
        })
    }

    /// Sends bytes to the agent in the guest, on the channel that it used first.
    fn send(&mut self, bytes: &[u8], timeout: Duration) -> Result<(), MachineError>;

    /// Returns the next line from the agent, without its line end.
    ///
    /// Ends early, with the reason, when the guest panics, powers off, or is lost.
    fn receive_line(&mut self, timeout: Duration) -> Result<Vec<u8>, MachineError>;

    /// Returns the reason why that channel's transcript is not whole, if it is not (no space, for example).
    fn transcript_error(&self) -> Option<String>;

    /// Ends the machine at once. Dropping it does so too.
    fn kill(&mut self);

    /// Ends the machine in an orderly way within `patience`, so that it can complete its writes.
    fn quit(&mut self, patience: Duration) {
        let _ = patience;
        self.kill();
    }
}

/// State of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// Its CPUs run.
    Running,
    /// Its CPUs are stopped, at our request.
    Paused,
    /// Its kernel has panicked. The memory can still be read.
    Panicked,
    /// It has powered off or requested a reset. The memory can still be read.
    Ended {
        /// True if it requested a reset, as a kernel with `panic=-1` does.
        reset: bool,
    },
    /// The process that ran it has ended.
    Lost {
        /// The exit status or signal.
        status: String,
        /// The end of its output on standard error.
        stderr: String,
    },
}
