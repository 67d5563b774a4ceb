// SPDX-License-Identifier: GPL-2.0-only
//! Names of entries that are not present.
//!
//! A swap entry's type identifies it. Which types are not swap areas depends on the kernel's configuration
//! (include/linux/swap.h). From `MAX_SWAPFILES` on there are one for hwpoison (`CONFIG_MEMORY_FAILURE`), three for
//! migration (`CONFIG_MIGRATION`) and four, since 6.15 three, for devices (`CONFIG_DEVICE_PRIVATE`). The last one, 31,
//! is that of PTE markers. If the configuration is unknown, a name lists all that the entry may be.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use untrusted::Text;

use crate::pte::{bits, Kind, Pte, SwapEntry};
use crate::symbols::Symbols;

/// `PTE_MARKER_UFFD_WP`, `PTE_MARKER_POISONED`, and since 6.13 `PTE_MARKER_GUARD` (include/linux/swapops.h).
const MARKERS: [(u64, &str); 3] = [(1, "uffd-wp"), (2, "poison"), (4, "guard")];
/// The type of markers: the last of 32, in each configuration.
const MARKER: u8 = 31;

/// The known meanings of a kernel's swap types.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SwapTypes {
    /// True if the kernel has a type for hwpoison.
    pub hwpoison: Option<bool>,
    /// True if the kernel has the types of migration.
    pub migration: Option<bool>,
    /// Number of types for devices: none, 3 or 4.
    pub device: Option<u8>,
    /// True if the kernel has guard markers.
    pub guard: Option<bool>,
    /// `SWP_PFN_BITS`: the bits of an offset that are a page frame number, below young and dirty.
    pub frame_bits: Option<u8>,
    /// Its swap areas by type, with the path that `swapon(2)` was given.
    pub areas: Vec<(u8, Text)>,
}

/// One meaning of a swap entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Area,
    Hwpoison,
    Migration(&'static str),
    DevicePrivate(&'static str),
    DeviceExclusive(&'static str),
    Marker,
}

impl What {
    fn name(self) -> String {
        match self {
            What::Area => "swap".into(),
            What::Hwpoison => "hwpoison".into(),
            What::Migration(how) => format!("migration ({how})"),
            What::DevicePrivate(how) => format!("device private ({how})"),
            What::DeviceExclusive("") => "device exclusive".into(),
            What::DeviceExclusive(how) => format!("device exclusive ({how})"),
            What::Marker => "marker".into(),
        }
    }
}

/// Returns the meanings of types `first` to 30 of a kernel with these features.
fn layout(hwpoison: bool, migration: bool, device: u8) -> Vec<What> {
    let mut types = Vec::with_capacity(8);
    types.extend(hwpoison.then_some(What::Hwpoison));
    if migration {
        let how = ["read", "read, exclusive", "write"];
        types.extend(how.map(What::Migration));
    }
    if device > 0 {
        types.extend(["write", "read"].map(What::DevicePrivate));
    }
    match device {
        4 => types.extend(["write", "read"].map(What::DeviceExclusive)),
        3 => types.push(What::DeviceExclusive("")),
        _ => {}
    }
    types
}

impl SwapTypes {
    /// The swap types of a kernel of which nothing is known.
    pub const OPEN: SwapTypes = SwapTypes {
        hwpoison: None,
        migration: None,
        device: None,
        guard: None,
        frame_bits: None,
        areas: Vec::new(),
    };

    /// Derives the types from the functions that a kernel has: each option adds a file or a function of its own.
    /// `physical_bits` is the kernel's `MAX_PHYSMEM_BITS`, `page_shift` its `PAGE_SHIFT`. Swap areas are left out.
    pub fn new(symbols: &Symbols, physical_bits: Option<u8>, page_shift: u8) -> SwapTypes {
        let has = |name| symbols.address(name).is_some();
        // A kernel without such a symbol table, or with a damaged one, has neither of these.
        if !has("copy_page_range") && !has("handle_mm_fault") {
            return SwapTypes::default();
        }
        SwapTypes {
            // mm/memory-failure.c, mm/migrate.c.
            hwpoison: Some(has("memory_failure")),
            migration: Some(has("migrate_pages")),
            // mm/rmap.c. The name changed in the series that made two types of exclusive entries one.
            device: Some(
                match (
                    has("make_device_exclusive"),
                    has("make_device_exclusive_range"),
                ) {
                    (true, _) => 3,
                    (false, true) => 4,
                    (false, false) => 0,
                },
            ),
            // mm/madvise.c: its address is taken, so it is never inlined.
            guard: Some(has("guard_install_set_pte")),
            frame_bits: physical_bits.and_then(|bits| bits.checked_sub(page_shift)),
            areas: Vec::new(),
        }
    }

    /// Returns all that an entry of this type may be.
    fn may_be(&self, swap_type: u8) -> BTreeSet<What> {
        if swap_type == MARKER {
            return BTreeSet::from([What::Marker]);
        }
        let either = |known: Option<bool>| known.map_or(vec![false, true], |known| vec![known]);
        let devices = self.device.map_or(vec![0, 3, 4], |device| vec![device]);
        let mut all = BTreeSet::new();
        for hwpoison in either(self.hwpoison) {
            for migration in either(self.migration) {
                for device in &devices {
                    let types = layout(hwpoison, migration, *device);
                    let first = usize::from(MARKER) - types.len();
                    let at = usize::from(swap_type).checked_sub(first);
                    all.insert(at.map_or(What::Area, |at| types[at]));
                }
            }
        }
        all
    }

    /// Returns the kind of an invalid entry, in a few words that many entries share: `swap`, `migration (write)`,
    /// `hwpoison`, `poison marker`, `PROT_NONE`. Returns `None` for an entry of zeros and for a valid one. `accessible`
    /// is `vma_is_accessible()` of the VMA, which turns PROT_NONE into a NUMA hint; `None` if it is unknown.
    pub fn kind(&self, pte: Pte, accessible: Option<bool>) -> Option<String> {
        Some(match pte.kind() {
            Kind::None | Kind::Valid => return None,
            Kind::ProtNone => not_accessible(pte, accessible).into(),
            Kind::PresentInvalid => "present, not valid".into(),
            Kind::Swap(entry) if entry.swap_type == MARKER => self.marker(entry),
            Kind::Swap(entry) => either(&self.may_be(entry.swap_type)),
        })
    }

    /// Returns the kind with the entry's contents: area and slot, page frame, flags.
    pub fn name(&self, pte: Pte, accessible: Option<bool>) -> Option<String> {
        let kind = self.kind(pte, accessible)?;
        let entry = match pte.kind() {
            Kind::Swap(entry) => entry,
            Kind::PresentInvalid => {
                return Some(format!("{kind}: a block that is being split or changed"))
            }
            _ => return Some(kind),
        };
        let what = self.may_be(entry.swap_type);
        let mut flags = Vec::new();
        let mut name = match what.iter().next().filter(|_| what.len() == 1) {
            Some(What::Area) => {
                let area = self.areas.iter().find(|(number, _)| *number == entry.swap_type);
                let path = area.map_or(String::new(), |(_, path)| format!(" ({path})"));
                format!("swap type {}{path}, slot {:#x}", entry.swap_type, entry.offset)
            }
            Some(What::Marker) => kind,
            Some(what) => {
                let mut name = kind;
                match self.frame(entry) {
                    Some((frame, rest)) => {
                        let _ = write!(name, ", page frame {frame:#x}");
                        if let What::Migration(_) = what {
                            flags.extend((rest & 1 != 0).then_some("young"));
                            flags.extend((rest & 2 != 0).then_some("dirty"));
                        }
                    }
                    None => {
                        let _ = write!(name, ", offset {:#x} (page frame and flags)", entry.offset);
                    }
                }
                name
            }
            None => format!(
                "swap type {}, offset {:#x}: {kind}, by this kernel's configuration, which is not known",
                entry.swap_type, entry.offset
            ),
        };
        flags.extend(entry.exclusive.then_some("exclusive"));
        flags.extend(entry.uffd_wp.then_some("uffd-wp"));
        for flag in flags {
            let _ = write!(name, ", {flag}");
        }
        Some(name)
    }

    /// Returns the page frame of an entry of migration, hwpoison or a device. Returns `None` if the entry is, or may
    /// be, of another kind.
    pub fn page_frame(&self, pte: Pte) -> Option<u64> {
        let Kind::Swap(entry) = pte.kind() else {
            return None;
        };
        let what = self.may_be(entry.swap_type);
        let names = |what: &What| !matches!(what, What::Area | What::Marker);
        let frame = self.frame(entry)?.0;
        what.iter().all(names).then_some(frame)
    }

    /// Returns the page frame number in an entry that holds one, and the bits above it.
    fn frame(&self, entry: SwapEntry) -> Option<(u64, u64)> {
        let bits = self.frame_bits.filter(|bits| *bits < 50)?;
        Some((entry.offset & ((1 << bits) - 1), entry.offset >> bits))
    }

    /// Returns a marker by its bits: `poison marker`, `uffd-wp and poison marker`.
    fn marker(&self, entry: SwapEntry) -> String {
        let known = MARKERS.iter();
        let known = known.filter(|(_, name)| *name != "guard" || self.guard != Some(false));
        let (mut names, mut rest) = (Vec::new(), entry.offset);
        for (bit, name) in known.filter(|(bit, _)| entry.offset & bit != 0) {
            rest &= !bit;
            names.push((*name).to_owned());
        }
        if rest != 0 || names.is_empty() {
            names.push(format!("unknown ({rest:#x})"));
        }
        format!("{} marker", names.join(" and "))
    }
}

/// Names a present entry that no CPU may use: PROT_NONE, or one of the two other kinds that look alike.
fn not_accessible(pte: Pte, accessible: Option<bool>) -> &'static str {
    match (pte.0 & bits::UFFD_WP != 0, accessible) {
        (_, Some(false)) => "PROT_NONE",
        (false, Some(true)) => "NUMA hint",
        (false, None) => "PROT_NONE or NUMA hint",
        // UFFDIO_RWPROTECT (7.3) makes an entry so with this bit; a NUMA hint may be put over a write-protected one.
        (true, Some(true)) => "NUMA hint or userfaultfd's read protection",
        (true, None) => "PROT_NONE, NUMA hint or userfaultfd's read protection",
    }
}

/// Joins the names, as `hwpoison or migration (read)`.
fn either(all: &BTreeSet<What>) -> String {
    let names: Vec<String> = all.iter().map(|what| what.name()).collect();
    match names.as_slice() {
        [] => String::new(),
        [only] => only.clone(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn swap(swap_type: u64, offset: u64) -> Pte {
        Pte(swap_type << 6 | offset << 12)
    }

    /// Returns Debian's 6.12 for clouds: no devices; 4K pages and 52 bits of physical address.
    fn cloud() -> SwapTypes {
        SwapTypes {
            hwpoison: Some(true),
            migration: Some(true),
            device: Some(0),
            guard: Some(false),
            frame_bits: Some(40),
            areas: vec![(1, "/dev/zram0".into())],
        }
    }

    #[test]
    fn types_by_configuration() {
        // include/linux/swap.h of 6.12 and of 7.3, MAX_SWAPFILES by each option.
        let names = |hwpoison, migration, device| {
            let types = SwapTypes {
                hwpoison: Some(hwpoison),
                migration: Some(migration),
                device: Some(device),
                ..SwapTypes::default()
            };
            let names =
                (20..32).map(|number| types.kind(swap(number, 1), None).unwrap_or_default());
            let names: Vec<String> = names.collect();
            names
                .join("|")
                .replace("migration", "m")
                .replace("device ", "d ")
        };
        let swaps = |count| vec!["swap"; count].join("|");
        assert_eq!(
            names(false, false, 0),
            format!("{}|uffd-wp marker", swaps(11))
        );
        assert_eq!(
            names(true, false, 0),
            format!("{}|hwpoison|uffd-wp marker", swaps(10))
        );
        assert_eq!(
            names(true, true, 0),
            format!(
                "{}|hwpoison|m (read)|m (read, exclusive)|m (write)|uffd-wp marker",
                swaps(7)
            )
        );
        assert_eq!(
            names(true, true, 4),
            format!("{}|hwpoison|m (read)|m (read, exclusive)|m (write)|d private (write)|d private (read)|d exclusive (write)|d exclusive (read)|uffd-wp marker", swaps(3))
        );
        assert_eq!(
            names(true, true, 3),
            format!("{}|hwpoison|m (read)|m (read, exclusive)|m (write)|d private (write)|d private (read)|d exclusive|uffd-wp marker", swaps(4))
        );
    }

    #[test]
    fn names_with_what_entries_hold() {
        let types = cloud();
        let name = |pte: Pte| types.name(pte, None).unwrap_or_default();
        assert_eq!(
            name(Pte(swap(1, 0x12).0 | 1 << 2)),
            "swap type 1 (/dev/zram0), slot 0x12, exclusive"
        );
        assert_eq!(
            name(Pte(swap(0, 7).0 | 1 << 3)),
            "swap type 0, slot 0x7, uffd-wp"
        );
        // From a 6.12.117: MADV_HWPOISON of page frame 0x401a4.
        assert_eq!(name(Pte(0x401a_46c0)), "hwpoison, page frame 0x401a4");
        assert_eq!(
            name(swap(30, 0x41200 | 3 << 40)),
            "migration (write), page frame 0x41200, young, dirty"
        );
        assert_eq!(
            name(swap(29, 0x41200 | 1 << 40)),
            "migration (read, exclusive), page frame 0x41200, young"
        );
        // UFFDIO_WRITEPROTECT of shmem that is not there, UFFDIO_POISON.
        assert_eq!(name(Pte(0x17c0)), "uffd-wp marker");
        assert_eq!(name(Pte(0x27c0)), "poison marker");
        assert_eq!(name(swap(31, 3)), "uffd-wp and poison marker");
        assert_eq!(name(swap(31, 4)), "unknown (0x4) marker");
        let newer = SwapTypes {
            guard: Some(true),
            ..cloud()
        };
        assert_eq!(
            newer.name(swap(31, 4), None).as_deref(),
            Some("guard marker")
        );
        assert_eq!(types.name(Pte(0), None), None);
        assert_eq!(types.name(Pte(0xf83), None), None);
    }

    #[test]
    fn what_is_not_known_is_left_open() {
        let open = SwapTypes::default();
        let name = |pte| open.name(pte, None).unwrap_or_default();
        // Below all types that a configuration may use.
        assert_eq!(name(swap(22, 5)), "swap type 22, slot 0x5");
        assert_eq!(
            open.kind(swap(23, 5), None).as_deref(),
            Some("swap or hwpoison")
        );
        assert!(name(swap(30, 5)).starts_with(
            "swap type 30, offset 0x5: swap, hwpoison, migration (write), device exclusive or device exclusive (read), by this"
        ));
        let frames = SwapTypes {
            frame_bits: None,
            ..cloud()
        };
        assert_eq!(
            frames.name(swap(27, 0x12), None).as_deref(),
            Some("hwpoison, offset 0x12 (page frame and flags)")
        );
    }

    #[test]
    fn what_no_cpu_may_use() {
        let types = cloud();
        let none = Pte(0x00e0_0000_4268_2c82);
        let kind = |pte, accessible| types.kind(pte, accessible).unwrap_or_default();
        assert_eq!(kind(none, Some(false)), "PROT_NONE");
        assert_eq!(kind(none, Some(true)), "NUMA hint");
        assert_eq!(kind(none, None), "PROT_NONE or NUMA hint");
        let protected = Pte(none.0 | bits::UFFD_WP);
        assert_eq!(
            kind(protected, Some(true)),
            "NUMA hint or userfaultfd's read protection"
        );
        assert_eq!(
            types.name(Pte(0x0060_0000_4820_0f40), None).as_deref(),
            Some("present, not valid: a block that is being split or changed")
        );
    }
}
