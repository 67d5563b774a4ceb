// SPDX-License-Identifier: GPL-2.0-only
//! A structure that is read at each instant of a guest and kept with its snapshot.

use serde::de::DeserializeOwned;
use serde::Serialize;
use serde_json::Value;
use stage1::PhysMemory;

use crate::{Kernel, StructureError, View};

/// A structure of the kernel at one instant.
pub trait Structure: Serialize + DeserializeOwned {
    /// Its name in a snapshot.
    const NAME: &'static str;

    /// Reads it, by [`crate::Object`] mostly.
    ///
    /// # Errors
    /// If this kernel does not have it, or it cannot be read.
    fn read<M: PhysMemory + ?Sized>(
        kernel: &Kernel,
        view: View<'_, M>,
    ) -> Result<Self, StructureError>;
}

/// Reads a structure as a snapshot keeps it.
#[derive(Clone, Copy, Debug)]
pub struct StructureReader {
    /// Its name in a snapshot.
    pub name: &'static str,
    /// Reads it.
    pub read: fn(&Kernel, View<'_, dyn PhysMemory + '_>) -> Result<Value, StructureError>,
}

impl StructureReader {
    /// Returns the reader of a structure.
    pub(crate) const fn of<S: Structure>() -> Self {
        Self {
            name: S::NAME,
            read: |kernel, view| {
                let read = serde_json::to_value(S::read(kernel, view)?);
                read.map_err(|error| StructureError::Inconsistent {
                    what: S::NAME,
                    va: 0,
                    why: error.to_string(),
                })
            },
        }
    }
}
