//! Where a snapshot comes from: a saved core, or a guest that `folioscope boot` holds.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde_json::{json, Value};
use snapshot::{read_core, Snapshot};

use crate::Error;

/// Beyond this the guest's holder is taken to hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// What to look at.
#[derive(Args, Clone, Debug)]
pub struct SourceOptions {
    /// A saved snapshot [default: the live guest]
    #[arg(value_name = "CORE")]
    pub core: Option<PathBuf>,
    /// The control socket of a live guest, as `folioscope boot` prints it [default: the only one in --out]
    #[arg(long, value_name = "SOCKET", conflicts_with = "core")]
    pub guest: Option<PathBuf>,
    /// The process, by its pid in the guest [default: the only one]
    #[arg(long)]
    pub pid: Option<u32>,
    /// Where guests keep their files
    #[arg(long, value_name = "DIR", default_value = "out")]
    pub out: PathBuf,
}

/// A snapshot, and what it was taken of.
#[derive(Debug)]
pub struct Source {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// `tcg` or `snapshot`, for reports.
    pub kind: &'static str,
}

impl SourceOptions {
    /// Reads the core, or has the live guest's holder take one.
    ///
    /// # Errors
    /// A core that is damaged, no guest, several, or one that cannot be captured.
    pub fn open(&self) -> Result<Source, Error> {
        if let Some(core) = &self.core {
            return Ok(Source {
                snapshot: read_core(core)?,
                kind: "snapshot",
            });
        }
        let socket = match &self.guest {
            Some(socket) => socket.clone(),
            None => only_socket(&self.out)?,
        };
        // The file needs no name once it is open: it is mapped by then.
        let core = socket.with_file_name(format!("capture-{}.core", std::process::id()));
        let taken = take(&socket, &core, self.pid);
        let snapshot = taken.and_then(|()| Ok(read_core(&core)?));
        let _ = std::fs::remove_file(&core);
        Ok(Source {
            snapshot: snapshot?,
            kind: "tcg",
        })
    }
}

/// Asks the holder of a guest for a capture of a process.
///
/// # Errors
/// Where nobody answers, or the answer is no.
pub fn take(socket: &Path, core: &Path, pid: Option<u32>) -> Result<(), Error> {
    ask(
        socket,
        "snapshot",
        &json!({"path": absolute(core)?, "pid": pid}),
    )
    .map(drop)
}

fn absolute(path: &Path) -> Result<PathBuf, Error> {
    std::path::absolute(path).map_err(Error::io(format!(
        "find the absolute path of {}",
        path.display()
    )))
}

/// One request to the holder of a guest.
///
/// # Errors
/// Where nobody answers, or the answer is no.
pub fn ask(socket: &Path, method: &str, params: &Value) -> Result<Value, Error> {
    let attempt = || {
        format!(
            "speak with the guest at {} (is `folioscope boot` still running?)",
            socket.display()
        )
    };
    let mut stream = UnixStream::connect(socket).map_err(Error::io(attempt()))?;
    stream
        .set_read_timeout(Some(PATIENCE))
        .map_err(Error::io(attempt()))?;
    writeln!(
        stream,
        "{}",
        json!({"id": 1, "method": method, "params": params})
    )
    .map_err(Error::io(attempt()))?;
    let mut line = String::new();
    BufReader::new(&stream)
        .read_line(&mut line)
        .map_err(Error::io(attempt()))?;
    let mut answer: Value = serde_json::from_str(&line).map_err(|error| {
        Error::Input(format!(
            "{} did not answer as a guest's socket does: {error}",
            socket.display()
        ))
    })?;
    match answer.get_mut("ok") {
        Some(value) => Ok(value.take()),
        None => Err(Error::Input(
            answer["error"]["message"]
                .as_str()
                .unwrap_or("the guest's holder said no without a reason")
                .to_owned(),
        )),
    }
}

/// The control socket of the only guest that is held below `out`.
fn only_socket(out: &Path) -> Result<PathBuf, Error> {
    let directories = std::fs::read_dir(out.join("guests"))
        .into_iter()
        .flatten()
        .flatten();
    let sockets: Vec<PathBuf> = directories
        .map(|entry| entry.path().join(SOCKET))
        .filter(|path| UnixStream::connect(path).is_ok())
        .collect();
    match sockets.as_slice() {
        [only] => Ok(only.clone()),
        [] => Err(Error::Input(format!("expected a saved snapshot, or a live guest below {}, and found neither; boot one with: folioscope boot", out.display()))),
        several => Err(Error::Input(format!("several guests are live; choose one with --guest: {}", several.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" ")))),
    }
}

/// The control socket's name in the guest's own directory.
pub const SOCKET: &str = "control.sock";
