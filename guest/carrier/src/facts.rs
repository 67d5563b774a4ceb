//! Facts about the carrier, for its greeting.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;

use protocol::carrier::{Hello, Mode, VERSION};

/// Returns the kernel, pages, CPUs, KVM.
pub fn hello() -> Hello {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Hello {
        version: VERSION,
        kernel: release.trim().to_owned(),
        page_size: rustix::param::page_size() as u64,
        cpus: std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32),
        kvm: kvm_mode(),
    }
}

/// Reads the mode from the kernel's log: only arch/arm64/kvm/arm.c prints it.
fn kvm_mode() -> Option<Mode> {
    if !fs::exists("/dev/kvm").unwrap_or(false) {
        return None;
    }
    let mut log = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/kmsg")
        .ok()?;
    // One record per read, of at most 8 KiB; an error is the end, or a record that was overwritten.
    let mut record = [0; 8192];
    let mut mode = None;
    for _ in 0..100_000 {
        match log.read(&mut record) {
            Ok(count) => {
                let line = String::from_utf8_lossy(&record[..count]);
                if let Some((before, _)) = line.split_once("VHE mode initialized") {
                    let nvhe = before.ends_with(['n', 'h']);
                    mode = Some(if nvhe { Mode::Nvhe } else { Mode::Vhe });
                }
            }
            Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
            Err(_) => break,
        }
    }
    mode
}
