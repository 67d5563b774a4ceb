// SPDX-License-Identifier: GPL-2.0-only
//! Text, JSON, JUnit and KTAP of made-up runs.

use crate::text::{self, TextOptions};
use crate::{junit, ktap};
use verdict::testing::guest::*;
use verdict::{Kernel, Machine, Report, Step};

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
        basis: Some(all_known()),
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
    covers(&verdict::schema(), &verdict::schema(), &json, "report");

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
        basis: Some(all_known()),
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
    let schema = verdict::schema();
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
    text::write_verdict(&mut out, &report(), &TextOptions::default()).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(
        text.starts_with("ok forward: 64K # first\nERROR forward: second\n")
            && text.contains("\nERROR forward: second\n"),
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

/// The verdict stays what it is; the status says that not all was done.
#[test]
fn an_output_that_is_missing_is_in_the_last_line_and_in_the_status() {
    let mut report = report();
    report.push_not_written("could not write the report to /dev/full: no space");
    let mut out = Vec::new();
    text::write_verdict(&mut out, &report, &TextOptions::default()).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert_eq!(
        text,
        "ERROR errors found; 1 output could not be written (exit status 2)\n"
    );
    assert_eq!(
        (report.outcome, report.exit_status),
        (verdict::Outcome::Errors, 2)
    );
}
