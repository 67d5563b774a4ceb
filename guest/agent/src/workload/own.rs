// SPDX-License-Identifier: GPL-2.0-only
//! State of one process: a forked child inherits the memory that it is in, and has none of it.

use std::sync::Mutex;

use protocol::Failure;

/// A value, and the process that made it.
#[derive(Debug)]
pub struct Own<T>(Mutex<Option<(u32, T)>>);

impl<T> Own<T> {
    pub const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Acts on this process's value, which `make` makes if there is none.
    pub fn with<R>(
        &self,
        make: impl FnOnce() -> Result<T, Failure>,
        act: impl FnOnce(&mut T) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let mut value = self
            .0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        let me = std::process::id();
        match &mut *value {
            Some((owner, own)) if *owner == me => act(own),
            other => act(&mut other.insert((me, make()?)).1),
        }
    }
}
