// SPDX-License-Identifier: GPL-2.0-only
//! Where the parts of kernel memory are, and what is known of the Contiguous bit in them.

use std::ops::Range;

use linux::release::Release;
use schemars::JsonSchema;
use serde::Serialize;
use stage1::{Granule, Regime};

use crate::Hex;

/// Where the parts of kernel memory are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelLayout {
    /// The linear map of all RAM.
    pub linear: Range<u64>,
    /// The shadow of all of the half that KASAN writes to, where the kernel has it: behind the linear map. Its tables
    /// are shared where nothing is shadowed, and no rule of Linux's asks for more than that they are tables.
    pub shadow: Option<Range<u64>>,
    /// The kernel image, `_text` to `_end` at their runtime addresses; `None` without a vmlinux
    /// that matches. What lies outside linear map and image is judged only if this is known,
    /// because the image lies in the middle of it.
    pub image: Option<Range<u64>>,
    /// The Contiguous bit of the linear map.
    pub linear_bit: LinearBit,
    /// True if vmalloc never uses the bit: so before 6.16.
    pub vmalloc_plain: bool,
    /// The kernel.
    pub release: Release,
}

/// The use of the Contiguous bit in the linear map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinearBit {
    /// No entry has it: the map must stay changeable page by page.
    None,
    /// Every aligned run has it: `alloc_init_cont_pte()` and `alloc_init_cont_pmd()`, arch/arm64/mm/mmu.c. Runs
    /// that touch the image's alias are mapped by themselves, without it.
    EveryRun,
    /// Nothing is: whether `rodata=full` or something like it is in force cannot be told.
    Unknown,
    /// Nothing is: from 6.18 on a kernel may have blocks, and split them on demand.
    Split,
}

impl KernelLayout {
    /// The layout of 6.11 and later, from `asm/memory.h`: the linear map runs from the half's
    /// first address to `_PAGE_END(VA_BITS_MIN)`. `None` for other kernels.
    ///
    /// `rodata_full`: whether the linear map must stay changeable page by page (`rodata=full`, the default, or
    /// debug_pagealloc, or a realm); `None` if that is not known. From 6.18 on [`KernelLayout::without_splits`]
    /// may follow.
    pub fn new(
        regime: &Regime,
        release: Option<Release>,
        image: Option<Range<u64>>,
        rodata_full: Option<bool>,
    ) -> Option<KernelLayout> {
        let release = release.filter(|release| release.has_this_layout())?;
        // A kernel for 52 bits runs with VA_BITS_MIN where the CPU has no more: 47 at 16K, where 48 need a level
        // of their own, else 48.
        let bits_min = match (regime.granule, regime.va_bits) {
            (Granule::K16, 49..) => 47,
            (_, bits) => bits.min(48),
        };
        let end = (1u64 << (bits_min - 1)).wrapping_neg();
        let linear_bit = match rodata_full {
            None => LinearBit::Unknown,
            Some(_) if release >= SPLITS => LinearBit::Split,
            Some(true) => LinearBit::None,
            Some(false) => LinearBit::EveryRun,
        };
        Some(KernelLayout {
            linear: regime.first.0..end,
            shadow: None,
            image,
            linear_bit,
            vmalloc_plain: release < Release::new(6, 16, 0),
            release,
        })
    }

    /// The same for a kernel that does not split blocks: its CPUs have no BBML2_NOABORT (7.x: BBML3), which
    /// ID_AA64MMFR2_EL1.BBM does not tell (some CPUs have it and do not say so; 6.18 asks no other register than
    /// MIDR_EL1). 6.18 then does as those before it did.
    #[must_use]
    pub fn without_splits(mut self, rodata_full: Option<bool>) -> Self {
        if self.linear_bit == LinearBit::Split {
            self.linear_bit = match rodata_full {
                Some(true) => LinearBit::None,
                Some(false) => LinearBit::EveryRun,
                None => LinearBit::Unknown,
            };
        }
        self
    }

    /// True if runs of the image's alias in the linear map may have the bit though nothing else of it may: it stays as
    /// it was mapped where the CPU that booted could split blocks and another one cannot
    /// (`linear_map_maybe_split_to_ptes()`, arch/arm64/mm/mmu.c).
    pub(crate) fn alias_may_be_contiguous(&self) -> bool {
        self.release >= SPLITS
    }

    /// The same for a kernel with KASAN, which has a byte for 2 to the power of `scale` bytes of the half (3, by tags
    /// 4): the linear map ends where the shadow begins (`PAGE_END` and `KASAN_SHADOW_START`, asm/memory.h).
    #[must_use]
    pub fn with_shadow(mut self, regime: &Regime, scale: Option<u8>) -> Self {
        if let Some(scale) = scale {
            let end = self.linear.end;
            let start = end.wrapping_sub(1 << (regime.va_bits - u32::from(scale)));
            self.linear.end = start;
            self.shadow = Some(start..end);
        }
        self
    }

    pub(crate) fn region(&self, va: u64) -> Region {
        if self.linear.contains(&va) {
            return Region::Linear;
        }
        if self
            .shadow
            .as_ref()
            .is_some_and(|shadow| shadow.contains(&va))
        {
            return Region::Shadow;
        }
        match &self.image {
            Some(image) if image.contains(&va) => Region::Image,
            Some(_) => Region::Rest,
            None => Region::Unknown,
        }
    }
}

/// The first release that has blocks in the linear map with `rodata=full`, where the CPUs have BBML2_NOABORT.
const SPLITS: Release = Release::new(6, 18, 0);

/// Part of kernel memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Region {
    /// The linear map.
    Linear,
    /// KASAN's shadow.
    Shadow,
    /// The kernel image.
    Image,
    /// vmalloc, modules, vmemmap, fixmap.
    Rest,
    /// Not known.
    Unknown,
}

/// A region's name for people.
impl std::fmt::Display for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Region::Linear => "linear map",
            Region::Shadow => "KASAN's shadow",
            Region::Image => "kernel image",
            Region::Rest => "vmalloc and others",
            Region::Unknown => "kernel",
        })
    }
}

/// First and last address of a region, for people.
impl KernelLayout {
    /// Linear map and image, with their names.
    pub fn known(&self) -> Vec<(Region, Hex, Hex)> {
        let linear = (Region::Linear, Hex(self.linear.start), Hex(self.linear.end));
        let image = self.image.as_ref();
        let image = image.map(|image| (Region::Image, Hex(image.start), Hex(image.end)));
        let shadow = self.shadow.as_ref();
        let shadow = shadow.map(|it| (Region::Shadow, Hex(it.start), Hex(it.end)));
        std::iter::once(linear).chain(shadow).chain(image).collect()
    }
}
