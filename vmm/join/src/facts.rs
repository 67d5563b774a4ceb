//! What of the kernel's symbols a snapshot keeps.

use linux::order::RingAddresses;
use linux::symbols::Symbols;
use serde::{Deserialize, Serialize};
use snapshot::{Cpu, Notes, Snapshot};
use structures::capability::Bit;

use crate::inside::Inside;
use crate::kernel::vectors;

/// What of the kernel's symbols a snapshot keeps, so that it can be judged without the vmlinux.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// `anon_order_rings`, as it runs.
    pub order_rings: Option<u64>,
    /// `anon_order_recording`, as it runs.
    #[serde(default)]
    pub order_recording: Option<u64>,
    /// `__per_cpu_offset`, as it runs.
    pub per_cpu_offset: Option<u64>,
    /// Whether the kernel folds at all (`CONFIG_ARM64_CONTPTE`).
    pub contpte: Option<bool>,
    /// `_text` to `_end`, as they run.
    pub image: Option<(u64, u64)>,
    /// The scale of KASAN's shadow, where the kernel has one ([`Symbols::kasan_scale`]).
    #[serde(default)]
    pub kasan_scale: Option<u8>,
    /// The variable `rodata_full` (arch/arm64/mm/pageattr.c), as it runs.
    pub rodata_full: Option<u64>,
    /// Whether the kernel has nothing else that may keep the linear map in pages: the other terms of
    /// `can_set_direct_map()`.
    #[serde(default)]
    pub rodata_alone: bool,
    /// Where the kernel says whether it splits the linear map's blocks ([`Inside::splits`]).
    #[serde(default)]
    pub splits: Option<Bit>,
}

/// How far KASLR moved the kernel, by the vectors of a CPU that has the kernel's.
///
/// The trampoline's slots lie a multiple of 2 KiB apart, and with KASLR off or a fixmap that is placed so, one of them
/// may be a whole number of 64 KiB from a linked vector: such a CPU says nothing.
#[must_use]
pub fn slide(symbols: &Symbols, cpus: &[Cpu]) -> Option<u64> {
    vectors(cpus).find_map(|vbar| symbols.slide(vbar))
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

    /// Whether a snapshot keeps any.
    pub(crate) fn are_kept(notes: &Notes) -> bool {
        notes.extra.contains_key(FACTS)
    }

    /// Keeps them.
    pub fn keep(self, notes: &mut Notes) {
        notes
            .extra
            .insert(FACTS.into(), serde_json::to_value(self).unwrap_or_default());
    }

    pub(crate) fn rings(self) -> Option<RingAddresses> {
        Some(RingAddresses {
            rings: self.order_rings?,
            recording: self.order_recording,
            per_cpu_offset: self.per_cpu_offset?,
        })
    }
}
