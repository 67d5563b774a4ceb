//! The file systems: the carrier's own, and the outside's with the carrier's devices in it.

use std::fs;
use std::path::Path;

use protocol::carrier::{unescape, MOUNT_WORD, ROOT_TAG};

use crate::log;
use crate::sys::{self, MountFlags};

/// Mount point of the outside: the root directory of every program.
pub const HOST: &str = "/host";

/// arm64 programs that take precedence over those of the outside, which are another architecture's. The path is that
/// seen by programs.
pub const TOOLS: &str = "/run/folioscope-carrier/bin";

/// File system, mount point and options, in the order in which they are mounted.
const OWN: &[(&str, &str, &str)] = &[
    ("proc", "/proc", ""),
    ("sysfs", "/sys", ""),
    ("devtmpfs", "/dev", ""),
    ("tmpfs", "/dev/shm", "mode=1777"),
    ("devpts", "/dev/pts", ""),
    ("hugetlbfs", "/dev/hugepages", ""),
    ("debugfs", "/sys/kernel/debug", ""),
    ("tracefs", "/sys/kernel/tracing", ""),
    ("cgroup2", "/sys/fs/cgroup", ""),
];

/// The maximum of the virtio transport: 128 descriptors less three, of a page each.
const NINE_P: &str = "trans=virtio,version=9p2000.L,msize=512000";

/// Read-only files are read ahead: the page cache of a file lives from its first open to its last close. Without it a
/// read is cut into requests of one page, since 6.12's 9p takes one segment of a user's buffer at a time.
const READ_ONLY: &str = "cache=readahead";

/// Writable files are not cached, so that each side sees at once what the other has written, also to a file that is
/// open on both. Mapped files (programs) are read ahead nevertheless: see [`read_ahead`].
const WRITABLE: &str = "cache=none";

/// Read-ahead of a mapped file, in KiB: one request.
const READ_AHEAD: &str = "496";

/// Mounts everything.
pub fn mount_all() -> Result<(), String> {
    for (kind, target, options) in OWN {
        // In sysfs this fails, and then the mount reports the reason.
        let _ = fs::create_dir_all(target);
        if let Err(error) = sys::mount(kind, target, kind, MountFlags::empty(), options) {
            // A file system that the kernel lacks is an error only for a program that uses it.
            log(&error);
        }
    }
    sys::raise_limits();
    let _ = fs::create_dir_all(HOST);
    sys::mount(
        ROOT_TAG,
        HOST,
        "9p",
        MountFlags::RDONLY,
        &format!("{NINE_P},{READ_ONLY}"),
    )?;
    for own in ["/proc", "/sys", "/dev"] {
        let target = format!("{HOST}{own}");
        sys::mount(own, &target, "none", MountFlags::BIND | MountFlags::REC, "")?;
    }
    // Sockets of the outside's programs lead nowhere from here.
    sys::mount(
        "tmpfs",
        &format!("{HOST}/run"),
        "tmpfs",
        MountFlags::empty(),
        "mode=0755",
    )?;
    tools();
    let words = fs::read_to_string("/proc/cmdline").map_err(|e| format!("/proc/cmdline: {e}"))?;
    for word in words.split_whitespace() {
        let Some((tag, path)) = word
            .strip_prefix(MOUNT_WORD)
            .and_then(|word| word.split_once(':'))
        else {
            continue;
        };
        let path = unescape(path).ok_or_else(|| format!("expected a path in the word {word} of the kernel's command line and found none; build both sides from the same source"))?;
        sys::mount(
            tag,
            &format!("{HOST}{path}"),
            "9p",
            MountFlags::empty(),
            &format!("{NINE_P},{WRITABLE}"),
        )?;
    }
    read_ahead();
    Ok(())
}

/// Sets the read-ahead. Without a cache 9p reads a mapped file page by page, a round trip each.
fn read_ahead() {
    for entry in fs::read_dir("/sys/class/bdi")
        .into_iter()
        .flatten()
        .flatten()
    {
        if entry.file_name().to_string_lossy().starts_with("9p-") {
            if let Err(error) = fs::write(entry.path().join("read_ahead_kb"), READ_AHEAD) {
                log(&format!(
                    "cannot set {}'s read-ahead: {error}",
                    entry.path().display()
                ));
            }
        }
    }
}

/// Puts the tools of the initramfs, busybox under its names, where programs see them.
fn tools() {
    let target = format!("{HOST}{TOOLS}");
    let bound = fs::create_dir_all(&target)
        .map_err(|error| format!("cannot make {target}: {error}"))
        .and_then(|()| sys::mount("/bin", &target, "none", MountFlags::BIND, ""));
    if let Err(error) = bound {
        log(&error);
    }
}

/// Returns the directory of the outside `path`, as this program sees it.
pub fn outside(path: &str) -> std::path::PathBuf {
    Path::new(HOST).join(path.trim_start_matches('/'))
}
