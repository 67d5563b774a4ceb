//! A workload process: one thread that does one operation after the other, and for some of them a second one beside it.
//!
//! It keeps its own use of memory away from the memory under test. Its heap is the program break alone and never
//! shrinks, its first pages exist before the first operation, and later it maps only memory that a request names.

mod busy;
mod file;
mod gup;
mod memory;
mod mirror;
mod numa;
mod own;
mod place;
mod probe;
mod spin;
mod touch;
mod uffd;
mod watch;

use std::path::PathBuf;

use protocol::{Answer, Failure, Operation, Outcome, ProcessId};
use rustix::process::{set_parent_process_death_signal, Signal};

use crate::doorbell::Doorbell;
use crate::link::{Home, Task, WorkloadMessage};
use crate::slots::{Slot, Slots};
use crate::sys::{self, exit};

/// Size of the heap from the start, in bytes.
const WARM_HEAP: usize = 128 << 10;

/// Builds the arguments that [`main`] takes, `argv[0]` left out.
pub fn arguments(
    directory: &str,
    process: ProcessId,
    slot: usize,
    cpu: u32,
    name: &str,
) -> [String; 5] {
    [
        directory.to_owned(),
        process.0.to_string(),
        slot.to_string(),
        cpu.to_string(),
        name.to_owned(),
    ]
}

/// Returns a workload process from its start to its end.
pub fn main(arguments: &[String]) -> ! {
    let [directory, process, slot, cpu, name] = arguments else {
        panic!("a workload takes 5 arguments, not {}", arguments.len());
    };
    set_name(name);
    let number = |text: &String| {
        text.parse::<u32>()
            .expect("a workload's arguments are numbers")
    };
    let mut workload = Workload::start(
        PathBuf::from(directory),
        ProcessId(number(process)),
        number(slot) as usize,
        number(cpu),
    )
    .unwrap_or_else(|failure| panic!("a workload cannot start: {failure}"));
    workload.serve()
}

struct Workload {
    directory: PathBuf,
    slots: Slots,
    slot: &'static Slot,
    bell: Option<Doorbell>,
    home: Home,
}

impl Workload {
    fn start(
        directory: PathBuf,
        process: ProcessId,
        slot: usize,
        cpu: u32,
    ) -> Result<Self, Failure> {
        die_with_the_agent();
        settle_heap();
        let slots = Slots::open(&directory.join("slots"))?;
        let home = Home::open(&directory, process)?;
        probe::install();
        sys::set_affinity(&[cpu])?;
        // The agent has switched them off for itself and its children, so that the counters of the machine show the
        // operations alone. An old kernel that refuses never did.
        let _ = sys::disable_thp(false);
        Ok(Self {
            directory,
            slot: slots.slot(slot),
            slots,
            bell: Doorbell::find(),
            home,
        })
    }

    fn serve(&mut self) -> ! {
        self.send(&ready());
        while let Some(task) = self.home.next() {
            let answer = match task {
                Ok(Task::Op(Operation::Exit { status })) => exit(status),
                Ok(Task::Op(op)) => operate(&op),
                Ok(Task::Checkpoint { number, nonce, cpu }) => self.wait(number, nonce, cpu),
                Ok(Task::Fork {
                    process,
                    slot,
                    name,
                }) => match self.fork(process, slot, &name) {
                    Ok(said) => {
                        self.send(&said);
                        continue;
                    }
                    Err(failure) => Err(failure),
                },
                Err(failure) => Err(failure),
            };
            self.send(&WorkloadMessage::Answer(Answer::from(answer)));
        }
        exit(0)
    }

    fn send(&self, said: &WorkloadMessage) {
        if self.home.send(said).is_err() {
            exit(0);
        }
    }

    /// Waits in user mode. Later operations see no trace of it.
    fn wait(&self, number: u64, nonce: u64, cpu: u32) -> Result<Outcome, Failure> {
        let before = sys::affinity(0);
        sys::set_affinity(&[cpu])?;
        spin::wait(self.slot, self.bell, number, nonce, std::process::id());
        sys::set_affinity(&before)?;
        Ok(Outcome::Done {})
    }

    /// Forks. The parent or the child reports the result, each on its own pipe.
    fn fork(
        &mut self,
        process: ProcessId,
        slot: usize,
        name: &str,
    ) -> Result<WorkloadMessage, Failure> {
        let flags = i64::from(libc::SIGCHLD | libc::CLONE_PARENT);
        // CLONE_PARENT makes the child the agent's, which learns how it ended.
        // SAFETY: without CLONE_VM the child has its own copy of everything, as after fork; this process has one
        // thread, so that no lock is held.
        let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
        sys::check(pid, "fork")?;
        if pid != 0 {
            return Ok(WorkloadMessage::Forked { pid: pid as i32 });
        }
        die_with_the_agent();
        if !name.is_empty() {
            set_name(name);
        }
        self.home = Home::open(&self.directory, process)
            .unwrap_or_else(|failure| panic!("a forked workload cannot start: {failure}"));
        self.slot = self.slots.slot(slot);
        Ok(ready())
    }
}

fn ready() -> WorkloadMessage {
    let range = spin::range();
    WorkloadMessage::Ready {
        pid: std::process::id() as i32,
        pc_start: range.start,
        pc_end: range.end,
    }
}

/// Does operations one after the other. What would take the process away, or hide in another list, is no part of one.
fn several(ops: &[Operation]) -> Result<Outcome, Failure> {
    let alone = |op: &&Operation| {
        matches!(
            op,
            Operation::Several { .. }
                | Operation::Fork { .. }
                | Operation::Exit { .. }
                | Operation::Pin { .. }
        )
    };
    if let Some(op) = ops.iter().find(alone) {
        let name = op.name();
        return Err(Failure::bad(format!(
            "{name} is no part of several operations"
        )));
    }
    let answers = ops.iter().map(|op| Answer::from(operate(op))).collect();
    Ok(Outcome::Several { answers })
}

fn operate(op: &Operation) -> Result<Outcome, Failure> {
    use Operation as Op;
    match op {
        Op::Mmap {
            length,
            backing,
            prot,
            flags,
            place,
        } => memory::map(*length, backing, prot, flags, place),
        Op::Madvise {
            address,
            length,
            advice,
        } => memory::madvise(*address, *length, *advice),
        Op::ProcessMadvise {
            pid,
            address,
            length,
            advice,
        } => memory::process_madvise(*pid, *address, *length, *advice),
        Op::Mprotect {
            address,
            length,
            prot,
        } => memory::mprotect(*address, *length, prot),
        Op::Mremap {
            address,
            length,
            new_length,
            flags,
            new_address,
        } => memory::mremap(*address, *length, *new_length, flags, *new_address),
        Op::Munmap { address, length } => memory::munmap(*address, *length),
        Op::Mlock {
            address,
            length,
            flags,
        } => memory::mlock(*address, *length, flags),
        Op::Munlock { address, length } => memory::munlock(*address, *length),
        Op::Mseal { address, length } => memory::mseal(*address, *length),
        Op::Touch {
            address,
            length,
            stride,
            access,
            order,
            salt,
        } => touch::touch(*address, *length, *stride, *access, order, *salt),
        Op::Verify {
            address,
            length,
            stride,
            expect,
        } => touch::verify(*address, *length, *stride, expect),
        Op::Peek { address, words } => touch::peek(*address, *words),
        Op::Poke { address, words } => touch::poke(*address, words),
        Op::ForceWrite {
            address,
            length,
            stride,
            salt,
        } => touch::force(*address, *length, *stride, *salt),
        Op::FileCreate { path, length } => file::create(path, *length),
        Op::FileTruncate { path, length } => file::truncate(path, *length),
        Op::FileWrite {
            path,
            offset,
            length,
            salt,
            chunk,
        } => file::write(path, *offset, *length, *salt, *chunk),
        Op::FileRead {
            path,
            offset,
            length,
        } => file::read(path, *offset, *length),
        Op::FileVerify {
            path,
            offset,
            length,
            stride,
            expect,
            direct,
        } => file::verify(path, *offset, *length, *stride, expect, *direct),
        Op::FileSync { path, evict } => file::sync(path, *evict),
        Op::FileAllocate {
            path,
            offset,
            length,
            punch,
        } => file::allocate(path, *offset, *length, *punch),
        Op::FileUnlink { path } => file::unlink(path),
        Op::MovePages {
            address,
            length,
            node,
        } => numa::move_pages(*address, *length, *node),
        Op::Mbind {
            address,
            length,
            node,
        } => numa::mbind(*address, *length, *node),
        Op::MigratePages { from, to } => numa::migrate_pages(*from, *to),
        Op::Race {
            address,
            length,
            stride,
            beside,
            access,
            other,
            salt,
        } => touch::race(
            (*address, *length),
            *stride,
            *beside,
            [*access, *other],
            *salt,
        ),
        Op::KeepAccessing {
            address,
            length,
            stride,
            access,
            may_drop,
        } => busy::keep(*address, *length, *stride, *access, *may_drop),
        Op::StopAccessing { address, salt } => busy::stop(*address, *salt),
        Op::GupPin {
            address,
            length,
            read_only,
        } => gup::pin(*address, *length, *read_only),
        Op::GupUnpin {} => gup::unpin(),
        Op::GupVerify {
            address,
            length,
            offset,
        } => gup::verify(*address, *length, *offset),
        Op::NumaHints {} => numa::hints(),
        Op::WatchWrites { address, length } => watch::watch(*address, *length),
        Op::WrittenPages { address, length } => watch::written(*address, *length),
        Op::Mirror {} => mirror::copy(),
        Op::MirrorVerify {} => mirror::verify(),
        Op::UffdRegister {
            address,
            length,
            modes,
        } => uffd::register(*address, *length, modes),
        Op::UffdUnregister { address, length } => uffd::unregister(*address, *length),
        Op::UffdCopy {
            address,
            length,
            salt,
            write_protect,
        } => uffd::copy(*address, *length, *salt, *write_protect),
        Op::UffdZeropage { address, length } => uffd::zeropage(*address, *length),
        Op::UffdMove {
            address,
            source,
            length,
        } => uffd::exchange(*address, *source, *length),
        Op::UffdRelocate {
            source,
            length,
            address,
        } => uffd::relocate(*source, *length, *address),
        Op::UffdContinue { address, length } => uffd::resume(*address, *length),
        Op::UffdWriteprotect {
            address,
            length,
            on,
        } => uffd::writeprotect(*address, *length, *on),
        Op::UffdPoison { address, length } => uffd::poison(*address, *length),
        Op::Pin { cpu } => sys::set_affinity(&[*cpu]).map(|()| Outcome::Done {}),
        Op::ThpDisable { on } => sys::disable_thp(*on).map(|()| Outcome::Done {}),
        Op::Several { ops } => several(ops),
        // Done by the loop that takes operations.
        Op::Fork { .. } | Op::Exit { .. } => Err(Failure::bad("no part of this request")),
    }
}

fn die_with_the_agent() {
    // It cannot fail with a signal that exists.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
}

/// Names the process for `/proc`, `ps` and the kernel's messages.
fn set_name(name: &str) {
    let name = if name.is_empty() {
        crate::WORKLOAD
    } else {
        name
    };
    if let Ok(name) = std::ffi::CString::new(name) {
        // The kernel cuts it.
        let _ = rustix::thread::set_name(&name);
    }
}

/// Keeps the heap in the program break, and its first pages resident.
fn settle_heap() {
    // SAFETY: mallopt takes numbers alone; glibc's are these.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_MMAP_MAX, 0);
        libc::mallopt(libc::M_TRIM_THRESHOLD, libc::c_int::MAX);
        libc::mallopt(libc::M_TOP_PAD, 1 << 20);
    }
    std::hint::black_box(vec![1u8; WARM_HEAP]);
}
