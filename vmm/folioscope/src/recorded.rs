// SPDX-License-Identifier: GPL-2.0-only
//! A recorded guest: the plugin writes into a FIFO, and a thread judges the trace from it.

mod end;
mod first;
mod found;
mod names;
mod seen;
mod text;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use machine::private;
use machine::qemu::Recording;
use recorder::trace::{Reader, TraceError, VERSION};
use recorder::{Judge, Limits, PageLayout, What};
use rustix::fs::{fcntl_setfl, mkfifoat, Mode, OFlags, CWD};
use stage1::BbmLevel;
use tempfile::TempDir;
use verdict::KernelVerdict;

pub use end::End;
pub use found::{folio_of, step};
pub use names::{KernelNames, Names};
pub use seen::{Calls, Sequences, Tlbi};
pub use text::tell;

use crate::replace::open_private;
use crate::Error;

/// Default path of the plugin.
pub const PLUGIN: &str = "out/librecorder_plugin.so";

/// Maximum time for QEMU to write the end of the trace.
pub const LAST: Duration = Duration::from_secs(60);

/// Maximum time by which the trace may lag behind the guest.
const LAG: Duration = Duration::from_secs(60);

/// Maximum number of TLBIs that are kept between two queries.
const MOST_TLBIS: usize = 1 << 16;

/// The judge and the state kept with it.
#[derive(Debug)]
struct Watch {
    judge: Judge,
    end: End,
    /// The last mark that arrived.
    mark: u64,
    /// True at the end of the trace.
    ended: bool,
    /// The TLBIs since the last query, if they are kept: CPU, PC, opcode and operand.
    tlbis: Option<Vec<(u16, u64, u32, u64)>>,
}

impl Watch {
    fn new() -> Self {
        Self {
            judge: Judge::new(Limits::default(), BbmLevel::Zero),
            end: End::default(),
            mark: 0,
            ended: false,
            tlbis: None,
        }
    }
}

type Shared = Arc<(Mutex<Watch>, Condvar)>;

fn lock(shared: &Shared) -> MutexGuard<'_, Watch> {
    shared.0.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A trace that is judged while it is read.
#[derive(Debug)]
pub struct Judging {
    /// The judge.
    pub judge: Judge,
    /// How the trace ended.
    pub end: End,
}

impl Default for Judging {
    fn default() -> Self {
        Self {
            judge: Judge::new(Limits::default(), BbmLevel::Zero),
            end: End::default(),
        }
    }
}

impl Judging {
    /// Judges the rest of a trace; if it was cut or is damaged, up to there.
    ///
    /// # Errors
    /// If it cannot be read at all.
    pub fn read<R: Read>(&mut self, reader: &mut Reader<R>) -> Result<(), Error> {
        loop {
            match reader.next() {
                Ok(Some(event)) => self.judge.event(&event),
                Ok(None) => break,
                Err(error @ TraceError::Io(_)) => return Err(Error::Input(error.to_string())),
                Err(error) => {
                    self.end.said.push(error.to_string());
                    break;
                }
            }
        }
        self.end.bytes = reader.bytes();
        Ok(())
    }
}

fn watch<R: Read>(reader: &mut Reader<R>, shared: &Shared) {
    loop {
        let next = reader.next();
        let mut watch = lock(shared);
        watch.end.bytes = reader.bytes();
        match next {
            Ok(Some(event)) => {
                watch.judge.event(&event);
                match event.what {
                    What::Mark { number } => {
                        watch.mark = number;
                        shared.1.notify_all();
                    }
                    What::Tlbi { opcode, operand } => {
                        if let Some(tlbis) = &mut watch.tlbis {
                            if tlbis.len() < MOST_TLBIS {
                                tlbis.push((event.cpu, event.pc, opcode, operand));
                            }
                        }
                    }
                    _ => (),
                }
            }
            Ok(None) => return,
            Err(error) => {
                watch.end.said.push(error.to_string());
                return;
            }
        }
    }
}

/// A recording, from before its guest runs on.
#[derive(Debug)]
pub struct Live {
    recording: Recording,
    thread: JoinHandle<()>,
    shared: Shared,
    /// Keeps the FIFO from ending before QEMU has opened it.
    open: Option<File>,
    control: File,
    marks: u64,
    directory: Option<TempDir>,
}

impl Live {
    /// Makes the FIFOs and begins to read; a copy of the trace goes to `kept`.
    ///
    /// # Errors
    /// If there is no plugin, or a FIFO or file cannot be made.
    pub fn begin(plugin: &Path, kept: Option<&Path>) -> Result<Self, Error> {
        if !plugin.is_file() {
            return Err(Error::Input(format!(
                "expected the recorder's plugin at {} and found no file there; build it with: vmm/setup/plugin.sh",
                plugin.display()
            )));
        }
        let plugin =
            std::path::absolute(plugin).map_err(Error::io("find the working directory"))?;
        let directory = TempDir::with_prefix("folioscope-record-")
            .map_err(Error::io("make a temporary directory"))?;
        let fifo = directory.path().join("trace");
        let failed = |error: rustix::io::Errno| Error::io("make a FIFO")(error.into());
        mkfifoat(CWD, &fifo, Mode::RUSR | Mode::WUSR).map_err(failed)?;
        let attempt = || Error::io(format!("open the FIFO {}", fifo.display()));
        // Without waiting for the other end, which QEMU opens.
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
        let control_path = directory.path().join("control");
        mkfifoat(CWD, &control_path, Mode::RUSR | Mode::WUSR).map_err(failed)?;
        // For both, so that this does not wait and the other end finds a peer.
        let control = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&control_path)
            .map_err(attempt())?;
        let copy = match kept {
            Some(path) => Some(Kept::open(path)?),
            None => None,
        };
        let mut input = Copied {
            input,
            copy,
            failed: None,
        };
        let shared = Shared::new((Mutex::new(Watch::new()), Condvar::new()));
        let theirs = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            match Reader::new(&mut input) {
                Ok(mut reader) => watch(&mut reader, &theirs),
                Err(error) => lock(&theirs).end.said.push(told(&error)),
            }
            // A reader that has ended must not make the guest wait.
            let _ = io::copy(&mut input, &mut io::sink());
            let mut watch = lock(&theirs);
            if let Some(error) = input.failed {
                watch.end.said.push(format!(
                    "the kept trace is not whole, as it could not be written: {error}"
                ));
            }
            watch.ended = true;
            theirs.1.notify_all();
        });
        let recording = Recording {
            plugin,
            trace: fifo,
            control: Some(control_path),
        };
        Ok(Self {
            recording,
            thread,
            shared,
            open: Some(open),
            control,
            marks: 0,
            directory: Some(directory),
        })
    }

    /// Returns what the machine is started with.
    #[must_use]
    pub fn recording(&self) -> Recording {
        self.recording.clone()
    }

    /// Removes the FIFOs' names. QEMU has opened them, or never will, and nothing of them must stay, however we end.
    #[must_use]
    pub fn booted(mut self) -> Self {
        self.open = None;
        self.directory = None;
        self
    }

    /// Sends the kernel's layout of its pages: from here on the folios of pages that are mapped or unmapped are
    /// recorded.
    ///
    /// # Errors
    /// If the plugin cannot be told.
    pub fn send_page_layout(&mut self, pages: &PageLayout) -> Result<(), Error> {
        let numbers = [PageLayout::BEGINS].into_iter().chain(pages.numbers());
        let bytes: Vec<u8> = numbers.flat_map(u64::to_le_bytes).collect();
        self.control
            .write_all(&bytes)
            .map_err(Error::io("tell the recorder's plugin how pages are kept"))
    }

    /// Waits until all events recorded so far have been judged.
    fn caught_up(&mut self) -> Result<MutexGuard<'_, Watch>, Error> {
        self.marks += 1;
        let number = self.marks;
        self.control
            .write_all(&number.to_le_bytes())
            .map_err(Error::io("ask the recorder's plugin for a mark"))?;
        let watch = lock(&self.shared);
        let (watch, waited) = self
            .shared
            .1
            .wait_timeout_while(watch, LAG, |watch| watch.mark < number && !watch.ended)
            .unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() || watch.ended {
            return Err(Error::Input(format!(
                "expected the recorder to come to mark {number} within {} s and it came to {}; the trace has ended or the guest is too quick for it",
                LAG.as_secs(),
                watch.mark
            )));
        }
        Ok(watch)
    }

    /// Begins a new record of findings, TLBIs and counts.
    ///
    /// # Errors
    /// If the trace does not reach this point.
    pub fn anew(&mut self) -> Result<(), Error> {
        let mut watch = self.caught_up()?;
        watch.judge.anew();
        watch.tlbis = Some(Vec::new());
        Ok(())
    }

    /// Returns the events since [`Live::anew`].
    ///
    /// # Errors
    /// If the trace does not reach this point, or there was too much.
    pub fn since(&mut self, names: &Names<'_>) -> Result<Sequences, Error> {
        let mut watch = self.caught_up()?;
        let tlbis = watch.tlbis.take().unwrap_or_default();
        if tlbis.len() >= MOST_TLBIS {
            return Err(Error::Input(format!(
                "expected fewer than {MOST_TLBIS} TLBIs between the two ends of a recording and found more; record less at a time"
            )));
        }
        Ok(Sequences::new(&watch.judge, &watch.end, &tlbis, names))
    }

    /// Returns what was found since the last call, with the VAs of all findings, and begins a new record of findings.
    ///
    /// # Errors
    /// If the trace does not reach this point.
    pub fn found(&mut self, names: &Names<'_>) -> Result<(KernelVerdict, Vec<u64>), Error> {
        let mut watch = self.caught_up()?;
        let found = found::verdict(&watch.judge, names);
        let vas = watch.judge.findings().vas().to_vec();
        watch.judge.anew();
        Ok((found, vas))
    }

    /// Begins to count anew the operations on these VAs, first and last; findings stay.
    ///
    /// # Errors
    /// If the trace does not reach this point.
    pub fn count_within(&mut self, vas: [u64; 2]) -> Result<(), Error> {
        self.caught_up()?.judge.count_within(Some(vas));
        Ok(())
    }

    /// Returns what was done since under each function of the kernel.
    ///
    /// # Errors
    /// If the trace does not reach this point.
    pub fn counted(&mut self, names: &Names<'_>) -> Result<BTreeMap<String, Calls>, Error> {
        Ok(seen::by_function(&self.caught_up()?.judge, names))
    }

    /// Returns the judge, and how the trace ended, once QEMU has ended.
    ///
    /// # Panics
    /// If the judge did.
    #[must_use]
    pub fn join(self) -> (Judge, End) {
        if let Err(panic) = self.thread.join() {
            std::panic::resume_unwind(panic);
        }
        let watch = std::mem::replace(&mut *lock(&self.shared), Watch::new());
        (watch.judge, watch.end)
    }
}

/// Describes the error of a trace from the plugin, which has no name that could be wrong.
fn told(error: &TraceError) -> String {
    match error {
        TraceError::NotATrace { found } => format!(
            "expected a trace, which begins with FOLIOREC, from the recorder's plugin and found {found:02x?}; build it anew with: vmm/setup/plugin.sh"
        ),
        TraceError::Version { found } => format!(
            "expected a trace of version {VERSION} or earlier from the recorder's plugin and found version {found}; build it anew with: vmm/setup/plugin.sh"
        ),
        other => other.to_string(),
    }
}

/// A reader that also writes its input to a file, as long as that succeeds.
struct Copied {
    input: File,
    copy: Option<Kept>,
    failed: Option<io::Error>,
}

/// The file that a trace is kept in. Until its first bytes come the file has its old contents: an earlier trace is not
/// given up for a guest that does not start.
struct Kept {
    file: File,
    has_begun: bool,
    /// The path of a file that was made for it.
    new: Option<PathBuf>,
}

impl Kept {
    fn open(path: &Path) -> Result<Self, Error> {
        let new = !path.exists();
        let file = open_private(path).map_err(Error::io(format!("write {}", path.display())))?;
        Ok(Self {
            file,
            has_begun: false,
            new: new.then(|| path.into()),
        })
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.has_begun && !bytes.is_empty() {
            private::empty(&self.file)?;
            self.has_begun = true;
        }
        self.file.write_all(bytes)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let (false, Some(path)) = (self.has_begun, &self.new) {
            // It is empty.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Read for Copied {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        if let Some(copy) = &mut self.copy {
            if let Err(error) = copy.write(&buffer[..count]) {
                self.failed = Some(error);
                self.copy = None;
            }
        }
        Ok(count)
    }
}
