// SPDX-License-Identifier: GPL-2.0-only
//! `struct page` and `struct folio`: what the kernel keeps of each page of memory.

mod mapped;
mod names;
mod read;
mod written;

use serde::{Deserialize, Serialize};
use stage1::PhysMemory;

pub use mapped::Frames;
pub use read::Pages;

use crate::kernel::View;
use crate::lock::SpinLock;
use crate::types::{Member, Types};
use crate::{vmcoreinfo, Kernel, StructureError};
use written::Written;

#[cfg(test)]
pub(crate) use read::made_up;
pub(crate) use read::{Free, Passed};

/// Layout and place of this kernel's pages. It does not change while the kernel runs, and a snapshot
/// keeps it: with it and the kernel's tables pages are read without the kernel's symbols and types.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// The address of the `struct page` of page frame 0, which need not be mapped.
    pub vmemmap: u64,
    /// The first address at which the array of pages may be mapped (`VMEMMAP_START`).
    pub start: u64,
    /// The first address behind it (`VMEMMAP_END`).
    pub end: u64,
    /// Bytes of a `struct page`.
    pub size: u64,
    flags: Field,
    compound_head: Field,
    mapcount: Field,
    refcount: Field,
    mapping: Field,
    index: Field,
    flags_1: Field,
    large_mapcount: Field,
    entire_mapcount: Field,
    #[serde(default)]
    pincount: Option<Field>,
    /// Its node on a list of free blocks.
    #[serde(default)]
    list: Option<Field>,
    #[serde(default)]
    private: Option<Field>,
    /// In a table's page: the word of the lock under which its entries change (`struct ptdesc`, `ptl`).
    #[serde(default)]
    table_lock: Option<Field>,
    /// Where that is a pointer, as with `CONFIG_PREEMPT_RT` and with lock debugging: it, and the word in the lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    table_lock_at: Option<(Field, Field)>,
    /// The slot of the folio's first page, while it is in the swap cache.
    #[serde(default)]
    swap: Option<Field>,
    /// In a folio's first page: the word that leads to its memory cgroup (`memcg_data`).
    #[serde(default)]
    memcg: Option<Field>,
    /// Its node on a queue of folios that wait to be split.
    #[serde(default)]
    deferred: Option<Field>,
    /// Members that lead from a page cache to its device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    written: Option<Written>,
    /// True if `_mapcount` of a page of a large folio is known to count it: from 6.15 on it may not
    /// (`CONFIG_NO_PAGE_MAPCOUNT`).
    per_page: bool,
    bits: Bits,
    types: PageTypes,
    /// The names of `enum pageflags`, by their bits; those of bits that have several are joined by a bar.
    pub names: Vec<(u8, String)>,
    /// The names of `enum pagetype`, by their numbers; an earlier version did not keep them.
    #[serde(default)]
    type_names: Vec<(u8, String)>,
}

/// One member: bytes from the start of the structure, and bytes that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Field(u64, u64);

impl From<Member> for Field {
    fn from(member: Member) -> Field {
        Field(member.offset, member.size)
    }
}

/// Bits of `flags` (`enum pageflags`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Bits {
    head: u64,
    anon_exclusive: u64,
    swapbacked: u64,
    swapcache: u64,
    hwpoison: Option<u64>,
    /// Fields of the folio's second page.
    #[serde(default)]
    partially_mapped: Option<u64>,
    #[serde(default)]
    locked: Option<u64>,
    #[serde(default)]
    lru: Option<u64>,
    #[serde(default)]
    mlocked: Option<u64>,
    /// On no list that is looked through for pages to reclaim.
    #[serde(default)]
    unevictable: Option<u64>,
    #[serde(default)]
    dirty: Option<u64>,
    #[serde(default)]
    writeback: Option<u64>,
    /// A bit of `private` of a hugetlb folio (`enum hugetlb_page_flags`).
    #[serde(default)]
    migratable: Option<u64>,
    /// All of them.
    #[serde(default)]
    any: Option<u64>,
}

/// `enum pagetype`: the top byte of `page_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PageTypes {
    buddy: u64,
    table: u64,
    slab: u64,
    hugetlb: u64,
    /// From this one on the word is a count.
    underflow: u64,
}

/// Where of a `struct page` and a `struct folio` that is which tells of which folio a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FolioFields {
    /// Where `flags` is in a `struct page`, in bytes.
    pub flags: u64,
    /// The bit of `PG_head` in that.
    pub head: u64,
    /// Where `compound_head` is.
    pub compound_head: u64,
    /// Where `_flags_1` of the folio is, whose low byte is the order.
    pub flags_1: u64,
    /// Where its `mapping` is.
    pub mapping: u64,
    /// Where its `index` is.
    pub index: u64,
}

impl Layout {
    /// Fields that lead from a page to its folio.
    #[must_use]
    pub fn folio_fields(&self) -> FolioFields {
        FolioFields {
            flags: self.flags.0,
            head: self.bits.head,
            compound_head: self.compound_head.0,
            flags_1: self.flags_1.0,
            mapping: self.mapping.0,
            index: self.index.0,
        }
    }

    /// As this kernel has it.
    ///
    /// # Errors
    /// What it does not have.
    pub fn new<M: PhysMemory + ?Sized>(
        kernel: &Kernel,
        view: View<'_, M>,
    ) -> Result<Layout, StructureError> {
        let types = &kernel.types;
        let size = types.size("page")?;
        let (vmemmap, start, end) = vmcoreinfo::vmemmap(kernel, view, size)?;
        let page = |name| types.member("page", name).map(Field::from);
        let folio = |name| types.member("folio", name).map(Field::from);
        let bit = |name| Ok(1u64 << (types.enumerator("pageflags", name)? & 63));
        let kind = |name| types.enumerator("pagetype", name);
        let spin = SpinLock::new(types);
        Ok(Layout {
            vmemmap,
            start,
            end,
            size,
            flags: page("flags")?,
            // Renamed in 7.0; a pointer with bit 0 as before, where the size of `struct page` is no power of two or
            // tail pages are not shared.
            compound_head: page("compound_head").or_else(|_| page("compound_info"))?,
            mapcount: page("_mapcount")?,
            refcount: page("_refcount")?,
            mapping: folio("mapping")?,
            index: folio("index")?,
            flags_1: folio("_flags_1")?,
            large_mapcount: folio("_large_mapcount")?,
            entire_mapcount: folio("_entire_mapcount")?,
            pincount: folio("_pincount").ok(),
            list: page("buddy_list").ok(),
            private: page("private").ok(),
            table_lock: spin.as_ref().ok().and_then(|lock| {
                // `pointer` fails where the lock itself is there.
                let ptl = types.member("ptdesc", "ptl").ok()?;
                let inside = types.pointer("ptdesc", "ptl").is_err();
                let word = lock.word();
                inside.then_some(Field(ptl.offset + word.offset, word.size))
            }),
            table_lock_at: spin.ok().and_then(|lock| {
                let pointer = types.pointer("ptdesc", "ptl").ok()?;
                Some((pointer.into(), lock.word().into()))
            }),
            swap: folio("swap.val").ok(),
            memcg: folio("memcg_data").ok(),
            deferred: folio("_deferred_list").ok(),
            written: Written::new(kernel).ok(),
            // `NO_PAGE_MAPCOUNT` selects `MM_ID`, and nothing else in the types tells of it.
            per_page: types.member("folio", "_mm_ids").is_err(),
            bits: Bits {
                head: bit("PG_head")?,
                anon_exclusive: bit("PG_anon_exclusive")?,
                swapbacked: bit("PG_swapbacked")?,
                swapcache: bit("PG_swapcache")?,
                hwpoison: bit("PG_hwpoison").ok(),
                partially_mapped: bit("PG_partially_mapped").ok(),
                locked: bit("PG_locked").ok(),
                lru: bit("PG_lru").ok(),
                mlocked: bit("PG_mlocked").ok(),
                unevictable: bit("PG_unevictable").ok(),
                dirty: bit("PG_dirty").ok(),
                writeback: bit("PG_writeback").ok(),
                migratable: types
                    .enumerator("hugetlb_page_flags", "HPG_migratable")
                    .ok()
                    .map(|bit| 1 << (bit & 63)),
                any: bit("__NR_PAGEFLAGS").ok().map(|bit| bit - 1),
            },
            types: PageTypes {
                buddy: kind("PGTY_buddy")?,
                table: kind("PGTY_table")?,
                slab: kind("PGTY_slab")?,
                hugetlb: kind("PGTY_hugetlb")?,
                underflow: kind("PGTY_mapcount_underflow")?,
            },
            names: names(types),
            type_names: type_names(types),
        })
    }

    /// The page frame number whose `struct page` is at `va`.
    fn pfn_of(&self, va: u64) -> Option<u64> {
        let offset = va.wrapping_sub(self.vmemmap);
        let whole = offset % self.size == 0 && (self.start..self.end).contains(&va);
        whole.then_some(offset / self.size)
    }

    /// The address of a page's `struct page`.
    #[must_use]
    pub fn address(&self, pfn: u64) -> u64 {
        self.vmemmap.wrapping_add(pfn.wrapping_mul(self.size))
    }
}

fn type_names(types: &Types) -> Vec<(u8, String)> {
    let names = types.enumerators("pagetype").into_iter();
    let names = names.filter_map(|(name, number)| {
        let name = name.strip_prefix("PGTY_")?;
        Some((number as u8, name.to_owned()))
    });
    names.collect()
}

fn names(types: &Types) -> Vec<(u8, String)> {
    let mut names: Vec<(u8, String)> = Vec::new();
    for (name, bit) in types.enumerators("pageflags") {
        let Some(name) = name.strip_prefix("PG_") else {
            continue;
        };
        let bit = (bit & 63) as u8;
        match names.iter_mut().find(|(known, _)| *known == bit) {
            Some((_, known)) => {
                known.push('|');
                known.push_str(name);
            }
            None => names.push((bit, name.to_owned())),
        }
    }
    names.sort();
    names
}
