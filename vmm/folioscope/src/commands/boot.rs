//! `folioscope boot`: a guest that stays.

use std::io::BufReader;
use std::os::unix::net::UnixListener;
use std::path::Path;

use clap::Args;
use protocol::Advice;

use super::output::say;
use super::Outcome;
use crate::guest::{unexpected, Guest};
use crate::ops::{advise, map, write};
use crate::options::GuestOptions;
use crate::source::SOCKET;
use crate::stage::block_size;
use crate::{control, Error, EXIT_OK};

/// Boot a guest and stay; prints how to look into it
#[derive(Args, Debug)]
#[command(after_help = "Example: folioscope boot --granule 64k --cpu neoverse-n1")]
pub struct Boot {
    #[command(flatten)]
    guest: GuestOptions,
}

impl Boot {
    pub fn run(self) -> Outcome {
        let mut guest = Guest::boot(&self.guest)?;
        let pid = demonstrate(&mut guest).map_err(|error| match error.lost() {
            true => control::keep(&mut guest, &self.guest.out, error),
            false => error,
        })?;
        let socket = guest.scratch().join(SOCKET);
        let _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).map_err(Error::io(format!(
            "listen on {} (a Unix socket's path may have 107 bytes)",
            socket.display()
        )))?;
        tell(&guest, &socket, pid)?;
        for stream in listener.incoming() {
            let stream = stream.map_err(Error::io("accept a connection"))?;
            let input = BufReader::new(
                stream
                    .try_clone()
                    .map_err(Error::io("duplicate a connection"))?,
            );
            // One that goes away in the middle of an answer is no reason to end.
            if let Err(error) = control::serve(&mut guest, &self.guest.out, input, stream) {
                eprintln!("folioscope: a connection ended early: {error}");
            }
        }
        Ok(EXIT_OK)
    }
}

/// A process to look at from the start: four blocks, one of which has lost a page, and an area that starts and ends
/// in the middle of a block.
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
        guest.op(process, advise(address, length, Advice::Hugepage))?;
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
    say!("drive:   a line of JSON to that socket, for example");
    say!("         {{\"id\":1,\"method\":\"command\",\"params\":{{\"command\":{{\"processes\":{{}}}}}}}}");
    say!("end:     Ctrl-C");
    Ok(())
}
