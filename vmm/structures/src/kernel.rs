// SPDX-License-Identifier: GPL-2.0-only
//! One kernel: its memory, where its variables are, and what its types look like.

use linux::kallsyms::{self, KallsymsError};
use linux::symbols::Symbols;
use stage1::{PhysMemory, PhysicalAddress, Regime};
use untrusted::Text;

use crate::types::{Member, Types};
use crate::StructureError;

/// Symbols and types of a kernel, at the addresses where it runs.
///
/// They do not change while it runs: made once, they serve every instant of the guest.
#[derive(Debug)]
pub struct Kernel {
    /// Its symbols.
    pub symbols: Symbols,
    /// Its types.
    pub types: Types,
}

impl Kernel {
    /// Finds both in the kernel's memory. `vbar_el1` is that of a CPU in the kernel.
    ///
    /// # Errors
    /// Where one of them is not there.
    pub fn find<M: PhysMemory + ?Sized>(
        memory: &M,
        upper: &Regime,
        vbar_el1: u64,
    ) -> Result<Kernel, StructureError> {
        let no_types = |error: KallsymsError| StructureError::NoTypes(error.to_string());
        let symbols = kallsyms::read(memory, upper, vbar_el1).map_err(no_types)?;
        let bounds = symbols
            .address("__start_BTF")
            .zip(symbols.address("__stop_BTF"));
        let (start, end) = bounds
            .ok_or_else(|| StructureError::Missing("__start_BTF among its symbols".into()))?;
        let size = end.checked_sub(start).filter(|size| *size < 64 << 20);
        let size =
            size.ok_or_else(|| StructureError::NoTypes("it ends before it begins".into()))?;
        let mut bytes = vec![0; size as usize];
        linux::kernel_memory::read(memory, upper, start, &mut bytes)
            .map_err(StructureError::NoTypes)?;
        Ok(Kernel {
            symbols,
            types: Types::parse(&bytes)?,
        })
    }

    /// The address of a variable.
    ///
    /// # Errors
    /// Where the kernel has none, or does not tell ([`Symbols::has_variables`]).
    pub fn variable(&self, name: &str) -> Result<u64, StructureError> {
        self.symbols
            .address(name)
            .ok_or_else(|| StructureError::Missing(format!("variable {name} among its symbols")))
    }
}

/// The kernel's memory at one instant.
#[derive(Debug)]
pub struct View<'v, M: ?Sized> {
    /// Physical memory.
    pub memory: &'v M,
    /// The upper half.
    pub upper: &'v Regime,
}

impl<M: ?Sized> Clone for View<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: ?Sized> Copy for View<'_, M> {}

impl<M: PhysMemory + ?Sized> View<'_, M> {
    /// Bytes at a virtual address of the kernel; `what` is theirs in an error.
    ///
    /// # Errors
    /// Where they cannot be read.
    pub fn bytes(
        &self,
        what: &'static str,
        va: u64,
        count: u64,
    ) -> Result<Vec<u8>, StructureError> {
        let mut buffer = vec![0; count as usize];
        linux::kernel_memory::read(self.memory, self.upper, va, &mut buffer)
            .map_err(|why| StructureError::Unreadable { what, va, why })?;
        Ok(buffer)
    }

    /// A little-endian number of up to 8 bytes: one member of the structure at `base`.
    ///
    /// # Errors
    /// As [`View::bytes`].
    pub fn number(
        &self,
        what: &'static str,
        base: u64,
        member: Member,
    ) -> Result<u64, StructureError> {
        let bytes = self.bytes(what, base.wrapping_add(member.offset), member.size.min(8))?;
        let mut whole = [0; 8];
        whole[..bytes.len()].copy_from_slice(&bytes);
        Ok(u64::from_le_bytes(whole))
    }

    /// Where a virtual address of the kernel is.
    ///
    /// # Errors
    /// Where it is not mapped.
    pub fn physical(&self, what: &'static str, va: u64) -> Result<PhysicalAddress, StructureError> {
        let found = linux::kernel_memory::physical(self.memory, self.upper, va);
        found.map_err(|why| StructureError::Unreadable { what, va, why })
    }

    /// The nodes of a list (`struct list_head`) behind its `head`; `next` is that structure's member.
    ///
    /// # Errors
    /// As [`View::bytes`], and where it does not come back to its head after `most` of them.
    pub fn list(
        &self,
        what: &'static str,
        (head, next): (u64, Member),
        most: usize,
    ) -> Result<Vec<u64>, StructureError> {
        let mut nodes = Vec::new();
        let mut at = self.number(what, head, next)?;
        while at != head {
            if nodes.len() == most || at == 0 {
                let count = nodes.len();
                return Err(StructureError::Inconsistent {
                    what,
                    va: head,
                    why: format!("it does not come back to its head after {count} nodes"),
                });
            }
            nodes.push(at);
            at = self.number(what, at, next)?;
        }
        Ok(nodes)
    }

    /// Text that ends at a NUL or after `limit` bytes. What is not UTF-8 is replaced.
    ///
    /// # Errors
    /// As [`View::bytes`].
    pub fn text(&self, what: &'static str, va: u64, limit: u64) -> Result<Text, StructureError> {
        let mut text = Vec::new();
        // Not beyond the end of a page: what follows may not be mapped.
        while (text.len() as u64) < limit {
            let at = va.wrapping_add(text.len() as u64);
            let count = (64 - at % 64).min(limit - text.len() as u64);
            let bytes = self.bytes(what, at, count)?;
            let end = memchr::memchr(0, &bytes);
            text.extend_from_slice(&bytes[..end.unwrap_or(bytes.len())]);
            if end.is_some() {
                break;
            }
        }
        Ok(String::from_utf8_lossy(&text).into())
    }
}
