//! What the kernel's own structures say, of a live guest or a core of all RAM.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use join::foreign::Foreign;
use join::inside::{see, Inside, Seen, Unseen};
use serde_json::json;
use snapshot::{read_core, Memory, Snapshot};

use crate::source::{ask, is_ours, only_socket};
use crate::Error;

/// Whose structures, and how to print them.
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

/// For whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ListingFormat {
    /// For people.
    Text,
    /// For programs; `folioscope schema` has the schema.
    Json,
}

impl InsideOptions {
    /// The guest at `socket`, and no other.
    ///
    /// # Errors
    /// Where another one, or a core, is named as well.
    pub fn attach(&mut self, socket: PathBuf) -> Result<(), Error> {
        if self.core.is_some() || self.guest.replace(socket).is_some() {
            return Err(Error::Input(
                "expected one guest and found two: leave out --guest and the saved snapshot behind attach".into(),
            ));
        }
        Ok(())
    }

    /// The tasks, and what there is of a process; with the memory that its tables are in.
    ///
    /// # Errors
    /// No guest, several, one that cannot be looked into; a snapshot that does not hold so much; no such process.
    pub fn see(&self, pid: Option<u32>) -> Result<(Seen, Memory), Error> {
        if let Some(core) = &self.core {
            let snapshot = read_core(core)?;
            let whole = is_whole(&snapshot.memory);
            return in_snapshot(snapshot, pid).map_err(|why| match whole {
                true => why,
                false => Error::Input(format!(
                    "{} holds the tables of the processes that it was taken of, and not the kernel's other structures: save it with --full",
                    core.display()
                )),
            });
        }
        let socket = match &self.guest {
            Some(socket) => socket.clone(),
            None => only_socket(&self.out)?,
        };
        if !is_ours(&socket) {
            return Ok(Foreign::new(&socket, None)?.see(pid)?);
        }
        // As with a capture: the file needs no name once it is mapped.
        let core = socket.with_file_name(format!("structures-{}.core", std::process::id()));
        let taken = take(&socket, &core, pid);
        let snapshot = taken.and_then(|()| Ok(read_core(&core)?));
        let _ = std::fs::remove_file(&core);
        in_snapshot(snapshot?, pid)
    }
}

fn take(socket: &Path, core: &Path, pid: Option<u32>) -> Result<(), Error> {
    let path = std::path::absolute(core);
    let path = path.map_err(Error::io(format!(
        "find the absolute path of {}",
        core.display()
    )))?;
    ask(socket, "structures", &json!({"path": path, "pid": pid})).map(drop)
}

/// Whether all RAM is there.
fn is_whole(memory: &Memory) -> bool {
    let regions = memory.regions().iter();
    let held: u64 = regions.map(|region| region.range().bytes).sum();
    let ram: u64 = memory.ram().iter().map(|range| range.bytes).sum();
    held == ram
}

fn in_snapshot(snapshot: Snapshot, pid: Option<u32>) -> Result<(Seen, Memory), Error> {
    let Snapshot { cpus, memory, .. } = snapshot;
    let inside = Inside::find(&memory, &cpus).map_err(|why| not_read(&why.to_string()))?;
    let seen = see(&inside.kernel, inside.view(&memory), &cpus, pid);
    Ok((seen.map_err(|unseen| unseen_by(&unseen))?, memory))
}

/// As the command says it.
fn unseen_by(unseen: &Unseen) -> Error {
    match unseen.later {
        true => not_read(&unseen.why),
        false => Error::Input(unseen.why.clone()),
    }
}

fn not_read(why: &str) -> Error {
    Error::Input(format!("the kernel's structures were not read: {why}"))
}
