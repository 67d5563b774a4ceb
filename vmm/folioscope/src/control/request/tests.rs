// SPDX-License-Identifier: GPL-2.0-only
use super::*;

fn why(line: &str) -> (Option<u64>, String) {
    let unread = Request::read(line).expect_err(line);
    (unread.id, unread.why)
}

#[test]
fn a_request_reads_back_as_it_was_written() {
    let lines = [
        r#"{"id":1,"deadline_ms":20000,"method":"machine","params":{}}"#,
        r#"{"id":2,"deadline_ms":5,"method":"judge","params":{"process":3,"expectations":[],"again":false,"getters":true,"pokes":[{"address":"0x40000008","word":"0xffffffffffffffff"}]}}"#,
        r#"{"id":3,"deadline_ms":20000,"method":"command","params":{"command":{"ping":{}}}}"#,
    ];
    for line in lines {
        let request = Request::read(line).expect(line);
        assert_eq!(serde_json::to_string(&request).unwrap(), line);
    }
}

#[test]
fn what_may_be_left_out_may_be_left_out() {
    let request = Request::read(r#"{"id":1,"method":"machine"}"#).unwrap();
    assert_eq!(request.deadline_ms, DEADLINE_MS);
    assert!(matches!(request.call, Call::Machine(_)));
    let request = Request::read(r#"{"id":1,"method":"look","params":{"process":1}}"#).unwrap();
    let Call::Look(look) = request.call else {
        panic!("{request:?}")
    };
    assert!(look.expectations.is_empty() && !look.again && !look.getters);
}

#[test]
fn what_is_wrong_is_named_with_the_id() {
    assert!(why("good morning").1.contains("one JSON object"));
    assert_eq!(why(r#"{"id":7,"method":"dance"}"#).0, Some(7));
    assert!(why(r#"{"id":7,"method":"dance"}"#)
        .1
        .contains("no method \"dance\""));
    let (id, text) = why(r#"{"id":7,"method":"look","params":{"process":1,"depth":2}}"#);
    assert_eq!(id, Some(7));
    assert!(
        text.contains("parameters of look") && text.contains("depth"),
        "{text}"
    );
    let long = format!(r#"{{"id":7,"method":"{}"}}"#, "ä".repeat(100_000));
    assert!(why(&long).1.len() < 500 && why(&long).1.ends_with("..."));
    let late = r#"{"id":7,"method":"machine","deadline_ms":18446744073709551615}"#;
    assert!(why(late).1.contains("at most 86400000"), "{:?}", why(late));
    assert!(
        why(r#"{"id":7,"method":"words","params":{"address":"0xg","count":1}}"#)
            .1
            .contains("hexadecimal")
    );
}

#[test]
fn each_method_is_in_the_list_of_names() {
    let schema = schemars::schema_for!(Call).to_value();
    let named: Vec<&str> = schema["oneOf"]
        .as_array()
        .unwrap()
        .iter()
        .map(|method| method["properties"]["method"]["const"].as_str().unwrap())
        .collect();
    assert_eq!(named, METHODS);
}

/// The seeds of the fuzz target `session` are requests, which serialise to the same text.
#[test]
fn the_fuzz_targets_seeds_are_requests() {
    let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/seeds/session");
    let mut count = 0;
    for seed in std::fs::read_dir(seeds).unwrap() {
        let line = std::fs::read_to_string(seed.unwrap().path()).unwrap();
        let request = Request::read(&line).unwrap();
        let written = serde_json::to_string(&request).unwrap();
        let again = Request::read(&written).unwrap();
        assert_eq!(written, serde_json::to_string(&again).unwrap());
        count += 1;
    }
    assert_eq!(count, 8);
}
