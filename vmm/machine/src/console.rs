// SPDX-License-Identifier: GPL-2.0-only
//! The guest's console: copied to a bounded file as it arrives, with its end kept in memory.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{eventfd, EventfdFlags, PollFd, PollFlags};
use rustix::io::ioctl_fionread;

use crate::log::Log;
use crate::stream::poll;

/// Number of bytes of the console's end that are kept in memory.
const TAIL: usize = 64 * 1024;

/// Maximum time for the reader to read the bytes that have arrived. It has nothing else to do, but may have to wait for
/// a processor.
const SETTLE: Duration = Duration::from_secs(1);

/// The message of an arm64 kernel that panics (kernel/panic.c).
const PANIC: &[u8] = b"Kernel panic - not syncing";

/// The guest's console.
///
/// Bytes that a machine has written are visible to every later call. A machine that reports the end of its guest can
/// rely on the last words being here.
#[derive(Debug)]
pub struct Console {
    input: UnixStream,
    shared: Arc<Shared>,
    reader: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// An event with the same meaning, for a caller that waits for other descriptors too.
    event: OwnedFd,
}

/// A function that receives all bytes in the order and pieces in which they arrive, on the console's own thread.
pub type Listener = Box<dyn FnMut(&[u8]) + Send>;

#[derive(Default)]
struct State {
    /// The last bytes, at most twice `TAIL` of them.
    tail: Vec<u8>,
    /// Number of all bytes so far, including those that are no longer kept.
    total: u64,
    /// Time of the last output since a panic was shown.
    spoke_last: Option<Instant>,
    closed: bool,
    log_error: Option<String>,
    listener: Option<Listener>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut state = f.debug_struct("State");
        state
            .field("total", &self.total)
            .field("closed", &self.closed);
        state.finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves at worst a shorter tail.
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn tell(&self) {
        self.changed.notify_all();
        // It can fail only where the count is full, and then it can be read.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }
}

impl Console {
    /// Copies the bytes from `socket` to `log` until its end. The first [`crate::log::FIRST`] and the last
    /// [`crate::log::LAST`] bytes are kept.
    pub fn start(socket: UnixStream, log: File) -> io::Result<Self> {
        Self::start_with(socket, log, || Ok(()))
    }

    /// Copies in a thread that begins with `first`, which may confine it. An error of `first` is that of the start.
    pub fn start_with(
        socket: UnixStream,
        log: File,
        first: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: Condvar::new(),
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        });
        let output = socket.try_clone()?;
        let (tell, told) = std::sync::mpsc::channel();
        let reader = std::thread::Builder::new().name("console".into()).spawn({
            let shared = Arc::clone(&shared);
            move || {
                let begun = first();
                let goes_on = begun.is_ok();
                let _ = tell.send(begun);
                if goes_on {
                    copy(output, log, &shared);
                }
            }
        })?;
        told.recv().map_err(io::Error::other)??;
        Ok(Self {
            input: socket,
            shared,
            reader: Some(reader),
        })
    }

    /// Returns the end of the guest's output, up to 64 KiB.
    pub fn tail(&self) -> String {
        let state = self.settled();
        let start = state.tail.len().saturating_sub(TAIL);
        String::from_utf8_lossy(&state.tail[start..]).into_owned()
    }

    /// Returns what was printed from byte `from` of the console on, and the byte to ask from next.
    ///
    /// Bytes that are no longer kept are left out.
    pub fn since(&self, from: u64) -> (Vec<u8>, u64) {
        // Before the state is read, so that later bytes set the event again.
        let _ = rustix::io::read(&self.shared.event, &mut [0; 8]);
        let state = self.settled();
        let kept_from = state.total - state.tail.len() as u64;
        let start = from.clamp(kept_from, state.total) - kept_from;
        (state.tail[start as usize..].to_vec(), state.total)
    }

    /// Calls the listener that `make` returns with all bytes from now on. `make` receives the number of bytes before,
    /// all of which are in the log unless the log left them out. No bytes arrive while it runs.
    pub fn listen(&self, make: impl FnOnce(u64) -> Listener) {
        let mut state = self.shared.lock();
        state.listener = Some(make(state.total));
    }

    /// Returns an event that is readable when there are bytes after the last [`Console::since`], or the console has
    /// closed. It serves callers that wait for other descriptors too.
    pub fn event(&self) -> BorrowedFd<'_> {
        self.shared.event.as_fd()
    }

    /// Returns the state, with the bytes that were on their way when this was called.
    fn settled(&self) -> MutexGuard<'_, State> {
        let state = self.shared.lock();
        let wanted = state.total + queued(&self.input);
        let missing = |state: &mut State| !state.closed && state.total < wanted;
        let waited = self
            .shared
            .changed
            .wait_timeout_while(state, SETTLE, missing);
        waited.unwrap_or_else(std::sync::PoisonError::into_inner).0
    }

    /// Waits until `text` is in the console's end; false if it is not within `timeout`, or the
    /// console closes before.
    pub fn wait_for(&self, text: &str, timeout: Duration) -> bool {
        let state = self.shared.lock();
        let missing =
            |state: &mut State| !state.closed && find(&state.tail, text.as_bytes()).is_none();
        let waited = self
            .shared
            .changed
            .wait_timeout_while(state, timeout, missing);
        let state = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        find(&state.tail, text.as_bytes()).is_some()
    }

    /// Types `bytes` on the console.
    pub fn write(&self, bytes: &[u8]) -> io::Result<()> {
        (&self.input).write_all(bytes)
    }

    /// Returns how long the console has been silent, if it has shown a kernel panic. A guest that still prints, however
    /// slowly, may not have reached its end.
    ///
    /// It serves kernels without a driver for the panic device. A program in the guest can print these words too.
    pub fn panicked_for(&self) -> Option<Duration> {
        Some(self.shared.lock().spoke_last?.elapsed())
    }

    /// Returns the reason why the log file is incomplete, if it is (no space, for example).
    pub fn log_error(&self) -> Option<String> {
        self.shared.lock().log_error.clone()
    }

    /// Waits until the reader has read the last bytes. The other end has to be closed.
    pub fn finish(&mut self) {
        if let Some(reader) = self.reader.take() {
            // It panics nowhere; if it did, the console would merely be shorter.
            let _ = reader.join();
        }
    }
}

fn find(text: &[u8], needle: &[u8]) -> Option<usize> {
    text.windows(needle.len().max(1))
        .position(|window| window == needle)
}

/// Returns how many bytes can be read from the stream.
fn queued(stream: &UnixStream) -> u64 {
    ioctl_fionread(stream).unwrap_or(0)
}

fn copy(mut from: UnixStream, log: File, shared: &Shared) {
    /// Time between two checks if no bytes arrive.
    const LONG: Duration = Duration::from_secs(3600);
    let mut chunk = [0; 16 * 1024];
    let mut log = Log::new(log);
    loop {
        let mut readable = [PollFd::new(&from, PollFlags::IN)];
        if !poll(&mut readable, Instant::now() + LONG).unwrap_or(true) {
            continue;
        }
        // Read under the lock: a thread that holds it finds each byte here or in the stream.
        let mut state = shared.lock();
        let count = match from.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        log.write(&chunk[..count]);
        if state.log_error.is_none() {
            state.log_error = log.error().map(str::to_owned);
        }
        if let Some(listener) = &mut state.listener {
            listener(&chunk[..count]);
        }
        let searched = state.tail.len().saturating_sub(PANIC.len());
        state.tail.extend_from_slice(&chunk[..count]);
        state.total += count as u64;
        if state.spoke_last.is_some() || find(&state.tail[searched..], PANIC).is_some() {
            state.spoke_last = Some(Instant::now());
        }
        if state.tail.len() > 2 * TAIL {
            let surplus = state.tail.len() - TAIL;
            state.tail.drain(..surplus);
        }
        drop(state);
        shared.tell();
    }
    shared.lock().closed = true;
    shared.tell();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn console() -> (Console, UnixStream) {
        let (ours, guest) = UnixStream::pair().unwrap();
        let log = File::options().write(true).open("/dev/null").unwrap();
        (Console::start(ours, log).unwrap(), guest)
    }

    #[test]
    fn the_end_is_kept_and_the_beginning_is_not() {
        let (mut console, mut guest) = console();
        for i in 0..40_000 {
            writeln!(guest, "line {i}").unwrap();
        }
        drop(guest);
        console.finish();
        assert!(console.tail().ends_with("line 39998\nline 39999\n"));
        assert_eq!(console.tail().len(), TAIL);
        let (bytes, next) = console.since(0);
        assert!(bytes.len() <= 2 * TAIL && next > 400_000);
        assert_eq!(console.since(next), (Vec::new(), next));
        assert_eq!(console.since(next - 6).0, b"39999\n");
        assert_eq!(console.since(u64::MAX), (Vec::new(), next));
    }

    #[test]
    fn what_was_put_on_it_is_there() {
        let (console, mut guest) = console();
        let mut at = 0;
        for i in 0..2000 {
            let line = format!("line {i}\n");
            guest.write_all(line.as_bytes()).unwrap();
            if i % 2 == 0 {
                assert!(console.tail().ends_with(&line));
                at = console.since(at).1;
            } else {
                let (bytes, next) = console.since(at);
                assert_eq!(bytes, line.as_bytes());
                at = next;
            }
        }
    }

    #[test]
    fn a_panic_is_seen_across_reads() {
        let (console, mut guest) = console();
        guest.write_all(b"[    1.0] Kernel panic - ").unwrap();
        assert!(console.wait_for("panic", Duration::from_secs(10)));
        assert_eq!(console.panicked_for(), None);
        guest.write_all(b"not syncing: VFS").unwrap();
        assert!(console.wait_for("VFS", Duration::from_secs(10)));
        assert!(console.panicked_for().is_some());
        // The message about it is not the end of the output.
        let (since, silent) = (Instant::now(), Duration::from_millis(50));
        std::thread::sleep(silent);
        assert!(console.panicked_for().unwrap() >= silent);
        guest.write_all(b": Call trace:").unwrap();
        assert!(console.wait_for("trace", Duration::from_secs(10)));
        let for_now = console.panicked_for().unwrap();
        assert!(for_now + silent <= since.elapsed(), "{for_now:?}");
    }

    #[test]
    fn waiting_ends_with_the_console() {
        let (console, guest) = console();
        assert!(!console.wait_for("never", Duration::from_millis(1)));
        drop(guest);
        assert!(!console.wait_for("never", Duration::from_secs(600)));
    }

    #[test]
    fn a_listener_misses_nothing() {
        let (mut console, mut guest) = console();
        guest.write_all(b"before").unwrap();
        assert!(console.wait_for("before", Duration::from_secs(10)));
        let heard = Arc::new(Mutex::new(Vec::new()));
        let theirs = Arc::clone(&heard);
        console.listen(|before| {
            assert_eq!(before, 6);
            Box::new(move |bytes| theirs.lock().unwrap().extend_from_slice(bytes))
        });
        let all: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
        guest.write_all(&all).unwrap();
        drop(guest);
        console.finish();
        assert!(*heard.lock().unwrap() == all);
    }

    #[test]
    fn a_full_disk_is_remembered() {
        let (ours, mut guest) = UnixStream::pair().unwrap();
        let log = File::options().write(true).open("/dev/full").unwrap();
        let mut console = Console::start(ours, log).unwrap();
        guest.write_all(b"text").unwrap();
        drop(guest);
        console.finish();
        assert_eq!(console.tail(), "text");
        assert!(console.log_error().is_some());
    }
}
