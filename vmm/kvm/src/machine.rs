//! A guest on KVM, as a [`Machine`].

use std::fs::File;
use std::io::Read;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::thread::JoinHandleExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use machine::channel::{Channel, Heard};
use machine::stream::{Deadline, Stream};
use machine::{ChannelError, Console, Machine, MachineError, Paused, Status, Stopped};
use rustix::event::{eventfd, EventfdFlags};
use snapshot::{Cpu, Notes, Range, RangeSet, Snapshot};
use stage1::{PhysicalAddress, VirtualAddress};

use crate::boot;
use crate::device::{Bus, Uart, VirtioConsole};
use crate::exits::{Counts, Exits};
use crate::fdt;
use crate::gate::{End, Gate};
use crate::gic::Spi;
use crate::io::{self, HostSide, HostStream, Watched};
use crate::layout;
use crate::memory::Ram;
use crate::seccomp::Filter;
use crate::vcpu::Vcpu;
use crate::vm::{NewCpu, Vm};
use crate::{Config, KvmError};

/// How long CPUs may take to stand still. They do so within a millisecond; but each thread may have to wait
/// for a processor on a busy host.
const STILL: Duration = Duration::from_secs(20);
/// How long a guest whose console has shown a panic is silent before nothing more is expected of it.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// How long a waiting process may take to ring: it rings every few microseconds, unless an interrupt took its CPU away.
const RING: Duration = Duration::from_millis(250);
/// The same where the doorbell never rang: the guest has no way to it, or nobody waits yet.
const FIRST_RING: Duration = Duration::from_millis(20);

/// A guest on KVM. Dropping it ends the guest and all threads that serve it.
#[derive(Debug)]
pub struct Kvm {
    vm: Vm,
    ram: Ram,
    gate: Arc<Gate>,
    threads: Vec<JoinHandle<()>>,
    quit: Arc<AtomicBool>,
    wake: Arc<OwnedFd>,
    /// The two devices that are asked something besides what the guest asks; until the machine is ended.
    virtio: Option<Arc<Mutex<Watched<VirtioConsole>>>>,
    uart: Option<Arc<Mutex<Watched<Uart>>>>,
    counts: Arc<Counts>,
    console: Console,
    channel: Channel,
    command_line: String,
    cmdline: String,
    /// Whether a record of writes is kept.
    logging: bool,
}

impl Kvm {
    /// Boots the guest; it runs when this returns.
    pub fn start(config: &Config) -> Result<Self, MachineError> {
        Self::start_with(config, None)
    }

    /// The same with one kind of interrupt controller, for tests of a host that has no other.
    #[doc(hidden)]
    pub fn start_with(config: &Config, gic: Option<fdt::Gic>) -> Result<Self, MachineError> {
        config.validate()?;
        std::fs::create_dir_all(&config.work_dir).map_err(|source| MachineError::System {
            what: format!("make the folder {}", config.work_dir.display()),
            source,
        })?;
        let console_log = create(&config.work_dir.join("console.log"))?;
        let transcript = create(&config.work_dir.join("channel.log"))?;
        let system = |what| move |source| KvmError::System { what, source };
        let pair = || UnixStream::pair().map_err(system("make a socket pair"));

        let ram = Ram::new(config.memory_bytes, config.hugepages)?;
        let (vm, cpus) = Vm::new(config.smp, ram.clone(), gic)?;
        let places = boot::load(config, &ram)?;
        let tree = tree(config, &vm, &cpus, &places)?;
        boot::load_tree(&tree, &places, &ram)?;
        let first = crate::registers::Registers {
            fd: &cpus[0].fd,
            cpu: 0,
        };
        first.set_boot(places.entry, places.tree)?;

        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wake = Arc::new(
            wake.map_err(std::io::Error::from)
                .map_err(system("make an event"))?,
        );
        let mut board = Board {
            vm: &vm,
            wake: &wake,
            bus: Bus::new(),
            streams: Vec::new(),
        };
        let (console, console_end) = pair()?;
        let (uart, uart_end) = pair()?;
        let (port, port_end) = pair()?;
        let first_uart = board.uart(layout::CONSOLE, layout::CONSOLE_SPI, console_end)?;
        board.uart(layout::AGENT_UART, layout::AGENT_UART_SPI, uart_end)?;
        let virtio = board.virtio(&ram, port_end)?;
        let Board { bus, streams, .. } = board;

        let (fds, runs): (Vec<_>, Vec<_>) = cpus.into_iter().map(|cpu| (cpu.fd, cpu.run)).unzip();
        let gate = Arc::new(Gate::new(runs)?);
        let filters = match config.seccomp {
            true => Some((Filter::cpu()?, Filter::io()?)),
            false => None,
        };
        let (cpu_filter, io_filter) = filters.unzip();
        let filter = io_filter.clone();
        let console = Console::start_with(console, console_log, move || {
            let confined = filter.map_or(Ok(()), |filter| filter.install());
            confined.map_err(std::io::Error::other)
        });
        let stream = |end| Stream::new(end).map_err(system("set up a socket"));
        let mut machine = Self {
            vm,
            ram,
            gate: Arc::clone(&gate),
            threads: Vec::new(),
            quit: Arc::default(),
            wake: Arc::clone(&wake),
            virtio: Some(virtio),
            uart: Some(first_uart),
            counts: Arc::default(),
            console: console.map_err(system("start the console's thread"))?,
            channel: Channel::new(vec![stream(port)?, stream(uart)?], transcript),
            command_line: config.command_line(),
            cmdline: config.cmdline.clone(),
            logging: false,
        };
        let bus = Arc::new(bus);
        for (index, fd) in fds.into_iter().enumerate() {
            let vcpu = Vcpu {
                index,
                fd,
                gate: Arc::clone(&gate),
                bus: Arc::clone(&bus),
                counts: Arc::clone(&machine.counts),
            };
            let filter = cpu_filter.clone();
            machine.spawn(format!("vcpu{index}"), move || vcpu.run(filter.as_ref()))?;
        }
        let quit = Arc::clone(&machine.quit);
        machine.spawn("io".into(), move || {
            match io_filter.map_or(Ok(()), |filter| filter.install()) {
                Ok(()) => io::run(streams, &*wake, &quit),
                Err(error) => gate.set_end(End::Lost(error.to_string())),
            }
        })?;
        // Each thread is there, confined, and its CPU's registers can be read.
        machine.gate.still(STILL)?;
        machine.ended()?;
        machine.gate.go();
        Ok(machine)
    }

    /// How often CPUs left the guest so far, and why.
    pub fn exits(&self) -> Exits {
        self.counts.read()
    }

    /// Which interrupt controller the guest has.
    pub fn gic(&self) -> fdt::Gic {
        self.vm.gic.kind
    }

    fn spawn(
        &mut self,
        name: String,
        body: impl FnOnce() + Send + 'static,
    ) -> Result<(), KvmError> {
        let thread = std::thread::Builder::new().name(name).spawn(body);
        self.threads.push(thread.map_err(|source| KvmError::System {
            what: "start a thread",
            source,
        })?);
        Ok(())
    }

    /// How the guest ended, if it has; what it said last is on the console then.
    fn end(&self) -> Option<End> {
        let end = self.gate.end()?;
        if let Some(uart) = &self.uart {
            // It need not be a line, which is what goes there at once.
            let mut uart = uart.lock().unwrap_or_else(PoisonError::into_inner);
            uart.with(Uart::host_writable);
        }
        Some(end)
    }

    /// The reason why nothing will come from the guest any more, if there is one.
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

    /// Does something with the virtio device, if the machine is still there.
    fn virtio<T>(&self, act: impl FnOnce(&mut VirtioConsole) -> T) -> Option<T> {
        let device = self.virtio.as_ref()?;
        // What a device holds is plain data.
        let mut device = device.lock().unwrap_or_else(PoisonError::into_inner);
        Some(device.with(act))
    }

    /// Waits until the guest stands still, which its CPUs were told to at `since`, and reads it.
    fn paused(&mut self, since: Instant) -> Result<Paused<'_>, MachineError> {
        let still = self.gate.still(STILL).map_err(MachineError::from);
        let snapshot = still.and_then(|(still, cpus)| Ok((still, self.read(cpus)?)));
        match snapshot {
            Ok((still, snapshot)) => {
                let stopping = still.saturating_duration_since(since);
                Ok(Paused::new(snapshot, self, since, stopping))
            }
            Err(error) => {
                // The first error is the one to tell.
                let _ = self.resume();
                Err(error)
            }
        }
    }

    /// The machine, all of whose CPUs stand still and are like this.
    fn read(&mut self, cpus: Vec<Cpu>) -> Result<Snapshot, MachineError> {
        if let Some(device) = &self.virtio {
            let mut device = device.lock().unwrap_or_else(PoisonError::into_inner);
            device.quietly(|device| device.freeze(true));
        }
        // SAFETY: all CPUs are out of KVM_RUN and wait at the gate, which only `resume` opens. The one
        // device that touches guest memory by itself is frozen, under its lock, and only `resume` thaws it.
        // The `Paused` that owns this memory borrows the machine exclusively and drops the memory before
        // it resumes the guest. The locks order the guest's writes before our reads.
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
            None if self.gate.is_stopped() => Status::Paused,
            None => Status::Running,
        }
    }

    fn end_event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.gate.ended())
    }

    fn pause(&mut self) -> Result<Paused<'_>, MachineError> {
        self.check_there()?;
        let since = Instant::now();
        self.gate.stop();
        self.paused(since)
    }

    fn pause_at(&mut self, nonce: u64) -> Result<Paused<'_>, MachineError> {
        self.check_there()?;
        match self.gate.await_ring(nonce, RING, FIRST_RING) {
            Some(rung) => self.paused(rung),
            None => self.pause(),
        }
    }

    fn log_writes(&mut self, on: bool) -> Result<(), MachineError> {
        self.check_there()?;
        self.vm.log_writes(on)?;
        if on && self.logging {
            // KVM's log goes on; what is in it belongs to the record that ends here.
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

    fn receive_line(&mut self, timeout: Duration) -> Result<Vec<u8>, MachineError> {
        // Between two looks at the console; all else wakes the wait.
        const LOOK: Duration = Duration::from_millis(100);
        let deadline = Deadline::after(timeout);
        loop {
            let until = deadline.at.min(Instant::now() + LOOK);
            let heard = self.channel.hear(Some(self.gate.ended()), until);
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
        self.gate.quit();
        self.quit.store(true, Ordering::Release);
        // It can fail only where the count is full, and then the thread is awake.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        for thread in self.threads.drain(..) {
            // One that panicked has said so on standard error.
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
        self.gate.go();
        Ok(())
    }

    /// KVM on arm64 has no walk of its own to ask.
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

/// How long a thread of ours has had a processor, in nanoseconds; 0 where that cannot be told.
fn ran_ns_of(thread: &JoinHandle<()>) -> u64 {
    let mut clock = 0;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: nobody has joined the thread, as its handle is here, so its id is valid; both are written to.
    let read = unsafe {
        libc::pthread_getcpuclockid(thread.as_pthread_t(), &mut clock) == 0
            && libc::clock_gettime(clock, &mut time) == 0
    };
    match read {
        true => time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64,
        false => 0,
    }
}

/// The devices while they are put on the bus.
struct Board<'a> {
    vm: &'a Vm,
    wake: &'a Arc<OwnedFd>,
    bus: Bus,
    streams: Vec<HostStream>,
}

impl Board<'_> {
    fn uart(
        &mut self,
        base: u64,
        spi: u32,
        stream: UnixStream,
    ) -> Result<Arc<Mutex<Watched<Uart>>>, KvmError> {
        let irq = Spi::connect(&self.vm.fd, spi)?;
        let device = Uart::new(irq, copy(&stream)?);
        self.add(base, layout::UART_BYTES, device, stream)
    }

    fn virtio(
        &mut self,
        ram: &Ram,
        stream: UnixStream,
    ) -> Result<Arc<Mutex<Watched<VirtioConsole>>>, KvmError> {
        let irq = Spi::connect(&self.vm.fd, layout::VIRTIO_CONSOLE_SPI)?;
        let end = copy(&stream)?;
        let device = VirtioConsole::new(ram.guest().clone(), irq, protocol::PORT_NAME, end);
        self.add(layout::VIRTIO_CONSOLE, layout::VIRTIO_BYTES, device, stream)
    }

    fn add<D: HostSide + 'static>(
        &mut self,
        base: u64,
        bytes: u64,
        device: D,
        stream: UnixStream,
    ) -> Result<Arc<Mutex<Watched<D>>>, KvmError> {
        let device = Arc::new(Mutex::new(Watched::new(device, self.wake)));
        self.bus.add(base, bytes, Arc::clone(&device) as _)?;
        self.streams.push(HostStream::new(stream, &device));
        Ok(device)
    }
}

fn copy(stream: &UnixStream) -> Result<UnixStream, KvmError> {
    stream.try_clone().map_err(|source| KvmError::System {
        what: "copy a descriptor",
        source,
    })
}

fn create(path: &Path) -> Result<File, MachineError> {
    File::create(path).map_err(|source| MachineError::System {
        what: format!("write {}", path.display()),
        source,
    })
}

fn tree(
    config: &Config,
    vm: &Vm,
    cpus: &[NewCpu],
    places: &boot::Places,
) -> Result<Vec<u8>, KvmError> {
    // A kernel with a good seed does not wait for its random number generator.
    let mut seed = [0; 64];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut seed));
    read.map_err(|source| KvmError::System {
        what: "read /dev/urandom",
        source,
    })?;
    let mpidrs: Vec<u64> = cpus.iter().map(|cpu| cpu.mpidr).collect();
    let description = fdt::Description {
        ram_bytes: config.memory_bytes,
        mpidrs: &mpidrs,
        gic: vm.gic.kind,
        command_line: &config.cmdline,
        initrd: places.initrd.clone(),
        rng_seed: Some(&seed),
        kaslr_seed: None,
    };
    Ok(fdt::build(&description)?)
}
