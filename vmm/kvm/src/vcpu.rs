// SPDX-License-Identifier: GPL-2.0-only
//! The thread of a CPU: enters the guest, and handles the exits that KVM leaves to us.

use std::os::unix::thread::JoinHandleExt;
use std::sync::Arc;
use std::thread::JoinHandle;

use kvm_bindings::{
    KVM_EXIT_ARM_NISV, KVM_SYSTEM_EVENT_CRASH, KVM_SYSTEM_EVENT_RESET, KVM_SYSTEM_EVENT_SHUTDOWN,
};
use kvm_ioctls::{VcpuExit, VcpuFd};

use crate::device::Bus;
use crate::exits::{Counts, Reason};
use crate::layout::{DOORBELL, DOORBELL_BYTES};
use crate::parking::{End, Parking};
use crate::registers::Registers;
use crate::seccomp::Filter;

/// A CPU, and the state that its exits use.
#[derive(Debug)]
pub(crate) struct Vcpu {
    pub(crate) index: usize,
    pub(crate) fd: VcpuFd,
    pub(crate) parking: Arc<Parking>,
    pub(crate) bus: Arc<Bus>,
    pub(crate) counts: Arc<Counts>,
}

impl Vcpu {
    /// Runs the CPU until it is told to end. This is the body of the thread. It begins parked.
    pub(crate) fn run(mut self, filter: Option<&Filter>) {
        let parking = Arc::clone(&self.parking);
        let membership = parking.join(self.index);
        if let Some(Err(error)) = filter.map(Filter::install) {
            parking.set_end(End::Lost(error.to_string()));
        }
        let registers = |fd: &VcpuFd, cpu| Registers { fd, cpu }.read();
        while membership.park(|| registers(&self.fd, self.index)) {
            loop {
                let reason = self.enter();
                self.counts.add(reason);
                // Only after these exits can there be a reason to stop. A CPU that is kicked meanwhile is interrupted
                // as soon as it enters.
                if matches!(
                    reason,
                    Reason::Interrupted | Reason::SystemEvent | Reason::Other
                ) {
                    break;
                }
            }
        }
    }

    /// Enters the guest, and handles its exit.
    fn enter(&mut self) -> Reason {
        let exit = match self.fd.run() {
            Ok(exit) => exit,
            Err(error) => match error.errno() {
                libc::EINTR => return Reason::Interrupted,
                libc::EAGAIN => return Reason::Other,
                _ => return self.lost(&format!("KVM cannot run it ({error})")),
            },
        };
        match exit {
            VcpuExit::MmioRead(address, data) => {
                // An address without a device reads as zero.
                data.fill(0);
                match self.bus.read(address, data) {
                    true => Reason::MmioRead,
                    false => Reason::Unclaimed,
                }
            }
            VcpuExit::MmioWrite(address, data) if doorbell(address) => {
                // After the awaited ring the next KVM_RUN finishes the store and returns at once: the guest is stopped
                // behind it.
                self.parking.ring(self.index, number(data));
                Reason::Doorbell
            }
            VcpuExit::MmioWrite(address, data) => match self.bus.write(address, data) {
                true => Reason::MmioWrite,
                false => Reason::Unclaimed,
            },
            VcpuExit::SystemEvent(kind, _) => {
                match kind {
                    KVM_SYSTEM_EVENT_SHUTDOWN => self.parking.set_end(End::Ended { reset: false }),
                    KVM_SYSTEM_EVENT_RESET => self.parking.set_end(End::Ended { reset: true }),
                    KVM_SYSTEM_EVENT_CRASH => self.parking.set_end(End::Crashed),
                    _ => return self.lost(&format!("system event {kind} was not asked for")),
                }
                Reason::SystemEvent
            }
            VcpuExit::FailEntry(reason, _) => {
                self.lost(&format!("the hardware refused to enter it ({reason:#x})"))
            }
            VcpuExit::InternalError => self.lost("KVM has met an error of its own"),
            VcpuExit::MemoryFault { gpa, .. } => {
                self.lost(&format!("the host has no memory at {gpa:#x}"))
            }
            VcpuExit::Unsupported(KVM_EXIT_ARM_NISV) => {
                let run = self.fd.get_kvm_run();
                // SAFETY: this exit fills this member of the union.
                let address = unsafe { run.__bindgen_anon_1.arm_nisv.fault_ipa };
                self.lost(&format!(
                    "it accessed {address:#x}, where no memory is, by an instruction that the architecture does not describe (a load or store of several registers, or with write-back)"
                ))
            }
            other => {
                let what = format!("it came out for a reason that no arm64 guest has ({other:?})");
                self.lost(&what)
            }
        }
    }

    /// Ends the guest, which cannot run on.
    fn lost(&self, why: &str) -> Reason {
        let registers = Registers {
            fd: &self.fd,
            cpu: self.index,
        };
        let pc = registers.pc().map_or("?".into(), |pc| format!("{pc:#x}"));
        let what = format!("CPU {} stopped at PC {pc}: {why}", self.index);
        self.parking.set_end(End::Lost(what));
        Reason::Other
    }
}

fn doorbell(address: u64) -> bool {
    (DOORBELL..DOORBELL + DOORBELL_BYTES).contains(&address)
}

/// Returns the number that was stored, of at most 8 bytes.
fn number(data: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    for (to, from) in bytes.iter_mut().zip(data) {
        *to = *from;
    }
    u64::from_le_bytes(bytes)
}

/// Returns how long a thread of ours has had a processor, in nanoseconds; 0 if that is unknown.
pub(crate) fn ran_ns_of(thread: &JoinHandle<()>) -> u64 {
    let mut clock = 0;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the thread is not joined, as its handle is here, so its id is valid; both are written to.
    let read = unsafe {
        libc::pthread_getcpuclockid(thread.as_pthread_t(), &mut clock) == 0
            && libc::clock_gettime(clock, &mut time) == 0
    };
    match read {
        true => time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64,
        false => 0,
    }
}
