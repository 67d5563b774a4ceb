// SPDX-License-Identifier: GPL-2.0-only
//! The books at the end of a batch: when its processes have ended and its files are gone, nothing of it is counted.

use std::time::{Duration, Instant};

use protocol::Command;
use verdict::{charges_left, pages_left, Finding, KernelVerdict, Step};

use crate::guest::Guest;
use crate::Error;

/// The memory cgroup of the processes of the crossing.
pub(super) const CGROUP: &str = "/sys/fs/cgroup/folioscope-cross";
/// Word of the kernel's command line that lets `/proc/PID/mem` write to what its process may not, also where the kernel's
/// default is another (fs/proc/base.c, `proc_mem_foll_force()`).
pub const FORCE_WORD: &str = "proc_mem.force_override=always";
/// Word of the kernel's command line that keeps the kernel's own memory out of cgroups: it goes when it will.
pub const BOOT_WORD: &str = "cgroup.memory=nokmem";
/// Maximum time until a batch is gone: an address space goes with the last who looks at it (`mmput()`), and the guest's CPUs
/// may get little of a busy host's.
const PATIENCE: Duration = Duration::from_secs(10);
const TICK: Duration = Duration::from_millis(10);

/// The pool of hugetlb pages of a size, in bytes.
pub(super) fn pool(size: u64) -> String {
    format!("/sys/kernel/mm/hugepages/hugepages-{}kB", size / 1024)
}

/// Pages of memory and of swap that the cgroup had charged at the end of the batch before.
#[derive(Debug, Default)]
pub struct Ledger {
    charged: [u64; 2],
    /// Sizes of hugetlb pages, in bytes.
    hugetlb: [u64; 3],
    /// Files of their pools, of all nodes or of each, and how many pages each had at first.
    pools: Vec<(String, u64)>,
    /// A process of a batch may be there still: nothing is asked any more.
    closed: bool,
}

impl Ledger {
    /// Makes the cgroup; without one nothing is asked of it.
    ///
    /// # Errors
    /// Where the guest is lost.
    pub(super) fn open(guest: &mut Guest, hugetlb: [u64; 3]) -> Result<Self, Error> {
        let mut ledger = Self {
            charged: [0; 2],
            hugetlb,
            pools: pools(guest, hugetlb)?,
            closed: false,
        };
        let said = guest.read_file("/proc/cmdline")?.unwrap_or_default();
        let known = guest.read_file("/sys/fs/cgroup/cgroup.controllers")?;
        let has_memory =
            known.is_some_and(|known| known.split_whitespace().any(|it| it == "memory"));
        if !has_memory || !said.split_whitespace().any(|word| word == BOOT_WORD) {
            return Ok(ledger);
        }
        guest.write_file("/sys/fs/cgroup/cgroup.subtree_control", "+memory", None)?;
        super::mounts::run(guest, &format!("mkdir -p {CGROUP}"))?;
        // The first process there pays for the page that it shares with the agent at a checkpoint, which stays.
        let spawned = guest.spawn("cross")?;
        let procs = format!("{CGROUP}/cgroup.procs");
        guest.write_file(&procs, &spawned.pid.to_string(), None)?;
        let process = spawned.process;
        guest.hold(process)?;
        guest.release(process)?;
        guest.command(Command::Kill { process }, guest.deadline())?;
        ledger.settle(guest)?;
        Ok(ledger)
    }

    /// Asks nothing from here on: a batch failed, and may have left a process.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// Returns a step with what is counted of a batch that is gone, if there is anything.
    ///
    /// # Errors
    /// Where the guest is lost.
    pub fn left(&mut self, guest: &mut Guest, name: &str) -> Result<Option<Step>, Error> {
        if self.closed {
            return Ok(None);
        }
        let findings = self.settle(guest)?;
        self.refill(guest)?;
        if findings.is_empty() {
            return Ok(None);
        }
        let mut kernel = KernelVerdict::default();
        kernel.findings = findings;
        Ok(Some(Step {
            workload: "cross".into(),
            step: format!("{name}: what is left"),
            kernel: Some(kernel),
            basis: Some(guest.driven()),
            ..Step::default()
        }))
    }

    /// Has other pages take the place of those that have left a pool, as they were broken: what is played next finds as many
    /// as before, on each node.
    fn refill(&self, guest: &mut Guest) -> Result<(), Error> {
        for (path, pages) in &self.pools {
            if number(guest, path)?.is_some_and(|now| now < *pages) {
                guest.write_file(path, &pages.to_string(), None)?;
            }
        }
        Ok(())
    }

    /// Waits until nothing is counted any more; what is then counted all the same is not told of again.
    fn settle(&mut self, guest: &mut Guest) -> Result<Vec<Finding>, Error> {
        // The batches of the LRU lists hold folios (`lru_add_drain_all()`).
        guest.write_file("/proc/sys/vm/drop_caches", "1", None)?;
        let started = Instant::now();
        loop {
            let charged = charged(guest)?;
            let mut found: Vec<Finding> = ["memory", "swap"]
                .iter()
                .zip(charged.iter().zip(self.charged))
                .filter(|(_, (now, before))| **now > *before)
                .map(|(what, (now, before))| charges_left(now - before, what))
                .collect();
            for size in self.hugetlb {
                found.extend(pool_left(guest, size)?);
            }
            if found.is_empty() || started.elapsed() > PATIENCE {
                self.charged = charged;
                return Ok(found);
            }
            std::thread::sleep(TICK);
        }
    }
}

/// Pages of memory and of swap that the cgroup has charged; none without one.
fn charged(guest: &mut Guest) -> Result<[u64; 2], Error> {
    let high = format!("{CGROUP}/memory.high");
    let mut pages = [0; 2];
    if guest.read_file(&high)?.is_some() {
        // What CPUs keep charged for later is given back first (`memory_high_write()`, `drain_all_stock()`).
        guest.write_file(&high, "0", None)?;
        guest.write_file(&high, "max", None)?;
        let page = guest.hello().page_size;
        for (count, file) in pages.iter_mut().zip(["current", "swap.current"]) {
            *count = number(guest, &format!("{CGROUP}/memory.{file}"))?.unwrap_or(0) / page;
        }
    }
    Ok(pages)
}

fn pool_left(guest: &mut Guest, size: u64) -> Result<Option<Finding>, Error> {
    let pool = pool(size);
    let file = |name: &str| format!("{pool}/{name}");
    let Some(all) = number(guest, &file("nr_hugepages"))? else {
        return Ok(None);
    };
    let free = number(guest, &file("free_hugepages"))?.unwrap_or(all);
    let reserved = number(guest, &file("resv_hugepages"))?.unwrap_or(0);
    let surplus = number(guest, &file("surplus_hugepages"))?.unwrap_or(0);
    let whole = (free, reserved, surplus) == (all, 0, 0);
    Ok((!whole).then(|| pages_left(all, free, reserved, surplus)))
}

/// The pools of these sizes: the file of each node that says how many pages it has, and how many it has now.
fn pools(guest: &mut Guest, sizes: [u64; 3]) -> Result<Vec<(String, u64)>, Error> {
    let mut found = Vec::new();
    for size in sizes {
        for node in 0.. {
            let path = format!(
                "/sys/devices/system/node/node{node}/hugepages/hugepages-{}kB/nr_hugepages",
                size / 1024
            );
            match number(guest, &path)? {
                Some(pages) => found.push((path, pages)),
                None if node == 0 => {
                    let path = format!("{}/nr_hugepages", pool(size));
                    found.extend(number(guest, &path)?.map(|pages| (path, pages)));
                    break;
                }
                None => break,
            }
        }
    }
    Ok(found)
}

fn number(guest: &mut Guest, path: &str) -> Result<Option<u64>, Error> {
    let text = guest.read_file(path)?;
    Ok(text.and_then(|text| text.trim().parse().ok()))
}
