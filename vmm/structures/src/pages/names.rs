// SPDX-License-Identifier: GPL-2.0-only
//! The names of the bits of `flags`, by what the page is: one bit has several names (`enum pageflags`), of which a page of
//! some kind has one.

use linux::folio::{Kind, Page, Type};

use super::Layout;

/// Bits below this one hold the folio's order in its second page (`_flags_1`).
const BEHIND_ORDER: u8 = 8;

impl Layout {
    /// The names of what is set in a page's own flags. In the second page of a folio the low byte is its order, and no flag.
    #[must_use]
    pub fn own_flags(&self, page: &Page) -> Vec<String> {
        let second = page.is_second();
        let low = if second { BEHIND_ORDER } else { 0 };
        self.named(page.flags, low, &Bearer::of(page, second))
    }

    /// The same of its folio's, which are those of the folio's first page.
    #[must_use]
    pub fn flags_of_folio(&self, page: &Page) -> Vec<String> {
        self.named(page.folio_flags, 0, &Bearer::of(page, false))
    }

    fn named(&self, flags: u64, low: u8, bearer: &Bearer) -> Vec<String> {
        let set = self.names.iter();
        let set = set.filter(|(bit, _)| *bit >= low && flags >> bit & 1 == 1);
        set.map(|(_, names)| bearer.name(names)).collect()
    }

    /// The name of a type of pages (`enum pagetype`), where the kernel has told it.
    #[must_use]
    pub fn name_of_type(&self, kind: Type) -> Option<&str> {
        let number = match kind {
            Type::Buddy => self.types.buddy,
            Type::Table => self.types.table,
            Type::Slab => self.types.slab,
            Type::Other(number) => u64::from(number),
        };
        let mut names = self.type_names.iter();
        let found = names.find(|(known, _)| u64::from(*known) == number);
        found.map(|(_, name)| name.as_str())
    }
}

/// The page whose flags are named.
#[derive(Clone, Copy, Debug)]
struct Bearer {
    second: bool,
    typed: Option<Type>,
    kind: Kind,
    swapbacked: bool,
}

impl Bearer {
    fn of(page: &Page, second: bool) -> Bearer {
        Bearer {
            second,
            typed: page.kind_of_page,
            kind: page.kind,
            swapbacked: page.swapbacked,
        }
    }

    /// Those of a bit's names, which are joined by a bar, that a page of this kind may have; all where it has none of them.
    fn name(&self, names: &str) -> String {
        if let Some(own) = self.of_type(names) {
            return own.to_owned();
        }
        let fitting: Vec<&str> = names.split('|').filter(|name| self.has(name)).collect();
        match fitting.is_empty() {
            true => names.to_owned(),
            false => fitting.join("|"),
        }
    }

    /// Names that are in another enumeration: a slab's (`enum slab_flags`, mm/slub.c; before 6.18 by its functions), and a
    /// table's (`enum pt_flags`, include/linux/mm.h, since 6.18).
    fn of_type(&self, names: &str) -> Option<&'static str> {
        let is = |name: &str| names.split('|').any(|it| it == name);
        match self.typed {
            _ if self.second => None,
            Some(Type::Slab) if is("active") => Some("pfmemalloc"),
            Some(Type::Slab) if is("workingset") => Some("partial"),
            Some(Type::Table) if is("referenced") => Some("kernel"),
            _ => None,
        }
    }

    fn has(&self, name: &str) -> bool {
        let file = self.typed.is_none() && self.kind == Kind::File;
        let own_file = file && !self.swapbacked;
        let to_swap = self.kind.anonymous() || self.swapbacked;
        // Pages of other types that can be moved: the driver's in `movable_ops` (7.x).
        let movable_ops = matches!(self.typed, Some(Type::Other(_)));
        match name {
            // Of the second page of a folio alone.
            "has_hwpoisoned" | "large_rmappable" | "partially_mapped" => self.second,
            "active" | "workingset" => !self.second,
            "reclaim" => !self.second && !movable_ops,
            "readahead" => !self.second && own_file,
            "swapcache" => to_swap,
            "anon_exclusive" => self.kind.anonymous(),
            "owner_priv_1" => !to_swap,
            "owner_2" => !self.kind.anonymous(),
            "checked" | "mappedtodisk" | "fscache" => own_file,
            "reported" => self.typed == Some(Type::Buddy),
            "movable_ops" | "movable_ops_isolated" => movable_ops,
            "uptodate" => !movable_ops && self.typed != Some(Type::Buddy),
            "isolated" => !self.second && self.kind == Kind::Movable,
            // Xen's, of a guest of its.
            "pinned" | "savepinned" | "foreign" | "xen_remapped" => false,
            // Of memory that was plugged in and holds its own array of pages.
            "vmemmap_self_hosted" => false,
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::made_up::{layout, page};

    fn named(flags: u64, change: impl FnOnce(&mut Page)) -> (Vec<String>, Vec<String>) {
        let mut layout = layout(true);
        // As 6.12.117 has them (include/linux/page-flags.h).
        layout.names = [
            (0, "locked"),
            (2, "referenced"),
            (3, "uptodate|reported"),
            (4, "dirty|savepinned"),
            (5, "lru"),
            (6, "head"),
            (8, "active|has_hwpoisoned"),
            (9, "workingset|large_rmappable"),
            (
                10,
                "owner_priv_1|swapcache|checked|pinned|foreign|xen_remapped|vmemmap_self_hosted",
            ),
            (11, "owner_2|anon_exclusive|mappedtodisk"),
            (16, "reclaim|readahead|isolated|partially_mapped"),
        ]
        .map(|(bit, name)| (bit, name.to_owned()))
        .into();
        let mut page = page();
        (page.flags, page.folio_flags) = (flags, flags);
        change(&mut page);
        (layout.own_flags(&page), layout.flags_of_folio(&page))
    }

    #[test]
    fn a_bit_has_the_name_that_fits_the_page() {
        let of_bits = |bits: &[u32]| bits.iter().fold(0, |all, bit| all | 1u64 << bit);
        let several = of_bits(&[3, 4, 8, 9, 10, 11, 16]);
        let anonymous = |page: &mut Page| (page.kind, page.swapbacked) = (Kind::Anonymous, true);
        let names = "uptodate dirty active workingset swapcache anon_exclusive reclaim";
        assert_eq!(named(several, anonymous).1.join(" "), names);
        let file = |page: &mut Page| (page.kind, page.swapbacked) = (Kind::File, false);
        let names = "uptodate dirty active workingset owner_priv_1|checked owner_2|mappedtodisk reclaim|readahead";
        assert_eq!(named(several, file).1.join(" "), names);
        let shmem = |page: &mut Page| (page.kind, page.swapbacked) = (Kind::File, true);
        let names = "uptodate dirty active workingset swapcache owner_2 reclaim";
        assert_eq!(named(several, shmem).1.join(" "), names);
        let typed = |kind| {
            move |page: &mut Page| {
                (page.kind, page.swapbacked) = (Kind::Unowned, false);
                page.kind_of_page = Some(kind);
            }
        };
        assert_eq!(named(1 << 3, typed(Type::Buddy)).1, ["reported"]);
        let slab = named(of_bits(&[0, 6, 8, 9]), typed(Type::Slab)).1;
        assert_eq!(slab, ["locked", "head", "pfmemalloc", "partial"]);
        assert_eq!(named(1 << 2, typed(Type::Table)).1, ["kernel"]);
        assert_eq!(
            named(of_bits(&[10, 11]), typed(Type::Other(0xf1))).1,
            ["owner_priv_1", "owner_2"]
        );
    }

    #[test]
    fn the_second_page_of_a_folio_has_its_order_where_flags_begin() {
        for order in 1..=13u64 {
            let of_order = |subpage| {
                move |page: &mut Page| {
                    (page.kind, page.swapbacked, page.order) = (Kind::Anonymous, true, order as u8);
                    page.head = 1 << 20;
                    page.pfn = page.head + subpage;
                    page.folio_flags = 1 << 3 | 1 << 6;
                }
            };
            // Exclusive, and what only the second page has.
            let second = order | 1 << 8 | 1 << 9 | 1 << 11 | 1 << 16;
            let (own, folio) = named(second, of_order(1));
            assert_eq!(
                own,
                [
                    "has_hwpoisoned",
                    "large_rmappable",
                    "anon_exclusive",
                    "partially_mapped"
                ],
                "order {order}"
            );
            assert_eq!(folio, ["uptodate", "head"]);
            if order > 1 {
                assert_eq!(named(1 << 11, of_order(2)).0, ["anon_exclusive"]);
            }
        }
    }
}
