// SPDX-License-Identifier: GPL-2.0-only
//! Setup of each test: a folder, a configuration, and a guest whose agent has sent its first line.

use std::path::PathBuf;
use std::time::Duration;

use machine::qemu::{Config, Qemu};
use machine::Machine;

pub const BOOT: Duration = Duration::from_secs(120);

/// The folder of one test's guest, gone when the test passed.
pub struct Work(pub PathBuf);

impl Work {
    pub fn new(name: &str) -> Self {
        let folder = format!("folioscope-qemu-{}-{name}", std::process::id());
        Self(std::env::temp_dir().join(folder))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

/// Returns the configuration; `None`, with a message, if no guest was given and none was required.
pub fn config(work: &Work) -> Option<Config> {
    let path = |name| std::env::var_os(name).map(PathBuf::from);
    let image = path("FOLIOSCOPE_TEST_IMAGE");
    let initrd = path("FOLIOSCOPE_TEST_INITRD");
    let (Some(image), Some(initrd)) = (image, initrd) else {
        let demanded = std::env::var_os("FOLIOSCOPE_TEST_REQUIRE_GUEST").is_some_and(|v| v == "1");
        let message = "no guest to test: set FOLIOSCOPE_TEST_IMAGE and FOLIOSCOPE_TEST_INITRD";
        assert!(!demanded, "{message}");
        eprintln!("NOT TESTED: {message}");
        return None;
    };
    let mut config = Config::new(image, &work.0);
    config.initrd = Some(initrd);
    config.memory_bytes = 512 << 20;
    config.cmdline = "console=ttyAMA0 rdinit=/init".into();
    Some(config)
}

pub fn boot(config: &Config) -> Qemu {
    let mut machine = Qemu::start(config).unwrap();
    let line = machine.receive_line(BOOT).unwrap();
    assert!(!line.is_empty());
    machine
}
