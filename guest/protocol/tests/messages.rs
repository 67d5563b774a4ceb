//! The JSON of the messages: stable names, defaults, refusals, versions.

use protocol::*;
use serde_json::json;

fn request(value: serde_json::Value) -> Request {
    read_request(&value.to_string()).unwrap_or_else(|e| panic!("{e:?}"))
}

fn op(value: serde_json::Value) -> Operation {
    let request = request(json!({"id": 1, "command": {"op": {"process": 3, "op": value}}}));
    match request.command {
        Command::Op { process, op } => {
            assert_eq!(process, ProcessId(3));
            op
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn defaults_of_a_request() {
    let request = request(json!({"id": 7, "command": {"spawn": {}}}));
    assert_eq!(request.deadline_ms, DEFAULT_DEADLINE_MS);
    assert_eq!(
        request.command,
        Command::Spawn {
            name: String::new(),
            cpu: None,
            randomize: false
        }
    );
}

#[test]
fn defaults_of_an_mmap() {
    assert_eq!(
        op(json!({"mmap": {"length": 65536}})),
        Operation::Mmap {
            length: 65536,
            backing: Backing::Anonymous,
            prot: vec![Protection::Read, Protection::Write],
            flags: vec![],
            place: Placement::default(),
        }
    );
}

#[test]
fn names_are_snake_case_and_stable() {
    let mmap = op(json!({"mmap": {
        "length": 4096,
        "backing": {"file": {"path": "/tmp/x"}},
        "prot": [],
        "flags": ["shared_validate", "fixed_noreplace", "growsdown"],
        "place": {"at": {"address": u64::MAX}},
    }}));
    assert_eq!(
        serde_json::to_value(&mmap).unwrap(),
        json!({"mmap": {
            "length": 4096,
            "backing": {"file": {"path": "/tmp/x", "offset": 0}},
            "prot": [],
            "flags": ["shared_validate", "fixed_noreplace", "growsdown"],
            "place": {"at": {"address": u64::MAX}},
        }})
    );
    assert_eq!(
        op(
            json!({"touch": {"address": 8, "length": 9, "access": "read_write",
            "order": {"random": {"seed": 4}}}})
        ),
        Operation::Touch {
            address: 8,
            length: 9,
            stride: None,
            access: Access::ReadWrite,
            order: Order::Random { seed: 4 },
            salt: 0,
        }
    );
    assert_eq!(
        op(json!({"madvise": {"address": 0, "length": 1, "advice": "dontneed_locked"}})),
        Operation::Madvise {
            address: 0,
            length: 1,
            advice: Advice::DontneedLocked
        }
    );
    let reply = Message::Reply(Reply {
        id: Some(2),
        result: Err(Failure::Signal {
            name: "SIGBUS".into(),
            code: "BUS_ADRERR".into(),
            address: 4096,
            done: 3,
        })
        .into(),
    });
    assert_eq!(
        serde_json::to_value(&reply).unwrap(),
        json!({"reply": {"id": 2, "result": {"error": {"signal": {
            "name": "SIGBUS", "code": "BUS_ADRERR", "address": 4096, "done": 3}}}}})
    );
}

#[test]
fn operations_of_userfaultfd_and_nodes() {
    assert_eq!(
        op(
            json!({"uffd_register": {"address": 8192, "length": 4096, "modes": ["missing", "write_protect"]}})
        ),
        Operation::UffdRegister {
            address: 8192,
            length: 4096,
            modes: vec![UffdMode::Missing, UffdMode::WriteProtect],
        }
    );
    assert_eq!(
        op(json!({"uffd_copy": {"address": 8192, "length": 4096}})),
        Operation::UffdCopy {
            address: 8192,
            length: 4096,
            salt: 0,
            write_protect: false
        }
    );
    assert_eq!(
        op(json!({"mbind": {"address": 8192, "length": 4096, "node": 1}})),
        Operation::Mbind {
            address: 8192,
            length: 4096,
            node: Some(1),
        }
    );
    assert_eq!(
        op(
            json!({"process_madvise": {"pid": 7, "address": 8192, "length": 4096, "advice": "pageout"}})
        ),
        Operation::ProcessMadvise {
            pid: 7,
            address: 8192,
            length: 4096,
            advice: Advice::Pageout,
        }
    );
    assert_eq!(
        op(json!({"move_pages": {"address": 8192, "length": 4096, "node": 1}})),
        Operation::MovePages {
            address: 8192,
            length: 4096,
            node: Some(1)
        }
    );
}

#[test]
fn every_command_survives_a_round_trip() {
    let process = ProcessId(1);
    let commands = [
        Command::Hello {},
        Command::Ping {},
        Command::Checkpoint {
            process,
            nonce: u64::MAX,
            smaps: true,
        },
        Command::Release { process },
        Command::Maps {
            process,
            smaps: false,
        },
        Command::Pagemap {
            process,
            address: 1 << 47,
            pages: 16,
        },
        Command::Getters { process },
        Command::Kill { process },
        Command::Processes {},
        Command::ReadFile {
            path: "/proc/{pid}/stat".into(),
            process: Some(process),
            offset: 1,
            max: None,
        },
        Command::WriteFile {
            path: "/sys/x".into(),
            text: "always\n".into(),
            process: None,
            create: false,
        },
        Command::Run {
            argv: vec!["ls".into(), "-l".into()],
            input: Some("é\u{0}\n".into()),
            process: None,
        },
        Command::SwapOn {
            path: "/dev/zram0".into(),
            format: true,
        },
        Command::SwapOff {
            path: "/dev/zram0".into(),
        },
        Command::MountErofs {
            device: "/dev/ram0".into(),
            directory: "/tmp/disk".into(),
            length: 65536,
        },
        Command::Unmount {
            directory: "/tmp/disk".into(),
        },
        Command::Poweroff {},
        Command::Panic {},
    ];
    for (id, command) in commands.into_iter().enumerate() {
        let request = Request {
            id: id as u64,
            deadline_ms: 5,
            command,
        };
        let line = String::from_utf8(encode(&request).unwrap()).unwrap();
        assert_eq!(line.matches('\n').count(), 1);
        assert_eq!(read_request(line.trim_end()), Ok(request));
    }
}

#[test]
fn a_bad_request_keeps_its_id() {
    for (line, id, says) in [
        (r#"{"id":9,"command":{"dance":{}}}"#, Some(9), "dance"),
        (r#"{"id":9,"command":{"ping":{"x":1}}}"#, Some(9), "x"),
        (r#"{"id":9,"commando":1}"#, Some(9), "commando"),
        (r#"{"id":-1,"command":{"ping":{}}}"#, None, "-1"),
        ("\u{1b}[31m nonsense", None, r"\x1b[31m nonsense"),
    ] {
        let unread = read_request(line).unwrap_err();
        assert_eq!(unread.id, id, "{line}");
        let text = unread.error.to_string();
        assert!(text.contains(says), "{text}");
    }
}

#[test]
fn another_version_is_told_apart_from_garbage() {
    let line = r#"{"hello":{"protocol":999,"shape":"unknown"}}"#;
    let mismatch = read_message(line).unwrap().unwrap_err();
    assert_eq!(mismatch.guest, 999);
    assert!(mismatch.to_string().contains("999"));
    assert!(read_message(r#"{"hello":{"protocol":1}}"#).is_err());
    assert!(read_message("Kernel panic - not syncing").is_err());
}

#[test]
fn fields_that_a_newer_guest_adds_are_ignored_in_its_messages() {
    let line = r#"{"reply":{"id":1,"result":{"ok":{"pong":{"uptime_ms":1,"new":2}}},"more":3}}"#;
    assert_eq!(
        read_message(line),
        Ok(Ok(Message::Reply(Reply {
            id: Some(1),
            result: Answer::Ok(Outcome::Pong { uptime_ms: 1 }),
        })))
    );
}

#[test]
fn the_pattern_is_fixed() {
    assert_eq!(pattern(0, 0), 0xe220_a839_7b1d_cdaf);
    assert_ne!(pattern(4096, 0), pattern(8192, 0));
    assert_ne!(pattern(4096, 0), pattern(4096, 1));
}
