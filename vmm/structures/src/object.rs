// SPDX-License-Identifier: GPL-2.0-only
//! Objects of the kernel: an address in its memory with a type of its BTF.

use stage1::PhysMemory;
use untrusted::Text;

use crate::{Kernel, StructureError, View};

/// A structure at an address. Its members are found by their names each time: for what is read once per instant. A
/// structure of which a walk reads thousands has a layout of its own, as [`crate::pages::Layout`].
#[derive(Debug)]
pub struct Object<'k, M: ?Sized> {
    kernel: &'k Kernel,
    view: View<'k, M>,
    /// The type's name in BTF, and in errors.
    structure: &'static str,
    address: u64,
}

impl<M: ?Sized> Clone for Object<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: ?Sized> Copy for Object<'_, M> {}

impl<'k, M: PhysMemory + ?Sized> Object<'k, M> {
    /// Returns the structure at an address.
    #[must_use]
    pub fn at(
        kernel: &'k Kernel,
        view: View<'k, M>,
        structure: &'static str,
        address: u64,
    ) -> Self {
        Self {
            kernel,
            view,
            structure,
            address,
        }
    }

    /// Returns the structure that is a variable of the kernel.
    ///
    /// # Errors
    /// If the kernel has no such variable.
    pub fn variable(
        kernel: &'k Kernel,
        view: View<'k, M>,
        structure: &'static str,
        name: &str,
    ) -> Result<Self, StructureError> {
        Ok(Self::at(kernel, view, structure, kernel.variable(name)?))
    }

    /// Returns its address.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns the element `nth` behind it in an array.
    ///
    /// # Errors
    /// If the kernel has no type of this name.
    pub fn nth(&self, nth: u64) -> Result<Self, StructureError> {
        let size = self.kernel.types.size(self.structure)?;
        Ok(Self {
            address: self.address.wrapping_add(nth.wrapping_mul(size)),
            ..*self
        })
    }

    /// Reads a member of up to 8 bytes; `path` is that of [`crate::types::Types::member`].
    ///
    /// # Errors
    /// If the structure has no such member, or it cannot be read.
    pub fn number(&self, path: &str) -> Result<u64, StructureError> {
        let member = self.kernel.types.member(self.structure, path)?;
        self.view.number(self.structure, self.address, member)
    }

    /// Reads a member that is an array of characters.
    ///
    /// # Errors
    /// As [`Object::number`].
    pub fn text(&self, path: &str) -> Result<Text, StructureError> {
        let member = self.kernel.types.member(self.structure, path)?;
        let at = self.address.wrapping_add(member.offset);
        self.view.text(self.structure, at, member.size)
    }

    /// Follows a member that is a pointer; `None` if it is null.
    ///
    /// # Errors
    /// As [`Object::number`], and if the member is no pointer.
    pub fn pointer(
        &self,
        path: &str,
        structure: &'static str,
    ) -> Result<Option<Self>, StructureError> {
        let member = self.kernel.types.pointer(self.structure, path)?;
        let address = self.view.number(self.structure, self.address, member)?;
        Ok((address != 0).then_some(Self {
            structure,
            address,
            ..*self
        }))
    }
}
