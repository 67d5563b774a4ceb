// SPDX-License-Identifier: GPL-2.0-only
//! The bus, and the UART as a driver and a host see it.

mod edges;

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use edges::Edges;
use kvm::device::{Bus, MmioDevice, Overlap, Uart};
use kvm::layout::{AGENT_UART, CONSOLE, UART_BYTES};

/// Registers, and bits in them.
const DATA: u64 = 0;
const IER: u64 = 1;
const IIR: u64 = 2;
const LCR: u64 = 3;
const MCR: u64 = 4;
const LSR: u64 = 5;
const MSR: u64 = 6;
const SCR: u64 = 7;
const RECEIVE_INTERRUPT: u8 = 1;
const TRANSMIT_INTERRUPT: u8 = 2;
const RTS: u8 = 2;
const LOOP: u8 = 0x10;
const DATA_READY: u8 = 1;
const TRANSMITTER_EMPTY: u8 = 0x60;
/// IIR's "no interrupt", under the bits for the presence of FIFOs.
const NO_INTERRUPT: u8 = 1;
const FIFOS: u8 = 0xc0;

/// A device that records its accesses.
#[derive(Debug, Default)]
struct Memo(Vec<(u64, Vec<u8>)>);

impl MmioDevice for Memo {
    fn read(&mut self, offset: u64, data: &mut [u8]) {
        data.fill(offset as u8);
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        self.0.push((offset, data.to_vec()));
    }
}

fn memo() -> Arc<Mutex<Memo>> {
    Arc::default()
}

#[test]
fn the_bus_finds_the_device_that_has_all_of_the_bytes() {
    let (low, high) = (memo(), memo());
    let mut bus = Bus::new();
    bus.add(0x2000, 0x100, high.clone()).unwrap();
    bus.add(0x1000, 0x1000, low.clone()).unwrap();
    let mut data = [0xee; 4];
    assert!(bus.read(0x1ffc, &mut data));
    assert_eq!(data, [0xfc; 4]);
    assert!(bus.write(0x20ff, &[7]));
    assert_eq!(high.lock().unwrap().0, [(0xff, vec![7])]);
    for (address, bytes) in [
        (0xfff, 1),
        (0xffe, 4),
        (0x1ffd, 4),
        (0x2100, 1),
        (0x20ff, 2),
        (u64::MAX, 8),
        (0, 8),
    ] {
        let mut data = vec![0xee; bytes];
        assert!(!bus.read(address, &mut data), "{address:#x}");
        assert_eq!(data, vec![0xee; bytes]);
        assert!(!bus.write(address, &data), "{address:#x}");
    }
    assert!(low.lock().unwrap().0.is_empty());
}

#[test]
fn devices_do_not_overlap() {
    let mut bus = Bus::new();
    bus.add(0x1000, 0x100, memo()).unwrap();
    for (base, bytes) in [
        (0x1000, 0x100),
        (0x10ff, 1),
        (0xfff, 2),
        (0, 0x2000),
        (0x1010, 1),
        (0x5000, 0),
        (u64::MAX, 2),
    ] {
        assert_eq!(bus.add(base, bytes, memo()), Err(Overlap { base, bytes }));
    }
    bus.add(0x1100, 1, memo()).unwrap();
    bus.add(0xfff, 1, memo()).unwrap();
    bus.add(u64::MAX - 1, 1, memo()).unwrap();
}

/// Both UARTs on a bus; the console's host, and its interrupts.
struct Board {
    bus: Bus,
    uart: Arc<Mutex<Uart>>,
    host: UnixStream,
    edges: Arc<Edges>,
}

impl Board {
    fn new() -> Self {
        let edges = Arc::new(Edges::default());
        let (host, ours) = UnixStream::pair().unwrap();
        let uart = Arc::new(Mutex::new(Uart::new(edges.clone(), ours)));
        let (_, other) = UnixStream::pair().unwrap();
        let agent = Uart::new(Arc::new(Edges::default()), other);
        let mut bus = Bus::new();
        bus.add(CONSOLE, UART_BYTES, uart.clone()).unwrap();
        bus.add(AGENT_UART, UART_BYTES, Arc::new(Mutex::new(agent)))
            .unwrap();
        Self {
            bus,
            uart,
            host,
            edges,
        }
    }

    /// Creates a board whose driver has started the UART as Linux does.
    fn started() -> Self {
        let board = Self::new();
        board.write(LCR, 0x83);
        board.write(DATA, 1);
        board.write(LCR, 0x03);
        board.write(MCR, 0x0b);
        board.write(IER, RECEIVE_INTERRUPT);
        board.edges.take();
        board
    }

    fn read(&self, register: u64) -> u8 {
        let mut data = [0xee];
        assert!(self.bus.read(CONSOLE + register, &mut data));
        data[0]
    }

    fn write(&self, register: u64, value: u8) {
        assert!(self.bus.write(CONSOLE + register, &[value]));
    }

    fn receive(&self, bytes: &[u8]) -> usize {
        self.uart.lock().unwrap().receive(bytes)
    }

    /// Returns the host's bytes, also of a line that has not ended: the I/O thread sends these.
    fn heard(&mut self, bytes: usize) -> Vec<u8> {
        let mut uart = self.uart.lock().unwrap();
        if uart.lingers() {
            uart.host_writable();
        }
        drop(uart);
        let mut buffer = vec![0; bytes];
        self.host.read_exact(&mut buffer).unwrap();
        buffer
    }

    /// Runs Linux's interrupt handler (8250_core.c, serial8250_interrupt): until IIR shows no interrupt, it reads up to
    /// 256 bytes (8250_port.c, serial8250_rx_chars).
    fn serve(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while self.edges.take() > 0 {
            while self.read(IIR) & NO_INTERRUPT == 0 {
                for _ in 0..256 {
                    if self.read(LSR) & DATA_READY == 0 {
                        break;
                    }
                    bytes.push(self.read(DATA));
                }
            }
        }
        bytes
    }
}

#[test]
fn output_goes_to_the_host_line_by_line() {
    let mut board = Board::started();
    board.host.set_nonblocking(true).unwrap();
    let mut buffer = [0; 32];
    for &byte in b"Linux version 6.12\r\n" {
        assert!(board.host.read(&mut buffer).is_err(), "before its end");
        assert_eq!(board.read(LSR) & TRANSMITTER_EMPTY, TRANSMITTER_EMPTY);
        board.write(DATA, byte);
    }
    assert!(!board.uart.lock().unwrap().lingers());
    assert_eq!(board.host.read(&mut buffer).unwrap(), 20);
    assert_eq!(&buffer[..20], b"Linux version 6.12\r\n");
    // One that never ends goes in parts.
    for _ in 0..300 {
        board.write(DATA, b'x');
    }
    assert!(board.uart.lock().unwrap().lingers());
    let mut buffer = [0; 512];
    assert_eq!(board.host.read(&mut buffer).unwrap(), 256);
    assert_eq!(board.heard(44), [b'x'; 44]);
    assert_eq!(board.edges.take(), 0, "the driver wanted no interrupt");
    board.write(IER, RECEIVE_INTERRUPT | TRANSMIT_INTERRUPT);
    assert_eq!(board.edges.take(), 1);
    assert_eq!(board.read(IIR), FIFOS | 2);
    assert_eq!(board.read(IIR), FIFOS | NO_INTERRUPT);
    board.write(DATA, b'x');
    assert_eq!(board.edges.take(), 1);
}

#[test]
fn input_comes_with_an_interrupt() {
    let board = Board::started();
    assert_eq!(board.receive(b"hello"), 5);
    assert_eq!(board.edges.take(), 1);
    assert_eq!(board.read(IIR), FIFOS | 4);
    let mut bytes = Vec::new();
    while board.read(LSR) & DATA_READY != 0 {
        bytes.push(board.read(DATA));
    }
    assert_eq!(bytes, b"hello");
    assert_eq!(board.read(IIR), FIFOS | NO_INTERRUPT);
    assert_eq!(board.read(DATA), 0);
}

#[test]
fn input_beyond_the_fifo_waits() {
    let board = Board::started();
    for length in [64, 65, 255, 256, 257, 300, 319, 320, 321, 1000, 5000] {
        let bytes: Vec<u8> = (0..length).map(|at| at as u8).collect();
        // In two parts, so that the FIFO is not filled from its start.
        let (first, second) = bytes.split_at(length / 3);
        assert_eq!(board.receive(first), first.len());
        assert_eq!(board.receive(second), second.len());
        assert_eq!(board.serve(), bytes, "{length} bytes");
    }
}

#[test]
fn input_is_bounded() {
    let board = Board::started();
    let bytes = vec![1; 100_000];
    let taken = board.receive(&bytes);
    assert_eq!(taken, 64 << 10);
    // The FIFO has taken its part.
    assert_eq!(board.receive(&bytes), 64);
    assert_eq!(board.receive(&bytes), 0);
    assert!(!board.uart.lock().unwrap().wants_input());
    assert_eq!(board.serve().len(), taken + 64);
    assert!(board.uart.lock().unwrap().wants_input());
}

#[test]
fn input_waits_for_request_to_send() {
    let board = Board::started();
    board.write(MCR, 0x09);
    assert_eq!(board.receive(b"not yet"), 7);
    assert_eq!(board.edges.take(), 0);
    assert_eq!(board.read(LSR) & DATA_READY, 0);
    board.write(MCR, 0x0b);
    assert_eq!(board.serve(), b"not yet");
}

#[test]
fn input_before_the_interrupt_is_enabled_is_not_lost() {
    let board = Board::new();
    board.write(MCR, RTS);
    board.receive(b"early");
    assert_eq!(board.edges.take(), 0);
    board.write(IER, RECEIVE_INTERRUPT);
    assert_eq!(board.serve(), b"early");
}

#[test]
fn loopback_stays_inside() {
    let mut board = Board::started();
    board.write(MCR, LOOP | 0x0b);
    assert_eq!(board.read(MSR) & 0xf0, 0xb0, "the modem lines come back");
    for byte in 0..70 {
        board.write(DATA, byte);
    }
    assert_eq!(board.receive(b"outside"), 7);
    assert_eq!(board.serve(), (0..64).collect::<Vec<u8>>(), "one FIFO");
    board.write(MCR, 0x0b);
    assert_eq!(board.serve(), b"outside");
    board.write(DATA, b'!');
    assert_eq!(board.heard(1), b"!");
}

#[test]
fn the_divisor_hides_data_and_interrupts() {
    let mut board = Board::started();
    board.write(LCR, 0x83);
    board.write(DATA, 0x12);
    board.write(IER, 0x34);
    assert_eq!((board.read(DATA), board.read(IER)), (0x12, 0x34));
    board.receive(b"x");
    board.edges.take();
    board.read(IIR);
    assert_eq!((board.read(DATA), board.read(IER)), (0x12, 0x34));
    board.write(LCR, 0x03);
    assert_eq!(board.read(IER), RECEIVE_INTERRUPT);
    board.write(DATA, b'y');
    assert_eq!(board.heard(1), b"y");
}

#[test]
fn a_wide_access_is_of_one_register() {
    let mut board = Board::started();
    assert!(board.bus.write(CONSOLE + SCR, &[0x5a, 1, 2, 3]));
    let mut word = [0xee; 4];
    assert!(board.bus.read(CONSOLE + SCR, &mut word));
    assert_eq!(word, [0x5a, 0, 0, 0]);
    board.receive(b"ab");
    let mut quad = [0xee; 8];
    assert!(board.bus.read(CONSOLE + DATA, &mut quad));
    assert_eq!(quad, [b'a', 0, 0, 0, 0, 0, 0, 0]);
    assert!(board.bus.write(CONSOLE + DATA, b"wide"));
    assert_eq!(board.heard(1), b"w");
    assert_eq!(board.read(LCR), 3);
    // Behind the registers there is nothing, up to the device's end.
    assert!(board.bus.read(CONSOLE + UART_BYTES - 8, &mut quad));
    assert_eq!(quad, [0; 8]);
    assert!(board.bus.write(CONSOLE + 0x100, &[1]));
    assert!(!board.bus.read(CONSOLE + UART_BYTES - 1, &mut word));
}

#[test]
fn a_host_that_does_not_read_loses_nothing_for_long() {
    let board = Board::started();
    let line = b"a line of the kernel's log\n";
    let mut sent = 0;
    while sent < 1 << 20 {
        for &byte in line {
            board.write(DATA, byte);
        }
        sent += line.len();
    }
    assert!(board.uart.lock().unwrap().wants_output());
    let mut host = board.host.try_clone().unwrap();
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        host.read_to_end(&mut all).unwrap();
        all
    });
    while board.uart.lock().unwrap().wants_output() {
        board.uart.lock().unwrap().host_writable();
    }
    assert_eq!(board.uart.lock().unwrap().lost(), 0);
    drop(board);
    let all = reader.join().unwrap();
    assert_eq!(all.len(), sent);
    assert!(all.chunks(line.len()).all(|chunk| chunk == line));
}

#[test]
fn a_host_that_is_gone_is_no_matter() {
    let board = Board::started();
    let Board {
        bus, uart, host, ..
    } = board;
    drop(host);
    for _ in 0..100_000 {
        assert!(bus.write(CONSOLE, b"x"));
    }
    assert!(!uart.lock().unwrap().wants_output());
    assert_eq!(uart.lock().unwrap().lost(), 0);
}
