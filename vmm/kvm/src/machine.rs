// SPDX-License-Identifier: GPL-2.0-only
//! A guest on KVM, as a [`Machine`].

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use machine::channel::{Channel, Heard};
use machine::stream::Deadline;
use machine::{ChannelError, Console, Machine, MachineError, Paused, Status, Stopped};
use snapshot::{Cpu, Notes, Range, RangeSet, Snapshot};
use stage1::{PhysicalAddress, VirtualAddress};

use crate::device::{Uart, VirtioConsole};
use crate::exits::{Counts, Exits};
use crate::fdt;
use crate::io::Watched;
use crate::memory::Ram;
use crate::parking::{End, Parking};
use crate::vcpu::ran_ns_of;
use crate::vm::Vm;
use crate::KvmError;

mod start;

/// Maximum time for CPUs to stop. They stop within a millisecond; but each thread may have to wait for a processor on a
/// busy host.
const STILL: Duration = Duration::from_secs(20);
/// Silence of a console after a panic that counts as the guest's end.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// Maximum wait for a waiting process's ring. It rings every few microseconds, unless an interrupt has taken its CPU
/// away.
const RING: Duration = Duration::from_millis(250);
/// Maximum wait if the doorbell never rang: the guest has no access to it, or no process waits yet.
const FIRST_RING: Duration = Duration::from_millis(20);

/// A guest on KVM. Dropping it ends the guest and all threads that serve it.
#[derive(Debug)]
pub struct Kvm {
    vm: Vm,
    ram: Ram,
    parking: Arc<Parking>,
    threads: Vec<JoinHandle<()>>,
    quit: Arc<AtomicBool>,
    wake: Arc<OwnedFd>,
    /// The two devices that the monitor calls itself, until the machine is ended.
    virtio: Option<Arc<Mutex<Watched<VirtioConsole>>>>,
    uart: Option<Arc<Mutex<Watched<Uart>>>>,
    counts: Arc<Counts>,
    console: Console,
    channel: Channel,
    command_line: String,
    cmdline: String,
    /// True if a record of writes is kept.
    logging: bool,
}

impl Kvm {
    /// Returns how often CPUs left the guest so far, and why.
    pub fn exits(&self) -> Exits {
        self.counts.read()
    }

    /// Returns which interrupt controller the guest has.
    pub fn gic(&self) -> fdt::Gic {
        self.vm.gic.kind
    }

    /// Returns how the guest ended, if it has. Its last words are on the console then.
    fn end(&self) -> Option<End> {
        let end = self.parking.end()?;
        if let Some(uart) = &self.uart {
            // They need not be a line, which alone is sent at once.
            let mut uart = uart.lock().unwrap_or_else(PoisonError::into_inner);
            uart.with(Uart::host_writable);
        }
        Some(end)
    }

    /// Returns an error with the reason why no more bytes will come from the guest, if there is one.
    fn ended(&self) -> Result<(), MachineError> {
        let console = || self.console.tail();
        match self.end() {
            Some(End::Ended { reset }) => Err(MachineError::Ended {
                reset,
                console: console(),
            }),
            Some(End::Crashed) => Err(MachineError::Panicked { console: console() }),
            Some(End::Lost(why)) => Err(KvmError::Lost(why).into()),
            None => match self.console.panicked_for() {
                Some(since) if since > LAST_WORDS => {
                    Err(MachineError::Panicked { console: console() })
                }
                _ => Ok(()),
            },
        }
    }

    /// Calls `act` with the virtio device, if the machine still exists.
    fn virtio<T>(&self, act: impl FnOnce(&mut VirtioConsole) -> T) -> Option<T> {
        let device = self.virtio.as_ref()?;
        // A device's state is plain data.
        let mut device = device.lock().unwrap_or_else(PoisonError::into_inner);
        Some(device.with(act))
    }

    /// Waits until the guest is stopped, as its CPUs were told at `since`, and reads it.
    fn paused(&mut self, since: Instant) -> Result<Paused<'_>, MachineError> {
        let still = self.parking.still(STILL).map_err(MachineError::from);
        let snapshot = still.and_then(|(still, cpus)| Ok((still, self.read(cpus)?)));
        match snapshot {
            Ok((still, snapshot)) => {
                let stopping = still.saturating_duration_since(since);
                Ok(Paused::new(snapshot, self, since, stopping))
            }
            Err(error) => {
                // The first error is the one to report.
                let _ = self.resume();
                Err(error)
            }
        }
    }

    /// Returns the snapshot of the machine, all of whose CPUs are stopped in these states.
    fn read(&mut self, cpus: Vec<Cpu>) -> Result<Snapshot, MachineError> {
        if let Some(device) = &self.virtio {
            let mut device = device.lock().unwrap_or_else(PoisonError::into_inner);
            device.quietly(|device| device.freeze(true));
        }
        // SAFETY: all CPUs are out of KVM_RUN and are parked, and only `resume` lets them run on. The one device that
        // touches guest memory by itself is frozen, under its lock, and only `resume` thaws it. The `Paused` that owns
        // this memory borrows the machine exclusively and drops the memory before it resumes the guest. The locks order
        // the guest's writes before our reads.
        let memory = unsafe { self.ram.live() }?;
        let notes = Notes {
            command_line: self.cmdline.clone(),
            ..Notes::now(self.kind(), self.command_line.clone())
        };
        Ok(Snapshot {
            cpus,
            memory,
            notes,
        })
    }

    fn check_there(&self) -> Result<(), KvmError> {
        match self.virtio {
            Some(_) => Ok(()),
            None => Err(KvmError::Killed),
        }
    }
}

impl Machine for Kvm {
    fn kind(&self) -> &'static str {
        "kvm"
    }

    fn command_line(&self) -> String {
        self.command_line.clone()
    }

    fn ram(&self) -> Vec<Range> {
        vec![self.ram.range()]
    }

    fn console(&self) -> &Console {
        &self.console
    }

    fn exits(&self) -> Option<Vec<(&'static str, u64)>> {
        Some(self.counts.read().rows().to_vec())
    }

    fn status(&mut self) -> Status {
        if let Err(killed) = self.check_there() {
            return Status::Lost {
                status: killed.to_string(),
                stderr: String::new(),
            };
        }
        match self.end() {
            Some(End::Ended { reset }) => Status::Ended { reset },
            Some(End::Crashed) => Status::Panicked,
            Some(End::Lost(status)) => Status::Lost {
                status,
                stderr: String::new(),
            },
            None if self.console.panicked_for().is_some() => Status::Panicked,
            None if self.parking.is_stopped() => Status::Paused,
            None => Status::Running,
        }
    }

    fn end_event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.parking.ended())
    }

    fn pause(&mut self) -> Result<Paused<'_>, MachineError> {
        self.check_there()?;
        let since = Instant::now();
        self.parking.stop();
        self.paused(since)
    }

    fn pause_at(&mut self, nonce: u64) -> Result<Paused<'_>, MachineError> {
        self.check_there()?;
        match self.parking.await_ring(nonce, RING, FIRST_RING) {
            Some(rung) => self.paused(rung),
            None => self.pause(),
        }
    }

    fn log_writes(&mut self, on: bool) -> Result<(), MachineError> {
        self.check_there()?;
        self.vm.log_writes(on)?;
        if on && self.logging {
            // KVM's log continues; its contents belong to the record that ends here.
            self.vm.written()?;
        }
        self.virtio(VirtioConsole::take_written);
        self.logging = on;
        Ok(())
    }

    fn send(&mut self, bytes: &[u8], timeout: Duration) -> Result<(), MachineError> {
        let result = self.channel.send(bytes, timeout);
        result.map_err(|error| self.ended().err().unwrap_or_else(|| error.into()))
    }

    fn transcript_error(&self) -> Option<String> {
        self.channel.log_error().map(str::to_owned)
    }

    fn receive_line(&mut self, timeout: Duration) -> Result<Vec<u8>, MachineError> {
        // Time between two checks of the console; all other events wake the wait.
        const LOOK: Duration = Duration::from_millis(100);
        let deadline = Deadline::after(timeout);
        loop {
            let until = deadline.at.min(Instant::now() + LOOK);
            let heard = self.channel.hear(Some(self.parking.ended()), until);
            match heard {
                Ok(Heard::Line(line)) => return Ok(line),
                Ok(Heard::Other | Heard::Nothing) => self.ended()?,
                Err(error) => return Err(self.ended().err().unwrap_or_else(|| error.into())),
            }
            if Instant::now() >= deadline.at {
                let partial = self.channel.partial();
                let waited = timeout;
                return Err(ChannelError::Timeout { waited, partial }.into());
            }
        }
    }

    fn kill(&mut self) {
        self.parking.quit();
        self.quit.store(true, Ordering::Release);
        // It can fail only where the count is full, and then the thread is awake.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        for thread in self.threads.drain(..) {
            // A thread that panicked has reported so on standard error.
            let _ = thread.join();
        }
        // The threads had the others; with the last one the console's stream ends.
        self.virtio = None;
        self.uart = None;
        self.console.finish();
    }
}

impl Stopped for Kvm {
    fn resume(&mut self) -> Result<(), MachineError> {
        self.virtio(|device| device.freeze(false));
        self.parking.go();
        Ok(())
    }

    /// Returns nothing: KVM on arm64 has no interface to its own walk.
    fn translate(
        &mut self,
        _cpu: usize,
        _va: VirtualAddress,
    ) -> Result<Option<PhysicalAddress>, MachineError> {
        Ok(None)
    }

    fn ran_ns(&mut self) -> Vec<u64> {
        // The CPUs' threads were started first, in their order.
        let cpus = self
            .threads
            .iter()
            .take(self.threads.len().saturating_sub(1));
        cpus.map(ran_ns_of).collect()
    }

    fn written(&mut self) -> Result<Option<RangeSet>, MachineError> {
        if !self.logging {
            return Ok(None);
        }
        let mut written = self.vm.written()?;
        for (base, bytes) in self.virtio(VirtioConsole::take_written).unwrap_or_default() {
            if let Some(range) = Range::new(PhysicalAddress(base), bytes) {
                written.insert(range);
            }
        }
        Ok(Some(written))
    }
}

impl Drop for Kvm {
    fn drop(&mut self) {
        self.kill();
    }
}
