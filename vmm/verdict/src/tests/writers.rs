//! Map, dump, JSON, JUnit and KTAP of made-up verdicts.

use super::guest::*;
use crate::dump::{dump, DumpOptions, Format};
use crate::map::{draw, wrapped, MapOptions};
use crate::text::{self, TextOptions};
use crate::{junit, ktap, Kernel, Machine, NotJudged, Outcome, Report, Step};
use stage1::testing::Layout;
use stage1::{Granule, Half};

fn scene() -> Guest {
    let mut guest = Guest::new().maps("40000000-400c0000 rw-p 00000000 00:00 0 [anon:scene]");
    guest.record(VA, 4);
    guest.record(VA + 0x5_0000, 2);
    for block in [0, 1, 2, 4] {
        guest.fold(block, written());
    }
    guest.spread(3, written());
    guest.spread(5, read_only());
    guest.change(80, |word| word | 1 << 51);
    guest.change(83, |_| 0);
    guest.change(84, |_| 3 << 6 | 9 << 12);
    guest.change(68, |_| 0);
    guest
}

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
  000040050000  -rr.srrrrrrrrrrr
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
    let all = DumpOptions::default();
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

/// 150 blocks with a hole each, and one that is broken otherwise.
fn thousands() -> Report {
    let mut guest = Guest::new().maps("40000000-50000000 rw-p 00000000 00:00 0 ");
    for block in 0..151 {
        guest.fold(block, written());
        guest.change(
            block * 16,
            |word| if block < 150 { 0 } else { word ^ 1 << 54 },
        );
    }
    let mut report = Report::new(Machine::default(), Kernel::default());
    report.push(Step {
        workload: "many".into(),
        step: "holes".into(),
        processes: vec![guest.judge()],
        ..Step::default()
    });
    report
}

#[test]
fn many_places_of_one_cause_are_one_finding_in_every_format() {
    let report = thousands();
    assert_eq!((report.totals.errors, report.totals.findings), (151, 2));
    let json = serde_json::to_value(&report).unwrap();
    let process = &json["steps"][0]["processes"][0];
    let findings = process["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 2);
    let holes = &findings[0];
    assert_eq!(
        (holes["rule"].as_str(), holes["places"].as_u64()),
        (Some("L1"), Some(150))
    );
    let more = holes["more"].as_array().unwrap();
    assert_eq!(more.len(), 15);
    assert_eq!(more[0]["va"], "0x0000000040010000");
    assert_eq!(more[14]["va"], "0x00000000400f0000");
    assert_eq!(
        (&findings[1]["rule"], &findings[1]["places"]),
        (&"A5".into(), &1.into())
    );
    assert_eq!(process["dropped"], serde_json::json!({}));
    assert_eq!(
        json["totals"]["rules"],
        serde_json::json!({"L1": 150, "A5": 1})
    );
    covers(&crate::schema(), &crate::schema(), &json, "report");

    let text = |write: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    };
    let people = text(&|out| text::write(out, &report, &TextOptions::default()).unwrap());
    assert_eq!(people.matches("  L1 made-up").count(), 1);
    assert!(
        people.contains("     in 149 more places: VA 0x0000000040010000 0x0000000040020000"),
        "{people}"
    );
    assert!(
        people.contains(": 151 errors of 2 causes, 0 remarks"),
        "{people}"
    );
    // Every broken block is on the map all the same.
    assert!(people.contains("x150  L1\n"), "{people}");
    let ktap = text(&|out| ktap::write(out, &report).unwrap());
    assert_eq!(ktap.matches("# L1 VA").count(), 1);
    assert!(ktap.contains("(and in 149 more places)"), "{ktap}");
    let junit = text(&|out| junit::write(out, &report).unwrap());
    assert_eq!(junit.matches("L1 VA").count(), 1);
    assert!(
        junit.contains("message=\"151 errors of 2 causes\""),
        "{junit}"
    );
    assert!(junit.contains("(and in 149 more places)"), "{junit}");
}

#[test]
fn gathering_again_changes_nothing_and_loses_nothing() {
    let mut guest = Guest::new().maps("40000000-50000000 rw-p 00000000 00:00 0 ");
    for block in 0..150 {
        guest.fold(block, written());
        guest.change(block * 16, |_| 0);
    }
    let single = guest.judge();
    let mut once = single.clone();
    once.gather();
    assert_eq!((single.findings.len(), once.findings.len()), (100, 1));
    assert_eq!((single.errors(), once.errors()), (150, 150));
    let mut twice = once.clone();
    twice.gather();
    assert_eq!(once, twice);
    // Who takes back what was not listed takes it from the count as well.
    let mut settled = single;
    settled.dropped.clear();
    settled.findings.truncate(70);
    settled.gather();
    assert_eq!((settled.errors(), settled.findings[0].places), (70, 70));
}

fn report() -> Report {
    let machine = Machine {
        kind: "tcg".into(),
        page_size: 4096,
        ..Machine::default()
    };
    let mut report = Report::new(machine, Kernel::default());
    let step = |workload: &str, step: &str| Step {
        workload: workload.into(),
        step: step.into(),
        seconds: Some(0.5),
        ..Step::default()
    };
    let good = Guest::new().judge();
    let bad = scene().judge();
    report.push(Step {
        processes: vec![good.clone()],
        ..step("forward", "64K # first")
    });
    report.push(Step {
        processes: vec![bad],
        ..step("forward", "second")
    });
    report.push(Step {
        processes: vec![good],
        ..step("backward", "first")
    });
    report
}

#[test]
fn outcomes_and_exit_statuses() {
    let mut empty = Report::new(Machine::default(), Kernel::default());
    assert_eq!((empty.outcome, empty.exit_status), (Outcome::NotJudged, 2));
    empty.push(Step {
        processes: vec![Guest::new().judge()],
        ..Step::default()
    });
    assert_eq!((empty.outcome, empty.exit_status), (Outcome::Ok, 0));
    empty.push_not_judged("the guest was lost");
    assert_eq!((empty.outcome, empty.exit_status), (Outcome::NotJudged, 2));
    // Errors win over what could not be judged.
    empty.push(Step {
        processes: vec![scene().judge()],
        ..Step::default()
    });
    assert_eq!((empty.outcome, empty.exit_status), (Outcome::Errors, 1));
    // A step that looked at nothing is no success.
    let mut nothing = Report::new(Machine::default(), Kernel::default());
    nothing.push(Step::default());
    assert_eq!(nothing.exit_status, 2);
    let mut partly = Report::new(Machine::default(), Kernel::default());
    let not_judged = vec![NotJudged {
        reason: "maps is torn".into(),
    }];
    partly.push(Step {
        processes: vec![Guest::new().judge()],
        not_judged,
        ..Step::default()
    });
    assert_eq!(partly.exit_status, 2);
}

#[test]
fn ktap_in_full() {
    let mut out = Vec::new();
    ktap::write(&mut out, &report()).unwrap();
    let text = String::from_utf8(out).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..6],
        [
            "KTAP version 1",
            "1..2",
            "  KTAP version 1",
            "  # Subtest: forward",
            "  1..2",
            "  ok 1 64K  first",
        ]
    );
    assert!(
        lines[6].starts_with("  # L1 VA 0x0000000040040000: 1 of 16"),
        "{}",
        lines[6]
    );
    assert_eq!(
        lines[7..],
        [
            "  not ok 2 second",
            "not ok 1 forward",
            "  KTAP version 1",
            "  # Subtest: backward",
            "  1..1",
            "  ok 1 first",
            "ok 2 backward",
        ]
    );
    let mut out = Vec::new();
    ktap::write(
        &mut out,
        &Report::new(Machine::default(), Kernel::default()),
    )
    .unwrap();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "KTAP version 1\n1..1\nnot ok 1 judged as a whole\n"
    );
}

#[test]
fn junit_has_a_case_per_checkpoint() {
    let mut out = Vec::new();
    let mut report = report();
    report.push_not_judged("the guest was lost");
    junit::write(&mut out, &report).unwrap();
    let xml = String::from_utf8(out).unwrap();
    assert_eq!(xml.matches("<testcase").count(), 4);
    assert_eq!(xml.matches("<failure").count(), 1);
    assert_eq!(xml.matches("<error").count(), 1);
    assert!(xml.contains(r#"name="forward" tests="2""#), "{xml}");
    assert!(xml.contains("the guest was lost"));
    assert!(xml.contains("L1 VA 0x0000000040040000"));
}

#[test]
fn the_schema_describes_what_is_written() {
    let schema = crate::schema();
    let json = serde_json::to_value(report()).unwrap();
    assert_eq!(json["schema_version"], 2);
    assert_eq!(json["totals"]["rules"]["L1"], 1);
    assert_eq!(json["outcome"], "errors");
    covers(&schema, &schema, &json, "report");
}

/// Every property in `json` is one that the schema names, and required ones are there.
fn covers(
    root: &serde_json::Value,
    schema: &serde_json::Value,
    json: &serde_json::Value,
    at: &str,
) {
    let mut schema = schema;
    while let Some(reference) = schema.get("$ref") {
        let name = reference.as_str().unwrap().rsplit('/').next().unwrap();
        schema = &root["$defs"][name];
    }
    if let Some(items) = json.as_array() {
        items
            .iter()
            .for_each(|item| covers(root, &schema["items"], item, at));
    }
    let (Some(object), Some(properties)) = (json.as_object(), schema["properties"].as_object())
    else {
        return;
    };
    for (name, value) in object {
        let property = properties.get(name);
        let property = property.unwrap_or_else(|| panic!("{at}.{name} is not in the schema"));
        covers(root, property, value, &format!("{at}.{name}"));
    }
    for name in schema["required"].as_array().into_iter().flatten() {
        let name = name.as_str().unwrap();
        assert!(object.contains_key(name), "{at}.{name} is missing");
    }
}

#[test]
fn the_text_ends_with_the_verdict() {
    let mut out = Vec::new();
    text::write(&mut out, &report(), &TextOptions::default()).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(
        text.starts_with("ok forward: 64K # first\nERROR forward: second\n"),
        "{text}"
    );
    assert!(
        text.contains("L1 made-up (42) VA 0x0000000040040000 level 3: 1 of 16"),
        "{text}"
    );
    assert!(
        text.ends_with("ERROR errors found (exit status 1)\n"),
        "{text}"
    );
    assert!(text.contains("blocks  [folded]"), "{text}");
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
