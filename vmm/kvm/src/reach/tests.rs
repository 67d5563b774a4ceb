// SPDX-License-Identifier: GPL-2.0-only
//! Access of a confined process to files, on the host's own kernel. Its thread is confined irreversibly, so each
//! attempt is a process of its own.

use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process::Command;

use super::*;

const VARIABLE: &str = "FOLIOSCOPE_TEST_REACH";

/// A directory of this test, and the user's files in it.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        std::fs::create_dir(place.inside()).unwrap();
        for name in ["read", "secret"] {
            std::fs::write(place.0.path().join(name), "theirs").unwrap();
        }
        place
    }

    fn inside(&self) -> PathBuf {
        self.0.path().join("out")
    }
}

/// Operations that are allowed to a process that is confined to `out` and `read` in a directory.
fn within(place: &Path) {
    let (out, read) = (place.join("out"), place.join("read"));
    assert_eq!(std::fs::read(read).unwrap(), b"theirs");
    let directory = out.join("guests");
    std::fs::create_dir_all(&directory).unwrap();
    let (part, whole) = (directory.join("part"), out.join("whole"));
    std::fs::write(&part, "one").unwrap();
    std::fs::write(&part, "shorter").unwrap();
    std::fs::rename(&part, directory.join("other")).unwrap();
    std::fs::write(&whole, "a core").unwrap();
    let _listener = UnixListener::bind(out.join("control.sock")).unwrap();
    assert_eq!(std::fs::read_dir(&out).unwrap().count(), 3);
    std::fs::remove_file(whole).unwrap();
    std::fs::remove_dir_all(directory).unwrap();
    // Files that the process finds of itself, also after they were unused for long.
    for _ in 0..2 {
        assert!(std::fs::read_dir("/proc/self/fd").unwrap().count() > 2);
        std::thread::spawn(|| std::fs::read("/proc/thread-self/stat").unwrap())
            .join()
            .unwrap();
    }
    std::fs::write("/dev/null", "nothing").unwrap();
    assert!(std::thread::available_parallelism().is_ok());
}

/// Operations that are denied, as `denied` asserts of each.
fn without(place: &Path, abi: Option<ABI>) {
    let denied = |what: &str, error: Option<std::io::Error>, since: ABI| {
        let denied = error.map(|error| error.kind()) == Some(ErrorKind::PermissionDenied);
        assert_eq!(denied, abi >= Some(since), "{what} on {abi:?}");
    };
    let parent = std::os::unix::process::parent_id();
    let (secret, new) = (place.join("secret"), place.join("new"));
    denied("read", std::fs::read(&secret).err(), ABI::V1);
    denied("list", std::fs::read_dir(place).err(), ABI::V1);
    denied("make", std::fs::write(&new, "ours").err(), ABI::V1);
    denied(
        "write",
        File::options().append(true).open(&secret).err(),
        ABI::V1,
    );
    denied(
        "link",
        std::os::unix::fs::symlink("secret", place.join("link")).err(),
        ABI::V1,
    );
    denied("run", Command::new("/bin/true").status().err(), ABI::V1);
    let memory = format!("/proc/{parent}/mem");
    denied("look into a process", File::open(memory).err(), ABI::V1);
    denied(
        "list its descriptors",
        std::fs::read_dir(format!("/proc/{parent}/fd")).err(),
        ABI::V1,
    );
    denied(
        "network",
        std::net::TcpListener::bind("127.0.0.1:0").err(),
        ABI::V4,
    );
    // SAFETY: no signal is sent; the call only checks whether one might be.
    let signal = match unsafe { libc::kill(parent as libc::pid_t, 0) } {
        0 => None,
        _ => Some(std::io::Error::last_os_error()),
    };
    denied("signal", signal, ABI::V6);
    let name = place.as_os_str().as_encoded_bytes();
    let name = SocketAddr::from_abstract_name(name).unwrap();
    denied(
        "socket without a file",
        UnixStream::connect_addr(&name).err(),
        ABI::V6,
    );
    denied(
        "socket",
        UnixStream::connect(place.join("socket")).err(),
        ABI::V9,
    );
    denied("remove", std::fs::remove_file(&secret).err(), ABI::V1);
}

/// On a kernel without Landlock the second half asserts that nothing is denied, which is reported to users.
#[test]
fn a_confined_process_uses_its_own_files() {
    if let Some(place) = std::env::var_os(VARIABLE) {
        let place = PathBuf::from(place);
        let reach = Reach {
            read: vec![place.join("read"), place.join("not there")],
            write: vec![place.join("out")],
        };
        let tried = std::thread::spawn(move || {
            let abi = reach.confine().unwrap();
            eprintln!("the interface of Landlock here: {abi:?}");
            within(&place);
            without(&place, abi);
        });
        return tried.join().unwrap();
    }
    let place = Place::new();
    let _listener = UnixListener::bind(place.0.path().join("socket")).unwrap();
    let name = place.0.path().as_os_str().as_encoded_bytes();
    let name = SocketAddr::from_abstract_name(name).unwrap();
    let _nameless = UnixListener::bind_addr(&name).unwrap();
    let name = "reach::tests::a_confined_process_uses_its_own_files";
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(VARIABLE, place.0.path())
        .status();
    assert!(status.unwrap().success());
}
