//! `folioscope ps`: the tasks of a guest, from its memory alone.

use std::path::PathBuf;

use clap::Args;
use join::foreign::Foreign;

use super::output::say;
use super::Outcome;
use crate::source::is_ours;
use crate::{Error, EXIT_OK};

/// List the tasks of a guest in a QEMU of your own, read from its memory alone
#[derive(Args, Debug)]
#[command(after_help = "Example: folioscope attach qmp.sock ps")]
pub struct Ps {
    /// The QMP socket of the QEMU
    #[arg(long, value_name = "SOCKET")]
    pub guest: Option<PathBuf>,
}

impl Ps {
    pub fn run(self) -> Outcome {
        let socket = self.guest.ok_or_else(|| {
            Error::Input("expected the QMP socket of a QEMU and found none: give it with --guest, or as attach SOCKET ps".into())
        })?;
        if is_ours(&socket) {
            return Err(Error::Input(format!(
                "expected the QMP socket of a QEMU of your own, and {} is held by `folioscope boot`, whose tasks are not listed yet",
                socket.display()
            )));
        }
        let mut guest = Foreign::new(&socket, None)?;
        let tasks = guest.tasks()?;
        drop(guest);
        say!("    PID THREADS    STARTED TABLE            NAME");
        for task in tasks {
            let table = task
                .table
                .map_or("-".to_owned(), |table| format!("0x{:013x}", table.0));
            // As ps(1) has it: what is in brackets has no memory of its own.
            let name = match task.mm {
                Some(_) => task.name,
                None => format!("[{}]", task.name),
            };
            say!(
                "{:>7} {:>7} {:>8}.{:02} {table:<16} {name}",
                task.tgid,
                task.threads.len(),
                task.started_ns / 1_000_000_000,
                task.started_ns / 10_000_000 % 100
            );
        }
        Ok(EXIT_OK)
    }
}
