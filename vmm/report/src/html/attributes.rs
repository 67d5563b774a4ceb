// SPDX-License-Identifier: GPL-2.0-only
//! Common part of entries: the word without its address or offset, and its meaning.

use std::collections::HashMap;

use linux::pte::{Kind, Pte, SwapKind};
use serde::Serialize;
use stage1::{Descriptor, Half, Level, Regime};
use verdict::Hex;

/// Distinct attributes that are kept: a process has some tens of them, noise as many as it has words.
const KEPT: usize = 4096;

/// Kind of an entry, as the page colours it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum State {
    /// A page with the Contiguous bit.
    Contiguous,
    /// A page that Linux may write.
    Writable,
    /// A page that it may not.
    ReadOnly,
    /// The zero page, or a page frame without a folio.
    Special,
    /// A block descriptor.
    Block,
    /// One with the Contiguous bit.
    ContiguousBlock,
    /// PROT_NONE or a NUMA hint: present for Linux, not for the CPU.
    NotAccessible,
    /// Swapped out.
    Swapped,
    /// Moved, poisoned or marked.
    Marked,
    /// A type that the architecture reserves.
    Reserved,
}

impl State {
    /// All, in the order of the page's legend.
    pub const ALL: [(State, char, &str); 10] = [
        (State::Contiguous, '=', "contiguous"),
        (State::Writable, '-', "writable"),
        (State::ReadOnly, 'r', "read-only"),
        (State::Special, 'z', "zero page or special"),
        (State::Block, '#', "block descriptor"),
        (State::ContiguousBlock, 'C', "contiguous blocks"),
        (State::NotAccessible, 'n', "PROT_NONE"),
        (State::Swapped, 's', "swapped"),
        (State::Marked, 'm', "moved or marked"),
        (State::Reserved, '?', "reserved"),
    ];

    fn of(kind: Kind, pte: Pte, level: Level, leaf: bool) -> State {
        let page = level == Level::L3;
        match kind {
            Kind::Valid if !leaf => State::Reserved,
            Kind::Valid if !page && pte.valid_cont() => State::ContiguousBlock,
            Kind::Valid if !page => State::Block,
            Kind::Valid if pte.valid_cont() => State::Contiguous,
            Kind::Valid if pte.special() => State::Special,
            Kind::Valid if pte.write() => State::Writable,
            Kind::Valid => State::ReadOnly,
            Kind::ProtNone | Kind::PresentInvalid => State::NotAccessible,
            Kind::Swap(entry) if entry.kind() == SwapKind::Swapped => State::Swapped,
            // A word of zeroes is not shown.
            Kind::Swap(_) | Kind::None => State::Marked,
        }
    }
}

/// Where a word keeps the number in which entries of one kind differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Field {
    /// Bits of the word that hold the number's bits in place.
    pub in_place: Hex,
    /// Bits of the word that hold higher bits of it, `shift` places below where they belong.
    pub high: Hex,
    /// How far.
    pub shift: u32,
}

impl Field {
    /// The output address of a leaf of `level`, found by asking the regime bit by bit.
    fn output(regime: &Regime, level: Level) -> Field {
        let mut field = Field {
            in_place: Hex(0),
            high: Hex(0),
            shift: 0,
        };
        for bit in 0..64 {
            match regime.output_address(level, 1 << bit).0 {
                0 => {}
                address if address == 1 << bit => field.in_place.0 |= 1 << bit,
                address => {
                    field.high.0 |= 1 << bit;
                    field.shift = address.trailing_zeros() - bit;
                }
            }
        }
        field
    }

    /// A swap entry's offset, as `__swp_offset()` has it.
    const OFFSET: Field = Field {
        in_place: Hex(((1 << 50) - 1) << 12),
        high: Hex(0),
        shift: 0,
    };

    fn mask(&self) -> u64 {
        self.in_place.0 | self.high.0
    }

    fn number(&self, word: u64) -> u64 {
        word & self.in_place.0 | (word & self.high.0) << self.shift
    }
}

/// Common part of entries of one kind.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Attributes {
    /// The word without its number.
    pub base: Hex,
    /// Where the number is: an output address, or the offset of a swap entry.
    pub field: Field,
    /// True if it is an output address.
    pub address: bool,
    /// True if memory is mapped, as far as Linux is concerned.
    #[serde(skip)]
    pub mapping: bool,
    /// The number is kept in units of this many bytes.
    pub unit: u64,
    /// Lookup level of the table.
    pub level: i8,
    /// Pages that each entry maps, or would.
    pub pages: u64,
    /// Its place in [`State::ALL`].
    pub state: usize,
    /// Fields in the notation of the Arm ARM, without the address; what a word that is not valid is.
    pub text: String,
    /// Linux's software bits by name.
    pub software: String,
    /// Accessed (AF), as far as the raw entry says.
    pub young: bool,
    /// Dirty, as far as the raw entry says.
    pub dirty: bool,
}

impl Attributes {
    /// `kind` is the whole word's: a swap entry's base alone may be 0.
    fn of(
        (base, kind): (u64, Kind),
        level: Level,
        regime: &Regime,
        fields: Fields,
        linux: bool,
    ) -> Attributes {
        let descriptor = Descriptor::new(base, level, regime);
        let (pte, leaf) = (Pte(base), descriptor.kind().is_leaf());
        let state = State::of(kind, pte, level, leaf);
        let place = State::ALL.iter().position(|(it, ..)| *it == state);
        let (size, granule) = (regime.entry_size(level), regime.granule.bytes());
        let software = match linux {
            true => pte.software_names().collect::<Vec<_>>().join(" "),
            false => String::new(),
        };
        let text = match kind {
            // The address is the number.
            Kind::Valid => {
                let text = descriptor.to_string();
                let words: Vec<&str> = text.split(' ').collect();
                let words = words.iter().filter(|word| !word.starts_with("OA="));
                words.copied().collect::<Vec<_>>().join(" ")
            }
            Kind::ProtNone => "not valid; present for Linux: PROT_NONE or a NUMA hint".into(),
            Kind::PresentInvalid => "not valid; present for Linux".into(),
            Kind::None => "nothing".into(),
            Kind::Swap(entry) => {
                let what = match entry.kind() {
                    SwapKind::Swapped => "a slot in a swap area",
                    SwapKind::Marker => "a marker",
                    SwapKind::Special => "a migration, poison or device entry",
                };
                let mut text = format!("not valid: {what}, swap type {}", entry.swap_type);
                for (set, name) in [
                    (entry.exclusive, ", exclusive"),
                    (entry.uffd_wp, ", UFFD_WP"),
                ] {
                    text.push_str(if set { name } else { "" });
                }
                text
            }
        };
        let address = fields.address;
        Attributes {
            base: Hex(base),
            field: fields.field,
            address,
            mapping: (leaf && pte.valid()) || pte.present_invalid(),
            unit: if address { granule } else { 1 << 12 },
            level: level.number(),
            pages: size / granule,
            state: place.unwrap_or_default(),
            text,
            software,
            young: pte.present() && pte.young(),
            dirty: linux && pte.present() && pte.dirty(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Fields {
    field: Field,
    address: bool,
}

/// All attributes of a run, each once.
#[derive(Debug, Default)]
pub(crate) struct Dictionary {
    pub all: Vec<Attributes>,
    known: HashMap<(Half, Level, u64), usize>,
}

/// A word as a place in the dictionary and a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Split {
    /// Which attributes.
    pub attributes: usize,
    /// The number, in the attributes' units.
    pub number: u64,
}

/// Words of one level of one regime.
#[derive(Debug)]
pub(crate) struct Splitter<'r> {
    regime: &'r Regime,
    level: Level,
    linux: bool,
    output: Fields,
    last: Option<(u64, usize)>,
}

impl<'r> Splitter<'r> {
    pub fn new(regime: &'r Regime, level: Level, linux: bool) -> Splitter<'r> {
        Splitter {
            regime,
            level,
            linux,
            output: Fields {
                field: Field::output(regime, level),
                address: true,
            },
            last: None,
        }
    }

    /// Takes a word apart; `None` where the dictionary is full.
    pub fn split(&mut self, word: u64, dictionary: &mut Dictionary) -> Option<Split> {
        let kind = Pte(word).kind();
        let fields = match kind {
            Kind::Swap(_) => Fields {
                field: Field::OFFSET,
                address: false,
            },
            _ => self.output,
        };
        let (base, number) = (word & !fields.field.mask(), fields.field.number(word));
        let attributes = match self.last {
            Some((last, place)) if last == base => place,
            _ => {
                let key = (self.regime.half, self.level, base);
                let full = dictionary.all.len() >= KEPT;
                let place = match dictionary.known.get(&key) {
                    Some(place) => *place,
                    None if full => return None,
                    None => {
                        let place = dictionary.all.len();
                        let (level, regime) = (self.level, self.regime);
                        let new = Attributes::of((base, kind), level, regime, fields, self.linux);
                        dictionary.all.push(new);
                        dictionary.known.insert(key, place);
                        place
                    }
                };
                self.last = Some((base, place));
                place
            }
        };
        let unit = dictionary.all[attributes].unit;
        Some(Split {
            attributes,
            number: number / unit,
        })
    }
}
