// SPDX-License-Identifier: GPL-2.0-only
//! Starts a carrier from its configuration, and waits until it is ready.

use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use machine::private;
use protocol::carrier::Hello;

use crate::emulator::Emulator;
use crate::switch::Switch;
use crate::{CarrierConfig, CarrierError};

/// An emulated machine that runs programs. It ends when it is dropped, and with us however we end.
#[derive(Debug)]
pub struct Carrier {
    switch: Switch,
    hello: Hello,
    ready_after: Duration,
    /// Last, so that it exists as long as the switch may ask how it ended.
    emulator: Arc<Emulator>,
}

impl Carrier {
    /// Boots a carrier and waits until it is ready.
    ///
    /// # Errors
    /// One sentence with the missing thing, or how the carrier ended.
    pub fn start(config: &CarrierConfig) -> Result<Self, CarrierError> {
        for (what, path) in [
            ("the carrier's kernel", &config.kernel),
            ("the carrier's initramfs", &config.initrd),
        ] {
            if !path.is_file() {
                return Err(CarrierError::Missing {
                    what,
                    path: path.clone(),
                });
            }
        }
        private::directory_all(&config.logs).map_err(CarrierError::system(format!(
            "make the directory {}",
            config.logs.display()
        )))?;
        let started = Instant::now();
        let (emulator, port) = Emulator::start(config)?;
        let emulator = Arc::new(emulator);
        let (hello, decoder) = emulator.receive_hello(&port, config, started)?;
        let switch = Switch::start(port, decoder, Arc::clone(&emulator))?;
        Ok(Self {
            switch,
            hello,
            ready_after: started.elapsed(),
            emulator,
        })
    }

    /// Returns its greeting.
    #[must_use]
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Returns the time from starting QEMU to the carrier's greeting.
    #[must_use]
    pub fn ready_after(&self) -> Duration {
        self.ready_after
    }

    /// Opens a connection for one program: see [`crate::client::run`].
    ///
    /// # Errors
    /// If there are no more descriptors.
    pub fn connect(&self) -> Result<UnixStream, CarrierError> {
        let (ours, theirs) =
            UnixStream::pair().map_err(CarrierError::system("make a socket pair"))?;
        self.switch.accept(theirs)?;
        Ok(ours)
    }

    /// Takes connections on a Unix socket of this name from now on. Only this user may connect.
    ///
    /// # Errors
    /// If a process listens there already, or the path cannot be a socket's.
    pub fn listen(&self, path: &Path) -> Result<(), CarrierError> {
        let cannot = || format!("listen on {}", path.display());
        if private::connect(path, Duration::ZERO).is_ok() {
            let error = io::Error::from(io::ErrorKind::AddrInUse);
            return Err(CarrierError::system(cannot())(error));
        }
        if fs::symlink_metadata(path)
            .is_ok_and(|there| std::os::unix::fs::FileTypeExt::is_socket(&there.file_type()))
        {
            // No process listens there any more.
            let _ = fs::remove_file(path);
        }
        let listener = private::listen(path).map_err(CarrierError::system(cannot()))?;
        self.switch.listen(listener)
    }

    /// Returns QEMU's process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.emulator.process.pid()
    }

    /// Returns the reason why it cannot be used any more, once it cannot.
    #[must_use]
    pub fn lost(&self) -> Option<String> {
        self.switch.lost()
    }
}
