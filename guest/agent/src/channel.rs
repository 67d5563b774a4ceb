//! The control channel: finding it, and lines through it.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use protocol::{Channel, LineDecoder, LineError, Message, PORT_NAME};
use rustix::io::Errno;
use rustix::termios::{tcdrain, tcgetattr, tcsetattr, ControlModes, OptionalActions};

use crate::sys;

/// Maximum time until an existing virtio console shows the port.
const PORT_PATIENCE: Duration = Duration::from_secs(3);

/// The kernel parameter that decides: `virtio`, `uart`, or the path of a character device.
const PARAMETER: &str = "folioscope.channel=";

/// The second UART, a PL011 or a 16550: the first is the console.
const UARTS: [&str; 2] = ["/dev/ttyAMA1", "/dev/ttyS1"];

/// virtio's number of a console device.
const VIRTIO_CONSOLE: &str = "0x0003";

/// An open channel.
#[derive(Debug)]
pub struct Endpoint {
    /// Kind of the channel.
    pub kind: Channel,
    read: OwnedFd,
    write: OwnedFd,
}

/// Finds the channel. Without one the agent has nothing to do: it panics, and so switches the machine off.
pub fn find() -> Endpoint {
    let cmdline = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let wanted = parameter(&cmdline);
    let endpoint = match wanted {
        Some("uart") => second_uart(),
        Some("virtio") => virtio(Path::new("/sys"), PORT_PATIENCE),
        Some(path) if path.starts_with('/') => uart(path),
        Some(other) => panic!("{PARAMETER}{other}: virtio, uart or a device's path can stand here"),
        None => {
            let patience = virtio_patience(Path::new("/sys"));
            virtio(Path::new("/sys"), patience).or_else(|_| second_uart())
        }
    };
    endpoint.unwrap_or_else(|why| {
        panic!(
            "no control channel: {why}. The machine needs a virtio serial port named {PORT_NAME}, \
             or a second UART ({}), and a kernel with its driver built in",
            UARTS.join(", ")
        )
    })
}

fn parameter(cmdline: &str) -> Option<&str> {
    cmdline
        .split_whitespace()
        .rev()
        .find_map(|word| word.strip_prefix(PARAMETER))
}

/// Returns how long to wait for the port: not at all without the driver or the device.
fn virtio_patience(sys: &Path) -> Duration {
    let driver = sys.join("bus/virtio/drivers/virtio_console").exists();
    let device = fs::read_dir(sys.join("bus/virtio/devices")).is_ok_and(|devices| {
        devices.flatten().any(|device| {
            fs::read_to_string(device.path().join("device"))
                .is_ok_and(|id| id.trim() == VIRTIO_CONSOLE)
        })
    });
    if driver && device {
        PORT_PATIENCE
    } else {
        Duration::ZERO
    }
}

fn virtio(sys: &Path, patience: Duration) -> Result<Endpoint, String> {
    let until = Instant::now() + patience;
    loop {
        if let Some(device) = port_device(&sys.join("class/virtio-ports")) {
            let path = format!("/dev/{device}");
            return match sys::open(&path, libc::O_RDWR | libc::O_NONBLOCK) {
                Ok(fd) => Ok(Endpoint::new(Channel::Virtio, fd)),
                Err(failure) => Err(failure.to_string()),
            };
        }
        if Instant::now() >= until {
            return Err(format!("no virtio serial port is named {PORT_NAME}"));
        }
        sys::sleep_ms(2);
    }
}

/// Returns the device name (`vport0p1`) of the port that has our name.
fn port_device(class: &Path) -> Option<String> {
    fs::read_dir(class).ok()?.flatten().find_map(|port| {
        let name = fs::read_to_string(port.path().join("name")).ok()?;
        (name.trim_end() == PORT_NAME).then(|| port.file_name().to_string_lossy().into_owned())
    })
}

fn second_uart() -> Result<Endpoint, String> {
    let mut reasons = Vec::new();
    for path in UARTS {
        match uart(path) {
            Ok(endpoint) => return Ok(endpoint),
            Err(why) => reasons.push(why),
        }
    }
    Err(reasons.join(", "))
}

fn uart(path: &str) -> Result<Endpoint, String> {
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_NONBLOCK;
    let fd = sys::open(path, flags).map_err(|failure| failure.to_string())?;
    let failed = |call: &str, error: Errno| {
        sys::errno(error.raw_os_error(), format!("{call} {path}")).to_string()
    };
    let mut line = tcgetattr(&fd).map_err(|error| failed("tcgetattr", error))?;
    line.make_raw();
    // With flow control the driver stops reading when the line discipline is full, and QEMU then
    // holds the host's bytes back; without it, bytes of a long request would be lost.
    line.control_modes |= ControlModes::CLOCAL | ControlModes::CREAD | ControlModes::CRTSCTS;
    tcsetattr(&fd, OptionalActions::Now, &line).map_err(|error| failed("tcsetattr", error))?;
    Ok(Endpoint::new(Channel::Uart, fd))
}

impl Endpoint {
    fn new(kind: Channel, fd: OwnedFd) -> Self {
        let write = fd.try_clone().expect("a descriptor can be duplicated");
        Self {
            kind,
            read: fd,
            write,
        }
    }

    /// Uses standard input and output.
    pub fn stdio() -> Self {
        // Nothing else in the program uses the two: its log is on standard error.
        let own = |fd: BorrowedFd<'_>| {
            fd.try_clone_to_owned()
                .expect("a descriptor can be duplicated")
        };
        let (read, write) = (
            own(std::io::stdin().as_fd()),
            own(std::io::stdout().as_fd()),
        );
        sys::set_nonblocking(read.as_fd());
        sys::set_nonblocking(write.as_fd());
        Self {
            kind: Channel::Stdio,
            read,
            write,
        }
    }
}

/// An event of the channel.
#[derive(Debug)]
pub enum Incoming {
    /// A line, or bytes that are none.
    Line(Result<String, LineError>),
    /// A host has connected where there was none. It has seen none of the earlier messages.
    Connected,
    /// The other end is closed and stays so (standard input only).
    End,
}

/// The channel at work.
#[derive(Debug)]
pub struct Lines {
    endpoint: Endpoint,
    decoder: LineDecoder,
    queue: Vec<u8>,
    away: bool,
}

impl Lines {
    /// Starts with nothing sent and nothing received.
    pub fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            decoder: LineDecoder::new(),
            queue: Vec::new(),
            away: false,
        }
    }

    /// Returns which channel it is.
    pub fn kind(&self) -> Channel {
        self.endpoint.kind
    }

    /// Returns whether no host is connected (virtio only): then the descriptor is always ready, and must be looked at
    /// now and then instead of waited for.
    pub fn is_away(&self) -> bool {
        self.away
    }

    /// Returns what to wait for.
    pub fn poll_for(&self) -> [(BorrowedFd<'_>, i16); 2] {
        let out = if self.queue.is_empty() {
            0
        } else {
            libc::POLLOUT
        };
        [
            (self.endpoint.read.as_fd(), libc::POLLIN),
            (self.endpoint.write.as_fd(), out),
        ]
    }

    /// Sends a message, or as much of it as the channel takes now.
    pub fn send(&mut self, message: &Message) -> Result<(), protocol::TooLong> {
        let line = protocol::encode(message)?;
        if !self.away {
            self.queue.extend_from_slice(&line);
            self.flush();
        }
        Ok(())
    }

    /// Sends bytes that could not be sent before.
    pub fn flush(&mut self) {
        let mut sent = 0;
        while sent < self.queue.len() {
            match sys::write(self.endpoint.write.as_fd(), &self.queue[sent..]) {
                Ok(Some(n)) => sent += n,
                Ok(None) => break,
                Err(error) => {
                    sys::log(format_args!("the channel takes nothing: {error}"));
                    sent = self.queue.len();
                }
            }
        }
        self.queue.drain(..sent);
    }

    /// Waits until all bytes were sent, for a moment at most.
    pub fn drain(&mut self) {
        let until = Instant::now() + Duration::from_secs(2);
        while !self.queue.is_empty() && Instant::now() < until {
            sys::sleep_ms(1);
            self.flush();
        }
        if self.endpoint.kind == Channel::Uart {
            // Bytes that cannot be drained are lost either way.
            let _ = tcdrain(&self.endpoint.write);
        }
        sys::sleep_ms(20);
    }

    /// Handles the result of the last poll of the reading end, and reads the available bytes.
    pub fn receive(&mut self, revents: i16) -> Vec<Incoming> {
        let mut incoming = Vec::new();
        let hung_up = revents & libc::POLLHUP != 0;
        if self.endpoint.kind == Channel::Virtio && hung_up != self.away {
            self.away = hung_up;
            if hung_up {
                // A partial line that the last host left in the port must not join the next host's.
                self.fill();
                self.decoder.reset();
                self.queue.clear();
            } else {
                incoming.push(Incoming::Connected);
            }
        }
        if revents & (libc::POLLIN | libc::POLLHUP) != 0 && !self.away {
            let ended = self.fill();
            while let Some(line) = self.decoder.next_line() {
                incoming.push(Incoming::Line(line));
            }
            if ended && self.endpoint.kind == Channel::Stdio {
                incoming.extend(self.decoder.cut().map(|error| Incoming::Line(Err(error))));
                incoming.push(Incoming::End);
            }
        }
        incoming
    }

    /// Reads all that is there, within reason; true at the end of the input.
    fn fill(&mut self) -> bool {
        let mut buffer = vec![0; 32 << 10];
        for _ in 0..64 {
            match sys::read(self.endpoint.read.as_fd(), &mut buffer) {
                Ok(Some(0)) => return true,
                Ok(Some(n)) => self.decoder.push(&buffer[..n]),
                Ok(None) => return false,
                Err(error) => {
                    if error.kind() != io::ErrorKind::WouldBlock {
                        sys::log(format_args!("the channel cannot be read: {error}"));
                    }
                    return true;
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_parameter_counts() {
        assert_eq!(parameter("console=ttyAMA0 quiet\n"), None);
        assert_eq!(parameter("a folioscope.channel=uart b\n"), Some("uart"));
        assert_eq!(
            parameter("folioscope.channel=uart folioscope.channel=/dev/hvc0"),
            Some("/dev/hvc0")
        );
    }

    #[test]
    fn the_port_is_found_by_its_name() {
        let class = std::env::temp_dir().join(format!("folioscope-ports-{}", std::process::id()));
        for (port, name) in [
            ("vport0p1", "com.example.0\n"),
            ("vport0p2", "org.folioscope.agent.0\n"),
        ] {
            fs::create_dir_all(class.join(port)).unwrap();
            fs::write(class.join(port).join("name"), name).unwrap();
        }
        fs::create_dir_all(class.join("vport1p0")).unwrap();
        assert_eq!(port_device(&class).as_deref(), Some("vport0p2"));
        fs::remove_dir_all(&class).unwrap();
        assert_eq!(port_device(&class), None);
    }
}
