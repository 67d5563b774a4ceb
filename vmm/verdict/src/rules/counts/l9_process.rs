// SPDX-License-Identifier: GPL-2.0-only
//! L9 on a process as a whole: its counters of pages and of page tables are what its entries and tables are.

use linux::folio::{HugeZero, Rss};
use linux::vma::VmFlags;

use crate::check::{ProcessSeen, Whole};
use crate::page_tables::Tables;

/// Holds the process's counters to its tables.
pub(super) fn check(seen: &ProcessSeen<'_>, whole: &mut Whole) {
    let structures = seen.structures;
    if seen.not_one_by_one > 0 {
        whole.notes.push(format!(
            "L9 was not judged page by page for {} entries of large folios: the kernel may not count so (CONFIG_NO_PAGE_MAPCOUNT)",
            seen.not_one_by_one
        ));
    }
    // An entry that is wrong is told of by its own rule, and one that could not be read was told of.
    if !seen.is_sound {
        return;
    }
    whole.broken.extend(huge_zero(seen));
    if seen.moving > 0 {
        whole.notes.push(format!(
            "the process's RSS and bytes of page tables were not judged (L9): {} of its entries may be of pages on their way, or of poison",
            seen.moving
        ));
        return;
    }
    if structures.table_locked {
        whole.not_judged.push(
            "the process's RSS and bytes of page tables were not judged (L9): the lock of one of its tables was held"
                .into(),
        );
        return;
    }
    match structures.tables_bytes {
        Some(bytes) if seen.tables.unsure == 0 => {
            let size = seen.regime.granule.bytes();
            whole.broken.extend(tables(bytes, seen.tables, size));
        }
        Some(_) => whole.notes.push(format!(
            "the process's bytes of page tables were not judged (L9): {} of its tables could not be read, or are blocks that a driver or DAX may have made",
            seen.tables.unsure
        )),
        None if structures.numbering.is_some() => {
            let said = "the process's bytes of page tables were not judged (L9): they could not be read";
            whole.notes.push(said.into());
        }
        // As with its RSS.
        None => {}
    }
    // The VMAs are known as they are only if no task was changing them.
    if let (Some(va), Some(_)) = (seen.tables.unused, &structures.numbering) {
        whole.broken.push(format!(
            "a table of level 3 for VA 0x{va:016x} and on has no VMA in its range: munmap() frees such a table, and nothing else \
             does until the process ends"
        ));
    }
    hugetlb_pages(seen, whole);
    whole.broken.extend(vm_pages(seen));
    match structures.rss {
        Some(counted) => whole.broken.extend(rss(counted, seen.entries)),
        // If its VMAs are known no task was changing it.
        None if structures.numbering.is_some() => {
            let said = "the process's RSS was not judged (L9): its counters could not be read, or exec() was counting its arguments";
            whole.notes.push(said.into());
        }
        None => whole.not_judged.push(
            "the process's RSS and bytes of page tables were not judged (L9): it was just being changed".into(),
        ),
    }
}

/// Holds a process that maps the huge zero folio to its reference on it: the sentence where it has none, or where all address
/// spaces have more of them than are counted.
fn huge_zero(seen: &ProcessSeen<'_>) -> Option<String> {
    let (va, folio) = seen.huge_zero.zip(seen.structures.huge_zero)?;
    let HugeZero {
        pfn,
        references,
        holders,
        is_holder,
        bit,
    } = folio;
    let maps =
        format!("VA 0x{va:016x} maps the huge zero folio, of page frame 0x{pfn:x}, by a block");
    if !is_holder {
        return Some(format!(
            "{maps}, and the process's address space has no reference on it: bit {bit} of its flags (MMF_HUGE_ZERO_FOLIO) is 0 and must be 1"
        ));
    }
    (references <= holders).then(|| {
        format!(
            "{maps}, and huge_zero_refcount is {references}: it must be at least {}, for the {holders} address spaces that are marked as having a reference and the kernel itself",
            holders + 1
        )
    })
}

/// Kind of a VMA in its process's counters (`is_exec_mapping()`, `is_stack_mapping()`, `is_data_mapping()`, mm/internal.h).
#[derive(Clone, Copy, PartialEq, Eq)]
enum VmaKind {
    Exec,
    Stack,
    Data,
    Other,
}

impl VmaKind {
    fn of(flags: &VmFlags) -> VmaKind {
        let [exec, write, shared, stack] = ["ex", "wr", "sh", "gd"].map(|name| flags.has(name));
        match () {
            () if stack => VmaKind::Stack,
            () if exec && !write => VmaKind::Exec,
            () if write && !shared => VmaKind::Data,
            () => VmaKind::Other,
        }
    }
}

/// Holds the process's counters of VMA pages to its VMAs: the sentence where they differ.
fn vm_pages(seen: &ProcessSeen<'_>) -> Option<String> {
    // The numbering is known only if no task was changing the VMAs.
    seen.structures.numbering.as_ref()?;
    let counted = seen.structures.vm_pages?;
    let size = seen.regime.granule.bytes();
    let pages = |is: &dyn Fn(&VmFlags) -> bool| -> i64 {
        let vmas = seen.vmas.iter();
        vmas.filter(|vma| vma.flags.as_ref().is_some_and(is))
            .map(|vma| (vma.size() / size) as i64)
            .sum()
    };
    let total: i64 = seen.vmas.iter().map(|vma| (vma.size() / size) as i64).sum();
    let mut pairs = vec![("all (total_vm)", counted.total, total)];
    if let Some(kinds) = counted.kinds {
        pairs.push((
            "their number (map_count)",
            kinds.vmas,
            seen.vmas.len() as i64,
        ));
    }
    // Only smaps has a VMA's flags.
    if seen.vmas.iter().all(|vma| vma.flags.is_some()) {
        let of = |kind| pages(&|flags| VmaKind::of(flags) == kind);
        pairs.push((
            "locked (locked_vm)",
            counted.locked,
            pages(&VmFlags::is_locked),
        ));
        if let Some(kinds) = counted.kinds {
            pairs.push(("executable (exec_vm)", kinds.exec, of(VmaKind::Exec)));
            // A shadow stack is writable, and counts as a stack (`VM_SHADOW_STACK`).
            let (data, stack) = (of(VmaKind::Data), of(VmaKind::Stack));
            let counted = kinds.data + kinds.stack;
            pairs.push((
                "private writable (data_vm and stack_vm)",
                counted,
                data + stack,
            ));
        }
    }
    let wrong = pairs.iter().filter(|(_, counted, found)| counted != found);
    let wrong: Vec<String> = wrong
        .map(|(what, counted, found)| format!("{what} {counted}, VMAs {found}"))
        .collect();
    (!wrong.is_empty()).then(|| {
        format!(
            "the process's counters of pages in VMAs are not its VMAs: {}: they must be equal",
            wrong.join("; ")
        )
    })
}

/// Holds what the process counts of hugetlb to the pages of it that its entries map.
fn hugetlb_pages(seen: &ProcessSeen<'_>, whole: &mut Whole) {
    let (structures, pages) = (seen.structures, seen.hugetlb);
    match structures.hugetlb {
        Some(usage) if usage.may_share && (usage.pages != 0 || pages != 0) => {
            let said = "the process's count of hugetlb pages was not judged (L9): it is so large that it may have shared page tables, whose pages are counted of who faulted them in";
            whole.notes.push(said.into());
        }
        Some(usage) => whole.broken.extend(hugetlb(usage.pages, pages)),
        None if structures.numbering.is_some() && pages != 0 => {
            let said =
                "the process's count of hugetlb pages was not judged (L9): it could not be read";
            whole.notes.push(said.into());
        }
        // As with its RSS.
        None => {}
    }
}

/// The bytes of page tables of a process, which the kernel counts, against its tables: the sentence where they differ.
fn tables(counted: i64, tables: Tables, page_size: u64) -> Option<String> {
    let Tables { walked, ready, .. } = tables;
    let bytes = ((walked + ready) * page_size) as i64;
    (counted != bytes).then(|| {
        format!(
            "the process's bytes of page tables (pgtables_bytes) are {counted}, and its tables take {bytes}: {walked} below the first one, and {ready} that lie ready for its anonymous blocks: they must be equal"
        )
    })
}

/// The hugetlb pages that a process counts against those that its entries map: the sentence where they differ.
fn hugetlb(counted: i64, mapped: i64) -> Option<String> {
    (counted != mapped).then(|| {
        format!(
            "the process's count of hugetlb pages (hugetlb_usage) is {counted}, and its entries map {mapped}: they must be equal"
        )
    })
}

/// The counters of a process against what its entries map: the sentence where they differ.
fn rss(kernel: Rss, entries: Rss) -> Option<String> {
    let pairs = [
        ("file", kernel.file, entries.file),
        ("anonymous", kernel.anonymous, entries.anonymous),
        ("swap", kernel.swapped, entries.swapped),
        ("shmem", kernel.shmem, entries.shmem),
    ];
    let wrong: Vec<String> = pairs
        .iter()
        .filter(|(_, kernel, entries)| kernel != entries)
        .map(|(name, kernel, entries)| format!("{name} {kernel}, entries {entries}"))
        .collect();
    (!wrong.is_empty()).then(|| {
        format!(
            "the process's counters of mapped pages (RSS) are not its entries: {}: they must be equal",
            wrong.join("; ")
        )
    })
}

#[cfg(test)]
mod vma_tests {
    use crate::testing::folios::good;
    use crate::testing::id;
    use crate::tests::guest::*;
    use linux::folio::{VmKinds, VmPages};
    use linux::vma::parse_smaps;

    #[test]
    fn l9_pages_of_vmas() {
        let mut guest = good(Guest::new());
        let (pages, end) = (4 * guest.members as i64, VA + 4 * guest.block);
        for (flags, locked, data, stack) in [
            ("rd wr mr mw me ac", 0, pages, 0),
            ("rd wr mr mw me lo ac", pages, pages, 0),
            ("rd wr ex mr mw me ac", 0, pages, 0),
            ("rd wr mr mw me gd", 0, 0, pages),
        ] {
            let smaps = format!("{VA:x}-{end:x} rw-p 00000000 00:00 0 \nVmFlags: {flags} \n");
            guest.vmas = parse_smaps(&smaps).unwrap();
            let kinds = VmKinds {
                data,
                exec: 0,
                stack,
                vmas: 1,
            };
            let right = VmPages {
                total: pages,
                locked,
                kinds: Some(kinds),
            };
            guest.kernel().vm_pages = Some(right);
            guest.assert_legal();
            let of = |kinds| VmPages {
                kinds: Some(kinds),
                ..right
            };
            let wrong = [
                VmPages {
                    total: pages + 1,
                    ..right
                },
                VmPages {
                    locked: locked + 16,
                    ..right
                },
                of(VmKinds {
                    data: kinds.data + 1,
                    ..kinds
                }),
                of(VmKinds {
                    exec: kinds.exec + 4,
                    ..kinds
                }),
                of(VmKinds {
                    stack: kinds.stack - 1,
                    ..kinds
                }),
                of(VmKinds { vmas: 2, ..kinds }),
            ];
            for counted in wrong {
                guest.kernel().vm_pages = Some(counted);
                assert_eq!(guest.errors(), [id("L9")], "{flags}: {counted:?}");
            }
            // A kernel whose counters are not known by kind, as in notes of an earlier version.
            guest.kernel().vm_pages = Some(VmPages {
                kinds: None,
                ..right
            });
            guest.assert_legal();
        }
        // maps has no flags.
        let maps = format!("{VA:x}-{end:x} rw-p 00000000 00:00 0 ");
        guest.vmas = linux::vma::parse_maps(&maps).unwrap();
        for (vmas, errors) in [(1, vec![]), (2, vec![id("L9")])] {
            guest.kernel().vm_pages = Some(VmPages {
                total: pages,
                locked: 7,
                kinds: Some(VmKinds {
                    data: 1,
                    exec: 2,
                    stack: 3,
                    vmas,
                }),
            });
            assert_eq!(guest.errors(), errors);
        }
    }
}
