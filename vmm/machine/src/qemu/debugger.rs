// SPDX-License-Identifier: GPL-2.0-only
//! QEMU's gdb stub: ours to read registers, unless it is lent to a debugger.
//!
//! QEMU has one stub, and it serves one client at a time. So a person with gdb gets it from us,
//! and gives it back.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use super::stub::{SocketFile, Stub};
use super::{Qemu, State};
use crate::private;
use crate::registers::{RegisterReader, FIRST};
use crate::rsp::Rsp;
use crate::stream::Stream;
use crate::{ConfigError, GdbError, MachineError, Stopped};

/// Maximum time for the stub's answer after it has been given back. While a debugger holds it, QEMU answers nothing.
const GIVEN_BACK: Duration = Duration::from_secs(2);

impl Qemu {
    /// Lends QEMU's gdb stub to a debugger, which finds it at the socket `path` (in gdb:
    /// `target remote PATH`). Until [`Qemu::take_gdb_back`] the guest cannot be paused by us.
    ///
    /// gdb stops the guest when it connects. It should leave by `detach`: its `kill` ends QEMU.
    pub fn lend_gdb(&mut self, path: &Path) -> Result<(), MachineError> {
        // The path becomes a word of a monitor command and a part of an option in it.
        let plain = |&byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+".contains(&byte);
        if !path.as_os_str().as_bytes().iter().all(plain) {
            return Err(ConfigError::SocketPath(path.to_path_buf()).into());
        }
        let line = format!("gdbserver unix:{},server=on,wait=off", path.display());
        // QEMU creates the new socket before it drops the old, and under the same name.
        self.monitor("gdbserver none")?;
        let answer = self.monitor(&line)?;
        if !answer.contains("Waiting for gdb connection") {
            return Err(crate::QmpError::Refused {
                command: line,
                reason: answer.trim().into(),
            }
            .into());
        }
        self.stub = Stub::Lent(SocketFile(path.to_path_buf()));
        Ok(())
    }

    /// Takes the stub back, once the debugger has left it. The guest's state, running or stopped, is unchanged.
    pub fn take_gdb_back(&mut self) -> Result<(), MachineError> {
        let Stub::Lent(SocketFile(path)) = &self.stub else {
            return Ok(());
        };
        let path = path.clone();
        self.take_events()?;
        let ran = self.state == State::Running;
        let stream = private::connect(&path, GIVEN_BACK).and_then(Stream::new);
        let stream = stream.map_err(|source| MachineError::System {
            what: format!("connect to QEMU's gdb stub at {}", path.display()),
            source,
        })?;
        match RegisterReader::attach(Rsp::new(stream), self.cpus, GIVEN_BACK) {
            Ok(reader) => self.stub = Stub::Ours(reader),
            Err(GdbError::Timeout { request, .. }) if request == FIRST => {
                return Err(MachineError::GdbLent(path));
            }
            Err(error) => return Err(self.explain(error.into())),
        }
        // Being attached to has stopped the guest.
        if ran {
            self.resume()?;
        }
        Ok(())
    }
}
