//! Finding the virtio serial port by its name.

use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::{Duration, Instant};

use protocol::carrier::PORT_NAME;

/// Maximum time until the port appears.
const PATIENCE: Duration = Duration::from_secs(10);

/// Returns the port, for reading and writing without blocking.
pub fn open() -> Result<File, String> {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(name) = find() {
            let path = format!("/dev/{name}");
            return File::options()
                .read(true)
                .write(true)
                .custom_flags(libc::O_NONBLOCK)
                .open(&path)
                .map_err(|error| format!("cannot open {path}: {error}"));
        }
        if Instant::now() > until {
            return Err(format!(
                "expected a virtio serial port named {PORT_NAME} and found none within {} s; the kernel needs VIRTIO_CONSOLE and VIRTIO_MMIO",
                PATIENCE.as_secs()
            ));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn find() -> Option<String> {
    let ports = fs::read_dir("/sys/class/virtio-ports").ok()?;
    ports.flatten().find_map(|port| {
        let name = fs::read_to_string(port.path().join("name")).ok()?;
        (name.trim() == PORT_NAME).then(|| port.file_name().to_string_lossy().into_owned())
    })
}
