// SPDX-License-Identifier: GPL-2.0-only
//! QEMU's command line.

use std::ffi::OsString;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};

use protocol::carrier::{escape, MOUNT_WORD, PORT_NAME, ROOT_TAG};

use crate::{CarrierConfig, CarrierError};

/// The descriptors that QEMU inherits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fds {
    pub(crate) console: RawFd,
    pub(crate) port: RawFd,
}

/// Returns all arguments of QEMU.
pub(crate) fn arguments(config: &CarrierConfig, fds: Fds) -> Result<Vec<OsString>, CarrierError> {
    let mut all: Vec<OsString> = Vec::new();
    let mut pair = |option: &str, value: OsString| all.extend([option.into(), value]);
    // virtualization=on is EL2. No PCI device below: QEMU 10.0's emulated ITS loses interrupts.
    let gic = config.gic;
    pair(
        "-M",
        format!("virt,gic-version={gic},virtualization=on").into(),
    );
    pair("-accel", "tcg,thread=multi".into());
    pair("-cpu", config.cpu.clone().into());
    pair("-smp", config.smp.to_string().into());
    pair("-m", format!("{}k", config.memory_bytes / 1024).into());
    pair("-display", "none".into());
    pair("-global", "virtio-mmio.force-legacy=false".into());
    pair(
        "-chardev",
        format!("socket,id=console,fd={}", fds.console).into(),
    );
    pair("-serial", "chardev:console".into());
    pair("-chardev", format!("socket,id=port,fd={}", fds.port).into());
    pair("-device", "virtio-serial-device".into());
    pair(
        "-device",
        format!("virtserialport,chardev=port,name={PORT_NAME}").into(),
    );
    let mut words = String::from("console=ttyAMA0 earlycon=pl011,0x9000000 panic=-1");
    if config.nvhe {
        words.push_str(" kvm-arm.mode=nvhe");
    }
    let mut export = |tag: &str, path: &Path, readonly: &str| {
        let mut fsdev = OsString::from(format!(
            "local,id={tag},security_model=none,multidevs=remap{readonly},path="
        ));
        // A comma in a value is written twice.
        fsdev.push(path.to_string_lossy().replace(',', ",,"));
        pair("-fsdev", fsdev);
        pair(
            "-device",
            format!("virtio-9p-device,fsdev={tag},mount_tag={tag}").into(),
        );
    };
    export(ROOT_TAG, Path::new("/"), ",readonly=on");
    for (index, path) in writable(&config.writable)?.iter().enumerate() {
        let tag = format!("rw{index}");
        export(&tag, path, "");
        words.push_str(&format!(
            " {MOUNT_WORD}{tag}:{}",
            escape(&path.to_string_lossy())
        ));
    }
    pair("-kernel", config.kernel.clone().into());
    pair("-initrd", config.initrd.clone().into());
    pair("-append", words.into());
    // A kernel that panics restarts at once, and then QEMU ends.
    all.extend(["-nodefaults".into(), "-no-reboot".into()]);
    Ok(all)
}

/// Returns the directories without those that lie in another one of them.
fn writable(paths: &[PathBuf]) -> Result<Vec<PathBuf>, CarrierError> {
    let mut kept: Vec<PathBuf> = Vec::new();
    let mut paths = paths.to_vec();
    paths.sort();
    for path in paths {
        if !path.is_absolute() || path.to_str().is_none() || !path.is_dir() {
            return Err(CarrierError::Path(path));
        }
        if !kept.iter().any(|other| path.starts_with(other)) {
            kept.push(path);
        }
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(config: &CarrierConfig) -> String {
        let all = arguments(
            config,
            Fds {
                console: 10,
                port: 11,
            },
        )
        .unwrap();
        all.join(" ".as_ref()).into_string().unwrap()
    }

    #[test]
    fn the_root_is_read_only_and_what_is_writable_lies_over_it() {
        let mut config = CarrierConfig::new("/k".as_ref(), "/i".as_ref(), "/l".as_ref());
        config.writable = vec!["/usr/lib".into(), "/tmp".into(), "/usr".into()];
        let line = line(&config);
        assert!(
            line.contains("id=root,security_model=none,multidevs=remap,readonly=on,path=/ "),
            "{line}"
        );
        assert!(
            line.contains("id=rw0,security_model=none,multidevs=remap,path=/tmp "),
            "{line}"
        );
        assert!(
            line.contains(" carrier.mount=rw0:/tmp carrier.mount=rw1:/usr "),
            "{line}"
        );
        assert!(!line.contains("rw2") && !line.contains("pci"), "{line}");
    }

    #[test]
    fn nvhe_is_asked_of_the_kernel() {
        let mut config = CarrierConfig::new("/k".as_ref(), "/i".as_ref(), "/l".as_ref());
        assert!(!line(&config).contains("nvhe"));
        config.nvhe = true;
        assert!(line(&config).contains(" kvm-arm.mode=nvhe "));
    }

    #[test]
    fn a_relative_path_is_refused() {
        let mut config = CarrierConfig::new("/k".as_ref(), "/i".as_ref(), "/l".as_ref());
        config.writable = vec!["tmp".into()];
        assert!(arguments(
            &config,
            Fds {
                console: 1,
                port: 2
            }
        )
        .is_err());
    }
}
