// SPDX-License-Identifier: GPL-2.0-only
//! Configuration of a guest, and its validation.

use std::ffi::OsString;
use std::path::PathBuf;

use machine::host::{self, quoted, GRAIN, LEAST_MEMORY};
use machine::{ConfigError, MachineError};

use crate::layout::MOST_CPUS;
use crate::KvmError;

/// A guest to boot on KVM.
#[derive(Clone, Debug)]
pub struct Config {
    /// An arm64 Image, unpacked.
    pub kernel: PathBuf,
    /// The initramfs.
    pub initrd: Option<PathBuf>,
    /// The kernel's command line.
    pub cmdline: String,
    /// The guest's RAM in bytes.
    pub memory_bytes: u64,
    /// The number of CPUs.
    pub smp: u32,
    /// Directory of `console.log` and `channel.log`; created if it does not exist.
    pub work_dir: PathBuf,
    /// True if the guest's RAM is made of the host's huge pages of 2 MiB.
    pub hugepages: bool,
    /// Offset in RAM at which the kernel is loaded, in bytes: a multiple of 2 MiB.
    pub load_offset: u64,
    /// True if the threads that serve the guest are confined to the system calls that they need. [`crate::confine`]
    /// confines the other threads of the process.
    pub seccomp: bool,
}

impl Config {
    /// Creates a guest of `kernel` with 1 GiB and two CPUs; its files go to `work_dir`.
    pub fn new(kernel: impl Into<PathBuf>, work_dir: impl Into<PathBuf>) -> Self {
        Self {
            kernel: kernel.into(),
            initrd: None,
            cmdline: "console=ttyS0".into(),
            memory_bytes: 1 << 30,
            smp: 2,
            work_dir: work_dir.into(),
            hugepages: false,
            load_offset: 0,
            seccomp: true,
        }
    }

    /// Finds errors with which no machine could start, before anything is started.
    pub fn validate(&self) -> Result<(), MachineError> {
        let (bytes, most) = (self.memory_bytes, host::memory_bytes());
        if !(LEAST_MEMORY..=most).contains(&bytes) {
            let least = LEAST_MEMORY;
            return Err(ConfigError::MemorySize { bytes, least, most }.into());
        }
        if bytes % GRAIN != 0 {
            return Err(ConfigError::MemoryGrain { bytes, nodes: 1 }.into());
        }
        let (asked, most) = (self.smp, MOST_CPUS);
        if !(1..=most).contains(&asked) {
            return Err(KvmError::Cpus { asked, most }.into());
        }
        if self.load_offset % GRAIN != 0 {
            return Err(KvmError::LoadOffset(self.load_offset).into());
        }
        if self.cmdline.contains('\0') {
            return Err(ConfigError::ZeroByte("kernel's command line").into());
        }
        host::check_image(&self.kernel)?;
        if let Some(initrd) = &self.initrd {
            host::check_initrd(initrd)?;
        }
        Ok(())
    }

    /// Returns the shell command that starts the same machine by hand.
    pub fn command_line(&self) -> String {
        let mut words: Vec<OsString> = ["folioscope", "boot", "--machine", "kvm"]
            .map(OsString::from)
            .into();
        words.extend(["--kernel".into(), self.kernel.clone().into()]);
        if let Some(initrd) = &self.initrd {
            words.extend(["--initrd".into(), initrd.into()]);
        }
        let memory = format!("{}K", self.memory_bytes / 1024);
        words.extend(["--cpus".into(), self.smp.to_string().into()]);
        words.extend(["--memory".into(), memory.into()]);
        if self.hugepages {
            words.push("--hugepages".into());
        }
        // Last, as with QEMU: it is the longest.
        words.extend(["--append".into(), self.cmdline.clone().into()]);
        quoted(words.iter().map(OsString::as_os_str))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused_in_a_sentence() {
        let folder = std::env::temp_dir().join(format!("folioscope-kvm-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut image = vec![0; 64];
        image[56..60].copy_from_slice(b"ARM\x64");
        std::fs::write(folder.join("Image"), image).unwrap();
        let config = Config::new(folder.join("Image"), &folder);
        config.validate().expect("the default makes sense");
        type Change = fn(&mut Config);
        let cases: [(Change, &str); 8] = [
            (|c| c.memory_bytes = 1 << 20, "a guest with 1048576 bytes"),
            (|c| c.memory_bytes = 1 << 60, "the memory of this host"),
            (|c| c.memory_bytes += 4096, "a multiple of 2 MiB"),
            (|c| c.smp = 0, "a guest with 0 CPUs"),
            (|c| c.smp = 9, "expected 1 to 8"),
            (|c| c.load_offset = 4096, "0x1000 bytes into RAM"),
            (|c| c.cmdline = "a\0b".into(), "holds a zero byte"),
            (
                |c| c.kernel = "/proc/self/maps".into(),
                "is not an arm64 Image",
            ),
        ];
        for (change, expected) in cases {
            let mut config = config.clone();
            change(&mut config);
            let sentence = config.validate().unwrap_err().to_string();
            assert!(
                sentence.contains(expected),
                "{sentence:?} lacks {expected:?}"
            );
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_command_can_be_pasted() {
        let mut config = Config::new("/k/Image", "/tmp");
        config.initrd = Some("/k/it's.cpio".into());
        config.cmdline = "console=ttyS0 quiet".into();
        assert_eq!(
            config.command_line(),
            r"folioscope boot --machine kvm --kernel /k/Image --initrd '/k/it'\''s.cpio' --cpus 2 --memory 1048576K --append 'console=ttyS0 quiet'"
        );
    }
}
