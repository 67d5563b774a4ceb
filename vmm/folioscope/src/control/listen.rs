// SPDX-License-Identifier: GPL-2.0-only
//! Several clients on a socket.
//!
//! A guest belongs to the thread that started its machine. Each client of a socket therefore has a thread that reads
//! its lines and writes its answers, and passes each request to that one thread, one at a time. A client that does not
//! read stops its own thread alone. Each client costs a descriptor and a thread, so their number is limited, and a
//! client beyond it gets an error.

use std::fs::File;
use std::io::{self, BufReader, IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{channel, sync_channel, Receiver, Sender, SyncSender};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{recvmsg, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use rustix::process::{getrlimit, Resource};

use super::answer::Greeting;
use super::clients::{json, no_request, ClientId, ClientLine, Server};
use super::failure::Failure;
use super::line::{self, Line};
use crate::Error;

/// The most clients at once.
const MOST_CLIENTS: usize = 128;

/// Descriptors that are left to the guest's own work: the files of a core, a bundle, a look.
const SPARE: usize = 16;

/// Time between two attempts to get a descriptor from this process or the system.
const WAIT: Duration = Duration::from_millis(100);

/// Maximum time for a refused client to read the refusal.
const REFUSAL: Duration = Duration::from_secs(1);

/// A message to the thread of the guest.
enum Notice {
    /// A client's request.
    Request(ClientId, String, Option<File>, SyncSender<ClientLine>),
    /// A client went away.
    Closed(ClientId),
    /// No more clients can connect.
    ListenerFailed(io::Error),
}

/// Serves all clients that connect, several at once, as long as the socket exists. No client can end it: one for which
/// there is no descriptor waits, or gets an error.
///
/// # Errors
/// If the socket itself cannot be used any more.
pub fn listen(server: &mut Server<'_>, listener: UnixListener) -> Result<(), Error> {
    let (news, heard) = channel();
    // Each client's own thread sends its greeting, so that it gets one while another's request takes its time.
    let greeting: Arc<str> = server.greeting().into();
    let places = Places::new(room());
    let waits = std::thread::Builder::new().name("accept".into());
    waits
        .spawn(move || accept(&listener, &greeting, &places, &news))
        .map_err(Error::io("start a thread"))?;
    loop {
        match heard.recv() {
            // There is room for one answer, and a client has one request at a time: this never waits.
            Ok(Notice::Request(client, line, given, to)) => {
                drop(to.send(server.answer(client, &line, given)));
            }
            Ok(Notice::Closed(client)) => server.client_closed(client),
            Ok(Notice::ListenerFailed(error)) => {
                return Err(Error::io("accept a connection")(error))
            }
            Err(_) => return Ok(()),
        }
    }
}

/// Returns the number of clients for which there are descriptors.
fn room() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let open = std::fs::read_dir("/proc/self/fd").map_or(SPARE, Iterator::count);
    limit.saturating_sub(open + SPARE).clamp(1, MOST_CLIENTS)
}

/// The places for clients.
#[derive(Clone)]
struct Places {
    taken: Arc<AtomicUsize>,
    all: usize,
}

/// A client's place, free again when it is dropped.
struct Place(Arc<AtomicUsize>);

impl Places {
    fn new(all: usize) -> Self {
        let taken = Arc::default();
        Self { taken, all }
    }

    fn take(&self) -> Option<Place> {
        let more = |taken| (taken < self.all).then_some(taken + 1);
        let taken = (self.taken).fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
        taken.ok().map(|_| Place(Arc::clone(&self.taken)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn accept(listener: &UnixListener, greeting: &Arc<str>, places: &Places, news: &Sender<Notice>) {
    for client in 1.. {
        let stream = match next(|| listener.accept()) {
            Ok((stream, _)) => Arc::new(stream),
            Err(error) => {
                let _ = news.send(Notice::ListenerFailed(error));
                return;
            }
        };
        let Some(place) = places.take() else {
            let all = places.all;
            refuse(&stream, format!("this guest has {all} clients, which is as many as it serves at once here; end one of them, or try again later"));
            continue;
        };
        let theirs = (Arc::clone(&stream), Arc::clone(greeting), news.clone());
        let thread = std::thread::Builder::new().name(format!("client{client}"));
        let started = thread.spawn(move || {
            let (stream, greeting, news) = theirs;
            // A client that closes in the middle of a line or an answer is neither an end nor an error.
            let _ = serve_client(client, &stream, &greeting, &news);
            let _ = news.send(Notice::Closed(client));
            drop(place);
        });
        if let Err(error) = started {
            refuse(&stream, format!("this guest cannot serve one more client now ({error}); end another one, or try again later"));
        }
    }
}

/// Accepts the next connection. It waits for temporary errors to pass: a client that has closed again, and a lack of
/// descriptors or of memory.
///
/// # Errors
/// If the error is permanent: this is no listening socket.
fn next<T>(mut accept: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        let error = match accept() {
            Ok(connection) => return Ok(connection),
            Err(error) => error,
        };
        match error.raw_os_error() {
            Some(libc::EBADF | libc::EINVAL | libc::ENOTSOCK | libc::EOPNOTSUPP | libc::EFAULT) => {
                return Err(error)
            }
            Some(libc::EINTR | libc::ECONNABORTED) => {}
            _ => std::thread::sleep(WAIT),
        }
    }
}

/// Tells a client that it is not served.
fn refuse(mut stream: &UnixStream, why: String) {
    let line = json(&Greeting::Error(Failure::busy(why)));
    let _ = stream.set_write_timeout(Some(REFUSAL));
    let _ = stream.write_all(line.as_bytes());
}

/// Input of a client: lines, and sometimes a file with one.
struct Input<'s> {
    stream: &'s UnixStream,
    /// The first file of the last message that had one, until a request takes it. Others are closed, here or by the
    /// kernel.
    given: Option<File>,
}

impl io::Read for Input<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = RecvAncillaryBuffer::new(&mut room);
        let buffer = &mut [IoSliceMut::new(buffer)];
        let got = recvmsg(self.stream, buffer, &mut beside, RecvFlags::CMSG_CLOEXEC)?;
        for message in beside.drain() {
            if let RecvAncillaryMessage::ScmRights(mut files) = message {
                self.given = files.next().map(File::from);
            }
        }
        Ok(got.bytes)
    }
}

/// Returns one client's thread.
fn serve_client(
    client: ClientId,
    stream: &UnixStream,
    greeting: &str,
    news: &Sender<Notice>,
) -> io::Result<()> {
    let (to, answers): (SyncSender<ClientLine>, Receiver<ClientLine>) = sync_channel(1);
    let mut input = BufReader::new(Input {
        stream,
        given: None,
    });
    let mut output = stream;
    let over = || io::Error::other("the guest is no longer served");
    output.write_all(greeting.as_bytes())?;
    while let Some(line) = line::next(&mut input)? {
        let text = match line {
            Line::Text(text) => text,
            Line::NoText(why) => {
                output.write_all(no_request(why).as_bytes())?;
                continue;
            }
            Line::TooLong(why) => {
                output.write_all(no_request(why).as_bytes())?;
                break;
            }
        };
        let given = input.get_mut().given.take();
        let asks = Notice::Request(client, text, given, to.clone());
        news.send(asks).map_err(|_| over())?;
        let said = answers.recv().map_err(|_| over())?;
        output.write_all(said.line.as_bytes())?;
        if said.last {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_waited_out() {
        let errors = [
            libc::EMFILE,
            libc::ENFILE,
            libc::ECONNABORTED,
            libc::EINTR,
            libc::ENOBUFS,
            libc::ENOMEM,
            libc::EPERM,
        ];
        let mut errors = errors.iter();
        let taken = next(|| match errors.next() {
            Some(&number) => Err(io::Error::from_raw_os_error(number)),
            None => Ok(7),
        });
        assert_eq!(taken.unwrap(), 7);
        let over = next(|| Err::<(), _>(io::Error::from_raw_os_error(libc::EBADF)));
        assert!(over.is_err());
    }

    #[test]
    fn a_place_is_free_again_when_its_client_goes() {
        let places = Places::new(2);
        let (one, _two) = (places.take().unwrap(), places.take().unwrap());
        assert!(places.take().is_none());
        drop(one);
        assert!(places.take().is_some());
        assert!((1..=MOST_CLIENTS).contains(&room()));
    }
}
