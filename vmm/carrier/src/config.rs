// SPDX-License-Identifier: GPL-2.0-only
//! Configuration of a carrier.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// A carrier to boot.
#[derive(Clone, Debug)]
pub struct CarrierConfig {
    /// QEMU, version 10 or later.
    pub qemu: PathBuf,
    /// An arm64 Image with KVM, 9P and virtio over MMIO.
    pub kernel: PathBuf,
    /// The initramfs with `guest/carrier` as `/init`.
    pub initrd: PathBuf,
    /// CPU model, by QEMU's name. One without FEAT_VHE, such as cortex-a72, makes KVM run as nVHE.
    pub cpu: String,
    /// True if KVM is to run as nVHE on a CPU that has VHE too.
    pub nvhe: bool,
    /// The version of its interrupt controller, and of its guests': 3 or 2.
    pub gic: u8,
    /// Number of CPUs.
    pub smp: usize,
    /// Memory, in bytes; the host gives it as it is used.
    pub memory_bytes: u64,
    /// Directories that are writable inside; all other files of the host are read-only.
    pub writable: Vec<PathBuf>,
    /// Directory of the logs `console.log` and `qemu.log`; created if it does not exist.
    pub logs: PathBuf,
    /// Maximum time until it is ready.
    pub patience: Duration,
}

impl CarrierConfig {
    /// Creates a carrier with VHE, up to 4 CPUs, 4 GiB, in which the temporary directories can be written.
    #[must_use]
    pub fn new(kernel: &Path, initrd: &Path, logs: &Path) -> Self {
        Self {
            qemu: "qemu-system-aarch64".into(),
            kernel: kernel.into(),
            initrd: initrd.into(),
            cpu: "max".into(),
            nvhe: false,
            gic: 3,
            smp: std::thread::available_parallelism().map_or(1, |n| n.get().min(4)),
            memory_bytes: 4 << 30,
            writable: vec!["/tmp".into(), std::env::temp_dir()],
            logs: logs.into(),
            patience: Duration::from_secs(120),
        }
    }
}
