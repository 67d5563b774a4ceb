//! A guest that is recorded: the plugin writes into a FIFO, and a thread judges what comes out of it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use machine::qemu::Recording;
use recorder::trace::{Reader, TraceError};
use recorder::{Judge, Limits};
use rustix::fs::{fcntl_setfl, mkfifoat, Mode, OFlags, CWD};
use stage1::BbmLevel;
use tempfile::TempDir;

use crate::Error;

/// How a trace ended.
#[derive(Debug, Default)]
pub struct End {
    /// Bytes of it.
    pub bytes: u64,
    /// What is missing of it, a sentence each.
    pub said: Vec<String>,
}

/// Judges a trace to its end.
pub fn judge_all<R: Read>(mut reader: Reader<R>) -> (Judge, End) {
    let mut judge = Judge::new(Limits::default(), BbmLevel::Zero);
    let mut end = End::default();
    loop {
        match reader.next() {
            Ok(Some(event)) => judge.event(&event),
            Ok(None) => break,
            Err(error) => {
                end.said.push(error.to_string());
                break;
            }
        }
    }
    end.bytes = reader.bytes();
    (judge, end)
}

/// A recording before its guest runs.
#[derive(Debug)]
pub struct Live {
    recording: Recording,
    judge: JoinHandle<(Judge, End)>,
    /// Keeps the FIFO from ending before QEMU has opened it.
    open: Option<File>,
    directory: Option<TempDir>,
}

impl Live {
    /// Makes the FIFO and begins to read it; a copy goes to `kept`.
    ///
    /// # Errors
    /// Where FIFO or file cannot be made.
    pub fn begin(plugin: PathBuf, kept: Option<&Path>) -> Result<Self, Error> {
        let directory = TempDir::with_prefix("folioscope-record-")
            .map_err(Error::io("make a temporary directory"))?;
        let fifo = directory.path().join("trace");
        let failed = |error: rustix::io::Errno| Error::io("make a FIFO")(error.into());
        mkfifoat(CWD, &fifo, Mode::RUSR | Mode::WUSR).map_err(failed)?;
        let attempt = || Error::io(format!("open the FIFO {}", fifo.display()));
        // Without waiting for the other end, which comes when QEMU does.
        let nonblock = OFlags::NONBLOCK.bits() as i32;
        let input = OpenOptions::new()
            .read(true)
            .custom_flags(nonblock)
            .open(&fifo)
            .map_err(attempt())?;
        let open = OpenOptions::new()
            .write(true)
            .open(&fifo)
            .map_err(attempt())?;
        fcntl_setfl(&input, OFlags::empty()).map_err(failed)?;
        let copy = match kept {
            Some(path) => {
                Some(File::create(path).map_err(Error::io(format!("write {}", path.display())))?)
            }
            None => None,
        };
        let mut input = Copied {
            input,
            copy,
            failed: None,
        };
        let judge = std::thread::spawn(move || {
            let (judge, mut end) = match Reader::new(&mut input) {
                Ok(reader) => judge_all(reader),
                Err(error) => (Judge::new(Limits::default(), BbmLevel::Zero), told(&error)),
            };
            // A reader that has ended must not make the guest wait.
            let _ = io::copy(&mut input, &mut io::sink());
            if let Some(error) = input.failed {
                end.said.push(format!(
                    "the kept trace is not whole, as it could not be written: {error}"
                ));
            }
            (judge, end)
        });
        let recording = Recording {
            plugin,
            trace: fifo,
        };
        Ok(Self {
            recording,
            judge,
            open: Some(open),
            directory: Some(directory),
        })
    }

    /// What the machine is started with.
    #[must_use]
    pub fn recording(&self) -> Recording {
        self.recording.clone()
    }

    /// QEMU has opened the FIFO, or never will: its name is needed no more, and nothing of it stays, however we end.
    #[must_use]
    pub fn booted(mut self) -> Self {
        self.open = None;
        self.directory = None;
        self
    }

    /// What came of it, once QEMU has ended.
    ///
    /// # Panics
    /// Where the judge did.
    #[must_use]
    pub fn join(self) -> (Judge, End) {
        match self.judge.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

fn told(error: &TraceError) -> End {
    End {
        bytes: 0,
        said: vec![error.to_string()],
    }
}

/// What is read, written to a file as well, for as long as that goes.
struct Copied {
    input: File,
    copy: Option<File>,
    failed: Option<io::Error>,
}

impl Read for Copied {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        if let Some(copy) = &mut self.copy {
            if let Err(error) = copy.write_all(&buffer[..count]) {
                self.failed = Some(error);
                self.copy = None;
            }
        }
        Ok(count)
    }
}
