// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's locks at one instant, in the form that its configuration gives them: which one that is, its types tell.
//!
//! With `CONFIG_PREEMPT_RT` all of them are built on `struct rt_mutex_base`, and a task may be preempted, or sleep, while it
//! holds a spinlock.

use serde::{Deserialize, Serialize};
use stage1::PhysMemory;

use crate::kernel::View;
use crate::types::{Member, Types};
use crate::StructureError;

/// `RWSEM_WRITER_LOCKED` (`kernel/locking/rwsem.c`); what else is not 0 are readers, and those who wait.
const WRITER: u64 = 1;
/// `READER_BIAS` (`include/linux/rwbase_rt.h`): set while readers need not wait for a writer. The readers are added to it.
const READER_BIAS: u64 = 1 << 31;
/// `WRITER_BIAS`: all that is set while a writer holds the lock.
const WRITER_BIAS: u64 = 1 << 30;

/// Holder of the lock of an address space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lock {
    /// No task.
    Free,
    /// A task that reads the VMAs, as khugepaged and KSM do; or munmap(), which takes the VMAs away as a writer and the
    /// pages as a reader. No task forks.
    Read,
    /// A task that changes the VMAs, or forks. A holder that is not known counts as this.
    #[default]
    Written,
}

impl Lock {
    /// Decodes `count` of a `struct rw_semaphore`.
    #[must_use]
    pub fn of(count: u64) -> Lock {
        match count {
            0 => Lock::Free,
            count if count & WRITER == 0 => Lock::Read,
            _ => Lock::Written,
        }
    }

    /// Decodes `rwbase.readers` of a `struct rw_semaphore` with `CONFIG_PREEMPT_RT`.
    ///
    /// A writer takes the bias away, waits for the readers that are left, none of which is new, and sets its own. So a
    /// count without any bias is of readers, or of none and a writer that has not begun.
    #[must_use]
    pub fn of_readers(readers: u64) -> Lock {
        match readers {
            READER_BIAS => Lock::Free,
            readers if readers & WRITER_BIAS == 0 => Lock::Read,
            _ => Lock::Written,
        }
    }

    /// Returns whether the VMAs are perhaps not those of the tables.
    #[must_use]
    pub fn is_held(self) -> bool {
        self != Lock::Free
    }

    /// Returns whether a fork may be under way, whose child is in no list yet.
    #[must_use]
    pub fn may_fork(self) -> bool {
        self == Lock::Written
    }
}

/// A `struct rw_semaphore` that is a member of another structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RwSemaphore {
    /// The member `count`.
    Count(Member),
    /// The member `rwbase.readers`, with `CONFIG_PREEMPT_RT`.
    Readers(Member),
}

impl RwSemaphore {
    /// The member `name` of `structure`.
    ///
    /// # Errors
    /// Where the kernel has none such, in either form.
    pub(crate) fn new(types: &Types, structure: &str, name: &str) -> Result<Self, StructureError> {
        let readers = types.member(structure, &format!("{name}.rwbase.readers.counter"));
        match types.member(structure, &format!("{name}.count.counter")) {
            Ok(count) => Ok(Self::Count(count)),
            Err(missing) => readers.map(Self::Readers).map_err(|_| missing),
        }
    }

    /// Reads the one in the structure at `va`.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub(crate) fn read<M: PhysMemory + ?Sized>(
        self,
        view: View<'_, M>,
        va: u64,
    ) -> Result<Lock, StructureError> {
        let number = |member| view.number("a lock", va, member);
        match self {
            Self::Count(count) => Ok(Lock::of(number(count)?)),
            Self::Readers(readers) => Ok(Lock::of_readers(number(readers)?)),
        }
    }
}

/// The word of a `spinlock_t` that is 0 while no task holds the lock or waits for it.
///
/// With `CONFIG_PREEMPT_RT` it is `owner` of a `struct rt_mutex_base`: a task, and in bit 0 whether others wait; the bit alone
/// where the first of them is about to take the lock (`kernel/locking/rtmutex.c`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SpinLock(Member);

impl SpinLock {
    /// As this kernel has it.
    ///
    /// # Errors
    /// Where it has it in neither form.
    pub(crate) fn new(types: &Types) -> Result<SpinLock, StructureError> {
        let spins = types.member("spinlock", "rlock.raw_lock.val.counter");
        match spins {
            Ok(word) => Ok(SpinLock(word)),
            Err(missing) => {
                let owner = types.member("spinlock", "lock.owner");
                owner.map(SpinLock).map_err(|_| missing)
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn of(word: Member) -> SpinLock {
        SpinLock(word)
    }

    /// Where its word is in the lock.
    pub(crate) fn word(self) -> Member {
        self.0
    }

    /// Returns whether a task holds the lock at `va` or waits for it.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub(crate) fn is_held<M: PhysMemory + ?Sized>(
        self,
        view: View<'_, M>,
        va: u64,
    ) -> Result<bool, StructureError> {
        Ok(view.number("a lock", va, self.0)? != 0)
    }
}

/// The word of a `struct mutex` that is 0 while no task holds it: its `owner`, with `CONFIG_PREEMPT_RT` that of its
/// `struct rt_mutex_base`.
///
/// # Errors
/// Where the kernel has it in neither form.
pub(crate) fn mutex(types: &Types) -> Result<Member, StructureError> {
    let own = types.member("mutex", "owner.counter");
    own.or_else(|missing| types.member("mutex", "rtmutex.owner").map_err(|_| missing))
}

#[cfg(test)]
mod tests;
