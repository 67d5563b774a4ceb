// SPDX-License-Identifier: GPL-2.0-only
//! The registers of a synthetic PE, and the shape of its tables, from the Arm ARM's tables.

use crate::{Granule, Half, Indirection, SystemRegisters};

/// A format of tables: the fields of TCR_EL1 by plain names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // each is a bit of a register
pub struct Layout {
    /// Granule.
    pub granule: Granule,
    /// The half that has tables. Walks of the other are disabled.
    pub half: Half,
    /// Bits of VA.
    pub va_bits: u32,
    /// Bits of PA: 32, 36, 40, 42, 44, 48 or 52.
    pub pa_bits: u32,
    /// TCR_EL1.DS (4K and 16K).
    pub ds: bool,
    /// TCR_EL1.HA: the PE sets AF.
    pub ha: bool,
    /// TCR_EL1.HD: the PE clears AP\[2\] where DBM is 1.
    pub hd: bool,
    /// TCR_EL1.HPDn.
    pub hpd: bool,
    /// TCR2_EL1.PIE with these registers.
    pub indirection: Option<Indirection>,
}

impl Layout {
    /// Returns a layout with 48 bits of PA, or 52 with more than 48 bits of VA. [`Layout::wide`] makes it 52 otherwise.
    #[must_use]
    pub const fn new(granule: Granule, half: Half, va_bits: u32) -> Self {
        let layout = Self {
            granule,
            half,
            va_bits,
            pa_bits: 48,
            ds: false,
            ha: false,
            hd: false,
            hpd: false,
            indirection: None,
        };
        if va_bits > 48 {
            layout.wide()
        } else {
            layout
        }
    }

    /// Sets 52 bits of PA: TCR_EL1.DS at 4K and 16K (FEAT_LPA2), FEAT_LPA at 64K.
    #[must_use]
    pub const fn wide(self) -> Self {
        Self {
            pa_bits: 52,
            ds: !matches!(self.granule, Granule::K64),
            ..self
        }
    }

    /// Lets the PE manage AF and the dirty state.
    #[must_use]
    pub const fn hardware_dirty(self) -> Self {
        Self {
            ha: true,
            hd: true,
            ..self
        }
    }

    /// Returns the levels in the order of a walk, with the VA bits that one of their descriptors maps.
    ///
    /// # Panics
    /// If the architecture has no tables of that size.
    #[must_use]
    pub fn levels(&self) -> Vec<(i8, u32)> {
        let (all, first): (&[(i8, u32)], i8) = match (self.granule, self.va_bits) {
            (Granule::K4, 49..=52) => (&FOUR, -1),
            (Granule::K4, 40..=48) => (&FOUR, 0),
            (Granule::K4, 31..=39) => (&FOUR, 1),
            (Granule::K4, 22..=30) => (&FOUR, 2),
            (Granule::K4, 16..=21) => (&FOUR, 3),
            (Granule::K16, 48..=52) => (&SIXTEEN, 0),
            (Granule::K16, 37..=47) => (&SIXTEEN, 1),
            (Granule::K16, 26..=36) => (&SIXTEEN, 2),
            (Granule::K16, 16..=25) => (&SIXTEEN, 3),
            (Granule::K64, 43..=52) => (&SIXTY_FOUR, 1),
            (Granule::K64, 30..=42) => (&SIXTY_FOUR, 2),
            (Granule::K64, 17..=29) => (&SIXTY_FOUR, 3),
            _ => panic!(
                "no tables with {} bits of VA at {}",
                self.va_bits, self.granule
            ),
        };
        all.iter()
            .copied()
            .filter(|(level, _)| *level >= first)
            .collect()
    }

    /// Returns the number of descriptors in a group of the Contiguous bit at `level`; 0 if it has no groups.
    #[must_use]
    pub const fn group(&self, level: i8) -> u64 {
        match (self.granule, level) {
            (Granule::K4, 1..=3) => 16,
            (Granule::K16, 2) | (Granule::K64, 2 | 3) => 32,
            (Granule::K16, 3) => 128,
            _ => 0,
        }
    }

    /// Returns the levels that may hold a page or a block.
    #[must_use]
    pub fn leaf_levels(&self) -> Vec<i8> {
        let blocks: &[i8] = match (self.granule, self.pa_bits == 52) {
            (Granule::K4, true) => &[0, 1, 2, 3],
            (Granule::K4, false) | (Granule::K16 | Granule::K64, true) => &[1, 2, 3],
            (Granule::K16 | Granule::K64, false) => &[2, 3],
        };
        let levels = self.levels();
        levels
            .iter()
            .map(|(level, _)| *level)
            .filter(|level| blocks.contains(level))
            .collect()
    }

    /// Returns the number of bytes that one descriptor of `level` maps.
    ///
    /// # Panics
    /// If the layout has no such level.
    #[must_use]
    pub fn entry_size(&self, level: i8) -> u64 {
        let levels = self.levels();
        let found = levels.iter().find(|(at, _)| *at == level);
        1 << found
            .unwrap_or_else(|| panic!("no level {level} in {self:?}"))
            .1
    }

    /// Returns the lowest VA.
    #[must_use]
    pub const fn first_va(&self) -> u64 {
        match self.half {
            Half::Lower => 0,
            Half::Upper => 0_u64.wrapping_sub(1 << self.va_bits),
        }
    }

    /// Returns the address bits in their places in a descriptor.
    #[must_use]
    pub const fn encode_address(&self, address: u64) -> u64 {
        if self.ds {
            // [49:12] in place, [51:50] in bits [9:8].
            (address & 0x0003_ffff_ffff_f000) | ((address >> 50 & 0b11) << 8)
        } else if matches!(self.granule, Granule::K64) {
            // [47:16] in place, [51:48] in bits [15:12].
            (address & 0x0000_ffff_ffff_0000) | ((address >> 48 & 0b1111) << 12)
        } else {
            address & 0x0000_ffff_ffff_f000
        }
    }

    /// Returns the registers of a PE that walks these tables from `root` on, with ASID 1.
    ///
    /// # Panics
    /// If `pa_bits` is none of the architecture's sizes.
    #[must_use]
    pub fn registers(&self, root: u64) -> SystemRegisters {
        let size = u64::from(64 - self.va_bits);
        // TG0 and TG1, bits [15:14] and [31:30].
        let (tg0, tg1) = match self.granule {
            Granule::K4 => (0b00, 0b10),
            Granule::K16 => (0b10, 0b01),
            Granule::K64 => (0b01, 0b11),
        };
        let sizes = [32, 36, 40, 42, 44, 48, 52];
        let ips = sizes.iter().position(|bits| *bits == self.pa_bits);
        let ips = ips.unwrap_or_else(|| panic!("no output size of {} bits", self.pa_bits)) as u64;
        let flag = |set: bool, bit: u32| u64::from(set) << bit;
        let lower = self.half == Half::Lower;
        let tcr_el1 = size
            | size << 16
            | tg0 << 14
            | tg1 << 30
            | ips << 32
            | flag(!lower, 7) // EPD0
            | flag(lower, 23) // EPD1
            | flag(true, 36) // AS
            | flag(self.ha, 39)
            | flag(self.hd, 40)
            | flag(self.hpd, if lower { 41 } else { 42 })
            | flag(self.ds, 59);
        // In the 52-bit form bits [5:2] are address bits [51:48].
        let wide = self.pa_bits == 52;
        let baddr = if wide {
            (root & 0x0000_ffff_ffff_ffc0) | ((root >> 48 & 0b1111) << 2)
        } else {
            root
        };
        // TGran4, TGran64, TGran16 with LPA2 where DS is used, and PARange.
        let lpa2 = u64::from(self.ds);
        let id_aa64mmfr0 = lpa2 << 28 | (1 + lpa2) << 20 | ips;
        // E0PD, TTST ("ST"), LVA ("VARange") where used; no BBM.
        let id_aa64mmfr2 = 1 << 60 | 1 << 28 | flag(self.va_bits > 48, 16);
        SystemRegisters {
            ttbr0_el1: 1 << 48 | if lower { baddr } else { 0 },
            ttbr1_el1: if lower { 0 } else { baddr },
            tcr_el1,
            tcr2_el1: self.indirection.map(|_| 1 << 1),
            pir_el1: self.indirection.map(|registers| registers.el1),
            pire0_el1: self.indirection.map(|registers| registers.el0),
            por_el1: None,
            por_el0: None,
            // As Linux: Normal, Normal Tagged, Normal Non-cacheable, nGnRnE, nGnRE.
            mair_el1: 0x0000_0004_0044_f0ff,
            sctlr_el1: 1,
            contextidr_el1: 0,
            // HAFDBS with dirty state, HPDS2; TCR2_EL1 and S1PIE where used.
            id_aa64mmfr: [
                Some(id_aa64mmfr0),
                Some(2 << 12 | 2),
                Some(id_aa64mmfr2),
                Some(self.indirection.map_or(0, |_| 1 << 8 | 1)),
            ],
            vbar_el1: None,
            hcr_el2: None,
            esr_el1: None,
            far_el1: None,
        }
    }
}

const FOUR: [(i8, u32); 5] = [(-1, 48), (0, 39), (1, 30), (2, 21), (3, 12)];
const SIXTEEN: [(i8, u32); 4] = [(0, 47), (1, 36), (2, 25), (3, 14)];
const SIXTY_FOUR: [(i8, u32); 3] = [(1, 42), (2, 29), (3, 16)];
