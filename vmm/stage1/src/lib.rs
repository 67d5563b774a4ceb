//! AArch64 stage 1 translation (VMSAv8-64, EL1&0), as read from outside a machine.
//!
//! Pure: everything here works on words that somebody else has read. The order of things is
//! [`SystemRegisters`] -> [`Regime`] -> walk -> architecture rules; nothing does I/O.

mod address;
mod memory;
mod registers;

pub use address::{PhysicalAddress, VirtualAddress};
pub use memory::PhysMemory;
pub use registers::SystemRegisters;
