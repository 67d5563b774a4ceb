// SPDX-License-Identifier: GPL-2.0-only
//! Map and dump of made-up verdicts.

use crate::dump::{dump, DumpOptions, Format};
use crate::map::{draw, wrapped, MapOptions};
use stage1::testing::Layout;
use stage1::{Granule, Half};
use verdict::testing::guest::*;

fn map_of(guest: &Guest, options: &MapOptions) -> String {
    let mut out = Vec::new();
    draw(&mut out, &guest.judge(), options).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn a_map_in_full() {
    let expected = "\
made-up (42)  pages of 4K, blocks of 64K: 1 broken, 3 folded, 1 could be folded, 1 in part, 6 empty
000040000000-0000400c0000 rw-p [anon:scene]
  372K of 768K mapped, 252K contiguous, largest run 256K, orders 4 x1 2 x1
  000040000000 [================] x3
  000040030000 (----------------) all match; not mapped at once, nor last page last
  000040040000 !====.===========! L1
  000040050000  -rr.srrrrrrrrrrr  1 page: swap
  000040060000  ................  x6
";
    assert_eq!(map_of(&scene(), &MapOptions::default()), expected);
}

#[test]
fn colour_adds_nothing_but_colour() {
    let options = MapOptions {
        colour: true,
        ..MapOptions::default()
    };
    let coloured = map_of(&scene(), &options);
    assert!(coloured.contains("\x1b["));
    let mut plain = String::new();
    let mut rest = coloured.as_str();
    while let Some((before, after)) = rest.split_once("\x1b[") {
        plain.push_str(before);
        rest = after.split_once('m').unwrap().1;
    }
    plain.push_str(rest);
    assert_eq!(plain, map_of(&scene(), &MapOptions::default()));
}

#[test]
fn a_long_line_goes_on_in_the_next() {
    let of = |column, text: &str| {
        let mut out = Vec::new();
        wrapped(&mut out, column, text).unwrap();
        String::from_utf8(out).unwrap()
    };
    assert_eq!(of(7, "  4 folded, 1 in part"), "  4 folded, 1 in part\n");
    // "  orders" and 18 times " 4 x1" are 98 characters.
    let orders = format!("  orders{}", " 4 x1".repeat(18));
    assert_eq!(of(0, &format!("{orders} 3")), format!("{orders} 3\n"));
    assert_eq!(
        of(0, &format!("{orders} 30 x2")),
        format!("{orders}\n    30 x2\n")
    );
    assert_eq!(of(3, &orders), format!("{}\n    x1\n", &orders[..95]));
    let word = "w".repeat(150);
    assert_eq!(
        of(0, &format!("a {word} b")),
        format!("a\n    {word}\n    b\n")
    );
}

#[test]
fn no_line_is_wider_than_100_columns_in_any_format() {
    for mut guest in Guest::all() {
        guest.fold(0, written());
        guest.spread(1, written());
        guest.spread(2, read_only());
        guest.change(2 * guest.members + 7, |word| word | UFFD_WP | SPECIAL);
        // A VMA whose orders alone fill a line.
        for order in 0..12 {
            guest.record(VA, order);
        }
        for lines in [1, 1000] {
            let options = MapOptions {
                lines,
                ..MapOptions::default()
            };
            let map = map_of(&guest, &options);
            for line in map.lines() {
                assert!(line.chars().count() <= 100, "{line}");
            }
        }
    }
}

#[test]
fn a_large_vma_has_a_character_per_block() {
    // 256 GiB, of which little is mapped: four million blocks.
    let mut guest = Guest::new().maps("40000000-4040000000 rw-p 00000000 00:00 0 ");
    for block in [0, 1, 2, 200] {
        guest.fold(block, written());
    }
    guest.change(16, |_| 0);
    guest.spread(3, written());
    let options = MapOptions {
        lines: 4,
        ..MapOptions::default()
    };
    let map = map_of(&guest, &options);
    let lines: Vec<&str> = map.lines().skip(3).collect();
    let empty = ".".repeat(64);
    assert_eq!(
        lines,
        [
            format!("  000040000000 |=!=e{}|", ".".repeat(60)),
            format!("  000040400000 |{empty}| x2 lines"),
            format!("  000040c00000 |{}={}|", ".".repeat(8), ".".repeat(55)),
            format!("  000041000000 |{empty}| x65532 lines"),
            "  000040010000 !.===============! L1".to_owned(),
        ]
    );
}

fn dumped(guest: &Guest, format: Format, options: &DumpOptions) -> String {
    let mut out = Vec::new();
    let regime = guest.regime();
    let memory = guest.tables.memory();
    let summary = dump(&mut out, memory, &regime, &guest.vmas, format, options).unwrap();
    assert!(summary.problems.is_empty());
    String::from_utf8(out).unwrap()
}

#[test]
fn a_dump_in_three_formats() {
    let guest = scene();
    let all = DumpOptions {
        judged: guest.judge().vmas,
        ..DumpOptions::default()
    };
    let text = dumped(&guest, Format::Text, &all);
    // 6 blocks of 16, less two holes.
    assert_eq!(text.lines().count(), 94);
    assert!(
        text.lines().next().unwrap().contains("Contiguous"),
        "{text}"
    );
    assert!(text.contains("[anon:scene]"));
    let json: serde_json::Value =
        serde_json::from_str(&dumped(&guest, Format::Json, &all)).unwrap();
    let rows = json.as_array().unwrap();
    assert_eq!(rows.len(), 94);
    assert_eq!(rows[1]["va"], "0x0000000040001000");
    assert_eq!(rows[1]["group"], "0x0000000040000000");
    assert_eq!(rows[1]["block"], "folded");
    assert_eq!(rows[1]["software"], "WRITE DIRTY");
    let csv = dumped(&guest, Format::Csv, &all);
    let header = "va,level,table,index,word,descriptor,software,group,block,vma";
    assert_eq!(csv.lines().next(), Some(header));
    assert_eq!(csv.lines().count(), 95);
    let none = DumpOptions {
        first: 0x1000,
        last: 0x2000,
        ..DumpOptions::default()
    };
    assert_eq!(dumped(&guest, Format::Json, &none), "[\n]\n");
}

#[test]
fn a_dump_is_filtered() {
    let guest = scene();
    let count = |options: DumpOptions| dumped(&guest, Format::Text, &options).lines().count();
    let all = DumpOptions::default;
    assert_eq!(
        count(DumpOptions {
            contiguous: true,
            ..all()
        }),
        63
    );
    assert_eq!(
        count(DumpOptions {
            findings: true,
            ..all()
        }),
        15
    );
    assert_eq!(
        count(DumpOptions {
            first: VA,
            last: VA + 0x1fff,
            ..all()
        }),
        2
    );
    assert_eq!(
        count(DumpOptions {
            level: Some(2),
            ..all()
        }),
        0
    );
    assert_eq!(
        count(DumpOptions {
            tables: true,
            ..all()
        }),
        97
    );
    assert_eq!(
        count(DumpOptions {
            tables: true,
            level: Some(2),
            ..all()
        }),
        1
    );
}

#[test]
fn a_dump_of_findings_sees_groups_above_level_3() {
    let maps = "40000000-48000000 rw-p 00000000 00:0f 9 /anon_hugepage (deleted)";
    let mut guest = Guest::new().maps(maps);
    guest.tables.map_page(VA + 0x200_0000, PA, written(), false);
    guest.tables.map_group(VA + 0x400_0000, PA, 2, written());
    guest.tables.change(VA + 0x420_0000, 2, |word| word ^ CONT);
    let options = DumpOptions {
        findings: true,
        ..DumpOptions::default()
    };
    assert_eq!(dumped(&guest, Format::Text, &options).lines().count(), 16);
}

#[test]
fn sixteen_k_blocks_take_two_lines() {
    let mut guest = Guest::of(Layout::new(Granule::K16, Half::Lower, 47));
    guest.fold(0, written());
    let map = map_of(&guest, &MapOptions::default());
    let line = "=".repeat(64);
    assert!(
        map.contains(&format!(
            "  000040000000 [{line}\n                {line}]\n"
        )),
        "{map}"
    );
}
