// SPDX-License-Identifier: GPL-2.0-only
//! The thread that polls the host's ends of the devices' streams.
//!
//! A device never waits. If it has bytes that the host does not take yet, or accepts bytes from the host, this thread
//! polls for it. A CPU that changes these needs of a device wakes the thread.

use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{poll, PollFd, PollFlags, Timespec};

use crate::device::{MmioDevice, Uart, VirtioConsole};

/// Maximum wait for the end of a line.
const LINGER: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 10_000_000,
};

/// The events of the host for which a device waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wants {
    /// It accepts bytes.
    input: bool,
    /// It has bytes that the host did not take.
    output: bool,
    /// It has bytes that more may soon follow.
    lingers: bool,
}

/// A device with a stream to the host.
pub(crate) trait HostSide: MmioDevice {
    /// Returns the events for which it waits now.
    fn wants(&self) -> Wants;

    /// Returns the host has sent something, on `stream` or on the device's own end of it. False at its end.
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

/// A device on the bus that wakes the thread when it waits for other events than before.
#[derive(Debug)]
pub(crate) struct Watched<D> {
    device: D,
    wake: Arc<OwnedFd>,
    /// The events that the thread polls for, or will poll for after its wake-up.
    wanted: Wants,
}

impl<D: HostSide> Watched<D> {
    pub(crate) fn new(device: D, wake: &Arc<OwnedFd>) -> Self {
        Self {
            device,
            wake: Arc::clone(wake),
            wanted: Wants::default(),
        }
    }

    /// Calls `act` with the device, and wakes the thread if that changes the events it waits for.
    pub(crate) fn with<T>(&mut self, act: impl FnOnce(&mut D) -> T) -> T {
        let result = act(&mut self.device);
        let wants = self.device.wants();
        if self.wanted != wants {
            self.wanted = wants;
            // It can fail only where the count is full, and then the thread is awake.
            let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        }
        result
    }

    /// Calls `act` without waking the thread, which notices the change when the host sends something.
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

/// A [`Watched`] device of any type.
trait Pollable: Send {
    /// Returns what the thread is about to poll for.
    fn wants(&mut self) -> Wants;
    /// Does the work for which the host is ready. Returns false at the stream's end.
    fn serve(&mut self, stream: &UnixStream, came: PollFlags) -> bool;
}

impl<D: HostSide> Pollable for Watched<D> {
    fn wants(&mut self) -> Wants {
        self.wanted = self.device.wants();
        self.wanted
    }

    fn serve(&mut self, stream: &UnixStream, came: PollFlags) -> bool {
        self.with(|device| {
            if came.contains(PollFlags::OUT) {
                device.writable();
            }
            let ready = came.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR);
            !ready || device.readable(stream)
        })
    }
}

/// A device and a handle of its stream.
pub(crate) struct HostStream {
    stream: UnixStream,
    device: Arc<Mutex<dyn Pollable>>,
    /// True while bytes can still be sent or received.
    open: bool,
}

impl HostStream {
    /// Creates the stream; `stream` is the device's own end.
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
        // A device's state is plain data.
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The body of the thread: serves `streams` until `quit` is set and `wake` written to.
pub(crate) fn run(mut streams: Vec<HostStream>, wake: impl AsFd, quit: &AtomicBool) {
    while !quit.load(Ordering::Acquire) {
        let mut timeout = None;
        // Events of each stream.
        let mut came = vec![PollFlags::empty(); streams.len()];
        let mut polled = vec![PollFd::new(&wake, PollFlags::IN)];
        let mut places = Vec::new();
        for (place, stream) in streams.iter().enumerate() {
            let wants = stream.device().wants();
            let mut events = PollFlags::empty();
            events.set(PollFlags::IN, wants.input);
            events.set(PollFlags::OUT, wants.output);
            if wants.lingers && !wants.output {
                timeout = Some(LINGER);
            }
            // A stream without events to wait for is left out: poll would report its end for ever.
            if stream.open && !events.is_empty() {
                polled.push(PollFd::new(&stream.stream, events));
                places.push(place);
            }
        }
        // Interrupted, or out of memory: either passes.
        let Ok(ready) = poll(&mut polled, timeout.as_ref()) else {
            continue;
        };
        for (place, polled) in places.into_iter().zip(&polled[1..]) {
            came[place] = polled.revents();
        }
        let woken = !polled[0].revents().is_empty();
        if woken {
            // The value of the counter is of no interest.
            let _ = rustix::io::read(&wake, &mut [0; 8]);
        }
        for (stream, came) in streams.iter_mut().zip(came) {
            if ready == 0 && stream.device().wants().lingers {
                stream.device().serve(&stream.stream, PollFlags::OUT);
            }
            if !came.is_empty() {
                let serves = stream.device().serve(&stream.stream, came);
                // A virtio device does not report the end of its stream; poll does.
                stream.open = serves && !came.intersects(PollFlags::HUP | PollFlags::ERR);
            }
        }
    }
}
