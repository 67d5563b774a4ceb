// SPDX-License-Identifier: GPL-2.0-only
//! Tables as `scripts/kallsyms.c` writes them, made here from names and addresses, and found again.

use super::*;

const BASE: u64 = 0xffff_8000_8000_0000;

/// Format of a release's tables.
#[derive(Clone, Copy, Debug)]
enum Shape {
    /// Up to 6.18: aligned to 8, offsets from a base.
    Based,
    /// From 6.19: aligned to 4, offsets from their own place.
    Placed,
}

/// The pairs of letters that become one token. Each other letter is a token of its own.
const PAIRS: [(u8, &[u8; 2]); 4] = [(1, b"__"), (2, b"st"), (200, b"er"), (255, b"_t")];

fn tokens() -> Vec<Vec<u8>> {
    (0..=255u8)
        .map(|code| match PAIRS.iter().find(|(pair, _)| *pair == code) {
            Some((_, letters)) => letters.to_vec(),
            // Letters that no name has may have any token, or none.
            None if code.is_ascii_graphic() => vec![code],
            None => vec![],
        })
        .collect()
}

fn compress(name: &str) -> Vec<u8> {
    let (mut out, mut rest) = (vec![], name.as_bytes());
    while let Some((&first, behind)) = rest.split_first() {
        let pair = PAIRS
            .iter()
            .find(|(_, letters)| rest.starts_with(&letters[..]));
        (out, rest) = match pair {
            Some((code, _)) => ([out, vec![*code]].concat(), &rest[2..]),
            None => ([out, vec![first]].concat(), behind),
        };
    }
    out
}

/// Builds a stretch of `noise` random bytes, the tables, and `noise` bytes again.
fn stretch(shape: Shape, symbols: &[(u64, String)], noise: usize) -> Stretch {
    stretch_with(shape, symbols, noise, &tokens())
}

/// Builds the stretch with these tokens.
fn stretch_with(
    shape: Shape,
    symbols: &[(u64, String)],
    noise: usize,
    tokens: &[Vec<u8>],
) -> Stretch {
    let alignment = match shape {
        Shape::Based => 8,
        Shape::Placed => 4,
    };
    let mut bytes: Vec<u8> = (0..noise).map(|at| (at * 37 + 11) as u8).collect();
    let align = |bytes: &mut Vec<u8>, to: usize| bytes.resize(bytes.len().next_multiple_of(to), 0);
    align(&mut bytes, alignment);
    bytes.extend((symbols.len() as u32).to_le_bytes());
    align(&mut bytes, alignment);
    let (names, mut markers) = (bytes.len(), vec![]);
    for (at, (_, name)) in symbols.iter().enumerate() {
        if at % STRIDE == 0 {
            markers.push((bytes.len() - names) as u32);
        }
        let compressed = compress(&format!("T{name}"));
        match compressed.len() {
            short @ ..=0x7f => bytes.push(short as u8),
            long => bytes.extend([long as u8 & 0x7f | 0x80, (long >> 7) as u8]),
        }
        bytes.extend(compressed);
    }
    align(&mut bytes, alignment);
    markers
        .iter()
        .for_each(|marker| bytes.extend(marker.to_le_bytes()));
    align(&mut bytes, alignment);
    let (table, mut index) = (bytes.len(), vec![]);
    for token in tokens {
        index.push((bytes.len() - table) as u16);
        bytes.extend(token);
        bytes.push(0);
    }
    align(&mut bytes, alignment);
    index
        .iter()
        .for_each(|begins| bytes.extend(begins.to_le_bytes()));
    align(&mut bytes, alignment);
    let lowest = symbols.iter().map(|(address, _)| *address).min().unwrap();
    for (address, _) in symbols {
        let from = match shape {
            Shape::Based => lowest,
            Shape::Placed => BASE + bytes.len() as u64,
        };
        bytes.extend((address.wrapping_sub(from) as u32).to_le_bytes());
    }
    align(&mut bytes, 8);
    if let Shape::Based = shape {
        bytes.extend(lowest.to_le_bytes());
    }
    bytes.extend((0..noise).map(|at| (at * 101 + 3) as u8));
    Stretch { base: BASE, bytes }
}

fn symbols(count: u64) -> Vec<(u64, String)> {
    let long = "a_very_long_name_".repeat(12);
    (0..count)
        .map(|at| {
            let name = match at % 7 {
                0 => format!("vectors_{at}"),
                1 => format!("__start_{at}"),
                2 => format!("{long}{at}"),
                _ => format!("folio_test_large_{at}"),
            };
            (BASE + 0x1_0000 + at * 36, name)
        })
        .collect()
}

fn named(table: &SymbolTable) -> Vec<(u64, String)> {
    let name = |&(address, at): &(u64, u32)| {
        let rest = &table.names[at as usize..];
        let end = memchr::memchr(0, rest).unwrap();
        (address, String::from_utf8_lossy(&rest[..end]).into_owned())
    };
    table.symbols.iter().map(name).collect()
}

#[test]
fn tables_of_every_shape_and_size_are_found() {
    for shape in [Shape::Based, Shape::Placed] {
        for (count, noise) in [
            (1, 0),
            (2, 5),
            (255, 64),
            (256, 1),
            (257, 4096),
            (3000, 777),
        ] {
            let symbols = symbols(count);
            let found = find(&stretch(shape, &symbols, noise))
                .unwrap_or_else(|| panic!("{shape:?}: {count} symbols behind {noise} bytes"));
            assert_eq!(
                named(&found),
                symbols,
                "{shape:?}: {count} symbols behind {noise} bytes"
            );
        }
    }
}

#[test]
fn symbols_below_the_tables_and_above_them_have_their_addresses() {
    for shape in [Shape::Based, Shape::Placed] {
        // .text lies before the tables, .data and .bss behind them.
        let symbols = vec![
            (BASE - (30 << 20), "_text".to_owned()),
            (BASE - (30 << 20), "vectors".to_owned()),
            (BASE + (40 << 20), "init_mm".to_owned()),
        ];
        assert_eq!(
            named(&find(&stretch(shape, &symbols, 100)).unwrap()),
            symbols
        );
    }
}

#[test]
fn a_table_that_does_not_agree_with_itself_is_none() {
    let symbols = symbols(600);
    let good = stretch(Shape::Based, &symbols, 128);
    let index_of = |needle: &[u8]| memmem::find(&good.bytes, needle).unwrap();
    let broken = |at: usize, value: u8| {
        let mut bad = good.clone();
        assert_ne!(bad.bytes[at], value);
        bad.bytes[at] = value;
        find(&bad)
    };
    let count = index_of(&600u32.to_le_bytes());
    assert_eq!(
        broken(count + 1, 0),
        None,
        "fewer names than the markers say"
    );
    let zero = index_of(DIGITS);
    assert_eq!(
        broken(zero + 300, b'x'),
        None,
        "a token less than the index has"
    );
    let last = good.bytes.len() - 128 - 8;
    assert_eq!(&good.bytes[last..last + 8], (BASE + 0x1_0000).to_le_bytes());
    let mut cut = good.clone();
    cut.bytes.truncate(last - 4 * 300);
    assert_eq!(find(&cut), None, "half of the offsets");
}

#[test]
fn nothing_is_found_where_nothing_is() {
    let none = |bytes: Vec<u8>| find(&Stretch { base: BASE, bytes });
    assert_eq!(none(vec![]), None);
    assert_eq!(none(vec![0; 1 << 16]), None);
    assert_eq!(none(DIGITS.repeat(500)), None);
}

/// Tokens of 250 letters each: a table of some KiB would be written out as one of some MiB, and one of 256 MiB as more
/// than any memory holds.
#[test]
fn names_longer_than_any_kernels_are_none() {
    let symbols: Vec<_> = (0..300)
        .map(|at| (BASE + 0x1_0000 + at * 4, "#".repeat(400)))
        .collect();
    let with = |letters: usize| {
        let mut tokens = tokens();
        tokens[usize::from(b'#')] = vec![b'#'; letters];
        stretch_with(Shape::Based, &symbols, 64, &tokens)
    };
    assert_eq!(find(&with(2)).unwrap().symbols.len(), 300);
    assert_eq!(find(&with(250)), None);
}

/// Each word before the markers may be the number of names, and the names from each continue for as many as a marker
/// covers.
#[test]
fn a_table_with_many_beginnings_is_gone_through_in_bounded_time() {
    // Names of three tokens; each word begins 259 of them.
    let names = 3u32 | 1 << 8;
    let symbols = symbols(257);
    let Stretch { base, bytes } = stretch(Shape::Based, &symbols, 0);
    let digits = memmem::find(&bytes, DIGITS).unwrap();
    let markers = Tokens::around(&bytes, digits).unwrap().start - 8;
    let one: Vec<u8> = std::iter::repeat_n(names.to_le_bytes(), STRIDE * LONGEST / 4)
        .flatten()
        .chain(bytes[markers..].iter().copied())
        .collect();
    let bytes = one.repeat(200);
    let start = std::time::Instant::now();
    assert_eq!(find(&Stretch { base, bytes }), None);
    assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
}

/// The seed of the fuzz target.
const SEED: &[u8] = include_bytes!("../../../fuzz/seeds/kallsyms/three-symbols");

#[test]
fn the_fuzz_targets_seed_is_a_table() {
    let bytes = SEED.to_vec();
    let names = named(&find(&Stretch { base: BASE, bytes }).unwrap());
    let names: Vec<_> = names.into_iter().map(|(_, name)| name).collect();
    assert_eq!(names, ["_text", "vectors", "init_mm"]);
}

/// An empty token, and one of bytes that are not text: the other names are unchanged.
#[test]
fn damaged_tokens_leave_the_other_names() {
    let symbols: Vec<_> = ["_text", "vectors", "!", "init_mm"]
        .iter()
        .zip((BASE..).step_by(64))
        .map(|(name, address)| (address, (*name).to_owned()))
        .collect();
    let mut tokens = tokens();
    tokens[usize::from(b'!')] = vec![0xff];
    let found = find(&stretch_with(Shape::Based, &symbols, 64, &tokens)).unwrap();
    let names = named(&found).into_iter().map(|(_, name)| name);
    assert!(names.eq(["_text", "vectors", "\u{fffd}", "init_mm"]));
    let running = crate::symbols::Symbols::of_running(found);
    assert_eq!(running.name(BASE + 2 * 64), None);
    assert_eq!(running.name(BASE + 3 * 64), Some(("init_mm", 0)));

    // Tokens of a symbol that had one token, and of its type.
    tokens[usize::from(b'!')] = vec![];
    tokens[usize::from(b'T')] = vec![];
    let found = find(&stretch_with(Shape::Based, &symbols, 64, &tokens)).unwrap();
    let names = named(&found).into_iter().map(|(_, name)| name);
    assert!(names.eq(["text", "ectors", "", "nit_mm"]));
    let running = crate::symbols::Symbols::of_running(found);
    assert_eq!(running.name(BASE + 2 * 64), None);
}

proptest::proptest! {
    /// Bytes that are changed or removed: a table that is found has its names.
    #[test]
    fn any_bytes_are_a_table_or_none(
        edits in proptest::collection::vec((0..SEED.len(), proptest::num::u8::ANY), 0..10),
        cut in 0..2 * SEED.len(),
    ) {
        let mut bytes = SEED.to_vec();
        for (at, byte) in edits {
            bytes[at] = byte;
        }
        bytes.truncate(cut);
        if let Some(table) = find(&Stretch { base: BASE, bytes }) {
            named(&table);
        }
    }
}
