//! The files that a process with a guest may use: Landlock, which the kernels of most hosts have since 5.13.
//!
//! What Landlock denies of itself comes with it, as far as the host's kernel knows of it: running programs, and looking into
//! other processes (5.13); the network (6.7); requests to devices (6.10); signals, and sockets without a file (6.12);
//! connecting to sockets with one (7.1).

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use landlock::{
    Access, AccessFs, AccessNet, BitFlags, LandlockStatus, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope, ABI,
};

use crate::KvmError;

/// The newest interface that this was tried against. An older kernel denies what it knows of.
const NEWEST: ABI = ABI::V10;

/// What programs and libraries read by themselves: libraries, debug information for a panic's trace, the number of CPUs, the
/// group of `/dev/kvm`, the boot that a directory's mark names.
const READ: [&str; 8] = [
    "/usr",
    "/lib",
    "/lib64",
    "/etc/group",
    "/sys/devices/system",
    "/sys/fs/cgroup",
    "/proc/sys/kernel/random/boot_id",
    "/dev/urandom",
];

/// What is written by everybody.
const WRITE: [&str; 4] = ["/dev/kvm", "/dev/null", "/dev/zero", "/dev/full"];

/// The files that a process with a guest on KVM may use, besides what every program reads. Those that are not there are
/// left out, and so is what comes to their places afterwards.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    /// Files and directories that are read, with all that is below them.
    pub read: Vec<PathBuf>,
    /// Directories below which files are made, written and removed, and files that are written as they are.
    pub write: Vec<PathBuf>,
}

impl Reach {
    /// Confines the calling thread to these files for good, and what it starts from now on. Returns the interface of the host's
    /// kernel, absent where it has none: then all files that its user may use can be used.
    pub(crate) fn confine(&self) -> Result<Option<ABI>, KvmError> {
        let read = AccessFs::ReadFile | AccessFs::ReadDir;
        let device = AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev;
        let not_below = AccessFs::Execute
            | AccessFs::MakeChar
            | AccessFs::MakeBlock
            | AccessFs::IoctlDev
            | AccessFs::ResolveUnix;
        let below = AccessFs::from_all(NEWEST) & !not_below;
        let mut rules = Ruleset::default()
            .handle_access(AccessFs::from_all(NEWEST))
            .and_then(|rules| rules.handle_access(AccessNet::from_all(NEWEST)))
            .and_then(|rules| rules.scope(Scope::from_all(NEWEST)))
            .and_then(Ruleset::create)
            .map_err(refused)?;
        for path in READ.iter().map(Path::new).chain(paths(&self.read)) {
            allow(&mut rules, path, read);
        }
        for path in WRITE.iter().map(Path::new).chain(paths(&self.write)) {
            let access = if path.is_dir() { below } else { device | read };
            allow(&mut rules, path, access);
        }
        // A rule is of an inode, and procfs makes a new one when nothing has kept this.
        let ours = File::options()
            .read(true)
            .custom_flags(libc::O_PATH | libc::O_DIRECTORY)
            .open("/proc/self");
        if let Ok(ours) = ours {
            allow(&mut rules, Path::new("/proc/self"), read);
            std::mem::forget(ours);
        }
        let status = rules.restrict_self().map_err(refused)?;
        Ok(match (status.ruleset, status.landlock) {
            (RulesetStatus::NotEnforced, _) => None,
            (_, LandlockStatus::Available { effective_abi, .. }) => Some(effective_abi),
            _ => None,
        })
    }
}

fn paths(paths: &[PathBuf]) -> impl Iterator<Item = &Path> {
    paths.iter().map(PathBuf::as_path)
}

/// Adds a rule. What is not there, or is no file of a file system (a pipe), has none, and stays as it is.
fn allow(rules: &mut RulesetCreated, path: &Path, access: BitFlags<AccessFs>) {
    if let Ok(fd) = PathFd::new(path) {
        let _ = rules.add_rule(PathBeneath::new(fd, access));
    }
}

fn refused(error: impl std::fmt::Display) -> KvmError {
    KvmError::Landlock(error.to_string())
}

#[cfg(test)]
mod tests;
