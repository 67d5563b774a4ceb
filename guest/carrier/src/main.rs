//! The init of a carrier host: an emulated arm64 machine that runs programs of the outside host as if they were local.
//!
//! It mounts the outside's file system at `/host`, and starts there, each in a session of its own, the programs that
//! come as streams on one virtio serial port ([`protocol::carrier`]). It has one thread and one loop ([`server`]).

mod facts;
mod mounts;
mod port;
mod program;
mod server;
mod sys;

use std::io::Write as _;

fn main() {
    if std::process::id() != 1 {
        eprintln!("folioscope-carrier is the init of a carrier host, and of no use elsewhere; start one with: folioscope carrier serve");
        std::process::exit(2);
    }
    std::panic::set_hook(Box::new(|info| {
        log(&format!("internal error: {info}"));
        sys::power_off();
    }));
    let error = mounts::mount_all()
        .and_then(|()| port::open())
        .and_then(server::serve);
    // The host sees the machine end; the reason is on the console.
    if let Err(error) = error {
        log(&error);
    }
    sys::power_off();
}

/// Writes a line to the console, which is kept outside. Errors are ignored: there is no other place to report them.
fn log(line: &str) {
    let _ = writeln!(std::io::stderr(), "folioscope-carrier: {line}");
}
