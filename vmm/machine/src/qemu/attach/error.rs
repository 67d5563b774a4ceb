// SPDX-License-Identifier: GPL-2.0-only
//! Reasons why a running QEMU cannot be read, each with what to do.

use std::path::PathBuf;
use std::time::Duration;

use untrusted::Text;

use crate::{GdbError, MachineError, QmpError};

/// The reason why an external QEMU cannot be read. The guest is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// There is no socket, or no process listens on it.
    #[error("cannot connect to {}: {source} (is the guest still running?); give the socket that `folioscope boot` prints, or that of a QEMU with -qmp unix:PATH,server=on,wait=off", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// No greeting.
    #[error("nobody greeted at {} within {waited:?}: QEMU serves one client of a QMP socket at a time, and another one (libvirt, a script) may hold this one; give QEMU a second one with -qmp unix:PATH,server=on,wait=off, and check that it is a QMP socket", path.display())]
    Silent {
        /// The socket.
        path: PathBuf,
        /// The time waited.
        waited: Duration,
    },
    /// The peer is not a QMP server.
    #[error("{} is no QMP socket: expected {{\"QMP\": ...}}, found {found:?}; give the one of QEMU's option -qmp (not -monitor, -serial or -gdb)", path.display())]
    NotQmp {
        /// The socket.
        path: PathBuf,
        /// Its greeting.
        found: String,
    },
    /// Another architecture.
    #[error("this QEMU emulates {0}: expected aarch64, whose tables are the only ones read here")]
    Target(Text),
    /// A state in which the guest must not be touched.
    #[error("the guest is in the state {0:?}, in which it can be neither stopped nor let go on without disturbing what is under way; attach when that is over")]
    State(String),
    /// RAM that only QEMU can read.
    #[error("the guest's RAM {id:?} ({size}, {kind}) is private to QEMU: no other program can read it. Start QEMU with: {instead}")]
    PrivateRam {
        /// The backend's name.
        id: String,
        /// Its size, as QEMU's options take it.
        size: String,
        /// Its type.
        kind: String,
        /// The arguments that make it readable.
        instead: String,
    },
    /// No RAM that belongs to a backend.
    #[error("QEMU's memory map shows no RAM of a memory backend: start QEMU with -machine ...,memory-backend=ram -object memory-backend-memfd,id=ram,size=SIZE,share=on")]
    NoRam,
    /// A memory map that no machine has.
    #[error("QEMU's memory map has more than {0} pieces of RAM: expected the map of a machine; give the socket of QEMU's option -qmp")]
    Pieces(usize),
    /// We may not see which process is behind the socket, or its mappings.
    #[error("cannot {what} of QEMU (process {pid}) to find the guest's RAM: {source}; run this command as QEMU's user or as root, on the same machine and in the same container")]
    Denied {
        /// The attempted operation.
        what: &'static str,
        /// QEMU's process id, 0 where it is in another PID namespace.
        pid: i32,
        /// The system's error.
        source: std::io::Error,
    },
    /// The process's maps do not show the RAM.
    #[error("process {pid} made the socket, and does not have the guest's RAM {id:?} at {address:#x} as a shared file: expected QEMU itself; give a socket that QEMU opened (-qmp unix:PATH,server=on,wait=off)")]
    NotMapped {
        /// The process.
        pid: i32,
        /// The backend's name.
        id: String,
        /// The address in QEMU.
        address: u64,
    },
    /// QEMU maps a file that can no longer be opened.
    #[error("the guest's RAM {id:?} is the file {name}, which cannot be opened{why}")]
    NotOpened {
        /// The backend's name.
        id: String,
        /// The file, as QEMU's maps show it.
        name: Text,
        /// The system's error with a colon before it; or empty.
        why: String,
    },
    /// A debugger has the stub.
    #[error("a debugger is connected to QEMU's gdb stub ({0}), and QEMU has only one: registers can be read when it has detached")]
    Debugger(String),
    /// A stub that is there, and cannot be used.
    #[error("QEMU has a gdb stub of its own at {place}, which cannot be used ({why}): leave out -s or -gdb, or free it with the monitor command `gdbserver none`")]
    Stub {
        /// The address of the stub.
        place: String,
        /// The reason why not.
        why: String,
    },
    /// There is no such CPU.
    #[error(
        "the registers of the guest's CPUs cannot be read: {0}; expected AArch64 CPUs of one model"
    )]
    Registers(GdbError),
    /// Another client resumed the guest while it was read.
    #[error("somebody else let the guest go on while it was being read: what was seen is not of one instant; try again while nobody else controls it")]
    Disturbed,
    /// A signal that was held back has come.
    #[error("ended by a signal; the guest is as it was found")]
    Interrupted,
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// The attempted operation.
        what: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// Any other error of a machine.
    #[error(transparent)]
    Machine(#[from] MachineError),
}

impl From<QmpError> for AttachError {
    fn from(error: QmpError) -> Self {
        Self::Machine(error.into())
    }
}
