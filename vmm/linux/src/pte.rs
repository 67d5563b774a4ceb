// SPDX-License-Identifier: GPL-2.0-only
//! Linux's own reading of an arm64 descriptor, as 6.11 and later lay it out.
//!
//! Sources: `arch/arm64/include/asm/pgtable-prot.h`, `pgtable-hwdef.h`, `pgtable.h` and
//! `include/linux/swap.h`, `swapops.h` of 6.12. The names of predicates are the kernel's, without
//! their prefix: [`Pte::hw_dirty`] is `pte_hw_dirty()`.

/// Bits with a meaning for Linux. A bit of the architecture is here only if Linux has its own name for it or compares
/// it.
pub mod bits {
    /// The descriptor is valid: the CPU may use it.
    pub const VALID: u64 = 1 << 0;
    /// `PTE_USER`, AP\[1\].
    pub const USER: u64 = 1 << 6;
    /// `PTE_RDONLY`, AP\[2\].
    pub const RDONLY: u64 = 1 << 7;
    /// `PTE_AF`, the access flag.
    pub const AF: u64 = 1 << 10;
    /// `PTE_NG`, not global.
    pub const NG: u64 = 1 << 11;
    /// `PTE_PRESENT_INVALID`: the same bit as [`NG`], with this meaning only while VALID is 0.
    pub const PRESENT_INVALID: u64 = NG;
    /// `PTE_WRITE`: the same bit as DBM. Linux sets it whether or not the CPU manages the dirty state.
    pub const WRITE: u64 = 1 << 51;
    /// `PTE_CONT`, the Contiguous bit.
    pub const CONT: u64 = 1 << 52;
    /// `PTE_PXN`.
    pub const PXN: u64 = 1 << 53;
    /// `PTE_UXN`.
    pub const UXN: u64 = 1 << 54;
    /// `PTE_DIRTY`, the software dirty bit.
    pub const DIRTY: u64 = 1 << 55;
    /// `PTE_SPECIAL`: no folio behind it, as far as Linux is concerned (zero page, pfnmap).
    pub const SPECIAL: u64 = 1 << 56;
    /// `PTE_DEVMAP`.
    pub const DEVMAP: u64 = 1 << 57;
    /// `PTE_UFFD_WP`, write-protected by userfaultfd.
    pub const UFFD_WP: u64 = 1 << 58;
    /// The software bits that two members of one contiguous group must share, because
    /// `contpte_try_fold()` compares the whole protection: special, devmap, uffd-wp.
    pub const SOFTWARE_SAME: u64 = SPECIAL | DEVMAP | UFFD_WP;
}

/// One leaf descriptor (page or block) or non-present entry, as Linux reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pte(pub u64);

/// Kind of an entry for Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// All zero: the entry was never used, or its mapping is gone.
    None,
    /// The CPU may use it.
    Valid,
    /// Present for Linux, invalid for the CPU: PROT_NONE, or a NUMA hint.
    ProtNone,
    /// Present for Linux, invalid for the CPU for another reason (a PMD that is being split).
    PresentInvalid,
    /// Neither: a swap entry or something encoded like one. Bit 52 is part of its offset.
    Swap(SwapEntry),
}

/// A non-present entry, `__pte_to_swp_entry()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapEntry {
    /// The swap type, 0 to 31.
    pub swap_type: u8,
    /// The offset: a slot in the swap area, a page frame number and flags, or a marker's flags.
    pub offset: u64,
    /// `PTE_SWP_EXCLUSIVE`.
    pub exclusive: bool,
    /// `PTE_SWP_UFFD_WP`.
    pub uffd_wp: bool,
}

/// Meaning of a swap type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwapKind {
    /// A slot in a swap area.
    Swapped,
    /// A PTE marker (userfaultfd, poison, from 6.13 on guard).
    Marker,
    /// A migration, hardware poison or device entry: which one depends on the kernel's options
    /// (`CONFIG_DEVICE_PRIVATE` shifts the numbers), so it is not guessed.
    Special,
}

impl SwapEntry {
    /// Returns the meaning of the type, as far as it is the same in every configuration.
    pub fn kind(self) -> SwapKind {
        // MAX_SWAPFILES is 32 less marker (1, always type 31), device (0 or 4), migration (0 or 3) and poison (0 or 1).
        // A type below 23 is a swap area in every configuration.
        match self.swap_type {
            31 => SwapKind::Marker,
            23..=30 => SwapKind::Special,
            _ => SwapKind::Swapped,
        }
    }
}

impl Pte {
    fn has(self, bit: u64) -> bool {
        self.0 & bit != 0
    }

    /// Returns `pte_none()`.
    pub fn none(self) -> bool {
        self.0 == 0
    }

    /// Returns `pte_valid()`.
    pub fn valid(self) -> bool {
        self.has(bits::VALID)
    }

    /// Returns `pte_present_invalid()`.
    pub fn present_invalid(self) -> bool {
        self.0 & (bits::VALID | bits::PRESENT_INVALID) == bits::PRESENT_INVALID
    }

    /// Returns `pte_present()`.
    pub fn present(self) -> bool {
        self.valid() || self.present_invalid()
    }

    /// Returns `pte_protnone()`.
    pub fn prot_none(self) -> bool {
        self.present_invalid() && !self.user() && self.has(bits::UXN)
    }

    /// Returns `pte_user()`.
    pub fn user(self) -> bool {
        self.has(bits::USER)
    }

    /// Returns `pte_write()`: Linux allows writes, whether the entry is clean or not.
    pub fn write(self) -> bool {
        self.has(bits::WRITE)
    }

    /// Returns `pte_rdonly()`.
    pub fn rdonly(self) -> bool {
        self.has(bits::RDONLY)
    }

    /// Returns `pte_hw_dirty()`: writable, and a store does not fault.
    pub fn hw_dirty(self) -> bool {
        self.write() && !self.rdonly()
    }

    /// Returns `pte_sw_dirty()`.
    pub fn sw_dirty(self) -> bool {
        self.has(bits::DIRTY)
    }

    /// Returns `pte_dirty()`.
    pub fn dirty(self) -> bool {
        self.sw_dirty() || self.hw_dirty()
    }

    /// Returns `pte_young()`.
    pub fn young(self) -> bool {
        self.has(bits::AF)
    }

    /// Returns `pte_special()`.
    pub fn special(self) -> bool {
        self.has(bits::SPECIAL)
    }

    /// Returns `pte_devmap()`.
    pub fn devmap(self) -> bool {
        self.has(bits::DEVMAP)
    }

    /// Returns `pte_uffd_wp()`.
    pub fn uffd_wp(self) -> bool {
        self.has(bits::UFFD_WP)
    }

    /// Returns `pte_valid_cont()`: bit 52 counts on valid entries only.
    pub fn valid_cont(self) -> bool {
        self.valid() && self.has(bits::CONT)
    }

    /// Returns the kind of this entry. It is meant for entries that can map memory, not for table descriptors.
    pub fn kind(self) -> Kind {
        if self.none() {
            Kind::None
        } else if self.valid() {
            Kind::Valid
        } else if self.prot_none() {
            Kind::ProtNone
        } else if self.present_invalid() {
            Kind::PresentInvalid
        } else {
            Kind::Swap(SwapEntry {
                swap_type: (self.0 >> 6 & 0x1f) as u8,
                offset: self.0 >> 12 & ((1 << 50) - 1),
                exclusive: self.has(1 << 2),
                uffd_wp: self.has(1 << 3),
            })
        }
    }

    /// Returns the names of the software bits, for people: `DIRTY SPECIAL`. It is empty if none is set, and for an
    /// entry that is not present, whose bits have other meanings.
    pub fn software_names(self) -> impl Iterator<Item = &'static str> {
        let named = [
            (bits::WRITE, "WRITE"),
            (bits::DIRTY, "DIRTY"),
            (bits::SPECIAL, "SPECIAL"),
            (bits::DEVMAP, "DEVMAP"),
            (bits::UFFD_WP, "UFFD_WP"),
        ];
        let word = if self.present() { self.0 } else { 0 };
        named
            .into_iter()
            .filter(move |(bit, _)| word & bit != 0)
            .map(|(_, name)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dirty_follows_the_table_in_pgtable_h() {
        // "PTE bits configuration in the presence of hardware Dirty Bit Management":
        // (PTE_RDONLY, PTE_WRITE, PTE_DIRTY) -> (dirty, writable)
        let of = |rdonly: u64, write: u64, dirty: u64| {
            let pte = Pte(3 | rdonly << 7 | write << 51 | dirty << 55);
            (pte.dirty(), pte.write())
        };
        assert_eq!(of(1, 0, 0), (false, false));
        assert_eq!(of(1, 1, 0), (false, true));
        assert_eq!(of(1, 0, 1), (true, false));
        assert_eq!(of(0, 1, 0), (true, true));
        assert_eq!(of(0, 1, 1), (true, true));
    }

    #[test]
    fn entries_without_the_valid_bit_are_told_apart() {
        assert_eq!(Pte(0).kind(), Kind::None);
        // PAGE_NONE: AF, SH, RDONLY, NG, PXN, UXN, type bit 1, not valid.
        let none = 0x0060_0000_4812_3f82_u64;
        assert_eq!(none & 1, 0);
        assert_eq!(Pte(none).kind(), Kind::ProtNone);
        // pmd_mkinvalid() of a user block: USER stays.
        assert_eq!(Pte(0x0060_0000_4820_0f40).kind(), Kind::PresentInvalid);
        // Type 3, offset with bit 40 of it set: that is bit 52 of the word, and not CONT.
        let swap = Pte(3 << 6 | 1 << 52 | 1 << 2);
        assert!(!swap.valid_cont());
        let Kind::Swap(entry) = swap.kind() else {
            panic!("a swap entry")
        };
        assert_eq!(
            (entry.swap_type, entry.offset, entry.exclusive),
            (3, 1 << 40, true)
        );
        assert_eq!(entry.kind(), SwapKind::Swapped);
        let marker = Pte(31 << 6 | 1 << 12);
        let Kind::Swap(entry) = marker.kind() else {
            panic!("a marker")
        };
        assert_eq!(entry.kind(), SwapKind::Marker);
    }

    #[test]
    fn software_bits_are_named_only_where_they_are_such() {
        let names = |word| Pte(word).software_names().collect::<Vec<_>>().join(" ");
        assert_eq!(names(1 | 1 << 55 | 1 << 51), "WRITE DIRTY");
        assert_eq!(
            names(1 | 1 << 56 | 1 << 57 | 1 << 58),
            "SPECIAL DEVMAP UFFD_WP"
        );
        assert_eq!(names(1 << 55 | 1 << 12), "");
    }
}
