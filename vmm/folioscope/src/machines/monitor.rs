// SPDX-License-Identifier: GPL-2.0-only
//! Our own monitor on KVM.

use machine::Machine;

use super::backend::{command_line, Backend, Launch};
use crate::Error;

pub(super) const KVM: Backend = Backend {
    name: "kvm",
    about: "Our own monitor on KVM",
    kind: |carried| match carried {
        true => "kvm-in-tcg",
        false => "kvm",
    },
    cpu: Some("host"),
    is_tcg: false,
    is_in_process: true,
    start,
};

/// Starts the monitor.
fn start(launch: &Launch<'_>) -> Result<Box<dyn Machine>, Error> {
    if cfg!(not(target_arch = "aarch64")) {
        return Err(Error::Input(format!(
            "--machine kvm needs an arm64 host with KVM and this one is {}; use --machine kvm-in-tcg, which emulates such a host, or tcg",
            std::env::consts::ARCH
        )));
    }
    let mut config = kvm::Config::new(launch.image, launch.scratch);
    config.initrd = Some(launch.initrd.to_path_buf());
    config.memory_bytes = launch.memory;
    config.smp = launch.smp;
    config.hugepages = launch.hugepages;
    config.cmdline = command_line("console=ttyS0 earlycon=uart8250,mmio,0x9000000", launch);
    Ok(kvm::start(&config)?)
}
