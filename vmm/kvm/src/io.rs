//! The thread that waits for the host's ends of the devices' streams.
//!
//! A device never waits. When it has something for the host that the host does not take yet, or wants what
//! the host may have, this thread polls for it. A CPU that changes what a device wants wakes the thread.

use std::io::{ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vmm_sys_util::eventfd::EventFd;

use crate::device::{MmioDevice, Uart, VirtioConsole};

/// How long the end of a line is waited for, in milliseconds.
const LINGER: libc::c_int = 10;

/// What a device wants of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wants {
    /// It would take bytes.
    input: bool,
    /// It has bytes that the host would not take.
    output: bool,
    /// It has bytes that more may soon follow.
    lingers: bool,
}

/// A device with a stream to the host.
pub(crate) trait HostSide: MmioDevice {
    /// What it wants of the host now.
    fn wants(&self) -> Wants;

    /// The host has sent something, on `stream` or on the device's own end of it. False at its end.
    fn readable(&mut self, stream: &UnixStream) -> bool;

    /// The host takes more.
    fn writable(&mut self);
}

impl HostSide for Uart {
    fn wants(&self) -> Wants {
        Wants {
            input: self.wants_input(),
            output: self.wants_output(),
            lingers: self.lingers(),
        }
    }

    fn readable(&mut self, mut stream: &UnixStream) -> bool {
        // No more than it certainly takes.
        let mut byte = [0; 1];
        while self.wants_input() {
            match stream.read(&mut byte) {
                Ok(0) => return false,
                Ok(_) => drop(self.receive(&byte)),
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
        true
    }

    fn writable(&mut self) {
        self.host_writable();
    }
}

impl HostSide for VirtioConsole {
    fn wants(&self) -> Wants {
        Wants {
            input: self.wants_input(),
            output: self.wants_output(),
            lingers: false,
        }
    }

    fn readable(&mut self, _: &UnixStream) -> bool {
        self.host_readable();
        true
    }

    fn writable(&mut self) {
        self.host_writable();
    }
}

/// A device on the bus that wakes the thread when it wants something else than before.
#[derive(Debug)]
pub(crate) struct Watched<D> {
    device: D,
    wake: Arc<EventFd>,
    /// What the thread knows that it wants, or is woken to learn.
    wanted: Wants,
}

impl<D: HostSide> Watched<D> {
    pub(crate) fn new(device: D, wake: &Arc<EventFd>) -> Self {
        Self {
            device,
            wake: Arc::clone(wake),
            wanted: Wants::default(),
        }
    }

    /// Does something with the device, and wakes the thread if that changes what it wants.
    pub(crate) fn with<T>(&mut self, act: impl FnOnce(&mut D) -> T) -> T {
        let result = act(&mut self.device);
        let wants = self.device.wants();
        if self.wanted != wants {
            self.wanted = wants;
            // It can fail only where the count is full, and then the thread is awake.
            let _ = self.wake.write(1);
        }
        result
    }

    /// The same where the thread need not know: it finds out if the host sends something.
    pub(crate) fn quietly<T>(&mut self, act: impl FnOnce(&mut D) -> T) -> T {
        act(&mut self.device)
    }
}

impl<D: HostSide> MmioDevice for Watched<D> {
    fn read(&mut self, offset: u64, data: &mut [u8]) {
        self.with(|device| device.read(offset, data));
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        self.with(|device| device.write(offset, data));
    }
}

/// The same, whatever the device is.
trait Pollable: Send {
    /// What the thread is about to poll for.
    fn wants(&mut self) -> Wants;
    fn serve(&mut self, stream: &UnixStream, revents: i16) -> bool;
}

impl<D: HostSide> Pollable for Watched<D> {
    fn wants(&mut self) -> Wants {
        self.wanted = self.device.wants();
        self.wanted
    }

    fn serve(&mut self, stream: &UnixStream, revents: i16) -> bool {
        self.with(|device| {
            if revents & libc::POLLOUT != 0 {
                device.writable();
            }
            let ready = revents & (libc::POLLIN | libc::POLLHUP | libc::POLLERR) != 0;
            !ready || device.readable(stream)
        })
    }
}

/// A device and a handle of its stream.
pub(crate) struct Lane {
    stream: UnixStream,
    device: Arc<Mutex<dyn Pollable>>,
    /// Whether anything can still come or go.
    open: bool,
}

impl Lane {
    /// `stream` is the device's own end.
    pub(crate) fn new<D: HostSide + 'static>(
        stream: UnixStream,
        device: &Arc<Mutex<Watched<D>>>,
    ) -> Self {
        Self {
            stream,
            device: Arc::clone(device) as _,
            open: true,
        }
    }

    fn device(&self) -> MutexGuard<'_, dyn Pollable + 'static> {
        // What a device holds is plain data.
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The body of the thread: serves `lanes` until `quit` is set and `wake` written to.
pub(crate) fn run(mut lanes: Vec<Lane>, wake: &EventFd, quit: &AtomicBool) {
    while !quit.load(Ordering::Acquire) {
        let mut timeout = -1;
        let lane = |lane: &Lane| {
            let wants = lane.device().wants();
            let mut events = 0;
            if wants.input {
                events |= libc::POLLIN;
            }
            if wants.output {
                events |= libc::POLLOUT;
            } else if wants.lingers {
                timeout = LINGER;
            }
            // A stream that nobody wants anything of is left out: its end would be told for ever.
            let fd = if lane.open && events != 0 {
                lane.stream.as_raw_fd()
            } else {
                -1
            };
            libc::pollfd {
                fd,
                events,
                revents: 0,
            }
        };
        let woken = libc::pollfd {
            fd: wake.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let mut fds: Vec<libc::pollfd> = lanes.iter().map(lane).chain([woken]).collect();
        // SAFETY: pointer and count are those of one vector.
        let ready = unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout) };
        if ready < 0 {
            // Interrupted, or out of memory: either passes.
            continue;
        }
        if ready == 0 {
            for lane in lanes.iter().filter(|lane| lane.device().wants().lingers) {
                lane.device().serve(&lane.stream, libc::POLLOUT);
            }
            continue;
        }
        if fds[lanes.len()].revents != 0 {
            // What it counted does not matter.
            let _ = wake.read();
        }
        for (lane, polled) in lanes.iter_mut().zip(&fds) {
            if polled.revents != 0 {
                let serves = lane.device().serve(&lane.stream, polled.revents);
                // A virtio device keeps its end's end to itself; poll tells it too.
                lane.open = serves && polled.revents & (libc::POLLHUP | libc::POLLERR) == 0;
            }
        }
    }
}
