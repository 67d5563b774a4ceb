// SPDX-License-Identifier: GPL-2.0-only
//! The user's options for the guest to boot, and their defaults on this machine.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::knob::Knob;
use crate::machines::{carried, Backend, Launch, MachineChoice, TcgThread};
use crate::program::Program;
use crate::Error;

/// The page size of the pinned kernel to boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GranuleName {
    /// 4 KiB pages; a contiguous block is 64 KiB.
    #[value(name = "4k")]
    K4,
    /// 16 KiB pages; a contiguous block is 2 MiB.
    #[value(name = "16k")]
    K16,
    /// 64 KiB pages; a contiguous block is 2 MiB.
    #[value(name = "64k")]
    K64,
}

impl GranuleName {
    /// Returns the name as the user types it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::K4 => "4k",
            Self::K16 => "16k",
            Self::K64 => "64k",
        }
    }
}

/// Where the KVM of a carrier runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CarrierMode {
    /// The whole host kernel at EL2, where the CPU has FEAT_VHE.
    Vhe,
    /// A small part of it at EL2.
    Nvhe,
}

/// The guest to boot.
#[derive(Args, Clone, Debug)]
pub struct GuestOptions {
    /// Kernel to boot: an arm64 Image, gzip or EFI zboot image [default: out/kernel-GRANULE/Image]
    #[arg(long, value_name = "FILE")]
    pub kernel: Option<PathBuf>,
    /// The kernel's vmlinux, for symbols and the order record [default: vmlinux beside the kernel]
    #[arg(long, value_name = "FILE")]
    pub vmlinux: Option<PathBuf>,
    /// The guest's initramfs [default: out/initramfs.cpio]
    #[arg(long, value_name = "FILE")]
    pub initrd: Option<PathBuf>,
    /// Page size of the pinned kernel (a kernel that is given has its own)
    #[arg(long, value_enum, default_value = "4k")]
    pub granule: GranuleName,
    /// The machine that runs the guest
    #[arg(long, value_enum, default_value = "auto")]
    pub machine: MachineChoice,
    /// How KVM runs in the carrier of --machine kvm-in-tcg
    #[arg(long, value_enum, default_value = "vhe")]
    pub carrier_mode: CarrierMode,
    /// CPU model, by QEMU's name; that of the carrier with --machine kvm-in-tcg, none with kvm
    #[arg(long, value_name = "MODEL", default_value = "max")]
    pub cpu: String,
    /// Guest memory, in bytes or with a suffix K, M or G
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_size)]
    pub memory: u64,
    /// Number of CPUs
    #[arg(long, visible_alias = "cpus", value_name = "N", default_value_t = 2)]
    pub smp: u32,
    /// Back the guest's memory with huge pages of the host (on KVM)
    #[arg(long)]
    pub hugepages: bool,
    /// More words for the guest's command line
    #[arg(
        long,
        value_name = "WORDS",
        default_value = "",
        allow_hyphen_values = true
    )]
    pub append: String,
    /// Order policy of anonymous faults: sysfs, baseline, simple, variable, retry or adaptive
    /// [default: variable where the kernel has policies, else what it does by itself]
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,
    /// Write a text to a file of the guest before anything is done in it (may be repeated)
    #[arg(long, value_name = "FILE=TEXT")]
    pub knob: Vec<Knob>,
    /// The QEMU to run
    #[arg(long, value_name = "FILE", default_value = "qemu-system-aarch64")]
    pub qemu: PathBuf,
    /// Maximum number of seconds until the guest's agent answers
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub boot_timeout: u64,
    /// Seconds that the guest may take for one command, before it is taken to hang: more where this host is slow
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub deadline: u64,
    /// Count the guest's instructions (under TCG), and write them to this file at each marker of a program
    #[arg(long, value_name = "FILE")]
    pub marks: Option<PathBuf>,
    /// The plugin that counts them, which vmm/setup/plugin.sh builds
    #[arg(
        long,
        value_name = "FILE",
        default_value = "out/libcounter_plugin.so",
        requires = "marks"
    )]
    pub counter: PathBuf,
    /// Count at each marker also the kernel's entries by cause (on one CPU): aborts, interrupts, system calls by number
    #[arg(long, requires = "marks")]
    pub entries: bool,
    /// Count at each marker also the calls of each kernel function in this list: a name and a runtime address in each
    /// line (so it needs `--append nokaslr`)
    #[arg(long, value_name = "FILE", requires = "marks")]
    pub functions: Option<PathBuf>,
    /// Write each block of kernel code that the guest executes to this file: an address and a number of instructions in
    /// each line
    #[arg(long, value_name = "FILE", requires = "marks")]
    pub executed: Option<PathBuf>,
    /// Let the guest's time advance by its instructions (under TCG), so that a run on one CPU repeats
    #[arg(long)]
    pub icount: bool,
    /// How TCG runs the guest's CPUs [default: single; multi if the guest is recorded, or marked without --icount]
    #[arg(long, value_enum, value_name = "HOW")]
    pub tcg_thread: Option<TcgThread>,
    /// True for a guest that is not looked into: its command line has a console and the user's words.
    #[arg(skip)]
    pub plain: bool,
    /// Where the recorder's plugin is and its trace goes, if the guest is recorded
    #[arg(skip)]
    pub recording: Option<machine::qemu::Recording>,
    /// The program whose file the guest's initramfs gets
    #[arg(skip)]
    pub program: Option<Program>,
    /// On KVM: another directory that the guest's process may write in, for files that clients ask for; it writes in --out
    /// and where its reports go
    #[arg(long, value_name = "DIRECTORY")]
    pub writable: Vec<PathBuf>,
    /// Where logs and bundles go
    #[arg(long, value_name = "DIR", default_value = "out")]
    pub out: PathBuf,
}

impl GuestOptions {
    /// Returns the machine that runs the guest.
    #[must_use]
    pub fn machine(&self) -> &'static Backend {
        self.machine.backend()
    }

    /// Returns the machine's name in reports.
    #[must_use]
    pub fn machine_kind(&self) -> &'static str {
        (self.machine().kind)(carried())
    }

    /// Returns the name of the guest's CPU: on KVM it is the host's.
    #[must_use]
    pub fn cpu_name(&self) -> &str {
        self.machine().cpu.unwrap_or(&self.cpu)
    }

    /// Returns the guest as a machine starts it, with its unpacked kernel.
    #[must_use]
    pub fn launch<'a>(
        &'a self,
        image: &'a Path,
        initrd: &'a Path,
        scratch: &'a Path,
    ) -> Launch<'a> {
        Launch {
            image,
            initrd,
            scratch,
            qemu: &self.qemu,
            cpu: &self.cpu,
            memory: self.memory,
            smp: self.smp,
            hugepages: self.hugepages,
            append: &self.append,
            plain: self.plain,
            recording: self.recording.as_ref(),
            marks: self.marks.as_deref(),
            counter: &self.counter,
            entries: self.entries,
            functions: self.functions.as_deref(),
            executed: self.executed.as_deref(),
            icount: self.icount,
            tcg_thread: self.tcg_thread,
        }
    }

    /// Restricts the guest to TCG, as stores of a guest on KVM are not visible, with a thread for each CPU: in one,
    /// QEMU 10.0 tells a plugin the CPU that translated an instruction, not the one that executes it.
    ///
    /// # Errors
    /// If the options name another machine.
    pub fn only_tcg(&mut self) -> Result<(), Error> {
        match self.machine {
            MachineChoice::Auto => self.machine = MachineChoice::TCG,
            MachineChoice::Of(backend) if backend.is_tcg => {}
            MachineChoice::Of(_) | MachineChoice::Carried => {
                return Err(Error::Input(
                    "a guest on KVM cannot be recorded, as nothing sees its stores; leave --machine out or say --machine tcg".into(),
                ))
            }
        }
        if self.icount || self.tcg_thread == Some(TcgThread::Single) {
            return Err(Error::Input(
                "a guest that is recorded has a thread for each CPU, and with --icount or --tcg-thread single it has one for all; leave that out".into(),
            ));
        }
        self.tcg_thread = Some(TcgThread::Multi);
        Ok(())
    }

    /// Returns the kernel file: the given one, or the pinned one of the granule.
    ///
    /// # Errors
    /// If neither is there, with the command that builds it.
    pub fn kernel_path(&self) -> Result<PathBuf, Error> {
        if let Some(path) = &self.kernel {
            return existing(
                path,
                "a kernel",
                "check the path given with --kernel or KERNEL=",
            );
        }
        let path = PathBuf::from(format!("out/kernel-{}/Image", self.granule.name()));
        existing(
            &path,
            "the pinned kernel",
            &format!("build it with: make build GRANULE={}", self.granule.name()),
        )
    }

    /// Returns the vmlinux: the given one, or the one beside the kernel if there is one.
    ///
    /// # Errors
    /// If the one that was given is not there.
    pub fn vmlinux_path(&self, kernel: &Path) -> Result<Option<PathBuf>, Error> {
        if let Some(path) = &self.vmlinux {
            return existing(
                path,
                "a vmlinux",
                "check the path given with --vmlinux or VMLINUX=",
            )
            .map(Some);
        }
        let beside = kernel.with_file_name("vmlinux");
        Ok(beside.is_file().then_some(beside))
    }

    /// Returns the initramfs.
    ///
    /// # Errors
    /// If it is not there, with the command that builds it.
    pub fn initrd_path(&self) -> Result<PathBuf, Error> {
        let ours = Path::new("out/initramfs.cpio");
        existing(
            self.initrd.as_deref().unwrap_or(ours),
            "the guest's initramfs",
            "build it with: make rootfs",
        )
    }
}

fn existing(path: &Path, what: &str, then: &str) -> Result<PathBuf, Error> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => Ok(path.to_path_buf()),
        Ok(_) => Err(Error::Input(format!(
            "expected {what} at {} and found no regular file there; {then}",
            path.display()
        ))),
        Err(error) => Err(Error::Input(format!(
            "expected {what} at {} and could not open it ({error}); {then}",
            path.display()
        ))),
    }
}

/// Parses `512M`, `1G`, `1073741824` to bytes.
///
/// # Errors
/// If it is no size.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let shift = match text.bytes().last().map(|last| last.to_ascii_uppercase()) {
        Some(b'K') => 10,
        Some(b'M') => 20,
        Some(b'G') => 30,
        _ => 0,
    };
    let digits = if shift == 0 {
        text
    } else {
        &text[..text.len() - 1]
    };
    digits
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(1 << shift))
        .ok_or_else(|| {
            format!("expected a size such as 1G, 512M or a number of bytes and found {text:?}")
        })
}

/// Returns an address in hexadecimal, with or without `0x`.
///
/// # Errors
/// If it is not one.
pub fn parse_address(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text).replace('_', "");
    u64::from_str_radix(&digits, 16).map_err(|_| {
        format!("expected a hexadecimal address such as 0xffff8000 and found {text:?}")
    })
}
