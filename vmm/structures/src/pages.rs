//! `struct page` and `struct folio`: what the kernel keeps of each page of memory.

use std::cell::Cell;

use linux::folio::{Kind, NoPage, Page, Type};
use serde::{Deserialize, Serialize};
use stage1::{lookup, Lookup, PhysMemory, PhysicalAddress, VirtualAddress};

use crate::kernel::View;
use crate::types::{Member, Types};
use crate::{vmcoreinfo, Kernel, StructureError};

/// What this kernel's pages look like, and where they are. It does not change while the kernel runs, and a snapshot
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
    /// Whether `_mapcount` of a page of a large folio is known to count it: from 6.15 on it may not
    /// (`CONFIG_NO_PAGE_MAPCOUNT`).
    per_page: bool,
    bits: Bits,
    types: PageTypes,
    /// The names of `enum pageflags`, by their bits; those of bits that have several are joined by a bar.
    pub names: Vec<(u8, String)>,
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

/// `PAGE_TYPE_MASK` and its shift: a type is in the top byte, and everything else in the word says nothing.
const TYPE_SHIFT: u32 = 24;
/// The low byte of `_flags_1` is the folio's order (`folio_large_order()`, include/linux/mm.h).
const ORDER: u64 = 0xff;
/// No folio is larger: 16 GiB of 4K pages. What says so is no folio.
const LARGEST: u64 = 22;
/// Pages without memory that are looked at within one range.
const MOST_GONE: u64 = 1 << 16;
/// The low bits of `mapping` (`FOLIO_MAPPING_FLAGS`).
const MAPPING_FLAGS: u64 = 3;

impl Layout {
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
            // `NO_PAGE_MAPCOUNT` selects `MM_ID`, and nothing else in the types tells of it.
            per_page: types.member("folio", "_mm_ids").is_err(),
            bits: Bits {
                head: bit("PG_head")?,
                anon_exclusive: bit("PG_anon_exclusive")?,
                swapbacked: bit("PG_swapbacked")?,
                swapcache: bit("PG_swapcache")?,
                hwpoison: bit("PG_hwpoison").ok(),
            },
            types: PageTypes {
                buddy: kind("PGTY_buddy")?,
                table: kind("PGTY_table")?,
                slab: kind("PGTY_slab")?,
                hugetlb: kind("PGTY_hugetlb")?,
                underflow: kind("PGTY_mapcount_underflow")?,
            },
            names: names(types),
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

    /// The names of what is set in `flags`.
    #[must_use]
    pub fn names_of(&self, flags: u64) -> Vec<&str> {
        let set = self.names.iter().filter(|(bit, _)| flags >> bit & 1 == 1);
        set.map(|(_, name)| name.as_str()).collect()
    }
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

/// The pages of a kernel at one instant.
#[derive(Debug)]
pub struct Pages<'p, M: ?Sized> {
    layout: &'p Layout,
    view: View<'p, M>,
    /// Where the last page of the array was found that was looked for: its virtual and its physical address.
    last: Cell<(u64, u64)>,
}

impl<'p, M: PhysMemory + ?Sized> Pages<'p, M> {
    /// Those of `layout`'s kernel.
    pub fn new(layout: &'p Layout, view: View<'p, M>) -> Self {
        let last = Cell::new((1, 0));
        Self { layout, view, last }
    }

    /// The page with this page frame number, and its folio.
    ///
    /// # Errors
    /// Where it has none, or that makes no sense.
    pub fn page(&self, pfn: u64) -> Result<Page, NoPage> {
        let layout = self.layout;
        let own = self.structure(pfn)?;
        let flags = field(own, layout.flags);
        let link = field(own, layout.compound_head);
        let head = match link & 1 {
            0 => pfn,
            _ => layout.pfn_of(link - 1).ok_or_else(|| {
                NoPage::Wild(format!(
                    "its compound_head is 0x{link:x}, which is no page's"
                ))
            })?,
        };
        let first = self.structure(head)?;
        let folio_flags = field(first, layout.flags);
        let order = self.order(head, folio_flags)?;
        if head > pfn || pfn - head >= 1 << order {
            return Err(NoPage::Wild(format!(
                "its compound_head leads to page frame 0x{head:x}, whose folio has order {order} and ends before it"
            )));
        }
        let raw = field(own, layout.mapcount);
        let kind_of_page = self.kind_of(field(first, layout.mapcount));
        let hugetlb = kind_of_page == Some(layout.types.hugetlb);
        let mapping = field(first, layout.mapping);
        let in_folio = |member| self.in_folio(head, member);
        let (entire, large) = if order == 0 {
            (0, None)
        } else {
            let large = count(in_folio(layout.large_mapcount)?);
            (count(in_folio(layout.entire_mapcount)?), Some(large))
        };
        let counted = !hugetlb && kind_of_page.is_none() && (order == 0 || layout.per_page);
        // An anonymous folio of hugetlb is exclusive as a whole.
        let exclusive = if hugetlb { folio_flags } else { flags };
        Ok(Page {
            pfn,
            head,
            order,
            flags,
            folio_flags,
            refcount: signed(field(first, layout.refcount)),
            mapcount: counted.then(|| count(raw)),
            entire,
            large,
            kind_of_page: kind_of_page.filter(|_| !hugetlb).map(|kind| match kind {
                kind if kind == layout.types.buddy => Type::Buddy,
                kind if kind == layout.types.table => Type::Table,
                kind if kind == layout.types.slab => Type::Slab,
                kind => Type::Other(kind as u8),
            }),
            hugetlb,
            kind: Kind::of(mapping),
            mapping: mapping & !MAPPING_FLAGS,
            index: in_folio(layout.index)?,
            exclusive: exclusive & layout.bits.anon_exclusive != 0,
            swapbacked: folio_flags & layout.bits.swapbacked != 0,
            swapcache: folio_flags & layout.bits.swapcache != 0,
            poisoned: layout.bits.hwpoison.is_some_and(|bit| flags & bit != 0),
        })
    }

    /// Reads what [`Pages::page`] will read of the pages from `first` to before `end`, or to where it is given up: at the
    /// page frame that is returned.
    pub fn touch(&self, first: u64, end: u64) -> u64 {
        // The link of the tail pages of the folio at hand.
        let mut tail = None;
        let mut gone = 0;
        for pfn in first..end {
            let Ok(own) = self.structure(pfn) else {
                // A block of a wrong table may be larger than all memory.
                gone += 1;
                if gone == MOST_GONE {
                    return pfn;
                }
                continue;
            };
            let link = field(own, self.layout.compound_head);
            let single =
                link & 1 == 0 && field(own, self.layout.flags) & self.layout.bits.head == 0;
            if single || tail == Some(link) {
                continue;
            }
            // A folio's first page may lie before what is mapped of it, and what it keeps in its second one behind.
            let head = self.page(pfn).map_or(pfn, |page| page.head);
            tail = Some(self.layout.address(head) | 1);
        }
        end
    }

    fn order(&self, head: u64, flags: u64) -> Result<u8, NoPage> {
        if flags & self.layout.bits.head == 0 {
            return Ok(0);
        }
        let order = self.in_folio(head, self.layout.flags_1)? & ORDER;
        if order == 0 || order > LARGEST || head % (1 << order) != 0 {
            return Err(NoPage::Wild(format!(
                "page frame 0x{head:x} is the first of a folio of order {order}, which cannot begin there"
            )));
        }
        Ok(order as u8)
    }

    /// The type in the word that is `_mapcount` elsewhere (`page_type_has_type()`).
    fn kind_of(&self, word: u64) -> Option<u64> {
        let kind = word as u32 >> TYPE_SHIFT;
        let types = self.layout.types;
        // As a signed number it is below that of the last one.
        (kind >= 0x80 && u64::from(kind) < types.underflow).then_some(u64::from(kind))
    }

    /// A member of the folio that begins at page frame `head`: in whichever of its first pages it is.
    fn in_folio(&self, head: u64, member: Field) -> Result<u64, NoPage> {
        let size = self.layout.size;
        let page = self.structure(head + member.0 / size)?;
        Ok(field(page, Field(member.0 % size, member.1)))
    }

    /// The words of a `struct page`.
    fn structure(&self, pfn: u64) -> Result<&'p [u64], NoPage> {
        let layout = self.layout;
        let no = |why: String| {
            NoPage::Unreadable(format!("the struct page of page frame 0x{pfn:x} {why}"))
        };
        let va = layout.address(pfn);
        if !(layout.start..layout.end).contains(&va) {
            return Err(NoPage::Wild(format!(
                "page frame 0x{pfn:x} is no memory of the guest's: its struct page would lie outside the array of pages"
            )));
        }
        let bytes = self.view.upper.granule.bytes();
        let base = va & !(bytes - 1);
        let (known, mut pa) = self.last.get();
        if known != base {
            pa = match lookup(self.view.memory, self.view.upper, VirtualAddress(base)) {
                Lookup::Mapped { pa, .. } => pa.0,
                Lookup::NotMapped { .. } => {
                    return Err(NoPage::Wild(format!(
                        "page frame 0x{pfn:x} is no memory of the guest's: where its struct page would be, nothing is mapped"
                    )))
                }
                other => {
                    return Err(no(format!(
                        "is at 0x{va:x}, where nothing can be read: {other:?}"
                    )))
                }
            };
            self.last.set((base, pa));
        }
        let memory: &'p M = self.view.memory;
        memory
            .words(
                PhysicalAddress(pa + (va - base)),
                (layout.size / 8) as usize,
            )
            .ok_or_else(|| {
                no(format!(
                    "is at physical 0x{:x}, which cannot be read",
                    pa + (va - base)
                ))
            })
    }
}

/// A member of up to 8 bytes, of words in the guest's order.
fn field(words: &[u64], Field(offset, size): Field) -> u64 {
    let word = words.get((offset / 8) as usize).copied().unwrap_or(0) >> (offset % 8 * 8);
    match size {
        8.. => word,
        size => word & ((1 << (8 * size)) - 1),
    }
}

/// A 32-bit count as it is.
fn signed(word: u64) -> i64 {
    i64::from(word as u32 as i32)
}

/// A count that starts from -1.
fn count(word: u64) -> i64 {
    signed(word) + 1
}
