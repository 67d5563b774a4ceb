// SPDX-License-Identifier: GPL-2.0-only
//! The owner of QEMU's gdb stub.

use std::path::PathBuf;

use snapshot::Cpu;

use crate::registers::RegisterReader;
use crate::MachineError;

/// The owner of the stub.
#[derive(Debug)]
pub(super) enum Stub {
    Ours(RegisterReader),
    /// A debugger, at this socket. The file goes when the stub does.
    Lent(SocketFile),
}

#[derive(Debug)]
pub(super) struct SocketFile(pub(super) PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Gone already, perhaps.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Stub {
    pub(super) fn read(&mut self) -> Result<Vec<Cpu>, MachineError> {
        match self {
            Stub::Ours(reader) => Ok(reader.read()?),
            Stub::Lent(socket) => Err(MachineError::GdbLent(socket.0.clone())),
        }
    }
}
