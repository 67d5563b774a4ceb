// SPDX-License-Identifier: GPL-2.0-only
//! Setup of each test: a folder, a configuration, and programs whose output is kept.

use std::fs;
use std::io::{self, Cursor, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use carrier::client::{run, Streams};
use carrier::{Carrier, CarrierConfig, CarrierError};
use protocol::carrier::{encode, Decoder, Ended, Frame, Kind, Start, VERSION};

/// The folder of one test, gone when the test passed.
pub struct Work(pub PathBuf);

impl Work {
    pub fn new(name: &str) -> Self {
        let work =
            std::env::temp_dir().join(format!("folioscope-carrier-{}-{name}", std::process::id()));
        fs::create_dir_all(&work).unwrap();
        Self(work)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

/// Returns the configuration; `None`, with a message, if nothing was given and nothing was required.
pub fn config(work: &Work) -> Option<CarrierConfig> {
    let path = |name| std::env::var_os(name).map(PathBuf::from);
    let (Some(image), Some(initrd)) = (
        path("FOLIOSCOPE_TEST_IMAGE"),
        path("FOLIOSCOPE_TEST_CARRIER"),
    ) else {
        let demanded = std::env::var_os("FOLIOSCOPE_TEST_REQUIRE_GUEST").is_some_and(|v| v == "1");
        let message = "no carrier to test: set FOLIOSCOPE_TEST_IMAGE and FOLIOSCOPE_TEST_CARRIER";
        assert!(!demanded, "{message}");
        eprintln!("NOT TESTED: {message}");
        return None;
    };
    Some(CarrierConfig::new(&image, &initrd, &work.0.join("logs")))
}

pub fn start(argv: &[&str], cwd: &Path) -> Start {
    Start {
        version: VERSION,
        argv: argv.iter().map(|&word| word.to_owned()).collect(),
        env: vec![
            ("PATH".into(), "/usr/bin:/bin".into()),
            ("WORD".into(), "of outside".into()),
        ],
        cwd: cwd.to_string_lossy().into_owned(),
    }
}

/// A program's output, shared with the thread that writes it.
#[derive(Clone, Default)]
pub struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Kept {
    pub fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
    pub fn text(&self) -> String {
        String::from_utf8(self.bytes()).unwrap()
    }
}

/// Runs a program; its end, its standard output and error.
pub fn output(
    carrier: &Carrier,
    argv: &[&str],
    input: &[u8],
    cwd: &Path,
) -> (Result<Ended, CarrierError>, Kept, Kept) {
    let (stdout, stderr) = (Kept::default(), Kept::default());
    let streams = Streams {
        stdin: Box::new(Cursor::new(input.to_vec())),
        stdout: Box::new(stdout.clone()),
        stderr: Box::new(stderr.clone()),
    };
    let ended = run(
        carrier.connect().unwrap(),
        &start(argv, cwd),
        streams,
        |_| {},
    );
    (ended, stdout, stderr)
}

/// Returns the standard output of a shell's line.
pub fn shell(carrier: &Carrier, line: &str, cwd: &Path) -> String {
    let (ended, stdout, stderr) = output(carrier, &["sh", "-c", line], b"", cwd);
    assert_eq!(ended.unwrap(), Ended::Exit(0), "{line}: {}", stderr.text());
    stdout.text()
}

/// A stream by hand.
pub struct Raw {
    pub socket: UnixStream,
    decoder: Decoder,
}

impl Raw {
    pub fn start(carrier: &Carrier, argv: &[&str]) -> Self {
        let mut raw = Self {
            socket: carrier.connect().unwrap(),
            decoder: Decoder::new(),
        };
        raw.send(
            Kind::Start,
            &serde_json::to_vec(&start(argv, Path::new("/"))).unwrap(),
        );
        raw
    }

    pub fn send(&mut self, kind: Kind, payload: &[u8]) {
        let mut bytes = Vec::new();
        encode(&mut bytes, kind, 1, payload);
        self.socket.write_all(&bytes).unwrap();
    }

    /// Returns the next frame, if one comes within `patience`.
    pub fn frame(&mut self, patience: Duration) -> Option<Frame> {
        self.socket.set_read_timeout(Some(patience)).unwrap();
        let mut chunk = [0; 4096];
        loop {
            if let Some(frame) = self.decoder.next_frame().unwrap() {
                return Some(frame);
            }
            match self.socket.read(&mut chunk) {
                Ok(count @ 1..) => self.decoder.push(&chunk[..count]),
                _ => return None,
            }
        }
    }
}
