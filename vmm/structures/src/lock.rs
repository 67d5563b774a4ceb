//! The lock of an address space (`mmap_lock`), from outside.

use serde::{Deserialize, Serialize};

/// `RWSEM_WRITER_LOCKED` (`kernel/locking/rwsem.c`); what else is not 0 are readers, and those who wait.
const WRITER: u64 = 1;

/// Who holds the lock of an address space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lock {
    /// Nobody.
    Free,
    /// Somebody who reads the VMAs, as khugepaged and KSM do; or munmap(), which takes the VMAs away as a writer and the
    /// pages as a reader. Nobody forks.
    Read,
    /// Somebody who changes the VMAs, or forks. What is not known counts as this.
    #[default]
    Written,
}

impl Lock {
    /// By the count of its `struct rw_semaphore`.
    #[must_use]
    pub fn of(count: u64) -> Lock {
        match count {
            0 => Lock::Free,
            count if count & WRITER == 0 => Lock::Read,
            _ => Lock::Written,
        }
    }

    /// Whether the VMAs are perhaps not those of the tables.
    #[must_use]
    pub fn is_held(self) -> bool {
        self != Lock::Free
    }

    /// Whether a fork may be under way, whose child is in no list yet.
    #[must_use]
    pub fn may_fork(self) -> bool {
        self == Lock::Written
    }
}

#[cfg(test)]
mod tests {
    use super::Lock;

    #[test]
    fn readers_do_not_fork() {
        // One reader, one who waits for it to write; then that writer.
        for (count, lock) in [
            (0, Lock::Free),
            (0x100, Lock::Read),
            (0x106, Lock::Read),
            (1, Lock::Written),
            (0x7, Lock::Written),
        ] {
            assert_eq!(Lock::of(count), lock, "{count:#x}");
        }
        assert!(!Lock::Free.is_held() && Lock::Read.is_held() && Lock::Written.is_held());
        assert!(!Lock::Read.may_fork() && Lock::default().may_fork());
    }
}
