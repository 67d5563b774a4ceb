//! The agent on this machine, over its standard input and output: all functions that do not need the guest's kernel.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use protocol::{pattern, Channel, Event, Message};
use serde_json::{json, Value};

struct Agent {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    directory: std::path::PathBuf,
    id: u64,
    events: Vec<Event>,
}

impl Agent {
    fn start(name: &str) -> Self {
        let directory =
            std::env::temp_dir().join(format!("folioscope-{name}-{}", std::process::id()));
        let mut child = Command::new(env!("CARGO_BIN_EXE_folioscope-agent"))
            .arg("--stdio")
            .arg(&directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut agent = Self {
            stdin: child.stdin.take(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
            directory,
            id: 0,
            events: Vec::new(),
        };
        match agent.message() {
            Message::Hello(hello) => {
                hello.check_version().unwrap();
                assert_eq!(hello.channel, Channel::Stdio);
            }
            other => panic!("{other:?}"),
        }
        agent
    }

    fn message(&mut self) -> Message {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        protocol::read_message(&line).unwrap().unwrap()
    }

    fn write(&mut self, bytes: &[u8]) {
        self.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    }

    /// Returns the next reply as JSON: `{"id":...,"result":{...}}`.
    fn reply(&mut self) -> Value {
        loop {
            match self.message() {
                Message::Reply(reply) => return serde_json::to_value(reply).unwrap(),
                Message::Event(event) => self.events.push(event),
                Message::Hello(_) => panic!("a second hello"),
            }
        }
    }

    fn request(&mut self, command: Value, deadline_ms: u64) -> Value {
        self.id += 1;
        let request = json!({"id": self.id, "deadline_ms": deadline_ms, "command": command});
        self.write(format!("{request}\n").as_bytes());
        let mut reply = self.reply();
        assert_eq!(reply["id"], self.id);
        reply["result"].take()
    }

    fn ok(&mut self, command: Value) -> Value {
        let mut result = self.request(command, 20_000);
        assert!(result.get("ok").is_some(), "{result}");
        result["ok"].take()
    }

    fn error(&mut self, command: Value) -> Value {
        let mut result = self.request(command, 20_000);
        assert!(result.get("error").is_some(), "{result}");
        result["error"].take()
    }

    fn op(&mut self, process: u64, op: Value) -> Value {
        self.ok(json!({"op": {"process": process, "op": op}}))
    }

    fn op_error(&mut self, process: u64, op: Value) -> Value {
        self.error(json!({"op": {"process": process, "op": op}}))
    }

    fn spawn(&mut self) -> u64 {
        let spawned = self.ok(json!({"spawn": {}}));
        spawned["spawned"]["process"].as_u64().unwrap()
    }

    fn map(&mut self, process: u64, mmap: Value) -> u64 {
        let mapped = self.op(process, json!({"mmap": mmap}));
        mapped["mapped"]["address"].as_u64().unwrap()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let status = self.child.wait().unwrap();
        let _ = std::fs::remove_dir_all(&self.directory);
        if !std::thread::panicking() {
            assert!(status.success(), "{status}");
        }
    }
}

const PAGE: u64 = 4096;

#[test]
fn memory_of_a_workload() {
    let mut agent = Agent::start("memory");
    let p = agent.spawn();
    let a = agent.map(p, json!({"length": 16 * PAGE}));
    assert_eq!(a % (512 * PAGE), 0);
    let touched = agent.op(
        p,
        json!({"touch": {"address": a, "length": 16 * PAGE, "access": "write", "salt": 5,
                         "order": {"random": {"seed": 1}}}}),
    );
    assert_eq!(touched["touched"]["steps"], 16);
    let verify = |salt: u64| {
        json!({"verify": {"address": a, "length": 16 * PAGE,
                          "expect": {"pattern": {"salt": salt}}}})
    };
    assert_eq!(agent.op(p, verify(5))["verified"]["wrong"], 0);
    assert_eq!(agent.op(p, verify(6))["verified"]["wrong"], 16);
    let words = agent.op(p, json!({"peek": {"address": a + PAGE, "words": 2}}));
    assert_eq!(words["words"]["words"], json!([pattern(a + PAGE, 5), 0]));

    let b = agent.map(
        p,
        json!({"length": PAGE, "place": {"isolated": {"align": 1 << 24, "offset": PAGE}}}),
    );
    assert_eq!(b % (1 << 24), PAGE);
    agent.op(
        p,
        json!({"mprotect": {"address": a, "length": PAGE, "prot": []}}),
    );
    let failure = agent.op_error(
        p,
        json!({"touch": {"address": a, "length": PAGE, "access": "read"}}),
    );
    assert_eq!(
        failure,
        json!({"signal": {"name": "SIGSEGV", "code": "SEGV_ACCERR", "address": a, "done": 0}})
    );
    let failure = agent.op_error(
        p,
        json!({"mmap": {"length": PAGE, "flags": ["fixed_noreplace"], "place": {"at": {"address": a}}}}),
    );
    assert_eq!(failure["errno"]["name"], "EEXIST");
}

#[test]
fn a_fork_has_its_own_memory_and_its_own_end() {
    let mut agent = Agent::start("fork");
    let p = agent.spawn();
    let a = agent.map(p, json!({"length": PAGE}));
    agent.op(p, json!({"poke": {"address": a, "words": [1]}}));
    let child = agent.op(p, json!({"fork": {"name": "child"}}));
    let c = child["spawned"]["process"].as_u64().unwrap();
    let grandchild = agent.op(c, json!({"fork": {}}));
    let g = grandchild["spawned"]["process"].as_u64().unwrap();
    agent.op(c, json!({"poke": {"address": a, "words": [2]}}));
    for (process, word) in [(p, 1), (c, 2), (g, 1)] {
        let words = agent.op(process, json!({"peek": {"address": a, "words": 1}}));
        assert_eq!(words["words"]["words"], json!([word]));
    }
    let ended = agent.op(c, json!({"exit": {"status": 3}}));
    assert_eq!(ended, json!({"ended": {"how": {"exit": {"status": 3}}}}));
    let lost = agent.op_error(c, json!({"exit": {}}));
    assert_eq!(
        lost,
        json!({"process_lost": {"how": {"exit": {"status": 3}}}})
    );
    let ended = agent.ok(json!({"kill": {"process": g}}));
    assert_eq!(ended["ended"]["how"]["signal"]["name"], "SIGKILL");
    agent.op(p, json!({"peek": {"address": a, "words": 1}}));
}

#[test]
fn a_checkpoint_waits_until_it_is_released() {
    let mut agent = Agent::start("checkpoint");
    let p = agent.spawn();
    for nonce in [1, u64::MAX] {
        let outcome = agent.ok(json!({"checkpoint": {"process": p, "nonce": nonce}}));
        let checkpoint = &outcome["checkpoint"];
        assert_eq!(checkpoint["nonce"], nonce);
        assert!(checkpoint["pc_start"].as_u64() < checkpoint["pc_end"].as_u64());
        assert!(checkpoint["maps"].as_str().unwrap().contains("/slots"));
        let busy = agent.op_error(p, json!({"peek": {"address": 0, "words": 0}}));
        assert!(busy.get("busy").is_some(), "{busy}");
        agent.ok(json!({"release": {"process": p}}));
    }
    let failure = agent.error(json!({"release": {"process": p}}));
    assert!(failure.get("bad_request").is_some(), "{failure}");
    agent.ok(json!({"checkpoint": {"process": p, "nonce": 2}}));
    agent.ok(json!({"kill": {"process": p}}));
}

#[test]
fn deadlines_leave_the_process_stuck_until_it_answers() {
    let mut agent = Agent::start("deadline");
    let p = agent.spawn();
    let a = agent.map(p, json!({"length": 128 << 20}));
    let op = json!({"touch": {"address": a, "length": 128 << 20, "access": "write", "stride": 8}});
    let late = agent.request(json!({"op": {"process": p, "op": op}}), 1);
    assert_eq!(late["error"]["deadline"]["after_ms"], 1);
    let busy = agent.op_error(p, json!({"munmap": {"address": a, "length": PAGE}}));
    assert!(busy.get("busy").is_some(), "{busy}");
    let Message::Event(Event::LateReply { process, .. }) = agent.message() else {
        panic!("no late reply");
    };
    assert_eq!(u64::from(process.0), p);
    agent.op(p, json!({"munmap": {"address": a, "length": PAGE}}));
    let late = agent.request(json!({"run": {"argv": ["sleep", "60"]}}), 50);
    assert_eq!(late["error"]["deadline"]["what"], "run sleep");
}

#[test]
fn a_process_that_ends_unasked_is_an_event() {
    let mut agent = Agent::start("event");
    let p = agent.spawn();
    agent.ok(json!({"run": {"argv": ["sh", "-c", "kill -9 {pid}"], "process": p}}));
    while agent.events.is_empty() {
        agent.ok(json!({"ping": {}}));
    }
    assert!(
        matches!(&agent.events[0], Event::ProcessEnded { process, .. }
        if u64::from(process.0) == p)
    );
}

#[test]
fn garbage_is_answered_and_survived() {
    let mut agent = Agent::start("garbage");
    for (bytes, id) in [
        (&b"\xff\xfe\n"[..], Value::Null),
        (b"hello\n", Value::Null),
        (b"{\"id\":7}\n", json!(7)),
        (b"{\"id\":8,\"command\":{\"dance\":{}}}\n", json!(8)),
    ] {
        agent.write(bytes);
        let reply = agent.reply();
        assert_eq!(reply["id"], id);
        assert!(
            reply["result"]["error"].get("bad_request").is_some(),
            "{reply}"
        );
    }
    agent.write(&vec![b'x'; protocol::MAX_LINE + 1]);
    assert_eq!(agent.reply()["id"], Value::Null);
    agent.write(b"\n\r\n\n");
    agent.ok(json!({"ping": {}}));
    let failure = agent.op_error(99, json!({"munmap": {"address": 0, "length": 0}}));
    assert!(failure.get("bad_request").is_some(), "{failure}");
}

#[test]
fn two_threads_store_their_own_words() {
    let mut agent = Agent::start("race");
    let p = agent.spawn();
    let pages = 64;
    let a = agent.map(p, json!({"length": pages * PAGE}));
    let race = |access, other| {
        json!({"race": {
            "address": a + 8, "length": pages * PAGE - 8, "stride": PAGE, "beside": 16,
            "access": access, "other": other, "salt": 5,
        }})
    };
    let verify = |agent: &mut Agent, first: u64, expect: Value| {
        let words = json!({"verify": {
            "address": first, "length": pages * PAGE - 8, "stride": PAGE, "expect": expect,
        }});
        let found = agent.op(p, words);
        (
            found["verified"]["words"].clone(),
            found["verified"]["wrong"].clone(),
        )
    };
    let written = json!({"pattern": {"salt": 5}});
    agent.op(p, race("read", "write"));
    assert_eq!(
        verify(&mut agent, a + 24, written.clone()),
        (json!(pages), json!(0))
    );
    assert_eq!(
        verify(&mut agent, a + 8, json!("zero")),
        (json!(pages), json!(0))
    );
    agent.op(p, race("write", "write"));
    assert_eq!(
        verify(&mut agent, a + 8, written.clone()),
        (json!(pages), json!(0))
    );
    // A word that either thread cannot have is told of.
    agent.op(
        p,
        json!({"mprotect": {"address": a + 8 * PAGE, "length": PAGE, "prot": ["read"]}}),
    );
    for (access, other) in [("read", "write"), ("write", "read")] {
        let failure = agent.op_error(p, race(access, other));
        assert_eq!(failure["signal"]["name"], "SIGSEGV", "{failure}");
        assert_eq!(failure["signal"]["done"], 8, "{failure}");
    }
}

#[test]
fn a_thread_finds_what_it_stored_unless_another_one_stores_there() {
    let mut agent = Agent::start("busy");
    let p = agent.spawn();
    let pages = 64;
    let a = agent.map(p, json!({"length": pages * PAGE}));
    let keep = |first: u64, access: &str, may_drop: bool| {
        json!({"keep_accessing": {
            "address": first, "length": 16 * PAGE, "access": access, "may_drop": may_drop,
        }})
    };
    let stop = |first: u64| json!({"stop_accessing": {"address": first, "salt": 7}});
    let (stored, loaded, dropped) = (a, a + 16 * PAGE, a + 32 * PAGE);
    agent.op(p, keep(stored, "write", false));
    agent.op(p, keep(loaded, "read", false));
    agent.op(p, keep(dropped, "write", true));
    let failure = agent.op_error(p, keep(stored, "read", false));
    assert!(
        failure["bad_request"].to_string().contains("already"),
        "{failure}"
    );
    agent.op(
        p,
        json!({"madvise": {"address": dropped, "length": 8 * PAGE, "advice": "dontneed"}}),
    );
    // A child has the words and no thread; its own thread leaves the parent's alone.
    let child = agent.op(p, json!({"fork": {}}));
    let child = child["spawned"]["process"].as_u64().unwrap();
    let failure = agent.op_error(child, stop(stored));
    assert!(
        failure["bad_request"]
            .to_string()
            .contains("no second thread"),
        "{failure}"
    );
    agent.op(child, keep(stored, "read", false));
    let found = agent.op(child, stop(stored));
    assert_eq!(found["verified"]["wrong"], 0, "{found}");
    for first in [stored, loaded, dropped] {
        let found = agent.op(p, stop(first));
        assert_eq!(found["verified"]["wrong"], 0, "{found}");
        // One pass at least, and the comparison at its end.
        assert!(
            found["verified"]["words"].as_u64().unwrap() >= 2 * 16,
            "{found}"
        );
    }
    let verify = |first: u64, expect: Value| json!({"verify": {"address": first, "length": 16 * PAGE, "expect": expect}});
    let written = json!({"pattern": {"salt": 7}});
    for (first, expect) in [
        (stored, written.clone()),
        (loaded, json!("zero")),
        (dropped, written),
    ] {
        assert_eq!(agent.op(p, verify(first, expect))["verified"]["wrong"], 0);
    }

    agent.op(p, keep(loaded, "read", false));
    agent.op(p, json!({"poke": {"address": loaded + PAGE, "words": [5]}}));
    let found = agent.op(p, stop(loaded));
    let wrong = json!({"address": loaded + PAGE, "expected": 0, "found": 5});
    assert_eq!(found["verified"]["first"][0], wrong);
    // A range that the thread cannot access any more; and words that no one keeps.
    agent.op(p, keep(stored, "write", false));
    agent.op(
        p,
        json!({"mprotect": {"address": stored + 8 * PAGE, "length": PAGE, "prot": ["read"]}}),
    );
    let failure = agent.op_error(p, stop(stored));
    assert_eq!(failure["signal"]["name"], "SIGSEGV", "{failure}");
    assert_eq!(failure["signal"]["done"], 8, "{failure}");
    let failure = agent.op_error(p, stop(stored));
    assert!(failure.get("bad_request").is_some(), "{failure}");
}

#[test]
fn what_is_not_pinned_is_not_compared() {
    let mut agent = Agent::start("pins");
    let p = agent.spawn();
    let a = agent.map(p, json!({"length": PAGE}));
    let verify = json!({"gup_verify": {"address": a, "length": PAGE, "offset": 0}});
    let failure = agent.op_error(p, verify);
    let failure = failure["bad_request"].to_string();
    assert!(failure.contains("no page is pinned"), "{failure}");
    let failure = agent.op_error(p, json!({"gup_unpin": {}}));
    assert!(failure.get("bad_request").is_some(), "{failure}");
}

#[test]
fn what_was_not_copied_is_not_compared() {
    let mut agent = Agent::start("mirror");
    let p = agent.spawn();
    let failure = agent.op_error(p, json!({"mirror_verify": {}}));
    let failure = failure["bad_request"].to_string();
    assert!(failure.contains("no page tables were copied"), "{failure}");
}

#[test]
fn several_operations_are_done_whatever_becomes_of_each() {
    let mut agent = Agent::start("several");
    let p = agent.spawn();
    let a = agent.map(p, json!({"length": PAGE}));
    let ops = json!([
        {"poke": {"address": a, "words": [7]}},
        {"munmap": {"address": a + 1, "length": PAGE}},
        {"peek": {"address": a, "words": 1}},
    ]);
    let found = agent.op(p, json!({"several": {"ops": ops}}));
    let answers = found["several"]["answers"].as_array().unwrap().clone();
    assert_eq!(answers.len(), 3);
    assert!(answers[1]["error"].is_object(), "{found}");
    assert_eq!(answers[2]["ok"]["words"]["words"], json!([7]));
    for alone in [json!({"fork": {}}), json!({"exit": {"status": 0}})] {
        let ops = json!([{"poke": {"address": a, "words": [8]}}, alone]);
        let failure = agent.op_error(p, json!({"several": {"ops": ops}}));
        let why = failure["bad_request"].to_string();
        assert!(why.contains("no part of several operations"), "{failure}");
    }
    // Nothing of a list that is refused was done.
    let words = agent.op(p, json!({"peek": {"address": a, "words": 1}}));
    assert_eq!(words["words"]["words"], json!([7]));
}

#[test]
fn a_debugger_writes_where_the_process_may_not() {
    let mut agent = Agent::start("force");
    let p = agent.spawn();
    let a = agent.map(p, json!({"length": 2 * PAGE}));
    let child = agent.op(p, json!({"fork": {}}))["spawned"]["process"].clone();
    let child = child.as_u64().unwrap();
    agent.op(
        child,
        json!({"mprotect": {"address": a, "length": 2 * PAGE, "prot": ["read"]}}),
    );
    agent.op(
        child,
        json!({"force_write": {"address": a + 8, "length": 2 * PAGE - 8, "salt": 3}}),
    );
    let words = agent.op(child, json!({"peek": {"address": a + PAGE, "words": 2}}));
    assert_eq!(
        words["words"]["words"],
        json!([0, pattern(a + PAGE + 8, 3)])
    );
    let words = agent.op(p, json!({"peek": {"address": a + PAGE, "words": 2}}));
    assert_eq!(words["words"]["words"], json!([0, 0]));
    let hole = json!({"force_write": {"address": 8 * PAGE, "length": PAGE}});
    assert_eq!(agent.op_error(p, hole)["errno"]["name"], "EIO");
}

#[test]
fn words_of_a_file_are_those_that_a_read_has() {
    let mut agent = Agent::start("file");
    let p = agent.spawn();
    let path = std::env::temp_dir().join(format!("folioscope-words-{}", std::process::id()));
    let path = path.to_str().unwrap();
    agent.op(
        p,
        json!({"file_create": {"path": path, "length": 2 * PAGE}}),
    );
    let write = json!({"path": path, "offset": 0, "length": PAGE, "salt": 3});
    agent.op(p, json!({ "file_write": write }));
    let mut verify = |offset: u64, length: u64, expect: Value| {
        let verify = json!({"path": path, "offset": offset, "length": length, "stride": 512, "expect": expect});
        agent.op(p, json!({ "file_verify": verify }))["verified"].clone()
    };
    let pattern = json!({"pattern": {"salt": 3}});
    let right = verify(0, PAGE, pattern.clone());
    assert_eq!((&right["words"], &right["wrong"]), (&json!(8), &json!(0)));
    assert_eq!(verify(PAGE, PAGE, json!("zero"))["wrong"], 0);
    let wrong = verify(PAGE, PAGE, pattern);
    assert_eq!(wrong["wrong"], 8);
    assert_eq!(wrong["first"][0]["address"], PAGE);
    // Beyond its end.
    let beyond = verify(2 * PAGE, 512, json!("zero"));
    assert_eq!(beyond["first"][0]["found"], u64::MAX);
    agent.op(p, json!({"file_unlink": {"path": path}}));
}
