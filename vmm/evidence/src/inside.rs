// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's own structures at one instant of a guest, all of whose memory is there: a live one that stands still, or a
//! core of all RAM.

use linux::folio::{Memcg, Page};
use snapshot::{Cpu, Memory, Notes, Ram};
use stage1::{PhysMemory, Regime};
use structures::pages::Pages;
use structures::tasks::Process;
use structures::unlisted::{self, Doing, InKernel};
use structures::vmcoreinfo::VmCoreInfo;
use structures::{
    cache, capability, counted, memcg, pages, reverse, spaces, swap_types, Kernel, StructureError,
    View,
};

use crate::cgroups;
use crate::cpus::{kernel_half, vectors};
use crate::elsewhere::no_linux;
use crate::release::{self, NotRecognised, Recognised};

/// Where a kernel's variables are, what its types look like, and its own tables: none of it changes while it runs.
#[derive(Debug)]
pub struct Inside {
    /// Its symbols and types.
    pub kernel: Kernel,
    /// Its half of the address space.
    pub upper: Regime,
    /// Layouts of its pages and its address spaces.
    pub layouts: Result<(pages::Layout, spaces::Layout), StructureError>,
    /// Where it counts all of its memory.
    pub counted: counted::Layout,
    /// Layout of the reverse mapping of a folio.
    pub reverse: Result<reverse::Layout, StructureError>,
    /// Layout of the page cache of a file.
    pub caches: Result<cache::Layout, StructureError>,
    /// Layout that leads from a folio to its memory cgroup.
    pub memcg: Result<memcg::Layout, StructureError>,
    /// How to see who makes or ends an address space that no task has.
    pub unlisted: Result<unlisted::Layout, StructureError>,
    /// Bit that is set if the linear map's blocks are split on demand: 6.18's BBML2_NOABORT, which became BBML3.
    pub splits: Result<capability::Bit, StructureError>,
    /// Meaning of its swap types.
    pub swap: swap_types::Layout,
}

/// A guest that stands still, whole.
#[derive(Clone, Copy, Debug)]
pub struct Whole<'a> {
    /// Its CPUs.
    pub cpus: &'a [Cpu],
    /// All of its RAM.
    pub ram: &'a dyn Ram,
    /// Notes on it.
    pub notes: &'a Notes,
    /// Its kernel's own description ([`VmCoreInfo::text`]), if that is known.
    pub vmcoreinfo: Option<&'a str>,
}

/// The reason that the kernel's structures are not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotInside {
    /// It may be said at another instant.
    #[error("every CPU was at EL0 or on its way there, with what may be KPTI's trampoline in TTBR1_EL1 and VBAR_EL1")]
    NotNow,
    /// No Linux runs, as the CPUs' registers say; it may at another instant.
    #[error("{0}")]
    NoLinux(String),
    /// It may not.
    #[error(transparent)]
    Never(#[from] StructureError),
}

/// Returns the reason that no CPU's VBAR_EL1 leads to the kernel's symbols. Of a core of another program it is not known where these were not found
/// ([`crate::other_core`]).
fn no_vectors(cpus: &[Cpu]) -> NotInside {
    match cpus.iter().any(|cpu| cpu.system.vbar_el1.is_some()) {
        true => NotInside::NotNow,
        false => NotInside::Never(StructureError::NoTypes(
            "the kernel's symbols were not found, as VBAR_EL1 is known of no CPU, and they lie near it".into(),
        )),
    }
}

/// Returns whether a memory holds all RAM of its guest, or all that a program left in a core which keeps the kernel's own.
#[must_use]
pub fn is_whole(memory: &Memory) -> bool {
    let regions = memory.regions().iter();
    let held: u64 = regions.map(|region| region.range().bytes).sum();
    let ram: u64 = memory.ram().iter().map(|range| range.bytes).sum();
    held == ram || memory.has_pages_left_out()
}

/// Returns whether [`Inside::find`] has what it begins with.
#[must_use]
pub fn shows_kernel(cpus: &[Cpu]) -> bool {
    kernel_half(cpus).is_some() && vectors(cpus).next().is_some()
}

impl Inside {
    /// Finds symbols and types in the kernel's memory.
    ///
    /// # Errors
    /// Where no CPU shows where, or the kernel has none.
    pub fn find<M: PhysMemory + ?Sized>(memory: &M, cpus: &[Cpu]) -> Result<Self, NotInside> {
        let upper = kernel_half(cpus).ok_or_else(|| match no_linux(cpus) {
            Some(why) => NotInside::NoLinux(why),
            None => NotInside::NotNow,
        })?;
        let vbar = vectors(cpus).next().ok_or_else(|| no_vectors(cpus))?;
        let kernel = Kernel::find(memory, &upper, vbar)?;
        let view = View {
            memory,
            upper: &upper,
        };
        let layouts = pages::Layout::new(&kernel, view)
            .and_then(|pages| Ok((pages, spaces::Layout::new(&kernel, view)?)));
        Ok(Self {
            counted: counted::Layout::new(&kernel, view),
            reverse: reverse::Layout::new(&kernel),
            caches: cache::Layout::new(&kernel),
            memcg: memcg::Layout::new(&kernel),
            unlisted: unlisted::Layout::new(&kernel),
            splits: capability::bit(&kernel, view, &["has_bbml3", "has_bbml2_noabort"]),
            swap: swap_types::Layout::new(&kernel, view),
            kernel,
            upper,
            layouts,
        })
    }

    /// The same, to be kept: `None` where another instant may show it, else why it is not known.
    pub fn look<M: PhysMemory + ?Sized>(memory: &M, cpus: &[Cpu]) -> Option<Result<Self, String>> {
        match Self::find(memory, cpus) {
            Err(NotInside::NotNow | NotInside::NoLinux(_)) => None,
            found => Some(found.map_err(|error| error.to_string())),
        }
    }

    /// The kernel's memory at this instant.
    pub fn view<'v, M: ?Sized>(&'v self, memory: &'v M) -> View<'v, M> {
        let upper = &self.upper;
        View { memory, upper }
    }

    /// The memory cgroup that a page's folio is charged to: none where it is charged to none, or that is not known.
    pub fn memcg<M: PhysMemory + ?Sized>(&self, memory: &M, page: &Page) -> Option<Memcg> {
        let ((layout, _), view) = (self.layouts.as_ref().ok()?, self.view(memory));
        cgroups::of(
            self.memcg.as_ref().ok(),
            view,
            &Pages::new(layout, view),
            page,
        )
    }

    /// The kernel's release.
    ///
    /// # Errors
    /// Where it is not known.
    pub fn release<M: PhysMemory + ?Sized>(
        &self,
        memory: &M,
        cpus: &[Cpu],
    ) -> Result<Recognised, NotRecognised> {
        release::find(self.view(memory), cpus, Some(&self.kernel))
    }

    /// Reads the kernel's own description for readers of its dumps.
    ///
    /// # Errors
    /// Where it has none.
    pub fn vmcoreinfo<M: PhysMemory + ?Sized>(
        &self,
        memory: &M,
    ) -> Result<VmCoreInfo, StructureError> {
        VmCoreInfo::read(&self.kernel, self.view(memory))
    }

    /// Which of these processes are in the middle of what no lock tells of, and how many CPUs may be changing counters, as far
    /// as that is known.
    pub fn unlisted<'p, M: PhysMemory + ?Sized>(
        &self,
        memory: &M,
        cpus: &[Cpu],
        processes: &'p [Process],
    ) -> (Vec<(&'p Process, Doing)>, Option<usize>) {
        let in_kernel = |cpu: &Cpu| {
            let general = &cpu.general;
            let registers = |task| InKernel {
                task,
                fp: general.x[29],
                lr: general.x[30],
                pc: general.pc,
            };
            match cpu.el() {
                0 => Some(None),
                _ => general.sp_el0.map(|task| Some(registers(task))),
            }
        };
        let cpus: Option<Vec<_>> = cpus.iter().map(in_kernel).collect();
        let Some((unlisted, cpus)) = self.unlisted.as_ref().ok().zip(cpus) else {
            return (Vec::new(), None);
        };
        let Ok(found) = unlisted.find(self.view(memory), processes, &cpus) else {
            return (Vec::new(), None);
        };
        let counting = unlisted.counting(&cpus, &found);
        (found, Some(counting))
    }
}
