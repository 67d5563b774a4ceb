// SPDX-License-Identifier: GPL-2.0-only
//! Configuration of a guest, and its validation.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::host::{self, check_image, check_initrd};
use crate::limits::{MOST_CPUS, MOST_NODES};
use crate::ConfigError;

/// The recorder's plugin, and where its trace goes.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The plugin, a shared library.
    pub plugin: PathBuf,
    /// The trace: a file or a FIFO.
    pub trace: PathBuf,
    /// A FIFO: each number of 8 bytes that is written into it becomes a mark in the trace.
    pub control: Option<PathBuf>,
}

/// The counter of instructions, and the files for its output.
#[derive(Clone, Debug)]
pub struct Counting {
    /// The plugin, a shared library.
    pub plugin: PathBuf,
    /// The marks: a file, which is written anew.
    pub marks: PathBuf,
    /// True if it reports the reasons of kernel entries.
    pub entries: bool,
    /// A list of kernel functions whose calls it reports.
    pub functions: Option<PathBuf>,
    /// A file for the blocks of kernel code that are executed, which is written anew.
    pub executed: Option<PathBuf>,
}

/// The way QEMU runs the guest's CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Threads {
    /// Each in a thread of its own, at the same time as the others (QEMU's `thread=multi`).
    #[default]
    Multi,
    /// All in one thread, in turns of up to a tenth of a second (`thread=single`).
    Single,
}

impl Threads {
    /// Returns the option in the form of QEMU's `-accel`.
    #[must_use]
    pub fn accelerator(self) -> &'static str {
        match self {
            Self::Multi => "tcg,thread=multi",
            Self::Single => "tcg,thread=single",
        }
    }
}

/// A guest to boot under QEMU.
#[derive(Clone, Debug)]
pub struct Config {
    /// The program, by path or by name.
    pub qemu: PathBuf,
    /// An arm64 Image, unpacked.
    pub kernel: PathBuf,
    /// The initramfs.
    pub initrd: Option<PathBuf>,
    /// The kernel's command line.
    pub cmdline: String,
    /// The CPU model, with QEMU's options if need be: `max`, `cortex-a72`, `max,lpa2=off`.
    pub cpu: String,
    /// The guest's RAM in bytes.
    pub memory_bytes: u64,
    /// The number of CPUs.
    pub smp: u32,
    /// Over how many NUMA nodes memory and CPUs are spread; 1 is a machine without NUMA.
    pub nodes: u32,
    /// Directory of `console.log`, `channel.log` and `qemu.log`; created if it does not exist.
    pub work_dir: PathBuf,
    /// Loads the recorder's plugin, which records the guest's changes of its page tables.
    pub recording: Option<Recording>,
    /// Loads the counter of executed instructions, read at the guest's markers.
    pub counting: Option<Counting>,
    /// The way its CPUs run.
    pub threads: Threads,
    /// Lets the guest's time advance by its instructions, a nanosecond each, so that a run on one CPU repeats. It needs
    /// [`Threads::Single`].
    pub icount: bool,
    /// More arguments for QEMU, behind ours.
    pub extra_args: Vec<String>,
}

impl Config {
    /// Creates a guest of `kernel` with 1 GiB and two CPUs that have all that QEMU can emulate; its files go to
    /// `work_dir`.
    pub fn new(kernel: impl Into<PathBuf>, work_dir: impl Into<PathBuf>) -> Self {
        Self {
            qemu: "qemu-system-aarch64".into(),
            kernel: kernel.into(),
            initrd: None,
            cmdline: "console=ttyAMA0".into(),
            cpu: "max".into(),
            memory_bytes: 1 << 30,
            smp: 2,
            nodes: 1,
            work_dir: work_dir.into(),
            recording: None,
            counting: None,
            threads: Threads::default(),
            icount: false,
            extra_args: Vec::new(),
        }
    }

    /// Finds errors with which no machine could start, before anything is started.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let most = host::memory_bytes();
        let (bytes, nodes, cpus) = (self.memory_bytes, self.nodes, self.smp);
        if !(host::LEAST_MEMORY..=most).contains(&bytes) {
            return Err(ConfigError::MemorySize {
                bytes,
                least: host::LEAST_MEMORY,
                most,
            });
        }
        if !(1..=MOST_CPUS).contains(&cpus) {
            return Err(ConfigError::Cpus(cpus));
        }
        if !(1..=MOST_NODES.min(cpus)).contains(&nodes) {
            return Err(ConfigError::Nodes { nodes, cpus });
        }
        if nodes > 1 && self.recording.is_some() {
            return Err(ConfigError::RecordedNodes(nodes));
        }
        if bytes % (host::GRAIN * u64::from(nodes)) != 0 {
            return Err(ConfigError::MemoryGrain { bytes, nodes });
        }
        check_text("kernel's command line", self.cmdline.as_bytes())?;
        check_text("CPU model", self.cpu.as_bytes())?;
        check_text("kernel's path", self.kernel.as_os_str().as_bytes())?;
        for argument in &self.extra_args {
            check_text("QEMU arguments", argument.as_bytes())?;
        }
        check_image(&self.kernel)?;
        if let Some(initrd) = &self.initrd {
            check_text("initrd's path", initrd.as_os_str().as_bytes())?;
            check_initrd(initrd)?;
        }
        Ok(())
    }
}

fn check_text(what: &'static str, text: &[u8]) -> Result<(), ConfigError> {
    if text.contains(&0) {
        return Err(ConfigError::ZeroByte(what));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Image(PathBuf);

    impl Image {
        fn new(magic: &[u8]) -> Self {
            let thread = format!("{:?}", std::thread::current().id());
            let name = format!("folioscope-image-{}-{thread}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let mut bytes = vec![0; 56];
            bytes.extend(magic);
            bytes.extend([0; 4]);
            std::fs::write(&path, bytes).unwrap();
            Self(path)
        }
    }

    impl Drop for Image {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    fn refusal(change: impl Fn(&mut Config)) -> String {
        let image = Image::new(b"ARM\x64");
        let mut config = Config::new(&image.0, "/nonexistent");
        config.validate().expect("the default makes sense");
        change(&mut config);
        config.validate().unwrap_err().to_string()
    }

    #[test]
    fn nonsense_is_refused_in_a_sentence() {
        for (sentence, expected) in [
            (
                refusal(|c| c.memory_bytes = 1 << 20),
                "a guest with 1048576 bytes of memory",
            ),
            (
                refusal(|c| c.memory_bytes = 1 << 60),
                "the memory of this host",
            ),
            (
                refusal(|c| c.memory_bytes = (64 << 20) + 4096),
                "a multiple of 2 MiB",
            ),
            (refusal(|c| c.smp = 0), "a guest with 0 CPUs"),
            (refusal(|c| c.smp = 513), "expected 1 to 512"),
            (
                refusal(|c| c.nodes = 3),
                "a guest with 3 NUMA nodes and 2 CPUs",
            ),
            (
                refusal(|c| {
                    c.nodes = 2;
                    let (plugin, trace) = ("p.so".into(), "t".into());
                    let control = None;
                    c.recording = Some(Recording {
                        plugin,
                        trace,
                        control,
                    });
                }),
                "a recorded guest with 2 NUMA nodes",
            ),
            (
                refusal(|c| c.cmdline = "a\0b".into()),
                "command line holds a zero byte",
            ),
            (
                refusal(|c| c.kernel = "/nonexistent/Image".into()),
                "cannot read the kernel",
            ),
            (
                refusal(|c| c.kernel = "/etc/passwd".into()),
                "is not an arm64 Image",
            ),
            (
                refusal(|c| c.initrd = Some("/nonexistent/cpio".into())),
                "cannot read the initrd",
            ),
        ] {
            assert!(
                sentence.contains(expected),
                "{sentence:?} lacks {expected:?}"
            );
        }
    }
}
