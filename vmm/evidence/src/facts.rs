// SPDX-License-Identifier: GPL-2.0-only
//! Addresses and settings of the kernel that a snapshot keeps.

use linux::order::RingAddresses;
use linux::symbols::Symbols;
use serde::{Deserialize, Serialize};
use snapshot::{Cpu, Notes, Snapshot};
use stage1::{PhysMemory, Regime};
use structures::capability::Bit;

use crate::cpus::slide;
use crate::inside::Inside;

/// Addresses and settings from the kernel's symbols, kept so that a snapshot can be judged without the vmlinux.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// `anon_order_rings`, as it runs: the ring of a CPU. Kernels of older patches have it.
    pub order_rings: Option<u64>,
    /// `anon_order_ring`, as it runs: a pointer to the ring of a CPU.
    #[serde(default)]
    pub order_ring: Option<u64>,
    /// `anon_order_recording`, as it runs.
    #[serde(default)]
    pub order_recording: Option<u64>,
    /// `__per_cpu_offset`, as it runs.
    pub per_cpu_offset: Option<u64>,
    /// True if the kernel folds at all (`CONFIG_ARM64_CONTPTE`).
    pub contpte: Option<bool>,
    /// `_text` to `_end`, as they run.
    pub image: Option<(u64, u64)>,
    /// The scale of KASAN's shadow, where the kernel has one ([`Symbols::kasan_scale`]).
    #[serde(default)]
    pub kasan_scale: Option<u8>,
    /// The variable `rodata_full` (arch/arm64/mm/pageattr.c), as it runs.
    pub rodata_full: Option<u64>,
    /// True if the kernel has nothing else that may keep the linear map in pages: the other terms of
    /// `can_set_direct_map()`.
    #[serde(default)]
    pub rodata_alone: bool,
    /// Where the kernel says whether it splits the linear map's blocks ([`Inside::splits`]).
    #[serde(default)]
    pub splits: Option<Bit>,
}

/// The notes' key of [`Facts`].
const FACTS: &str = "kernel_facts";

impl Facts {
    /// From the symbols, moved by the slide that a CPU's VBAR_EL1 shows.
    #[must_use]
    pub fn new(symbols: Option<&Symbols>, cpus: &[Cpu]) -> Self {
        let Some(symbols) = symbols else {
            return Self::default();
        };
        let slide = slide(symbols, cpus);
        let runs = |name| Some(symbols.address(name)?.wrapping_add(slide?));
        Self {
            order_rings: runs("anon_order_rings"),
            order_ring: runs("anon_order_ring"),
            order_recording: runs("anon_order_recording"),
            per_cpu_offset: runs("__per_cpu_offset"),
            contpte: Some(symbols.has_contpte()),
            image: runs("_text").zip(runs("_end")),
            kasan_scale: symbols.kasan_scale(),
            rodata_full: runs("rodata_full"),
            rodata_alone: symbols.has_variables()
                && ["_debug_pagealloc_enabled", "__kfence_pool", "rsi_present"]
                    .iter()
                    .all(|name| symbols.address(name).is_none()),
            splits: None,
        }
    }

    /// The same with what was found inside.
    #[must_use]
    pub fn with(self, inside: Option<&Inside>) -> Self {
        let splits = inside.and_then(|inside| inside.splits.clone().ok());
        Self { splits, ..self }
    }

    /// As a snapshot keeps them; nothing is known where it keeps none.
    #[must_use]
    pub fn of(snapshot: &Snapshot) -> Self {
        snapshot
            .notes
            .extra
            .get(FACTS)
            .and_then(|facts| serde_json::from_value(facts.clone()).ok())
            .unwrap_or_default()
    }

    /// Returns whether a snapshot keeps any.
    pub fn are_kept(notes: &Notes) -> bool {
        notes.extra.contains_key(FACTS)
    }

    /// Keeps them.
    pub fn keep(self, notes: &mut Notes) {
        notes
            .extra
            .insert(FACTS.into(), serde_json::to_value(self).unwrap_or_default());
    }

    /// Returns whether the kernel has rings of order records.
    pub fn has_rings(self) -> bool {
        self.order_ring.or(self.order_rings).is_some()
    }

    /// Returns where the order rings are.
    #[must_use]
    pub fn rings(self) -> Option<RingAddresses> {
        Some(RingAddresses {
            rings: self.order_ring.or(self.order_rings)?,
            pointers: self.order_ring.is_some(),
            recording: self.order_recording,
            per_cpu_offset: self.per_cpu_offset?,
        })
    }

    /// Returns whether the linear map must stay changeable page by page (`can_set_direct_map()`); `None` where that cannot be
    /// told. `upper` is the kernel's half.
    pub fn stays_in_pages<M: PhysMemory + ?Sized>(
        self,
        memory: &M,
        upper: &Regime,
    ) -> Option<bool> {
        let mut byte = [0];
        linux::kernel_memory::read(memory, upper, self.rodata_full?, &mut byte).ok()?;
        (byte == [1] || self.rodata_alone).then_some(byte == [1])
    }

    /// Returns whether the kernel splits the linear map's blocks on demand; `None` if that is not known.
    pub fn splits_on_demand<M: PhysMemory + ?Sized>(
        self,
        memory: &M,
        upper: &Regime,
    ) -> Option<bool> {
        let (bit, mut byte) = (self.splits?, [0]);
        linux::kernel_memory::read(memory, upper, bit.address, &mut byte).ok()?;
        Some(byte[0] & bit.mask != 0)
    }
}
