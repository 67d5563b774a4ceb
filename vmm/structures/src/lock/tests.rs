// SPDX-License-Identifier: GPL-2.0-only
//! Words of locks, worked out from `kernel/locking/{rwsem,rwbase_rt,rtmutex}.c`, and which form a kernel's types have.

use super::*;

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

#[test]
fn readers_with_preempt_rt() {
    for (readers, lock) in [
        // __RWBASE_INITIALIZER(), and behind each rwbase_read_unlock() and rwbase_write_unlock().
        (0x8000_0000, Lock::Free),
        // rwbase_read_trylock() adds one each, and rwbase_write_downgrade() leaves one.
        (0x8000_0001, Lock::Read),
        (0x8000_0007, Lock::Read),
        // rwbase_write_lock() has taken the bias away and waits for two readers, and then for none.
        (2, Lock::Read),
        (0, Lock::Read),
        // __rwbase_write_trylock().
        (0x4000_0000, Lock::Written),
        // No kernel writes these: not known, which counts as written.
        (0x4000_0001, Lock::Written),
        (0xc000_0000, Lock::Written),
    ] {
        assert_eq!(Lock::of_readers(readers), lock, "{readers:#x}");
    }
}

/// A member of the kernel's types below: its name, what it is of (by number, from 1), and its offset in bytes.
type Has = (&'static str, u32, u32);

/// BTF (Documentation/bpf/btf.rst) of an integer of 4 bytes (type 1), one of 8 (2), a pointer (3), and these structures.
fn types(structures: &[(&'static str, u32, &[Has])]) -> Types {
    let (mut strings, mut bytes) = (vec![0], Vec::new());
    let mut name = |name: &str| {
        let at = strings.len() as u32;
        strings.extend(name.bytes().chain([0]));
        at
    };
    let (int, pointer, structure) = (1 << 24, 2 << 24, 4 << 24);
    let mut words = vec![
        name("int"),
        int,
        4,
        32,
        name("long"),
        int,
        8,
        64,
        0,
        pointer,
        1,
    ];
    for (of, size, members) in structures {
        words.extend([name(of), structure | members.len() as u32, *size]);
        for (member, kind, offset) in *members {
            words.extend([name(member), *kind, 8 * offset]);
        }
    }
    let length = 4 * words.len() as u32;
    let header = [0x0001_eb9f, 24, 0, length, length, strings.len() as u32];
    for word in header.iter().chain(&words) {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(strings);
    Types::parse(&bytes).expect("it is BTF")
}

fn member(offset: u64, size: u64) -> Member {
    Member {
        offset,
        size,
        elements: 1,
    }
}

#[test]
fn types_tell_the_form() {
    // `atomic_long_t count`; `arch_spinlock_t` with an `atomic_t`; `ptl` is the lock itself.
    let plain = types(&[
        ("", 8, &[("counter", 2, 0)]),
        ("rw_semaphore", 24, &[("owner", 2, 8), ("count", 4, 0)]),
        ("mm_struct", 200, &[("mmap_lock", 5, 128)]),
        ("", 4, &[("counter", 1, 0)]),
        ("qspinlock", 4, &[("val", 7, 0)]),
        ("raw_spinlock", 4, &[("raw_lock", 8, 0)]),
        ("spinlock", 4, &[("rlock", 9, 0)]),
        ("mutex", 24, &[("owner", 4, 0)]),
        ("ptdesc", 64, &[("ptl", 10, 40)]),
    ]);
    let semaphore = RwSemaphore::new(&plain, "mm_struct", "mmap_lock");
    assert_eq!(semaphore, Ok(RwSemaphore::Count(member(128, 8))));
    assert_eq!(SpinLock::new(&plain), Ok(SpinLock(member(0, 4))));
    assert_eq!(mutex(&plain), Ok(member(0, 8)));
    assert!(plain.pointer("ptdesc", "ptl").is_err());

    // `struct rwbase_rt` and `struct rt_mutex_base` (include/linux/{rwbase_rt,rtmutex}.h); `ptl` is a pointer.
    let rt = types(&[
        ("", 4, &[("counter", 1, 0)]),
        (
            "rt_mutex_base",
            32,
            &[("wait_lock", 1, 0), ("owner", 3, 24)],
        ),
        ("rwbase_rt", 40, &[("readers", 4, 0), ("rtmutex", 5, 8)]),
        ("rw_semaphore", 40, &[("rwbase", 6, 0)]),
        ("mm_struct", 200, &[("mmap_lock", 7, 96)]),
        ("spinlock", 32, &[("lock", 5, 0)]),
        ("mutex", 32, &[("rtmutex", 5, 0)]),
        ("ptdesc", 64, &[("ptl", 3, 40)]),
    ]);
    let semaphore = RwSemaphore::new(&rt, "mm_struct", "mmap_lock");
    assert_eq!(semaphore, Ok(RwSemaphore::Readers(member(96, 4))));
    assert_eq!(SpinLock::new(&rt), Ok(SpinLock(member(24, 8))));
    assert_eq!(mutex(&rt), Ok(member(24, 8)));
    assert_eq!(rt.pointer("ptdesc", "ptl"), Ok(member(40, 8)));

    // Neither: it is not known, and the error names the form that most kernels have.
    let other = types(&[("mm_struct", 8, &[("mmap_lock", 2, 0)])]);
    let missing = RwSemaphore::new(&other, "mm_struct", "mmap_lock").unwrap_err();
    assert!(
        missing.to_string().contains("mmap_lock.count.counter"),
        "{missing}"
    );
    assert!(SpinLock::new(&other).is_err() && mutex(&other).is_err());
}
