// SPDX-License-Identifier: GPL-2.0-only
//! Opens a snapshot: a saved core, a guest that `folioscope boot` holds, or one in an external QEMU.

use std::borrow::Cow;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use analysis::{
    external_qemu::Foreign,
    tasks::{see, why_not},
    unattended::{self, Stops as _},
};
use clap::Args;
use evidence::inside::{is_whole, Inside};
use serde_json::{json, Value};
use snapshot::{read_core, Core, CoreError, Snapshot};

use crate::holder::{ask, ask_with, is_ours, listens};
use crate::Error;

/// The source to look at.
#[derive(Args, Clone, Debug)]
pub struct SourceOptions {
    /// A saved snapshot [default: the live guest]
    #[arg(value_name = "CORE")]
    pub core: Option<PathBuf>,
    /// A live guest: the control socket that `folioscope boot` prints, or the QMP socket of a QEMU of your own
    /// [default: the only one in --out]
    #[arg(long, value_name = "SOCKET", conflicts_with = "core")]
    pub guest: Option<PathBuf>,
    /// The vmlinux of the kernel in a QEMU of your own, for symbols and the order record
    #[arg(long, value_name = "FILE")]
    pub vmlinux: Option<PathBuf>,
    /// The process, by its pid in the guest [default: the only one]
    #[arg(long)]
    pub pid: Option<u32>,
    /// Where guests keep their files
    #[arg(long, value_name = "DIR", default_value = "out")]
    pub out: PathBuf,
}

/// The use of a snapshot, which decides how much of a guest without an agent it must contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A search for errors: as many looks as it takes to confirm them.
    Verdict,
    /// The kernel half, as it is at one instant.
    Kernel,
    /// A process.
    Process,
}

/// A snapshot, and its source.
#[derive(Debug)]
pub struct Source {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// The machine as its holder calls it (`tcg`, `kvm`), or `snapshot`, for reports.
    pub kind: Cow<'static, str>,
}

/// Makes `socket` the guest that is looked at, where neither another nor a core is named.
pub(crate) fn only_this(
    socket: PathBuf,
    guest: &mut Option<PathBuf>,
    core: Option<&Path>,
) -> Result<(), Error> {
    if core.is_some() || guest.replace(socket).is_some() {
        return Err(Error::Input(
            "expected one guest and found two: leave out --guest and the saved snapshot behind attach".into(),
        ));
    }
    Ok(())
}

/// Opens a core of any writer.
///
/// # Errors
/// If it is none, or is damaged, or lacks the registers that control translation.
pub fn open_core(path: &Path) -> Result<Snapshot, Error> {
    let named = |error: Error| match error {
        // These name it themselves.
        Error::Core(CoreError::Open { .. } | CoreError::NotAFile(_)) => error,
        other => Error::Input(format!("{}: {other}", path.display())),
    };
    match snapshot::open_core(path).map_err(|error| named(error.into()))? {
        Core::Ours(snapshot) => Ok(*snapshot),
        Core::Other(core) => {
            evidence::other_core::work_out(*core).map_err(|error| named(error.into()))
        }
    }
}

impl SourceOptions {
    /// Returns the guest at `socket`, and no other.
    ///
    /// # Errors
    /// If another one, or a saved snapshot, is named as well.
    pub fn attach(&mut self, socket: PathBuf) -> Result<(), Error> {
        only_this(socket, &mut self.guest, self.core.as_deref())
    }

    /// Reads the core, or has the live guest's holder take one.
    ///
    /// # Errors
    /// A core that is damaged, no guest, several, or one that cannot be captured.
    pub fn open(&self, need: Wanted) -> Result<Source, Error> {
        if let Some(core) = &self.core {
            if self.vmlinux.is_some() {
                return Err(Error::Input(
                    "expected --vmlinux with a QEMU of your own and found a saved snapshot, which has what it needs of its kernel; leave --vmlinux out".into(),
                ));
            }
            let mut snapshot = open_core(core)?;
            if need != Wanted::Kernel {
                evidence::complete(&mut snapshot);
                self.is_there(&snapshot)?;
            }
            return Ok(Source {
                snapshot,
                kind: "snapshot".into(),
            });
        }
        let socket = match &self.guest {
            Some(socket) => socket.clone(),
            None => only_socket(&self.out)?,
        };
        if !is_ours(&socket)? {
            return self.foreign(&socket, need);
        }
        // The file needs no name once it is open: it is mapped by then.
        let core = socket.with_file_name(format!("capture-{}.core", std::process::id()));
        let taken = take(&socket, &core, self.pid);
        let snapshot = taken.and_then(|()| Ok(read_core(&core)?));
        let _ = std::fs::remove_file(&core);
        let snapshot = snapshot?;
        let kind = snapshot.notes.machine.clone().into();
        Ok(Source { snapshot, kind })
    }

    /// Returns the socket of the guest, where `folioscope boot` holds it.
    ///
    /// # Errors
    /// If there are several guests.
    pub fn holder(&self) -> Result<Option<PathBuf>, Error> {
        if self.core.is_some() {
            return Ok(None);
        }
        let socket = match &self.guest {
            Some(socket) => socket.clone(),
            None => only_socket(&self.out)?,
        };
        Ok(is_ours(&socket)?.then_some(socket))
    }

    /// Checks that a core of all RAM has the requested process, and explains its absence if the tasks show it.
    fn is_there(&self, snapshot: &Snapshot) -> Result<(), Error> {
        let mut processes = snapshot.notes.processes.iter();
        let Some(pid) = self.pid.filter(|pid| processes.all(|it| it.pid != *pid)) else {
            return Ok(());
        };
        match tasks_of(snapshot).and_then(|tasks| why_not(&tasks, pid)) {
            Some(why) => Err(Error::Input(why)),
            None => Ok(()),
        }
    }

    fn foreign(&self, socket: &Path, need: Wanted) -> Result<Source, Error> {
        let mut guest = Foreign::new(socket, self.vmlinux.as_deref())?;
        let seen = match need {
            Wanted::Verdict => unattended::settle(&mut guest, self.pid),
            Wanted::Kernel => guest.instant().map(|instant| instant.snapshot),
            Wanted::Process => guest.instant_of(self.pid).map(|instant| instant.snapshot),
        };
        let snapshot = match (seen, self.pid) {
            (Err(error), Some(pid)) if need != Wanted::Kernel => {
                return Err(match guest.why_not(pid) {
                    Some(why) => Error::Input(why),
                    None => error.into(),
                });
            }
            (seen, _) => seen?,
        };
        Ok(Source {
            snapshot,
            kind: guest.found().accelerator.into(),
        })
    }
}

/// Returns the tasks of a core of all RAM, if they can be read.
fn tasks_of(snapshot: &Snapshot) -> Option<Vec<structures::tasks::Process>> {
    let Snapshot { cpus, memory, .. } = snapshot;
    let inside = is_whole(memory).then(|| Inside::find(memory, cpus))?.ok()?;
    let seen = see(&inside, inside.view(memory), cpus, None).ok()?;
    Some(seen.tasks)
}

/// Maximum time for a holder to write all of a guest's memory.
const WRITING: Duration = Duration::from_secs(3600);

/// Lets the holder of a guest write all of its memory into a file of ours, whose descriptor it gets.
///
/// # Errors
/// If there is no answer, or the answer is an error.
pub fn write_full(
    socket: &Path,
    path: &Path,
    file: &File,
    pid: Option<u32>,
) -> Result<Value, Error> {
    let params = json!({"path": path, "pid": pid, "in_place": true});
    ask_with(socket, "save_full", &params, WRITING, Some(file))
}

/// Requests a capture of a process from the holder of a guest.
///
/// # Errors
/// If there is no answer, or the answer is an error.
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

/// Returns the control socket of the only guest that is held below `out`.
///
/// # Errors
/// If there is none, or several.
pub fn only_socket(out: &Path) -> Result<PathBuf, Error> {
    let directories = std::fs::read_dir(out.join("guests"))
        .into_iter()
        .flatten()
        .flatten();
    let sockets: Vec<PathBuf> = directories
        .map(|entry| entry.path().join(SOCKET))
        .filter(|path| listens(path))
        .collect();
    match sockets.as_slice() {
        [only] => Ok(only.clone()),
        [] => Err(Error::Input(format!("expected a saved snapshot, or a live guest below {}, and found neither; boot one with: folioscope boot", out.display()))),
        several => Err(Error::Input(format!("several guests are live; choose one with --guest: {}", several.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" ")))),
    }
}

/// The control socket's name in the guest's own directory.
pub const SOCKET: &str = "control.sock";
