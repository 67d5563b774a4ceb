// SPDX-License-Identifier: GPL-2.0-only
//! A 16550 UART: the console, and the agent's second way.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use vm_superio::serial::NoEvents;
use vm_superio::{Serial, Trigger};

use super::host::Host;
use super::{Interrupt, MmioDevice};

/// Maximum number of output bytes that are kept while the host takes none. They hold two of the agent's longest lines,
/// so a slow host loses nothing.
const MOST_OUTPUT: usize = 2 * protocol::MAX_LINE;
/// Maximum number of input bytes that are kept while the guest takes none.
const MOST_INPUT: usize = 64 << 10;

/// Number of bytes after which output goes to the host before its line ends.
const BATCH: usize = 256;

/// Interrupt Enable Register.
const IER: u8 = 1;
/// Interrupt Identification Register.
const IIR: u8 = 2;
/// Line Control Register: whether the divisor is where IER is otherwise.
const LCR: u8 = 3;
const LCR_DLAB: u8 = 1 << 7;
/// Modem Control Register: Request To Send, and loopback.
const MCR: u8 = 4;
const MCR_RTS: u8 = 1 << 1;
const MCR_LOOP: u8 = 1 << 4;
/// Line Status Register: there is a byte to read.
const LSR: u8 = 5;
const LSR_DATA_READY: u8 = 1 << 0;

/// The registers, of one byte each.
const REGISTERS: u64 = 8;

/// A 16550 whose line ends in a stream.
///
/// The guest's output goes to the stream, and is kept while the host takes none. Bytes that do not fit are dropped and
/// counted. The driver's Request To Send is followed: Linux clears it when its buffer is full, and would lose bytes
/// that arrived nevertheless.
pub struct Uart {
    serial: Serial<Line, NoEvents, Output>,
    /// Bytes for the guest that have not been in the FIFO yet; at most [`MOST_INPUT`].
    input: VecDeque<u8>,
}

impl Uart {
    /// Creates an idle UART, whose output goes to `out`.
    pub fn new(irq: Arc<dyn Interrupt>, out: UnixStream) -> Self {
        let output = Output {
            host: Host::new(out, MOST_OUTPUT),
            lost: 0,
            ended: false,
        };
        Self {
            serial: Serial::new(Line(irq), output),
            input: VecDeque::new(),
        }
    }

    /// Adds bytes for the guest, and returns the number that fit.
    pub fn receive(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(MOST_INPUT - self.input.len());
        self.input.extend(&bytes[..taken]);
        self.fill();
        taken
    }

    /// Returns whether [`Uart::receive`] would take any bytes.
    ///
    /// This and [`Uart::wants_output`] change only when the guest uses the device or the host does.
    pub fn wants_input(&self) -> bool {
        self.input.len() < MOST_INPUT
    }

    /// Returns whether output waits for the host. [`Uart::host_writable`] must then be called when the stream is
    /// writable.
    pub fn wants_output(&self) -> bool {
        self.serial.writer().host.is_full()
    }

    /// Returns whether output waits for the end of its line. [`Uart::host_writable`] must then be called if the end
    /// does not come soon.
    pub fn lingers(&self) -> bool {
        self.serial.writer().host.is_waiting()
    }

    /// Gives the host more of the output that waits.
    pub fn host_writable(&mut self) {
        self.serial.writer_mut().host.flush();
    }

    /// Returns how many bytes of output were dropped because the host took none for so long.
    pub fn lost(&self) -> u64 {
        self.serial.writer().lost
    }

    /// Sets the receive interrupt again if there is still a byte to read.
    ///
    /// vm-superio clears it with the first byte read. A driver that reads a limited number of bytes at a time, as Linux
    /// does (256), decides by IIR whether to continue.
    fn remind(&mut self) {
        let waits = self.serial.read(LSR) & LSR_DATA_READY != 0;
        if waits && self.serial.read(LCR) & LCR_DLAB == 0 {
            let enabled = self.serial.read(IER);
            let _ = self.serial.write(IER, enabled);
        }
    }

    /// Moves input into the FIFO, as much as fits while the driver accepts any.
    fn fill(&mut self) {
        let modem = self.serial.read(MCR);
        if self.input.is_empty() || modem & MCR_RTS == 0 || modem & MCR_LOOP != 0 {
            return;
        }
        let count = self.serial.fifo_capacity().min(self.input.len());
        let bytes: Vec<u8> = self.input.drain(..count).collect();
        // It cannot fail: there is room, and the interrupt's edge cannot fail.
        let _ = self.serial.enqueue_raw_bytes(&bytes);
    }
}

impl MmioDevice for Uart {
    /// Reads the one register at `offset`, for a load of any width. The others have side effects that no driver for
    /// this device wants.
    fn read(&mut self, offset: u64, data: &mut [u8]) {
        data.fill(0);
        if let (Some(register), Some(byte)) = (register(offset), data.first_mut()) {
            if register == IIR {
                self.remind();
            }
            *byte = self.serial.read(register);
            self.fill();
        }
    }

    /// A store writes the one register at `offset`, as a load reads it.
    fn write(&mut self, offset: u64, data: &[u8]) {
        if let (Some(register), Some(&byte)) = (register(offset), data.first()) {
            // It cannot fail: neither the line nor the output does.
            let _ = self.serial.write(register, byte);
            self.fill();
        }
    }
}

fn register(offset: u64) -> Option<u8> {
    (offset < REGISTERS).then_some(offset as u8)
}

impl fmt::Debug for Uart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Uart")
            .field("registers", &self.serial.state())
            .field("input", &self.input.len())
            .field("output", self.serial.writer())
            .finish()
    }
}

/// The interrupt in the form of vm-superio.
struct Line(Arc<dyn Interrupt>);

impl Trigger for Line {
    type E = Infallible;

    fn trigger(&self) -> Result<(), Infallible> {
        self.0.pulse();
        Ok(())
    }
}

/// The guest's output, which always succeeds: a guest cannot help it if the host does not read.
#[derive(Debug)]
struct Output {
    host: Host,
    lost: u64,
    /// The last byte ended a line.
    ended: bool,
}

impl Drop for Output {
    /// The last words of a guest need not be a line.
    fn drop(&mut self) {
        self.host.flush();
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let kept = self.host.keep(bytes);
        self.lost += (bytes.len() - kept) as u64;
        self.ended = bytes.last() == Some(&b'\n');
        Ok(bytes.len())
    }

    /// Does nothing. vm-superio flushes after each byte; a system call for each would be most of a console's cost.
    fn flush(&mut self) -> io::Result<()> {
        if self.ended || self.host.waiting() >= BATCH {
            self.host.flush();
        }
        Ok(())
    }
}
