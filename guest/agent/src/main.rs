//! The one program of the guest, in two roles.
//!
//! As *agent* it is the init of the guest: it mounts, finds the control channel, and executes the host's requests; it
//! never ends. As *workload* it is a process of its own, started by the agent from the same file so that its address
//! space is small and known. It does one operation on its own memory after the other, and can wait in user mode while
//! the host looks at its page tables.
//!
//! The agent is one thread and one loop, [`server`]. All work that could block is done elsewhere: operations in the
//! workload processes, files and programs in short-lived helpers ([`jobs`]).

mod channel;
mod checkpoint;
mod doorbell;
mod erofs;
mod facts;
mod files;
mod getters;
mod init;
mod jobs;
mod link;
mod names;
mod processes;
mod run;
mod server;
mod slots;
mod spawn;
mod swap;
mod sys;
mod workload;

use std::path::PathBuf;

use channel::Endpoint;

/// `argv[0]` of a workload process.
const WORKLOAD: &str = "workload";

/// Directory of the files that the agent and its workload processes share.
const GUEST_DIRECTORY: &str = "/run/folioscope";

const USAGE: &str = "folioscope-agent is the init of a Folioscope guest.

  folioscope-agent --stdio DIR   serve on standard input and output instead, on any Linux, to try
                                 the protocol; DIR is for its pipes, and is made if need be
  folioscope-agent --version     the versions of the program and of its protocol";

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    sys::fail_loudly();
    if arguments.first().map(String::as_str) == Some(WORKLOAD) {
        workload::main(&arguments[1..]);
    }
    if std::process::id() == 1 {
        init::start_without_huge_pages(&arguments);
        let mounts = init::set_up();
        let endpoint = channel::find();
        server::serve(endpoint, PathBuf::from(GUEST_DIRECTORY), mounts);
    }
    match arguments.get(1).map(String::as_str) {
        Some("--stdio") if arguments.len() == 3 => {
            server::serve(Endpoint::stdio(), PathBuf::from(&arguments[2]), Vec::new());
        }
        Some("--version") => println!(
            "folioscope-agent {} protocol {}",
            env!("CARGO_PKG_VERSION"),
            protocol::PROTOCOL_VERSION
        ),
        _ => {
            eprintln!("{USAGE}");
            std::process::exit(2);
        }
    }
}
