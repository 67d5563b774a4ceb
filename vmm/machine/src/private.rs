// SPDX-License-Identifier: GPL-2.0-only
//! Files, directories and sockets that only their user may open, under any umask.
//!
//! No right is changed by a path: a process with a guest on KVM may not (`vmm/kvm/src/seccomp`), as by a path it could
//! change those of any file of its user. Directories and sockets are made without a umask instead.
//!
//! A guest's memory and console hold its secrets, and a control socket gives access to the guest. Their files are made
//! here: logs, cores, bundles, traces, sockets. A report that a user asked for (JSON, JUnit, HTML) is not; it has the
//! permissions of the user's umask.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{fchmod, open, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{
    bind, connect as connect_to, listen as listen_on, socket_with, AddressFamily, SocketAddrUnix,
    SocketFlags, SocketType,
};
use rustix::process::umask;
use rustix::thread::{unshare_unsafe, UnshareFlags};

/// The rights of a file that only its user may open.
pub const FILE: u32 = 0o600;

/// The longest path that fits in a socket's address, in bytes (`sun_path` of `unix(7)`, without its final zero).
const LONGEST: usize = 107;

/// Between two tries to connect to a server that has as many waiting as it takes.
const RETRY: Duration = Duration::from_millis(20);

/// Creates a file with mode 0600, or empties one that is there and takes the rights of others away. A device or pipe
/// keeps its rights.
///
/// # Errors
/// As of `open(2)`, or where the file belongs to another user.
pub fn create(path: &Path) -> io::Result<File> {
    let file = open_or_create(path)?;
    empty(&file)?;
    Ok(file)
}

/// Opens a file for writing, or creates one with mode 0600. Its contents stay until [`empty`].
///
/// # Errors
/// As of `open(2)`.
pub fn open_or_create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(FILE);
    options.open(path)
}

/// Empties a file and takes the rights of others away; a device or pipe stays as it is.
///
/// # Errors
/// If the file belongs to another user.
pub fn empty(file: &File) -> io::Result<()> {
    if file.metadata()?.is_file() {
        // The permissions change first, so that other users never see a byte of the new contents.
        file.set_permissions(Permissions::from_mode(FILE))?;
        file.set_len(0)?;
    }
    Ok(())
}

/// Creates or replaces a file with mode 0600 and this content.
///
/// # Errors
/// As of [`create`], and of writing.
pub fn write(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    io::Write::write_all(&mut create(path)?, content.as_ref())
}

/// Creates a directory with mode 0700.
///
/// # Errors
/// As of `mkdir(2)`.
pub fn directory(path: &Path) -> io::Result<()> {
    without_umask(|| DirBuilder::new().mode(0o700).create(path))
}

/// Runs `make` in a thread that has no umask; the process's own stays, as other threads make files meanwhile.
fn without_umask<T: Send>(make: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let alone = || {
        // SAFETY: the thread gets a working directory and a umask of its own; its descriptors stay those of the
        // process.
        unsafe { unshare_unsafe(UnshareFlags::FS) }?;
        umask(Mode::empty());
        make()
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, alone)?;
        thread.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// Creates a directory with mode 0700 unless it is there, in parents that follow the umask. One that is there keeps its rights.
///
/// # Errors
/// As of `mkdir(2)`.
pub fn directory_all(path: &Path) -> io::Result<()> {
    if let Some(parent) = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        std::fs::create_dir_all(parent)?;
    }
    match directory(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        other => other,
    }
}

/// Listens on a Unix socket at `path`, which only this user may connect to. The path may be of any length.
///
/// # Errors
/// As of `bind(2)`: something is at the path, or its directory cannot be written.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    let socket = new_socket(SocketFlags::CLOEXEC)?;
    // A socket's file gets the mode that the socket has when it is bound.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    let (_directory, short) = Short::of_new(path)?.into_parts();
    let address = SocketAddrUnix::new(&short)?;
    without_umask(|| Ok(bind(&socket, &address)?))?;
    listen_on(&socket, 128)?;
    Ok(socket.into())
}

/// Connects to the Unix socket at `path`, which may be of any length. Waits for at most `patience` while the server's
/// backlog is full.
///
/// # Errors
/// The errors of `connect(2)`; of kind `TimedOut` if the server accepted no connection in that time.
pub fn connect(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    let deadline = Instant::now() + patience;
    let (_file, short) = Short::of(path)?.into_parts();
    let address = SocketAddrUnix::new(&short)?;
    loop {
        let socket = new_socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        match connect_to(&socket, &address) {
            Ok(()) => {
                let stream = UnixStream::from(socket);
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(Errno::AGAIN) if Instant::now() < deadline => std::thread::sleep(RETRY),
            Err(Errno::AGAIN) => return Err(io::ErrorKind::TimedOut.into()),
            Err(Errno::INTR) => (),
            Err(error) => return Err(error.into()),
        }
    }
}

fn new_socket(flags: SocketFlags) -> io::Result<OwnedFd> {
    Ok(socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        flags,
        None,
    )?)
}

/// A path that fits in a socket's address, and the descriptor that it leads through.
struct Short {
    path: PathBuf,
    through: Option<OwnedFd>,
}

impl Short {
    /// Opens the place of an existing socket.
    fn of(path: &Path) -> io::Result<Self> {
        Self::through(path, path, None)
    }

    /// Opens the place of a new socket: its directory.
    fn of_new(path: &Path) -> io::Result<Self> {
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        Self::through(path, directory, path.file_name())
    }

    fn through(path: &Path, opened: &Path, name: Option<&std::ffi::OsStr>) -> io::Result<Self> {
        if path.as_os_str().as_bytes().len() <= LONGEST {
            return Ok(Self {
                path: path.into(),
                through: None,
            });
        }
        let fd = open(opened, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let mut short = PathBuf::from(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()));
        short.extend(name);
        Ok(Self {
            path: short,
            through: Some(fd),
        })
    }

    fn into_parts(self) -> (Option<OwnedFd>, PathBuf) {
        (self.through, self.path)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::fs::FileTypeExt as _;

    use super::*;

    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let name = format!("folioscope-private-{name}-{}", std::process::id());
            let place = std::env::temp_dir().join(name);
            directory_all(&place).unwrap();
            Self(place)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    /// The umask is the process's: the tests of its effects run one after the other in processes of their own.
    fn under(umask: u32, test: &str) {
        const VARIABLE: &str = "FOLIOSCOPE_TEST_UMASK";
        if std::env::var_os(VARIABLE).is_some() {
            return;
        }
        let line = format!("umask {umask:04o}; exec \"$0\" --exact {test} --nocapture");
        let status = std::process::Command::new("sh")
            .args(["-c", &line])
            .arg(std::env::current_exe().unwrap())
            .env(VARIABLE, "1")
            .status();
        assert!(status.unwrap().success(), "umask {umask:o}");
    }

    #[test]
    fn only_the_user_may_open_what_is_made() {
        for umask in [0o000, 0o022, 0o777] {
            under(umask, "private::tests::only_the_user_may_open_what_is_made");
        }
        let place = Place::new("modes");
        assert_eq!(mode(&place.0), 0o700);
        let path = place.0.join("console.log");
        std::fs::write(&path, "old and longer").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        write(&path, "new").unwrap();
        assert_eq!(
            (mode(&path), std::fs::read(&path).unwrap()),
            (0o600, b"new".to_vec())
        );
        let path = place.0.join("new.core");
        create(&path).unwrap();
        assert_eq!(mode(&path), 0o600);
        let path = place.0.join("control.sock");
        let _listener = listen(&path).unwrap();
        assert_eq!(mode(&path), 0o600);
        // An existing file that is not a regular file is unchanged.
        create(Path::new("/dev/null")).unwrap();
        assert!(std::fs::metadata("/dev/null")
            .unwrap()
            .file_type()
            .is_char_device());
    }

    #[test]
    fn a_socket_s_path_may_be_long() {
        let place = Place::new("long");
        let deep = place.0.join("d".repeat(120)).join("e".repeat(120));
        std::fs::create_dir_all(&deep).unwrap();
        for name in ["control.sock".to_owned(), "s".repeat(80)] {
            let path = deep.join(name);
            let listener = listen(&path).unwrap();
            assert!(std::fs::metadata(&path).unwrap().file_type().is_socket());
            assert_eq!(mode(&path), 0o600);
            let mut client = connect(&path, Duration::ZERO).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            client.write_all(b"x").unwrap();
            server.read_exact(&mut [0]).unwrap();
            assert_eq!(listen(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        }
        let missing = connect(&deep.join("nobody"), Duration::ZERO).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_server_that_takes_nobody_is_not_waited_for_without_end() {
        let place = Place::new("full");
        let path = place.0.join("s");
        let socket = new_socket(SocketFlags::CLOEXEC).unwrap();
        bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        listen_on(&socket, 0).unwrap();
        let _waits = connect(&path, Duration::ZERO).unwrap();
        let error = connect(&path, Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
