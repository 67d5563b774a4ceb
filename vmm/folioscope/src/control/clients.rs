//! Who asks: one client on standard input and output, or several on a socket.
//!
//! A guest belongs to the thread that started its machine. So each client of a socket has a thread that reads its lines
//! and writes its answers, and hands each request over to that one thread, one at a time: a client that does not read
//! stops its own thread alone.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{channel, sync_channel, Receiver, Sender, SyncSender};
use std::time::Duration;

use protocol::{Command, Operation, ProcessId};
use serde::Serialize;

use super::answer::{errors, Answer, Came, Greeting, Ready, Report};
use super::failure::Failure;
use super::keep::keep;
use super::line;
use super::obey::obey;
use super::request::{Call, Request};
use crate::guest::Guest;
use crate::Error;

/// Which client; never used twice.
type ClientId = u64;

/// A guest that serves.
#[derive(Debug)]
pub struct Server<'g> {
    guest: &'g mut Guest,
    /// Where a bundle goes.
    out: &'g Path,
    /// Which client asked for a process to be held.
    holders: BTreeMap<ProcessId, ClientId>,
    /// Whether the guest is gone, or has not answered.
    lost: bool,
    /// Whether it was told that the console's log is incomplete.
    told: bool,
}

/// What a client is told, and whether that was the last of it.
struct Said {
    line: String,
    last: bool,
}

impl<'g> Server<'g> {
    /// Over a guest that is up; `out` is where a bundle of it goes if it is lost.
    pub fn new(guest: &'g mut Guest, out: &'g Path) -> Self {
        Self {
            guest,
            out,
            holders: BTreeMap::new(),
            lost: false,
            told: false,
        }
    }

    fn greeting(&self) -> String {
        json(&Greeting::Ready(Box::new(Ready::of(self.guest))))
    }

    /// Does what a line asks.
    fn answer(&mut self, client: ClientId, line: &str) -> Said {
        let (id, result, last) = match Request::read(line) {
            Err(unread) => {
                let failure = Failure::bad_request(unread.why);
                (unread.id, Came::Error(failure), false)
            }
            Ok(request) => {
                let last = matches!(request.call, Call::Quit(_));
                let id = Some(request.id);
                match self.obey(client, request) {
                    Ok(done) => (id, Came::Ok(Box::new(done)), last),
                    Err(error) => (id, Came::Error(Failure::from(&error)), last),
                }
            }
        };
        Said {
            line: json(&Answer {
                id,
                result,
                findings: errors(&self.guest.take_rest()),
                voice: self.voice(),
            }),
            last,
        }
    }

    /// What the kernel has reported since the answer before; and once, that not all of it is known.
    fn voice(&mut self) -> Vec<Report> {
        let mut voice: Vec<Report> = self.guest.voice().into_iter().map(Into::into).collect();
        if let (Some(why), false) = (self.guest.unheard(), self.told) {
            self.told = true;
            voice.push(Report {
                lines: vec![why.clone()],
                headline: why,
                at_us: None,
            });
        }
        voice
    }

    fn obey(&mut self, client: ClientId, request: Request) -> Result<super::answer::Done, Error> {
        let concerns = self.check_holder(client, &request.call)?;
        let deadline = Duration::from_millis(request.deadline_ms);
        let done = obey(self.guest, request.call, deadline).map_err(|error| {
            if error.lost() {
                self.lost = true;
                keep(self.guest, self.out, error)
            } else {
                error
            }
        })?;
        match concerns {
            Some(Hold::Begins(process)) => drop(self.holders.insert(process, client)),
            Some(Hold::Ends(process)) => drop(self.holders.remove(&process)),
            None => {}
        }
        Ok(done)
    }

    /// What a request does to who holds what; one client does not let go on what another one looks at.
    fn check_holder(&self, client: ClientId, call: &Call) -> Result<Option<Hold>, Error> {
        let (process, hold) = match call {
            Call::Hold(of) => (of.process, Some(Hold::Begins(of.process))),
            Call::Release(of) => (of.process, Some(Hold::Ends(of.process))),
            Call::Look(at) => (at.process, None),
            Call::Command(passed) => match &passed.command {
                Command::Kill { process } => (*process, Some(Hold::Ends(*process))),
                Command::Release { process } => (*process, Some(Hold::Ends(*process))),
                Command::Op { process, op } => {
                    let ends = matches!(op, Operation::Exit { .. });
                    (*process, ends.then_some(Hold::Ends(*process)))
                }
                _ => return Ok(None),
            },
            _ => return Ok(None),
        };
        match self.holders.get(&process) {
            Some(holder) if *holder != client => Err(Error::Input(format!(
                "another client of this guest holds {process}; it can be used when that one releases it or goes away"
            ))),
            _ => Ok(hold),
        }
    }

    /// A client has gone away: what it held goes on.
    fn gone(&mut self, client: ClientId) {
        let mine: Vec<ProcessId> = self
            .holders
            .iter()
            .filter(|(_, holder)| **holder == client)
            .map(|(process, _)| *process)
            .collect();
        for process in mine {
            self.holders.remove(&process);
            // Where it cannot, whoever asks for it next is told; a guest that hangs is not waited for.
            if !self.lost {
                let _ = self.guest.release(process);
            }
        }
    }
}

/// What a request does to a process's wait.
enum Hold {
    Begins(ProcessId),
    Ends(ProcessId),
}

/// A line's text. Nothing here has keys that are no strings, so it cannot fail.
#[must_use]
pub fn json(line: &impl Serialize) -> String {
    serde_json::to_string(line).unwrap_or_default() + "\n"
}

/// Serves one client until its input ends. The guest is the caller's to drop.
///
/// # Errors
/// Where the input or output fails.
pub fn serve(
    server: &mut Server<'_>,
    mut input: impl BufRead,
    mut output: impl Write,
) -> io::Result<()> {
    const ONLY: ClientId = 0;
    let mut write = |text: String| {
        output.write_all(text.as_bytes())?;
        output.flush()
    };
    write(server.greeting())?;
    while let Some(line) = line::next(&mut input)? {
        let said = server.answer(ONLY, &line);
        write(said.line)?;
        if said.last {
            break;
        }
    }
    server.gone(ONLY);
    Ok(())
}

/// What the thread of the guest is told.
enum News {
    /// A client came, and gets the greeting.
    Came(SyncSender<Said>),
    /// A client asks.
    Asks(ClientId, String, SyncSender<Said>),
    /// A client went away.
    Gone(ClientId),
    /// No more clients can come.
    Deaf(io::Error),
}

/// Serves whoever connects, several at once, for as long as somebody can.
///
/// # Errors
/// Where no connection can be accepted any more.
pub fn listen(server: &mut Server<'_>, listener: UnixListener) -> Result<(), Error> {
    let (news, heard) = channel();
    std::thread::spawn(move || accept(&listener, &news));
    loop {
        match heard.recv() {
            Ok(News::Came(to)) => {
                let line = server.greeting();
                let _ = to.send(Said { line, last: false });
            }
            // There is room for one answer, and a client has one request at a time: this never waits.
            Ok(News::Asks(client, line, to)) => drop(to.send(server.answer(client, &line))),
            Ok(News::Gone(client)) => server.gone(client),
            Ok(News::Deaf(error)) => return Err(Error::io("accept a connection")(error)),
            Err(_) => return Ok(()),
        }
    }
}

fn accept(listener: &UnixListener, news: &Sender<News>) {
    for client in 1.. {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) => {
                let _ = news.send(News::Deaf(error));
                return;
            }
        };
        let news = news.clone();
        std::thread::spawn(move || {
            // One that goes away in the middle of an answer is no reason to end.
            if let Err(error) = converse(client, &stream, &news) {
                eprintln!("folioscope: a connection ended early: {error}");
            }
            let _ = news.send(News::Gone(client));
        });
    }
}

/// One client's thread.
fn converse(client: ClientId, stream: &UnixStream, news: &Sender<News>) -> io::Result<()> {
    let (to, answers): (SyncSender<Said>, Receiver<Said>) = sync_channel(1);
    let mut input = BufReader::new(stream);
    let mut output = stream;
    let over = || io::Error::other("the guest is no longer served");
    news.send(News::Came(to.clone())).map_err(|_| over())?;
    output.write_all(answers.recv().map_err(|_| over())?.line.as_bytes())?;
    while let Some(line) = line::next(&mut input)? {
        let asks = News::Asks(client, line, to.clone());
        news.send(asks).map_err(|_| over())?;
        let said = answers.recv().map_err(|_| over())?;
        output.write_all(said.line.as_bytes())?;
        if said.last {
            break;
        }
    }
    Ok(())
}
