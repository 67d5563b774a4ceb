// SPDX-License-Identifier: GPL-2.0-only
//! The machines that run guests. A machine is one value in a file of its own and a line of [`BACKENDS`]: the option
//! `--machine` and its help, the reports' names and the start of a guest follow from it.

use std::sync::LazyLock;

use clap::builder::PossibleValue;
use clap::ValueEnum;
use machine::Machine;

use crate::Error;

mod backend;
mod monitor;
mod qemu;

pub use backend::{Backend, Launch, TcgThread};
pub use qemu::threads;

/// Set where this host is a carrier: its KVM runs in an emulated machine.
pub const CARRIED: &str = "FOLIOSCOPE_CARRIED";

/// Returns whether this host is a carrier.
#[must_use]
pub fn carried() -> bool {
    std::env::var_os(CARRIED).is_some()
}

/// The machines, in the order of the help.
pub static BACKENDS: &[Backend] = &[qemu::TCG, monitor::KVM];

/// The value of `--machine`.
#[derive(Clone, Copy, Debug)]
pub enum MachineChoice {
    /// The best machine of this host.
    Auto,
    /// A machine of the table.
    Of(&'static Backend),
    /// KVM in a carrier, where the same command line runs again with `kvm`.
    Carried,
}

/// Returns the best machine of this host.
pub(crate) fn best() -> &'static Backend {
    match ::kvm::check_host() {
        Ok(()) => &monitor::KVM,
        Err(_) => &qemu::TCG,
    }
}

impl MachineChoice {
    /// QEMU's TCG.
    pub const TCG: Self = Self::Of(&qemu::TCG);

    /// Returns the machine that runs the guest.
    #[must_use]
    pub fn backend(self) -> &'static Backend {
        match self {
            Self::Auto => best(),
            Self::Of(backend) => backend,
            Self::Carried => &monitor::KVM,
        }
    }
}

impl ValueEnum for MachineChoice {
    fn value_variants<'a>() -> &'a [Self] {
        static ALL: LazyLock<Vec<MachineChoice>> = LazyLock::new(|| {
            let of = BACKENDS.iter().map(MachineChoice::Of);
            let auto = std::iter::once(MachineChoice::Auto);
            auto.chain(of).chain([MachineChoice::Carried]).collect()
        });
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (name, about) = match self {
            Self::Auto => (
                "auto",
                "The best that this host has: kvm on an arm64 host with a usable /dev/kvm, else tcg",
            ),
            Self::Of(backend) => (backend.name, backend.about),
            Self::Carried => (
                "kvm-in-tcg",
                "The same on any host: KVM in an emulated arm64 machine with EL2, the carrier",
            ),
        };
        Some(PossibleValue::new(name).help(about))
    }
}

/// Starts a guest on a machine.
///
/// # Errors
/// As the machine's.
pub fn start(backend: &Backend, launch: &Launch<'_>) -> Result<Box<dyn Machine>, Error> {
    let of_tcg = launch.marks.is_some() || launch.icount || launch.tcg_thread.is_some();
    if of_tcg && !backend.is_tcg {
        return Err(Error::Input(format!(
            "--marks, --icount and --tcg-thread are for guests under TCG and this one runs on {}; say --machine tcg, or leave them out",
            (backend.kind)(carried())
        )));
    }
    (backend.start)(launch)
}
