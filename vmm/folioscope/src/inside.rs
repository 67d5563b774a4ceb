// SPDX-License-Identifier: GPL-2.0-only
//! Reads the kernel's own structures, of a live guest or a core of all RAM.

use std::path::{Path, PathBuf};

use analysis::{
    external_qemu::Foreign,
    frames::frames,
    kernel_map::kernel_map,
    tasks::{see, see_again, Seen, Unseen},
    Moment,
};
use clap::{Args, ValueEnum};
use evidence::inside::{is_whole, Inside};
use report::frames::Frames;
use report::kernel_map::KernelMap;
use serde_json::{json, Value};
use snapshot::{read_core, Memory, Snapshot};

use crate::holder::{ask, is_ours};
use crate::source::{only_socket, only_this, open_core};
use crate::Error;

/// The guest whose structures are read, and the format of the output.
#[derive(Args, Clone, Debug)]
pub struct InsideOptions {
    /// A core of all RAM (`folioscope save --full`) [default: the live guest]
    #[arg(value_name = "CORE")]
    pub core: Option<PathBuf>,
    /// A live guest: the control socket that `folioscope boot` prints, or the QMP socket of a QEMU of your own
    /// [default: the only one in --out]
    #[arg(long, value_name = "SOCKET", conflicts_with = "core")]
    pub guest: Option<PathBuf>,
    /// How to print it
    #[arg(long, value_enum, default_value = "text")]
    pub format: ListingFormat,
    /// Where guests keep their files
    #[arg(long, value_name = "DIR", default_value = "out")]
    pub out: PathBuf,
}

/// The reader of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ListingFormat {
    /// For people.
    Text,
    /// For programs; `folioscope schema` has the schema.
    Json,
}

/// The guest in which the kernel's structures are read.
enum Source {
    /// A copy.
    Kept(Box<Snapshot>),
    /// An external QEMU, stopped for it.
    Theirs(Box<Foreign>),
}

impl InsideOptions {
    /// Returns the guest at `socket`, and no other.
    ///
    /// # Errors
    /// If another one, or a core, is named as well.
    pub fn attach(&mut self, socket: PathBuf) -> Result<(), Error> {
        only_this(socket, &mut self.guest, self.core.as_deref())
    }

    /// Reads the tasks, and the data of a process, with the memory that its tables are in.
    ///
    /// # Errors
    /// If there is no guest, or several, or one that cannot be read; a snapshot that does not hold so much; no such
    /// process.
    pub fn see(&self, pid: Option<u32>) -> Result<(Seen, Memory), Error> {
        if let Some(core) = &self.core {
            let snapshot = open_core(core)?;
            let whole = is_whole(&snapshot.memory);
            let read =
                |inside: &Inside| see(inside, inside.view(&snapshot.memory), &snapshot.cpus, pid);
            let seen = in_snapshot(&snapshot, read).map_err(|why| match whole {
                true => why,
                false => not_whole(core),
            });
            return Ok((seen?, snapshot.memory));
        }
        match self.source(&json!({"pid": pid}))? {
            Source::Kept(copy) => {
                let seen = in_snapshot(&copy, |inside| see_again(inside, &copy, pid))?;
                Ok((seen, copy.memory))
            }
            Source::Theirs(mut guest) => Ok(guest.see(pid)?),
        }
    }

    /// Returns the pages with these page frame numbers, and the processes that map them.
    ///
    /// # Errors
    /// No guest, several, one that cannot be looked into; a snapshot that does not hold so much.
    pub fn frames(&self, pfns: &[u64]) -> Result<Frames, Error> {
        let snapshot = match self.source(&json!({"pfns": pfns}))? {
            Source::Kept(snapshot) => snapshot,
            Source::Theirs(mut guest) => return Ok(guest.frames(pfns)?),
        };
        let Snapshot { cpus, memory, .. } = &*snapshot;
        let inside = Inside::find(memory, cpus).map_err(|why| not_read(&why.to_string()))?;
        frames(&inside, memory, cpus, pfns).map_err(|unseen| unseen_by(&unseen))
    }

    /// Returns the sizes by which the kernel half is mapped.
    ///
    /// # Errors
    /// No guest, several, one that cannot be looked into; a snapshot that does not hold so much.
    pub fn kernel_map(&self) -> Result<KernelMap, Error> {
        let snapshot = match self.source(&json!({"kernel": true}))? {
            Source::Kept(snapshot) => snapshot,
            Source::Theirs(mut guest) => return Ok(guest.kernel_map()?),
        };
        let Snapshot { cpus, memory, .. } = &*snapshot;
        let inside = Inside::find(memory, cpus).map_err(|why| not_read(&why.to_string()))?;
        Ok(kernel_map(&inside, memory, cpus).0)
    }

    /// Returns the core, which has to be whole, or a copy of what `wanted` requests from a guest of ours. The caller
    /// reads an external guest itself.
    fn source(&self, wanted: &Value) -> Result<Source, Error> {
        if let Some(core) = &self.core {
            return whole(core).map(Box::new).map(Source::Kept);
        }
        let socket = self.socket()?;
        match is_ours(&socket)? {
            true => take(&socket, wanted).map(Box::new).map(Source::Kept),
            false => Ok(Source::Theirs(Box::new(Foreign::new(&socket, None)?))),
        }
    }

    /// Returns the guest's.
    ///
    /// # Errors
    /// If there is none, or several.
    pub fn socket(&self) -> Result<PathBuf, Error> {
        match &self.guest {
            Some(socket) => Ok(socket.clone()),
            None => only_socket(&self.out),
        }
    }
}

/// A live guest that is looked at again and again.
#[derive(Debug)]
pub enum Watched {
    /// Held by `folioscope boot`: its socket, and where its kernel's structures are, once that was found.
    Ours(PathBuf, Option<Box<Inside>>),
    /// An external QEMU.
    Theirs(Box<Foreign>),
}

impl Watched {
    /// Returns the one that the options name.
    ///
    /// # Errors
    /// No guest, several, one that cannot be looked into.
    pub fn new(options: &InsideOptions) -> Result<Self, Error> {
        let socket = options.socket()?;
        Ok(match is_ours(&socket)? {
            true => Self::Ours(socket, None),
            false => Self::Theirs(Box::new(Foreign::new(&socket, None)?)),
        })
    }

    /// Returns a process at this moment.
    ///
    /// # Errors
    /// If the guest or the process has ended, or cannot be looked into.
    pub fn look(&mut self, pid: u32) -> Result<Moment, Error> {
        let (seen, memory) = match self {
            Self::Theirs(guest) => guest.see(Some(pid))?,
            Self::Ours(socket, found) => {
                let copy = take(socket, &json!({"pid": pid}))?;
                let inside = match found {
                    Some(inside) => inside,
                    None => {
                        let inside = Inside::find(&copy.memory, &copy.cpus);
                        found.insert(Box::new(inside.map_err(|why| not_read(&why.to_string()))?))
                    }
                };
                let seen = see_again(inside, &copy, Some(pid));
                (seen.map_err(|unseen| unseen_by(&unseen))?, copy.memory)
            }
        };
        let space = seen
            .space
            .ok_or_else(|| Error::Input(format!("process {pid} was not read")))?;
        Ok(Moment::new(space, memory))
    }
}

/// Returns what the holder of a guest has read for us, as a snapshot.
fn take(socket: &Path, wanted: &Value) -> Result<Snapshot, Error> {
    let core = socket.with_file_name(format!("structures-{}.core", std::process::id()));
    let path = std::path::absolute(&core);
    let path = path.map_err(Error::io(format!(
        "find the absolute path of {}",
        core.display()
    )))?;
    let mut params = wanted.clone();
    params["path"] = json!(path);
    let taken = ask(socket, "structures", &params);
    let snapshot = taken.and_then(|_| Ok(read_core(&core)?));
    // As with a capture: the file needs no name once it is mapped.
    let _ = std::fs::remove_file(&core);
    snapshot
}

/// Returns a core of all RAM.
fn whole(core: &Path) -> Result<Snapshot, Error> {
    let snapshot = open_core(core)?;
    match is_whole(&snapshot.memory) {
        true => Ok(snapshot),
        false => Err(not_whole(core)),
    }
}

fn not_whole(core: &Path) -> Error {
    Error::Input(format!(
        "{} holds the tables of the processes that it was taken of, and not the kernel's other structures: save it with --full",
        core.display()
    ))
}

fn in_snapshot(
    snapshot: &Snapshot,
    read: impl FnOnce(&Inside) -> Result<Seen, Unseen>,
) -> Result<Seen, Error> {
    let inside = Inside::find(&snapshot.memory, &snapshot.cpus);
    let inside = inside.map_err(|why| not_read(&why.to_string()))?;
    read(&inside).map_err(|unseen| unseen_by(&unseen))
}

/// Converts an error into the command's.
fn unseen_by(unseen: &Unseen) -> Error {
    match unseen.later {
        true => not_read(&unseen.why),
        false => Error::Input(unseen.why.clone()),
    }
}

fn not_read(why: &str) -> Error {
    Error::Input(format!("the kernel's structures were not read: {why}"))
}
