// SPDX-License-Identifier: GPL-2.0-only
//! `folioscope boot`: a guest that stays, to be looked into, or to be typed at.

use std::path::Path;

use clap::Args;
use machine::{private, Status};
use protocol::Advice;

use super::output::{complain, say};
use super::{terminal, Outcome};
use crate::control::{self, Server};
use crate::guest::{unexpected, Guest};
use crate::kernel::Kernel;
use crate::link::Link;
use crate::machines;
use crate::ops::{advise, map, write};
use crate::options::GuestOptions;
use crate::source::SOCKET;
use crate::stage::block_size;
use crate::{boot, Error, EXIT_OK};

/// Boot a guest and stay; prints how to look into it
#[derive(Args, Debug)]
#[command(
    after_help = "Example: folioscope boot --granule 64k --cpu neoverse-n1\n         folioscope boot --console --kernel Image --initrd my.cpio --append 'init=/bin/sh' --cpus 4\n\n\
        It ends, and its guest with it, by Ctrl-C, SIGTERM or SIGHUP; with --console by Ctrl-A x. What was ignored when it began\n\
        stays ignored, as SIGHUP under nohup and SIGINT in the background of a script: there SIGTERM ends it (kill PID)."
)]
pub struct Boot {
    #[command(flatten)]
    pub(super) guest: GuestOptions,
    /// Be a plain monitor: the guest's console is on this terminal, Ctrl-A x ends it, and no agent is waited for. Such a guest
    /// cannot be looked into
    #[arg(long, conflicts_with = "knob")]
    pub(super) console: bool,
}

impl Boot {
    pub fn run(self) -> Outcome {
        if self.console {
            return self.monitor();
        }
        let mut guest = Guest::boot(&self.guest)?;
        let pid = demonstrate(&mut guest).map_err(|error| match error.lost() {
            true => control::keep(&mut guest, &self.guest.out, error),
            false => error,
        })?;
        let socket = guest.scratch().join(SOCKET);
        let _ = std::fs::remove_file(&socket);
        let listener = private::listen(&socket)
            .map_err(Error::io(format!("listen on {}", socket.display())))?;
        tell(&guest, &socket, pid)?;
        control::listen(&mut Server::new(&mut guest, &self.guest.out), listener)?;
        Ok(EXIT_OK)
    }

    /// Shows the guest's console, and no output of our own.
    fn monitor(mut self) -> Outcome {
        self.guest.plain = true;
        let scratch = boot::scratch(&self.guest.out)?;
        let mut kernel = Kernel::prepare(&self.guest, &scratch)?;
        let initrd = self.guest.initrd_path()?;
        let mut link = Link::new(machines::start(
            self.guest.machine(),
            &self.guest.launch(&kernel.image, &initrd, &scratch),
        )?);
        // There is no agent to report when the guest is ready, and no server while the terminal is served.
        complain(
            &"with --console this guest cannot be looked into; leave it out, or start QEMU yourself and use `folioscope attach`",
        );
        let status = match terminal::converse(link.machine.as_mut())? {
            terminal::End::Asked => return Ok(EXIT_OK),
            terminal::End::Guest(status) => status,
        };
        let what = match status {
            // It switched itself off, or requested a reset, which ends it here.
            Status::Ended { .. } => return Ok(EXIT_OK),
            Status::Panicked => "the guest's kernel panicked".to_owned(),
            Status::Lost { status, stderr } => format!("the guest is lost: {status}: {stderr}"),
            other => format!("the guest is {other:?}"),
        };
        kernel.symbols = kernel.read_symbols(&self.guest)?;
        let error = Error::GuestLost { what };
        Err(boot::failed(&mut link, &kernel, &self.guest.out, error))
    }
}

/// Creates a process for a first look: four blocks, one of which has lost a page, and an area that starts and ends in
/// the middle of a block.
fn demonstrate(guest: &mut Guest) -> Result<i32, Error> {
    let spawned = guest.spawn("boot")?;
    let page = guest.hello().page_size;
    let block = block_size(page);
    if guest.hello().anon_order_policy.is_some() {
        guest.set_policy("variable")?;
    }
    let process = spawned.process;
    let mut area = |length, offset| -> Result<u64, Error> {
        let outcome = guest.op(process, map(length, offset))?;
        let protocol::Outcome::Mapped { address, .. } = outcome else {
            return Err(unexpected("mmap", &outcome));
        };
        guest.hint(process, address, length, Advice::Hugepage)?;
        guest.op(process, write(address, length))?;
        Ok(address)
    };
    let whole = area(4 * block, 0)?;
    area(2 * block, block / 2)?;
    let hole = advise(whole + block + 3 * page, page, Advice::Dontneed);
    guest.op(process, hole)?;
    Ok(spawned.pid)
}

fn tell(guest: &Guest, socket: &Path, pid: i32) -> Result<(), Error> {
    let (hello, socket) = (guest.hello(), socket.display());
    say!(
        "guest: Linux {}, {} KiB pages, {} CPUs, ready after {:.1} s",
        hello.kernel_release,
        hello.page_size / 1024,
        hello.cpus,
        guest.ready_after().as_secs_f64()
    );
    say!(
        "process {pid} waits for operations; its console is in {}",
        guest.scratch().join("console.log").display()
    );
    say!("look:    folioscope check --guest {socket} --pid {pid}");
    say!("         folioscope dump --guest {socket} --pid {pid} --contiguous");
    say!("         folioscope save --guest {socket} --pid {pid} saved.core");
    say!("drive:   lines of JSON to that socket (folioscope schema session), several clients at once, for example");
    say!("         {{\"id\":1,\"method\":\"command\",\"params\":{{\"command\":{{\"processes\":{{}}}}}}}}");
    say!("end:     Ctrl-C, or kill {}", std::process::id());
    Ok(())
}
