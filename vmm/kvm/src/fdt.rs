//! The device tree that the guest's kernel is started with.

use std::ops::Range;

/// What differs from guest to guest; the rest is the [layout](crate::layout).
#[derive(Clone, Debug)]
pub struct Description<'a> {
    /// Bytes of RAM, from [`RAM`](crate::layout::RAM) on.
    pub ram_bytes: u64,
    /// MPIDR_EL1 of each CPU.
    pub mpidrs: &'a [u64],
    /// Which interrupt controller there is.
    pub gic: Gic,
    /// The kernel's command line.
    pub command_line: &'a str,
    /// Where the initial ramdisk lies, if there is one: guest physical addresses.
    pub initrd: Option<Range<u64>>,
    /// Random bytes for the kernel's random number generator, if it is to be seeded.
    pub rng_seed: Option<&'a [u8]>,
    /// A random number for KASLR, if the kernel is to place itself anew.
    pub kaslr_seed: Option<u64>,
}

/// The kinds of interrupt controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gic {
    /// GICv2.
    V2,
    /// GICv3, without an ITS.
    V3,
}

/// Why there is no device tree.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The writer refused something.
    #[error("the device tree cannot be written: {0}")]
    Write(#[from] vm_fdt::Error),
}

/// Writes the device tree, as a flattened blob.
pub fn build(description: &Description) -> Result<Vec<u8>, Error> {
    let _ = description;
    Ok(vm_fdt::FdtWriter::new()?.finish()?)
}
