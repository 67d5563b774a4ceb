// SPDX-License-Identifier: GPL-2.0-only
//! A look right after a state was built finds whether it has come about. An operation on one that has not says nothing.

use std::ops::Range;

use verdict::ProcessVerdict;

use super::steps::Part;

/// Expectation of a part of a state's area.
#[derive(Clone, Copy, Debug)]
pub struct Sight(pub Part, pub Is);

/// Kind of all pages of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Is {
    /// Without an entry.
    Empty,
    /// Mapped to the zero page.
    Zero,
    /// Mapped, however.
    Mapped,
    /// Mapped, and writable as far as the map of a look tells: it does not of contiguous entries and blocks.
    Writable,
    /// Mapped, and read-only as far as the map tells.
    ReadOnly,
    /// Mapped by contiguous entries, where the guest has them.
    Folded,
    /// Mapped by a PMD, where the guest maps anonymous memory so.
    Block,
    /// The same, where it maps files so.
    FileBlock,
    /// Mapped by hugetlb pages: by PMDs, or by contiguous entries.
    Hugetlb,
    /// Present without access.
    NoAccess,
    /// Swapped out.
    Swapped,
    /// Entries of a marker whose name has this word.
    Marked(&'static str),
    /// In VMAs with these permissions, as in `/proc/PID/maps`.
    Vma(&'static str),
    /// In VMAs all of whose entries map folios of this size, where the guest has it. What cannot be read is not of it.
    Of(Folios),
}

/// The size of folios.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Folios {
    /// A page.
    Single,
    /// A block.
    Block,
    /// A PMD's range.
    Pmd,
}

/// Abilities of the guest without which a state is less than its name says.
#[derive(Clone, Copy, Debug)]
pub struct Abilities {
    /// An anonymous fault gives a folio of a block's size.
    pub blocks: bool,
    /// Such a folio is folded.
    pub folds: bool,
    /// The order of a folio that a PMD maps, if an anonymous fault gives one.
    pub pmd: Option<u8>,
    /// A file may have one.
    pub file_pmd: bool,
}

impl Is {
    /// The characters of a look's map that such pages have, and words for them.
    fn pages(self, able: Abilities) -> (&'static str, &'static str) {
        match self {
            Self::Folded if able.blocks && able.folds => ("=", "folded"),
            Self::Block if able.pmd.is_some() => ("#", "mapped by a PMD"),
            Self::FileBlock if able.file_pmd => ("#", "mapped by a PMD"),
            Self::Hugetlb => ("=#", "mapped by a hugetlb page"),
            Self::Empty => (". ", "without an entry"),
            Self::Zero => ("z", "mapped to the zero page"),
            Self::Writable => ("=-#", "mapped and writable"),
            Self::ReadOnly => ("=r#", "mapped and read-only"),
            Self::NoAccess => ("n", "present without access"),
            Self::Swapped => ("s", "swapped out"),
            Self::Marked(_) => ("m", "marked"),
            Self::Folded | Self::Block | Self::FileBlock | Self::Mapped => ("=-r#z", "mapped"),
            Self::Vma(_) | Self::Of(_) => ("=-r#znsm?. ", ""),
        }
    }
}

/// A part of a VMA that lies in an area.
#[derive(Debug)]
struct Piece {
    pages: Range<usize>,
    permissions: String,
    /// Orders of the folios that the VMA maps; none where they are not known.
    orders: Vec<u8>,
}

/// An area, as a look finds it.
#[derive(Debug)]
pub struct Shown {
    /// A character for each page, as in the map of a look; a space where no VMA is.
    pages: Vec<char>,
    pieces: Vec<Piece>,
    /// Names of entries that are not valid.
    absent: Vec<String>,
}

impl Shown {
    /// Returns `pages` pages of a process from the address `start` on.
    pub fn of(verdict: &ProcessVerdict, start: u64, pages: usize) -> Self {
        let (page, block) = (verdict.page_size, verdict.block_size);
        let end = start + pages as u64 * page;
        let mut shown = Self {
            pages: vec![' '; pages],
            pieces: Vec::new(),
            absent: Vec::new(),
        };
        let within = |vma: &&verdict::VmaVerdict| vma.start.0 < end && start < vma.end.0;
        for vma in verdict.vmas.iter().filter(within) {
            let (from, to) = (vma.start.0.max(start), vma.end.0.min(end));
            let at = |va: u64| ((va - start) / page) as usize;
            shown.pieces.push(Piece {
                pages: at(from)..at(to),
                permissions: vma.permissions.clone(),
                orders: vma.folios.keys().copied().collect(),
            });
            for row in &vma.rows {
                let of_block = |block_va: u64| {
                    let each = row.pages.chars().enumerate();
                    each.map(move |(at, it)| (block_va + at as u64 * page, it))
                };
                let blocks = (0..row.blocks).map(|at| row.va.0 + at * block);
                for (va, character) in blocks.flat_map(of_block) {
                    if (from..to).contains(&va) {
                        shown.pages[at(va)] = character;
                    }
                }
                if row.va.0 < to && from < row.end.0 {
                    let names = row.absent.iter().map(|absent| absent.what.clone());
                    shown.absent.extend(names);
                }
            }
        }
        shown
    }

    /// Returns what is not as it is to be, if anything.
    pub fn lacks(&self, sight: Sight, block: usize, able: Abilities) -> Option<String> {
        let Sight(part, is) = sight;
        let range = part.pages(block, self.pages.len());
        let (allowed, words) = is.pages(able);
        let wrong = |at: &usize| !allowed.contains(self.pages[*at]);
        let wrong = range.clone().filter(wrong).count();
        if wrong > 0 {
            let found: String = self.pages[range.clone()].iter().take(64).collect();
            return Some(format!(
                "the state has not come about: expected all pages {range:?} of the area to be {words}, and {wrong} are not: {found}"
            ));
        }
        let pieces = self.pieces.iter();
        let mut pieces =
            pieces.filter(|it| it.pages.start < range.end && range.start < it.pages.end);
        let differs = match is {
            Is::Marked(name) => (!self.absent.iter().any(|it| it.contains(name))).then(|| {
                let found = self.absent.join(", ");
                format!("a {name} marker, and found {found}")
            }),
            Is::Vma(permissions) => pieces
                .find(|it| it.permissions != permissions)
                .map(|it| format!("a VMA with {permissions}, and found {}", it.permissions)),
            Is::Of(folios) => {
                let order = folios.order(block, able)?;
                let of_order = |it: &&Piece| it.orders == [order];
                let other = pieces.find(|it| !of_order(it));
                other.map(|it| format!("folios of order {order}, and found {:?}", it.orders))
            }
            _ => None,
        };
        differs.map(|it| {
            format!("the state has not come about: expected in pages {range:?} of the area {it}")
        })
    }
}

impl Folios {
    /// The order, where the guest has such folios.
    fn order(self, block: usize, able: Abilities) -> Option<u8> {
        match self {
            Self::Single => Some(0),
            Self::Block => able.blocks.then_some(block.trailing_zeros() as u8),
            Self::Pmd => able.pmd,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABLE: Abilities = Abilities {
        blocks: true,
        folds: true,
        pmd: Some(9),
        file_pmd: true,
    };

    fn shown(pages: &str) -> Shown {
        Shown {
            pages: pages.chars().collect(),
            pieces: vec![Piece {
                pages: 0..pages.len(),
                permissions: "rw-p".into(),
                orders: vec![4],
            }],
            absent: vec!["poison marker".into()],
        }
    }

    fn lacks(pages: &str, part: Part, is: Is) -> Option<String> {
        shown(pages).lacks(Sight(part, is), 16, ABLE)
    }

    #[test]
    fn each_page_of_a_part_is_asked() {
        let folded = "=".repeat(32);
        assert_eq!(lacks(&folded, Part::Whole, Is::Folded), None);
        let mut cut = folded.clone();
        cut.replace_range(5..6, ".");
        assert_eq!(lacks(&cut, Part::Page, Is::Empty), None);
        assert_eq!(lacks(&cut, Part::Second, Is::Folded), None);
        let why = lacks(&cut, Part::Whole, Is::Folded).unwrap();
        assert!(
            why.contains("to be folded, and 1 are not: =====.="),
            "{why}"
        );
        assert!(lacks(&folded, Part::Whole, Is::Swapped).is_some());
        assert!(lacks(&" ".repeat(32), Part::Whole, Is::Empty).is_none());
        assert!(lacks(&" ".repeat(32), Part::Whole, Is::Mapped).is_some());
    }

    #[test]
    fn a_guest_without_an_ability_has_the_pages_all_the_same() {
        let less = Abilities {
            folds: false,
            pmd: None,
            ..ABLE
        };
        let single = shown(&"-".repeat(32));
        for is in [Is::Folded, Is::Block] {
            let sight = Sight(Part::Whole, is);
            assert!(single.lacks(sight, 16, ABLE).is_some());
            assert_eq!(single.lacks(sight, 16, less), None);
            assert!(shown(&".".repeat(32)).lacks(sight, 16, less).is_some());
        }
        let pmd = Sight(Part::Whole, Is::Of(Folios::Pmd));
        assert!(single.lacks(pmd, 16, ABLE).is_some());
        assert_eq!(single.lacks(pmd, 16, less), None);
    }

    #[test]
    fn markers_vmas_and_folios_are_asked() {
        let mut marked = "-".repeat(32);
        marked.replace_range(5..6, "m");
        assert_eq!(lacks(&marked, Part::Page, Is::Marked("poison")), None);
        let why = lacks(&marked, Part::Page, Is::Marked("guard")).unwrap();
        assert!(
            why.ends_with("a guard marker, and found poison marker"),
            "{why}"
        );
        let of = |is| lacks(&"-".repeat(32), Part::Whole, is);
        assert_eq!(of(Is::Vma("rw-p")), None);
        assert!(of(Is::Vma("r--p")).unwrap().ends_with("found rw-p"));
        assert_eq!(of(Is::Of(Folios::Block)), None);
        assert!(of(Is::Of(Folios::Single)).unwrap().ends_with("found [4]"));
        let mut unknown = shown(&"-".repeat(32));
        unknown.pieces[0].orders.clear();
        let sight = Sight(Part::Whole, Is::Of(Folios::Block));
        assert!(unknown
            .lacks(sight, 16, ABLE)
            .unwrap()
            .ends_with("found []"));
    }
}
