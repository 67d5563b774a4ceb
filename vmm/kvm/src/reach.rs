// SPDX-License-Identifier: GPL-2.0-only
//! The files that a process with a guest may use: Landlock, which the kernels of most hosts have since 5.13.
//!
//! Landlock also denies, as far as the host's kernel supports it: running programs, and access to other processes
//! (5.13); the network (6.7); requests to devices (6.10); signals, and sockets without a file (6.12); connecting to
//! sockets with one (7.1).

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use landlock::{
    Access, AccessFs, AccessNet, BitFlags, LandlockStatus, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope, ABI,
};

use crate::KvmError;

/// The newest interface that this was tested with. An older kernel denies what it supports.
const NEWEST: ABI = ABI::V10;

/// Files that programs and libraries read by themselves: libraries, debug information for a panic's trace, the number
/// of CPUs, the group of `/dev/kvm`, the boot id of a directory's mark.
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

/// Files that every such process writes.
const WRITE: [&str; 4] = ["/dev/kvm", "/dev/null", "/dev/zero", "/dev/full"];

/// The files that a process with a guest on KVM may use, besides those that every program reads. Files that do not
/// exist are left out, and so are files created in their places later.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    /// Files and directories that are read, with all that is below them.
    pub read: Vec<PathBuf>,
    /// Directories below which files are made, written and removed, and files that are written as they are.
    pub write: Vec<PathBuf>,
}

impl Reach {
    /// Confines the calling thread irreversibly to these files, and all that it starts from now on. Returns the
    /// interface of the host's kernel; `None` if it has none, so that all of the user's files can be used.
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
        // A rule belongs to an inode, and procfs makes a new one when nothing has kept this.
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

/// Adds a rule. A path that does not exist, or is not in a file system (a pipe), gets none, and its access is
/// unchanged.
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
