// SPDX-License-Identifier: GPL-2.0-only
use rustix::fs::{memfd_create, MemfdFlags};

use super::*;

/// Returns a page with the contents of a vCPU's `kvm_run` before it ever ran.
fn run() -> KvmRunWrapper {
    let size = 64 << 10;
    let file = std::fs::File::from(memfd_create(c"run", MemfdFlags::CLOEXEC).unwrap());
    file.set_len(size as u64).unwrap();
    KvmRunWrapper::mmap_from_fd(&file, size).unwrap()
}

fn cpu(index: usize) -> Cpu {
    Cpu {
        index,
        ..Cpu::default()
    }
}

#[test]
fn nobody_waits_for_a_thread_that_has_failed() {
    const LONG: Duration = Duration::from_secs(60);
    let parking = Parking::new(vec![run(), run(), run()]).unwrap();
    std::thread::scope(|scope| {
        for index in 0..3 {
            let parking = &parking;
            scope.spawn(move || {
                let membership = parking.join(index);
                while membership.park(|| Ok(cpu(index))) {
                    if index == 1 {
                        // At the first time that it may run, as a panic would.
                        return;
                    }
                    while !parking.lock().must_park() {
                        std::thread::yield_now();
                    }
                }
            });
        }
        let cpus = |parking: &Parking| {
            let start = Instant::now();
            let (_, cpus) = parking.still(LONG).unwrap();
            assert!(start.elapsed() < LONG / 4, "{:?}", start.elapsed());
            cpus.iter().map(|cpu| cpu.index).collect::<Vec<_>>()
        };
        assert_eq!(cpus(&parking), [0, 1, 2]);
        parking.go();
        while parking.end().is_none() {
            std::thread::yield_now();
        }
        // However often it is stopped and resumed.
        for _ in 0..3 {
            parking.stop();
            assert_eq!(cpus(&parking), [0, 2]);
            parking.go();
        }
        let end = parking.end().unwrap();
        assert!(
            matches!(&end, End::Lost(why) if why.contains("CPU 1")),
            "{end:?}"
        );
        parking.quit();
    });
}
