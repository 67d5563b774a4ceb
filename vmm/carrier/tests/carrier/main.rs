// SPDX-License-Identifier: GPL-2.0-only
//! A real carrier under a real QEMU.
//!
//! `FOLIOSCOPE_TEST_IMAGE` names the kernel, `FOLIOSCOPE_TEST_CARRIER` the carrier's initramfs. Without them these
//! tests have nothing to test. They print that, and fail if `FOLIOSCOPE_TEST_REQUIRE_GUEST=1` requires a guest.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use carrier::client::{run, Streams};
use carrier::{Carrier, CarrierError};
use protocol::carrier::{Ended, Kind, Mode, WINDOW};
use rig::{config, output, shell, start, Raw, Work};

mod rig;

#[test]
fn ten_megabytes_pass_through() {
    let work = Work::new("bytes");
    let Some(config) = config(&work) else { return };
    let carrier = Carrier::start(&config).unwrap();
    println!(
        "ready after {:?}: {:?}",
        carrier.ready_after(),
        carrier.hello()
    );
    let mut state = 1u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    let input: Vec<u8> = std::iter::repeat_with(&mut next).take(10 << 20).collect();
    let since = Instant::now();
    let (ended, stdout, stderr) = output(&carrier, &["cat"], &input, &work.0);
    println!("10 MiB to and fro: {:?}", since.elapsed());
    assert_eq!(ended.unwrap(), Ended::Exit(0));
    assert!(
        stdout.bytes() == input,
        "{} bytes came back",
        stdout.bytes().len()
    );
    assert_eq!(stderr.text(), "");
    let (_, stdout, stderr) = output(
        &carrier,
        &["sh", "-c", "cat >&2; echo out"],
        &input,
        &work.0,
    );
    assert!(stderr.bytes() == input);
    assert_eq!(stdout.text(), "out\n");
}

#[test]
fn a_program_is_as_if_it_were_local() {
    let work = Work::new("local");
    let Some(config) = config(&work) else { return };
    let carrier = Carrier::start(&config).unwrap();
    let place = work.0.to_str().unwrap();
    assert_eq!(
        shell(&carrier, "pwd; echo $WORD; uname -m", &work.0),
        format!("{place}\nof outside\naarch64\n")
    );
    assert_eq!(
        shell(&carrier, "ls -d /dev/kvm /dev/shm /dev/hugepages", &work.0),
        "/dev/hugepages\n/dev/kvm\n/dev/shm\n"
    );
    let end = |line: &str| {
        output(&carrier, &["sh", "-c", line], b"", &work.0)
            .0
            .unwrap()
    };
    assert_eq!(end("exit 0"), Ended::Exit(0));
    assert_eq!(end("exit 143"), Ended::Exit(143));
    assert_eq!(end("kill -TERM $$"), Ended::Signal(15));
    assert_eq!(end("kill -KILL $$"), Ended::Signal(9));
    // A background process does not prevent its end, and ends too.
    assert_eq!(end("sleep 4711 & exit 3"), Ended::Exit(3));
    assert_eq!(
        shell(
            &carrier,
            "ps -o args | grep '^sleep 471[1]' || echo none",
            &work.0
        ),
        "none\n"
    );

    let sentence = |argv: &[&str], cwd: &str| {
        let error = output(&carrier, argv, b"", Path::new(cwd)).0.unwrap_err();
        assert!(matches!(error, CarrierError::NotStarted(_)), "{error:?}");
        error.to_string()
    };
    assert!(sentence(&["/nonexistent"], "/").contains("cannot start /nonexistent"));
    assert!(sentence(&["sh"], "/nonexistent").contains("no directory /nonexistent"));
    let text = work.0.join("text");
    fs::write(&text, "no program").unwrap();
    fs::set_permissions(&text, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    assert!(sentence(&[text.to_str().unwrap()], "/").contains("no arm64 program"));
    // Groups of programs that have ended are removed once no process is leaving them.
    let groups = || shell(&carrier, "ls /sys/fs/cgroup | grep -c ^program-", &work.0);
    let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while groups() != "1\n" {
        assert!(std::time::Instant::now() < end, "{}", groups());
    }
}

#[test]
fn signals_reach_the_program() {
    let work = Work::new("signals");
    let Some(config) = config(&work) else { return };
    let carrier = Carrier::start(&config).unwrap();
    let script = "trap 'echo caught; exit 9' TERM; echo ready; while true; do sleep 0.1; done";
    let mut raw = Raw::start(&carrier, &["sh", "-c", script]);
    let patience = Duration::from_secs(20);
    assert_eq!(raw.frame(patience).unwrap().payload, b"ready\n");
    raw.send(Kind::Signal, &15u32.to_le_bytes());
    assert_eq!(raw.frame(patience).unwrap().payload, b"caught\n");
    let last = raw.frame(patience).unwrap();
    assert_eq!(
        (last.kind, last.payload.as_slice()),
        (Kind::Exit, br#"{"exit":9}"#.as_slice())
    );
    // No process reads any more: the program gets SIGPIPE.
    let mut raw = Raw::start(&carrier, &["yes"]);
    raw.frame(patience).unwrap();
    raw.send(Kind::StdoutShut, &[]);
    let last = std::iter::from_fn(|| raw.frame(patience)).find(|frame| frame.kind == Kind::Exit);
    assert_eq!(last.unwrap().payload, br#"{"signal":13}"#);
}

#[test]
fn a_client_that_goes_takes_its_program_along() {
    let work = Work::new("gone");
    let Some(config) = config(&work) else { return };
    let carrier = Carrier::start(&config).unwrap();
    let count = || {
        shell(
            &carrier,
            "ps -o args | grep '^sleep 471[1]' | wc -l",
            &work.0,
        )
    };
    // One in the group, one whose parent has left it to init.
    let mut raw = Raw::start(
        &carrier,
        &["sh", "-c", "(sleep 4711 &); echo ready; sleep 4711"],
    );
    raw.frame(Duration::from_secs(20)).unwrap();
    let since = Instant::now();
    while count() != "2\n" {
        assert!(
            since.elapsed() < Duration::from_secs(20),
            "the sleepers did not start"
        );
    }
    drop(raw);
    let since = Instant::now();
    while count() != "0\n" {
        assert!(
            since.elapsed() < Duration::from_secs(20),
            "the program has outlived its client"
        );
    }
}

#[test]
fn one_that_does_not_read_stalls_nobody() {
    let work = Work::new("stall");
    let Some(config) = config(&work) else { return };
    let carrier = Carrier::start(&config).unwrap();
    // It writes without end, and its output is not read; it gets a window of input that it never reads.
    let mut deaf: Vec<Raw> = (0..3).map(|_| Raw::start(&carrier, &["yes"])).collect();
    for raw in &mut deaf {
        for _ in 0..8 {
            raw.send(Kind::Stdin, &[b'x'; WINDOW as usize / 8]);
        }
    }
    let since = Instant::now();
    for _ in 0..5 {
        let input = vec![b'y'; 1 << 20];
        let (ended, stdout, _) = output(&carrier, &["cat"], &input, &work.0);
        assert_eq!(ended.unwrap(), Ended::Exit(0));
        assert!(stdout.bytes() == input);
    }
    println!("5 MiB beside three that do not read: {:?}", since.elapsed());
    // At most a window has arrived.
    for raw in &mut deaf {
        let mut bytes = 0;
        while let Some(frame) = raw.frame(Duration::from_secs(2)) {
            // Its pipe has taken a part of the input, as one of outside would.
            if frame.kind != Kind::StdinCredit {
                assert_eq!(frame.kind, Kind::Stdout);
                bytes += frame.payload.len();
            }
        }
        assert_eq!(bytes, WINDOW as usize);
        // It continues once it has more credit.
        raw.send(Kind::StdoutCredit, &4096u32.to_le_bytes());
        assert!(raw.frame(Duration::from_secs(20)).is_some());
    }
    // A client that sends more than it may is ended, and no other.
    for _ in 0..8 {
        deaf[0].send(Kind::Stdin, &[b'x'; WINDOW as usize / 8]);
    }
    let last = std::iter::from_fn(|| deaf[0].frame(Duration::from_secs(20)))
        .find(|frame| frame.kind == Kind::Exit);
    assert!(last.is_some());
    assert_eq!(shell(&carrier, "echo alive", &work.0), "alive\n");
}

#[test]
fn files_are_the_same_inside_and_outside() {
    let work = Work::new("files");
    let Some(config) = config(&work) else { return };
    let carrier = Carrier::start(&config).unwrap();
    let file = work.0.join("file");
    fs::write(&file, "one\n").unwrap();
    assert_eq!(shell(&carrier, "cat file", &work.0), "one\n");
    // The same length within the same second, also while a program has it open.
    let mut raw = Raw::start(
        &carrier,
        &[
            "sh",
            "-c",
            &format!("exec 3<{}; echo open; exec sleep 600", file.display()),
        ],
    );
    raw.frame(Duration::from_secs(20)).unwrap();
    for text in ["two\n", "six\n", "ten\n", "longer\n"] {
        fs::write(&file, text).unwrap();
        assert_eq!(shell(&carrier, "cat file", &work.0), text);
    }
    // Another file in its place.
    fs::write(work.0.join("new"), "new\n").unwrap();
    fs::rename(work.0.join("new"), &file).unwrap();
    assert_eq!(shell(&carrier, "cat file", &work.0), "new\n");
    // The other way.
    for text in ["in", "side"] {
        shell(&carrier, &format!("echo {text} > inside"), &work.0);
        assert_eq!(
            fs::read_to_string(work.0.join("inside")).unwrap(),
            format!("{text}\n")
        );
    }
    shell(
        &carrier,
        "mkdir made && mv inside made/moved && ln -s moved made/link",
        &work.0,
    );
    assert_eq!(
        fs::read_to_string(work.0.join("made/link")).unwrap(),
        "side\n"
    );
    fs::remove_dir_all(work.0.join("made")).unwrap();
    assert_eq!(
        shell(&carrier, "ls -d made 2>&1 || true", &work.0),
        "ls: made: No such file or directory\n"
    );
    // The rest can be read only.
    let (ended, _, stderr) = output(
        &carrier,
        &["touch", "/usr/folioscope-carrier-test"],
        b"",
        &work.0,
    );
    assert_eq!(ended.unwrap(), Ended::Exit(1));
    assert!(
        stderr.text().contains("Read-only file system"),
        "{}",
        stderr.text()
    );
    assert_eq!(
        shell(&carrier, "cat /etc/hostname", &work.0),
        fs::read_to_string("/etc/hostname").unwrap()
    );
}

#[test]
fn kvm_is_vhe_or_nvhe_as_asked() {
    for (cpu, nvhe, expected) in [
        ("max", false, Mode::Vhe),
        ("max", true, Mode::Nvhe),
        ("cortex-a72", false, Mode::Nvhe),
    ] {
        let work = Work::new(&format!("mode-{cpu}-{nvhe}"));
        let Some(mut config) = config(&work) else {
            return;
        };
        config.cpu = cpu.into();
        config.nvhe = nvhe;
        let carrier = Carrier::start(&config).unwrap();
        assert_eq!(carrier.hello().kvm, Some(expected), "{cpu}");
        println!(
            "{cpu}, nVHE asked for: {nvhe}: ready after {:?}",
            carrier.ready_after()
        );
    }
}

#[test]
fn a_carrier_that_is_lost_says_so_in_a_sentence() {
    let work = Work::new("lost");
    let Some(mut config) = config(&work) else {
        return;
    };
    let carrier = Carrier::start(&config).unwrap();
    let mut raw = Raw::start(&carrier, &["sh", "-c", "echo ready; sleep 600"]);
    raw.frame(Duration::from_secs(20)).unwrap();
    assert!(Command::new("kill")
        .args(["-9", &carrier.pid().to_string()])
        .status()
        .unwrap()
        .success());
    let last = raw.frame(Duration::from_secs(20)).unwrap();
    let Ended::Lost(why) = serde_json::from_slice(&last.payload).unwrap() else {
        panic!("{last:?}");
    };
    assert!(why.contains("QEMU ended with signal: 9"), "{why}");
    assert_eq!(carrier.lost(), Some(why));
    let connected = carrier.connect().and_then(|socket| {
        let streams = Streams {
            stdin: Box::new(io::empty()),
            stdout: Box::new(io::sink()),
            stderr: Box::new(io::sink()),
        };
        run(socket, &start(&["true"], Path::new("/")), streams, |_| {})
    });
    assert!(connected
        .unwrap_err()
        .to_string()
        .starts_with("the carrier is lost: "));

    // A kernel without an init panics.
    let empty = work.0.join("empty.cpio");
    fs::write(&empty, "").unwrap();
    config.initrd = empty;
    let error = Carrier::start(&config).unwrap_err().to_string();
    assert!(
        error.contains("its kernel panicked (") && !error.contains('\n'),
        "{error}"
    );
    config.initrd = work.0.join("missing");
    let error = Carrier::start(&config).unwrap_err().to_string();
    assert!(error.contains("found no file there"), "{error}");
}

/// Not a test by itself: the server that the next test kills.
#[test]
#[ignore = "run by a_killed_server_leaves_no_qemu"]
fn helper_server() {
    let work = Work::new("helper");
    let Some(config) = config(&work) else { return };
    let carrier = Carrier::start(&config).unwrap();
    println!("\nqemu {}", carrier.pid());
    std::thread::sleep(Duration::from_secs(600));
}

#[test]
fn a_killed_server_leaves_no_qemu() {
    let work = Work::new("killed");
    if config(&work).is_none() {
        return;
    }
    let mut server = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "helper_server", "--ignored", "--nocapture"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let qemu: u32 = lines
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("qemu ")?.parse().ok())
        .expect("the helper names its QEMU");
    let place = format!("/proc/{qemu}/stat");
    let lives = || {
        fs::read_to_string(&place)
            .is_ok_and(|stat| !stat.rsplit(')').next().unwrap().starts_with(" Z"))
    };
    assert!(lives());
    server.kill().unwrap();
    server.wait().unwrap();
    let since = Instant::now();
    while lives() {
        assert!(
            since.elapsed() < Duration::from_secs(5),
            "QEMU {qemu} has outlived its server"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = fs::remove_dir_all(
        std::env::temp_dir().join(format!("folioscope-carrier-{}-helper", server.id())),
    );
}
