// SPDX-License-Identifier: GPL-2.0-only
//! The subcommands, one module each.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};

use crate::confined;
use crate::control;
use crate::options::GuestOptions;
use crate::{Error, EXIT_NOT_JUDGED, EXIT_OK};

mod attach;
mod bench;
mod beside;
mod boot;
mod campaigns;
mod carried;
mod carrier;
mod check;
mod cross;
mod diff;
mod dump;
mod explain;
mod files;
mod image;
mod kernel;
mod lab;
mod man;
mod maps;
mod output;
mod page;
mod ps;
mod record;
mod rules;
mod run;
mod save;
mod session;
mod terminal;
mod watch;

pub(crate) use output::{complain, has_colours, stdout, STDOUT};

/// Reads an arm64 guest's page tables from outside, and judges them.
#[derive(Debug, Parser)]
#[command(
    name = "folioscope",
    version,
    about,
    after_help = "Exit status: 0 no error found; 1 errors found; 2 could not be judged."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

impl Command {
    /// Returns the guest that the command boots, if it boots one.
    fn guest(&self) -> Option<&GuestOptions> {
        match self {
            Self::Run(run) => Some(&run.guest),
            Self::Cross(cross) => Some(&cross.guest),
            Self::Boot(boot) => Some(&boot.guest),
            Self::Bench(bench) => Some(&bench.guest),
            Self::Session(session) => Some(&session.guest),
            _ => None,
        }
    }

    /// Returns what a guest is booted from, where no option names it.
    fn defaults(&self) -> files::Defaults {
        let guest = match self {
            Self::Record(record) => Some(&record.guest),
            other => other.guest(),
        };
        let Some(guest) = guest else {
            return Vec::new();
        };
        let kernel = guest.kernel_path().ok();
        let vmlinux =
            (kernel.as_ref()).and_then(|kernel| guest.vmlinux_path(kernel).ok().flatten());
        let initrd = guest.initrd_path().ok();
        let all = [
            ("--kernel", kernel),
            ("--vmlinux", vmlinux),
            ("--initrd", initrd),
        ];
        all.into_iter()
            .filter_map(|(option, path)| Some((option, path?)))
            .collect()
    }

    /// Returns whether typed keys go to the guest one by one.
    fn types(&self) -> bool {
        matches!(self, Self::Boot(boot) if boot.console)
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Run),
    Cross(cross::Cross),
    Boot(boot::Boot),
    Attach(attach::Attach),
    Dump(dump::Dump),
    Check(check::Check),
    Explain(explain::Explain),
    Save(save::Save),
    Ps(ps::Ps),
    Maps(maps::Maps),
    Page(page::Page),
    Kernel(kernel::Kernel),
    Diff(diff::Diff),
    Watch(watch::Watch),
    Record(record::Record),
    Image(image::Image),
    /// Print the JSON schema of reports, of the lines of a session, or of a listing
    #[command(after_help = "Example: folioscope schema > folioscope.schema.json")]
    Schema {
        /// The subject of the schema
        #[arg(value_enum, default_value = "report")]
        of: SchemaOf,
    },
    Rules(rules::Rules),
    /// Print completions for a shell
    #[command(
        after_help = "Example: folioscope completions bash > /etc/bash_completion.d/folioscope"
    )]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    Bench(bench::Bench),
    Lab(lab::Lab),
    Matrix(campaigns::Matrix),
    Series(campaigns::Series),
    Bisect(campaigns::Bisect),
    Reply(campaigns::Reply),
    Man(man::Man),
    Session(session::Session),
    Carrier(carrier::CarrierCommand),
}

/// Confines a process that serves a guest on KVM, so that an attacker who broke out of the guest would gain nothing
/// more. The measurements start other programs, and are not for untrusted guests.
fn confine(command: &Command) -> Result<(), Error> {
    let outputs = match command {
        Command::Bench(_) => return Ok(()),
        Command::Run(run) => run.report.outputs(),
        Command::Cross(cross) => cross.report.outputs(),
        _ => Vec::new(),
    };
    match command.guest() {
        Some(guest) if guest.machine().is_in_process => confined::confine(guest, &outputs),
        _ => Ok(()),
    }
}

/// Subject of a schema.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum SchemaOf {
    /// Output of `--json` and `--format json`.
    Report,
    /// The lines of `folioscope session` and of the socket of `folioscope boot`.
    Session,
    /// Output of `ps --format json`.
    Ps,
    /// Output of `maps --format json`.
    Maps,
    /// Output of `page --format json`.
    Page,
    /// Output of `kernel --format json`.
    Kernel,
    /// Output of `diff --format json`.
    Diff,
    /// The file of `matrix`, as JSON; this and the others below are of a checkout.
    Matrix,
    /// The table of `matrix`, `series` and `bisect`: matrix.json.
    Table,
    /// The result of a cell in a store.
    Result,
    /// The note on a series in a store.
    Series,
    /// Output of `bisect`: bisect.json.
    Bisect,
}

/// Runs the command line. `commit` is shown with the version.
#[must_use]
pub fn main(commit: Option<&str>) -> ExitCode {
    let cli = match parse(commit) {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => {
            let _ = error.print();
            return ExitCode::from(EXIT_NOT_JUDGED);
        }
        // The help, or the version.
        Err(asked) => return ended(printed(&asked).map(|()| EXIT_OK)),
    };
    let (command, matches) = cli;
    let outcome = match files::check(&Cli::command(), &matches, command.defaults()) {
        Err(error) => Err(error),
        Ok(()) => match carried::run(&command) {
            Some(outcome) => outcome,
            None => run(command),
        },
    };
    ended(outcome)
}

/// Prints the requested text in place of running a command.
fn printed(asked: &clap::Error) -> Result<(), Error> {
    let written = asked.print().and_then(|()| io::stdout().flush());
    written.map_err(Error::io(output::STDOUT))
}

fn ended(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(status) => ExitCode::from(status),
        Err(error) if output::is_closed_pipe(&error) => ExitCode::from(EXIT_NOT_JUDGED),
        Err(error) => {
            output::complain(&error);
            ExitCode::from(EXIT_NOT_JUDGED)
        }
    }
}

/// Returns the command, and the command line that it is made of.
fn parse(commit: Option<&str>) -> Result<(Command, ArgMatches), clap::Error> {
    let mut command = Cli::command();
    if let Some(commit) = commit.filter(|commit| !commit.is_empty()) {
        // Once in a process: clap holds a version for as long as that runs.
        let version = format!("{} ({commit})", env!("CARGO_PKG_VERSION"));
        command = command.version(&*Box::leak(version.into_boxed_str()));
    }
    let matches = command.try_get_matches_from_mut(std::env::args_os())?;
    let cli = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
    Ok((cli.command, matches))
}

fn run(command: Command) -> Outcome {
    confine(&command)?;
    match command {
        Command::Run(run) => run.run(),
        Command::Cross(cross) => cross.run(),
        Command::Boot(boot) => boot.run(),
        Command::Attach(attach) => attach.run(),
        Command::Dump(dump) => dump.run(),
        Command::Check(check) => check.run(),
        Command::Explain(explain) => explain.run(),
        Command::Save(save) => save.run(),
        Command::Ps(ps) => ps.run(),
        Command::Maps(maps) => maps.run(),
        Command::Page(page) => page.run(),
        Command::Kernel(kernel) => kernel.run(),
        Command::Diff(diff) => diff.run(),
        Command::Watch(watch) => watch.run(),
        Command::Record(record) => record.run(),
        Command::Rules(rules) => rules.run(),
        Command::Image(image) => image.run(),
        Command::Schema { of } => {
            let schema = match of {
                SchemaOf::Report => verdict::schema(),
                SchemaOf::Session => control::schema(),
                SchemaOf::Ps => report::listing::tasks_schema(),
                SchemaOf::Maps => report::listing::maps_schema(),
                SchemaOf::Page => report::frames::frames_schema(),
                SchemaOf::Kernel => report::kernel_map::kernel_map_schema(),
                SchemaOf::Diff => changes::schema(),
                SchemaOf::Matrix => return campaigns::schema("matrix"),
                SchemaOf::Table => return campaigns::schema("table"),
                SchemaOf::Result => return campaigns::schema("result"),
                SchemaOf::Series => return campaigns::schema("series"),
                SchemaOf::Bisect => return campaigns::schema("bisect"),
            };
            output::line(format_args!("{schema:#}")).map(|()| EXIT_OK)
        }
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "folioscope", &mut text);
            output::bytes(&text).map(|()| EXIT_OK)
        }
        Command::Bench(bench) => bench.run(),
        Command::Lab(lab) => lab.run(),
        Command::Matrix(matrix) => matrix.run(),
        Command::Series(series) => series.run(),
        Command::Bisect(bisect) => bisect.run(),
        Command::Reply(reply) => reply.run(),
        Command::Man(man) => man.run(),
        Command::Session(session) => session.run(),
        Command::Carrier(carrier) => carrier.run(),
    }
}

type Outcome = Result<u8, Error>;
