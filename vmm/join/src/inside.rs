//! The kernel's own structures at one instant of a guest, all of whose memory is there: a live one that stands still, or a
//! core of all RAM.

use snapshot::{Cpu, Notes, Ram};
use stage1::{PhysMemory, Regime};
use structures::tasks::{self, Process};
use structures::vmcoreinfo::VmCoreInfo;
use structures::{Kernel, StructureError, View};

use crate::kernel::vectors;
use crate::kernel_half;

/// Where a kernel's variables are, what its types look like, and its own tables: none of it changes while it runs.
#[derive(Debug)]
pub struct Inside {
    /// Its symbols and types.
    pub kernel: Kernel,
    /// Its half of the address space.
    pub upper: Regime,
}

/// A guest that stands still, whole.
#[derive(Clone, Copy, Debug)]
pub struct Whole<'a> {
    /// Its CPUs.
    pub cpus: &'a [Cpu],
    /// All of its RAM.
    pub ram: &'a dyn Ram,
    /// What is known of it.
    pub notes: &'a Notes,
    /// What its kernel says of itself ([`VmCoreInfo::text`]), where that is known.
    pub vmcoreinfo: Option<&'a str>,
}

/// Why nothing can be said of the kernel's structures.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotInside {
    /// It may be said at another instant.
    #[error("every CPU was at EL0 or on its way there, with what may be KPTI's trampoline in TTBR1_EL1 and VBAR_EL1")]
    NotNow,
    /// It may not.
    #[error(transparent)]
    Never(#[from] StructureError),
}

impl Inside {
    /// Finds symbols and types in the kernel's memory.
    ///
    /// # Errors
    /// Where no CPU shows where, or the kernel has none.
    pub fn find<M: PhysMemory + ?Sized>(memory: &M, cpus: &[Cpu]) -> Result<Self, NotInside> {
        let upper = kernel_half(cpus).ok_or(NotInside::NotNow)?;
        let vbar = vectors(cpus).next().ok_or(NotInside::NotNow)?;
        let kernel = Kernel::find(memory, &upper, vbar)?;
        Ok(Self { kernel, upper })
    }

    /// The kernel's memory at this instant.
    pub fn view<'v, M: ?Sized>(&'v self, memory: &'v M) -> View<'v, M> {
        let upper = &self.upper;
        View { memory, upper }
    }

    /// What the kernel says of itself for readers of its dumps.
    ///
    /// # Errors
    /// Where it has none.
    pub fn vmcoreinfo<M: PhysMemory + ?Sized>(
        &self,
        memory: &M,
    ) -> Result<VmCoreInfo, StructureError> {
        VmCoreInfo::read(&self.kernel, self.view(memory))
    }

    /// All tasks.
    ///
    /// # Errors
    /// Where the list cannot be followed; it may just have been changed.
    pub fn tasks<M: PhysMemory + ?Sized>(
        &self,
        memory: &M,
    ) -> Result<Vec<Process>, StructureError> {
        tasks::processes(&self.kernel, self.view(memory))
    }
}
