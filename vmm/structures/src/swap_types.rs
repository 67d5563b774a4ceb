// SPDX-License-Identifier: GPL-2.0-only
//! Meaning of a kernel's swap types, and its swap areas by name.

use linux::absent::SwapTypes;
use stage1::PhysMemory;
use untrusted::Text;

use crate::kernel::View;
use crate::per_cpu::word;
use crate::types::Member;
use crate::vmas::Files;
use crate::vmcoreinfo::VmCoreInfo;
use crate::{Kernel, StructureError};

/// `MAX_SWAPFILES` is no more, in each configuration.
const MOST_AREAS: u64 = 32;
const WHAT: &str = "a swap area";

/// Where the areas are, and what does not change while the kernel runs.
#[derive(Debug)]
pub struct Layout {
    types: SwapTypes,
    areas: Result<Areas, StructureError>,
}

#[derive(Debug)]
struct Areas {
    /// `swap_info`, an array of pointers, and `nr_swapfiles`.
    all: u64,
    count: u64,
    file: Member,
    files: Files,
}

impl Layout {
    /// As this kernel has it. What it does not tell is left open in [`SwapTypes`].
    pub fn new<M: PhysMemory + ?Sized>(kernel: &Kernel, view: View<'_, M>) -> Layout {
        let info = VmCoreInfo::read(kernel, view).ok();
        let bits = info.and_then(|info| info.number("MAX_PHYSMEM_BITS"));
        let shift = view.upper.granule.bytes().trailing_zeros();
        Layout {
            types: SwapTypes::new(
                &kernel.symbols,
                bits.and_then(|bits| bits.try_into().ok()),
                shift as u8,
            ),
            areas: Areas::new(kernel),
        }
    }

    /// The types, with the areas that are in use at this instant.
    pub fn read<M: PhysMemory + ?Sized>(&self, view: View<'_, M>) -> SwapTypes {
        let areas = self.areas.as_ref().ok();
        SwapTypes {
            areas: areas.map_or(Vec::new(), |areas| areas.read(view)),
            ..self.types.clone()
        }
    }
}

impl Areas {
    fn new(kernel: &Kernel) -> Result<Areas, StructureError> {
        Ok(Areas {
            all: kernel.variable("swap_info")?,
            count: kernel.variable("nr_swapfiles")?,
            file: kernel.types.member("swap_info_struct", "swap_file")?,
            files: Files::new(kernel)?,
        })
    }

    /// Those whose name can be read; one that is being switched off has no file any more.
    fn read<M: PhysMemory + ?Sized>(&self, view: View<'_, M>) -> Vec<(u8, Text)> {
        let count = view.number(WHAT, self.count, word(4)).unwrap_or(0);
        let name = |number: u64| {
            let area = view
                .number(WHAT, self.all.wrapping_add(8 * number), word(8))
                .ok()?;
            let file = view.number(WHAT, area, self.file).ok()?;
            let path = (file != 0).then(|| self.files.path(view, file).ok())??;
            Some((number as u8, path))
        };
        (0..count.min(MOST_AREAS)).filter_map(name).collect()
    }
}
