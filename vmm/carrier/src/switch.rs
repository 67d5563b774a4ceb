// SPDX-License-Identifier: GPL-2.0-only
//! Between the connections of clients and the one port of the carrier: frames, each to where it belongs.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{mpsc, Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use protocol::carrier::{encode, Decoder, Ended, Frame, Kind, WINDOW};
use rustix::event::{poll, PollFd, PollFlags, Timespec};

use crate::emulator::Emulator;
use crate::CarrierError;

/// Clients are not read while this many bytes wait for the port.
const PORT_OUTBOX: usize = 4 << 20;

/// A client has credit for two windows. One with more bytes waiting violates the protocol.
const CLIENT_OUTBOX: usize = 4 * WINDOW as usize;

/// Time between two attempts to accept a client while there is no descriptor for one.
const FULL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// Maximum time to tell a client that the carrier is lost.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The thread that moves frames. It ends when this is dropped, or with the carrier.
#[derive(Debug)]
pub(crate) struct Switch {
    orders: mpsc::Sender<Order>,
    /// Wakes the thread; closed, it ends it.
    wake: Option<UnixStream>,
    lost: Arc<Mutex<Option<String>>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
enum Order {
    Accept(UnixStream),
    Listen(UnixListener),
}

impl Switch {
    pub(crate) fn start(
        port: UnixStream,
        decoder: Decoder,
        emulator: Arc<Emulator>,
    ) -> Result<Self, CarrierError> {
        let (wake, woken) =
            UnixStream::pair().map_err(CarrierError::system("make a socket pair"))?;
        for socket in [&port, &woken] {
            socket
                .set_nonblocking(true)
                .map_err(CarrierError::system("set up a socket"))?;
        }
        let (orders, taken) = mpsc::channel();
        let lost = Arc::new(Mutex::new(None));
        let thread = std::thread::Builder::new().name("switch".into()).spawn({
            let lost = Arc::clone(&lost);
            move || {
                let mut state = State::new(port, decoder);
                if let Err(why) = state.run(&woken, &taken) {
                    let why = if why.is_empty() {
                        emulator.why_lost()
                    } else {
                        why
                    };
                    lock(&lost).replace(why.clone());
                    state.report_loss(&why, &taken);
                }
            }
        });
        Ok(Self {
            orders,
            wake: Some(wake),
            lost,
            thread: Some(thread.map_err(CarrierError::system("start the switch's thread"))?),
        })
    }

    pub(crate) fn accept(&self, client: UnixStream) -> Result<(), CarrierError> {
        client
            .set_nonblocking(true)
            .map_err(CarrierError::system("set up a connection"))?;
        self.order(Order::Accept(client))
    }

    pub(crate) fn listen(&self, listener: UnixListener) -> Result<(), CarrierError> {
        listener
            .set_nonblocking(true)
            .map_err(CarrierError::system("set up a socket"))?;
        self.order(Order::Listen(listener))
    }

    fn order(&self, order: Order) -> Result<(), CarrierError> {
        let wake = |mut wake: &UnixStream| wake.write_all(b"!").is_ok();
        if self.orders.send(order).is_ok() && self.wake.as_ref().is_some_and(wake) {
            return Ok(());
        }
        let why = self.lost().unwrap_or_else(|| "it has ended".into());
        Err(CarrierError::Lost(why))
    }

    pub(crate) fn lost(&self) -> Option<String> {
        lock(&self.lost).clone()
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.wake = None;
        if let Some(thread) = self.thread.take() {
            // The thread never panics; if it did, the clients' connections have closed all the same.
            let _ = thread.join();
        }
    }
}

fn lock(lost: &Mutex<Option<String>>) -> MutexGuard<'_, Option<String>> {
    lost.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
struct State {
    port: UnixStream,
    decoder: Decoder,
    out: Vec<u8>,
    listeners: Vec<UnixListener>,
    /// True if no client can be accepted now: there is no descriptor left.
    full: bool,
    clients: BTreeMap<u32, Client>,
    next: u32,
}

#[derive(Debug)]
struct Client {
    socket: UnixStream,
    decoder: Decoder,
    out: Vec<u8>,
    phase: Phase,
}

/// State of a client's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No request yet.
    New,
    /// The carrier has the request.
    Started,
    /// The last frame for the client is in its outbox.
    Ended,
    /// The client has ended.
    Closed,
}

impl State {
    fn new(port: UnixStream, decoder: Decoder) -> Self {
        Self {
            port,
            decoder,
            out: Vec::new(),
            listeners: Vec::new(),
            full: false,
            clients: BTreeMap::new(),
            next: 1,
        }
    }

    /// Runs until the carrier is dropped, and then returns without an error. An empty error means that the port has
    /// closed.
    fn run(&mut self, woken: &UnixStream, orders: &mpsc::Receiver<Order>) -> Result<(), String> {
        let mut chunk = vec![0; 64 << 10];
        loop {
            self.wait(woken);
            let mut wakes = woken;
            match wakes.read(&mut chunk) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if later(&error) => {}
                Err(_) => return Ok(()),
            }
            for order in orders.try_iter() {
                match order {
                    Order::Accept(client) => self.add(client),
                    Order::Listen(listener) => self.listeners.push(listener),
                }
            }
            self.accept();
            self.read_port(&mut chunk)?;
            self.read_clients(&mut chunk);
            self.write()?;
        }
    }

    fn wait(&self, woken: &UnixStream) {
        let mut waits: Vec<PollFd> = Vec::new();
        let mut wait = |fd, read: bool, write: bool| {
            let mut events = PollFlags::empty();
            events.set(PollFlags::IN, read);
            events.set(PollFlags::OUT, write);
            waits.push(PollFd::from_borrowed_fd(fd, events));
        };
        wait(woken.as_fd(), true, false);
        wait(self.port.as_fd(), true, !self.out.is_empty());
        // Clients that wait to be accepted would wake it without end.
        for listener in self.listeners.iter().filter(|_| !self.full) {
            wait(listener.as_fd(), true, false);
        }
        let room = self.out.len() < PORT_OUTBOX;
        for client in self.clients.values() {
            wait(client.socket.as_fd(), room, !client.out.is_empty());
        }
        // Interrupted, or out of memory: either passes, and nothing that is tried below waits.
        let _ = poll(&mut waits, self.full.then_some(&FULL));
    }

    fn add(&mut self, socket: UnixStream) {
        let client = Client {
            socket,
            decoder: Decoder::new(),
            out: Vec::new(),
            phase: Phase::New,
        };
        self.clients.insert(self.next, client);
        // Zero is the carrier's own.
        self.next = self.next.checked_add(1).unwrap_or(1);
    }

    fn accept(&mut self) {
        let mut sockets = Vec::new();
        self.full = false;
        for listener in &self.listeners {
            loop {
                match listener.accept() {
                    Ok((socket, _)) => {
                        if socket.set_nonblocking(true).is_ok() {
                            sockets.push(socket);
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                    Err(error) => {
                        self.full |= !later(&error);
                        break;
                    }
                }
            }
        }
        for socket in sockets {
            self.add(socket);
        }
    }

    fn read_port(&mut self, chunk: &mut [u8]) -> Result<(), String> {
        match self.port.read(chunk) {
            Ok(0) => return Err(String::new()),
            Ok(count) => self.decoder.push(&chunk[..count]),
            Err(error) if later(&error) => {}
            Err(_) => return Err(String::new()),
        }
        while let Some(frame) = self
            .decoder
            .next_frame()
            .map_err(|error| error.to_string())?
        {
            // The client may be gone.
            if let Some(client) = self.clients.get_mut(&frame.stream) {
                encode(&mut client.out, frame.kind, frame.stream, &frame.payload);
                if frame.kind == Kind::Exit {
                    client.phase = Phase::Ended;
                }
            }
        }
        Ok(())
    }

    fn read_clients(&mut self, chunk: &mut [u8]) {
        for (&stream, client) in &mut self.clients {
            if self.out.len() >= PORT_OUTBOX {
                break;
            }
            match client.socket.read(chunk) {
                Ok(0) => client.leave(stream, &mut self.out),
                Ok(count) => client.decoder.push(&chunk[..count]),
                Err(error) if later(&error) => {}
                Err(_) => client.leave(stream, &mut self.out),
            }
            while client.phase != Phase::Closed {
                match client.decoder.next_frame() {
                    Ok(Some(frame)) => client.take(frame, stream, &mut self.out),
                    Ok(None) => break,
                    Err(_) => client.leave(stream, &mut self.out),
                }
            }
        }
    }

    fn write(&mut self) -> Result<(), String> {
        if write_some(&mut self.port, &mut self.out).is_err() {
            return Err(String::new());
        }
        for (&stream, client) in &mut self.clients {
            if write_some(&mut client.socket, &mut client.out).is_err()
                || client.out.len() > CLIENT_OUTBOX
            {
                client.leave(stream, &mut self.out);
            }
            if client.phase == Phase::Ended && client.out.is_empty() {
                client.phase = Phase::Closed;
            }
        }
        self.clients
            .retain(|_, client| client.phase != Phase::Closed);
        Ok(())
    }

    /// Tells all clients that the carrier is lost, also those that connect only now.
    fn report_loss(&mut self, why: &str, orders: &mpsc::Receiver<Order>) {
        for order in orders.try_iter() {
            if let Order::Accept(client) = order {
                self.add(client);
            }
        }
        self.accept();
        let text = serde_json::to_vec(&Ended::Lost(why.into())).expect("plain data");
        for (&stream, client) in &mut self.clients {
            if client.phase != Phase::Ended {
                encode(&mut client.out, Kind::Exit, stream, &text);
            }
            let socket = &mut client.socket;
            let told = socket
                .set_nonblocking(false)
                .and_then(|()| socket.set_write_timeout(Some(LAST_WORDS)))
                .and_then(|()| socket.write_all(&client.out));
            // A client that does not read sees its connection close.
            drop(told);
        }
        self.clients.clear();
        self.listeners.clear();
    }
}

impl Client {
    fn take(&mut self, frame: Frame, stream: u32, out: &mut Vec<u8>) {
        let fits = match self.phase {
            Phase::New => frame.kind == Kind::Start,
            Phase::Started => frame.kind.to_carrier() && frame.kind != Kind::Start,
            // The carrier did not know it yet.
            Phase::Ended | Phase::Closed => return,
        };
        if !fits {
            return self.leave(stream, out);
        }
        self.phase = Phase::Started;
        encode(out, frame.kind, stream, &frame.payload);
    }

    fn leave(&mut self, stream: u32, out: &mut Vec<u8>) {
        if self.phase == Phase::Started {
            encode(out, Kind::Close, stream, &[]);
        }
        self.phase = Phase::Closed;
    }
}

fn later(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

/// Writes as much as can be written now.
fn write_some(socket: &mut UnixStream, out: &mut Vec<u8>) -> io::Result<()> {
    while !out.is_empty() {
        match socket.write(out) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => drop(out.drain(..count)),
            Err(error) if later(&error) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::thread::sleep;

    use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
    use rustix::time::{clock_gettime, ClockId};

    use super::*;

    const VARIABLE: &str = "FOLIOSCOPE_TEST_SWITCH";
    const DESCRIPTORS: u64 = 32;

    /// Returns the processor time of this process, in milliseconds; to ask for it takes no descriptor.
    fn milliseconds() -> i64 {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        time.tv_sec * 1000 + time.tv_nsec / 1_000_000
    }

    /// Creates more silent clients than there are descriptors, then frees one place.
    fn crowd(place: &std::path::Path) {
        let path = place.join("carrier.sock");
        let (port, _other) = UnixStream::pair().unwrap();
        let (wake, woken) = UnixStream::pair().unwrap();
        let listener = UnixListener::bind(&path).unwrap();
        for nonblocking in [&port, &woken] {
            nonblocking.set_nonblocking(true).unwrap();
        }
        listener.set_nonblocking(true).unwrap();
        let mut state = State::new(port, Decoder::new());
        state.listeners.push(listener);
        // Both ends are here: the clients have their descriptors before there are no more.
        let idle: Vec<_> = (0..DESCRIPTORS)
            .map(|_| UnixStream::connect(&path).unwrap())
            .collect();
        let limit = getrlimit(Resource::Nofile);
        let current = Some(DESCRIPTORS + 12);
        setrlimit(Resource::Nofile, Rlimit { current, ..limit }).unwrap();
        let (_orders, taken) = mpsc::channel();
        let thread = std::thread::spawn(move || state.run(&woken, &taken));
        sleep(Duration::from_millis(200));
        assert!(
            UnixListener::bind(place.join("another")).is_err(),
            "there are descriptors"
        );
        let before = milliseconds();
        sleep(Duration::from_secs(1));
        let spent = milliseconds() - before;
        assert!(spent < 200, "{spent} ms of a second");
        drop(idle);
        sleep(Duration::from_millis(300));
        let mut client = UnixStream::connect(&path).unwrap();
        client
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        client.write_all(&[0xff; 64]).unwrap();
        // It is accepted, and dropped for its request.
        assert!(matches!(client.read(&mut [0]), Ok(0) | Err(_)));
        assert!(!matches!(client.read(&mut [0]), Err(error) if later(&error)));
        drop(wake);
        assert_eq!(thread.join().unwrap(), Ok(()));
    }

    #[test]
    fn clients_without_number_take_no_time() {
        if let Some(place) = std::env::var_os(VARIABLE) {
            return crowd(std::path::Path::new(&place));
        }
        let place = std::env::temp_dir().join(format!("folioscope-switch-{}", std::process::id()));
        std::fs::create_dir(&place).unwrap();
        let name = "switch::tests::clients_without_number_take_no_time";
        let ended = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(VARIABLE, &place)
            .status();
        std::fs::remove_dir_all(&place).unwrap();
        assert!(ended.unwrap().success());
    }
}
