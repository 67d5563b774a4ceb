//! Pages and NUMA nodes.

use std::ffi::c_void;
use std::thread;
use std::time::{Duration, Instant};

use protocol::{Failure, Outcome};
use rustix::process::{kill_process, waitpid, Pid, Signal, WaitOptions};

use super::memory::on_memory;
use crate::sys;

/// Maximum number of pages of one request, so that the answer fits in a line.
const MAX_PAGES: u64 = 1 << 16;

/// `MPOL_MF_MOVE`, `MPOL_DEFAULT` and `MPOL_BIND` (include/uapi/linux/mempolicy.h).
const MOVE: libc::c_int = 1 << 1;
const DEFAULT: usize = 0;
const BIND: usize = 2;

/// The switch of NUMA balancing.
const SWITCH: &str = "/proc/sys/kernel/numa_balancing";
/// The file that counts NUMA balancing's passes over the process's memory (`proc_sched_show_task()`).
const SCHED: &str = "/proc/self/sched";
const PASSES: &str = "mm->numa_scan_seq";
/// One pass that has begun may be past what it is to see.
const WHOLE: u64 = 2;
const PATIENCE: Duration = Duration::from_secs(50);
/// Bytes of the second task's stack.
const STACK: usize = 16 << 10;

/// Runs until all memory of the process has been scanned.
pub fn hints() -> Result<Outcome, Failure> {
    if std::fs::read_to_string(SWITCH).is_ok_and(|text| text.trim() == "0") {
        return Err(Failure::bad(format!("{SWITCH} is 0: write 1 to it first")));
    }
    let mut stack = vec![0u8; STACK];
    let second = second(&mut stack)?;
    let seen = wait_for_passes();
    let _ = kill_process(second, Signal::KILL);
    let _ = waitpid(Some(second), WaitOptions::empty());
    seen
}

/// Starts a task that shares this process's memory and sleeps. A thread of the C library would map a stack of its own.
fn second(stack: &mut [u8]) -> Result<Pid, Failure> {
    extern "C" fn sleep(_: *mut c_void) -> libc::c_int {
        super::die_with_the_agent();
        loop {
            thread::sleep(Duration::from_secs(3600));
        }
    }
    let top = stack.as_mut_ptr_range().end;
    let top = top.wrapping_sub(top.addr() % 16).cast::<c_void>();
    let flags = libc::CLONE_VM | libc::SIGCHLD;
    // SAFETY: the stack stays until the task has ended, and what that does needs no more of it. This thread goes on as if
    // alone: the task takes no lock and touches no other memory.
    let pid = unsafe { libc::clone(sleep, top, flags, std::ptr::null_mut()) };
    sys::check(i64::from(pid), "clone")?;
    Pid::from_raw(pid).ok_or_else(|| Failure::bad("clone returned no task"))
}

/// Ticks of the running thread have its memory scanned (`task_tick_numa()`).
fn wait_for_passes() -> Result<Outcome, Failure> {
    let (first, started) = (passes()?, Instant::now());
    while passes()? < first + WHOLE {
        if started.elapsed() > PATIENCE {
            let seconds = PATIENCE.as_secs();
            return Err(Failure::bad(format!(
                "expected NUMA balancing to pass over the memory twice within {seconds} s and it did not; see {SCHED}"
            )));
        }
        let pause = Instant::now();
        while pause.elapsed() < Duration::from_millis(2) {
            std::hint::spin_loop();
        }
    }
    Ok(Outcome::Done {})
}

fn passes() -> Result<u64, Failure> {
    let text = std::fs::read_to_string(SCHED)
        .map_err(|error| sys::io_failure(&error, format!("read {SCHED}")))?;
    let line = text.lines().find(|line| line.starts_with(PASSES));
    let count = line.and_then(|line| line.rsplit(':').next()?.trim().parse().ok());
    count.ok_or_else(|| {
        Failure::bad(format!(
            "{SCHED} has no {PASSES}: the kernel has no NUMA_BALANCING"
        ))
    })
}

pub fn migrate_pages(from: u32, to: u32) -> Result<Outcome, Failure> {
    let node = |node| 1u64.checked_shl(node);
    let (Some(from), Some(to)) = (node(from), node(to)) else {
        return Err(Failure::bad("a node is a number below 64"));
    };
    let list = |nodes: &u64| std::ptr::from_ref(nodes).expose_provenance();
    // As of `mbind`: get_nodes() reads maxnode - 1 bits. A positive result is the number of pages that stay.
    let words = [0, 65, list(&from), list(&to), 0, 0];
    on_memory(libc::SYS_migrate_pages, words, "migrate_pages")
}

pub fn mbind(address: u64, length: u64, node: Option<u32>) -> Result<Outcome, Failure> {
    let Some(nodes) = node.map_or(Some(0u64), |node| 1u64.checked_shl(node)) else {
        return Err(Failure::bad("a node is a number below 64"));
    };
    // get_nodes() reads maxnode - 1 bits.
    let (mode, list, bits, flags) = match node {
        Some(_) => (
            BIND,
            (&raw const nodes).expose_provenance(),
            65,
            MOVE as usize,
        ),
        None => (DEFAULT, 0, 0, 0),
    };
    let words = [address as usize, length as usize, mode, list, bits, flags];
    on_memory(libc::SYS_mbind, words, "mbind")
}

pub fn move_pages(address: u64, length: u64, node: Option<i32>) -> Result<Outcome, Failure> {
    let page = sys::page_size();
    if address % page != 0 || address.checked_add(length).is_none() {
        return Err(Failure::bad(
            "the address must be a multiple of the page size, and the range end below the last address",
        ));
    }
    let count = length.div_ceil(page);
    if count > MAX_PAGES {
        return Err(Failure::bad(format!("at most {MAX_PAGES} pages at once")));
    }
    let pages: Vec<*mut c_void> = (0..count)
        .map(|i| std::ptr::without_provenance_mut((address + i * page) as usize))
        .collect();
    let nodes = node.map(|node| vec![node; pages.len()]);
    let mut status = vec![0i32; pages.len()];
    // SAFETY: the three lists have the length that is passed, the second may be null; the addresses are only looked up.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            0,
            pages.len(),
            pages.as_ptr(),
            nodes
                .as_ref()
                .map_or(std::ptr::null(), |nodes| nodes.as_ptr()),
            status.as_mut_ptr(),
            MOVE,
        )
    };
    // Pages that were not moved (a positive result) show in the pages' own status.
    sys::check(result, "move_pages")?;
    Ok(Outcome::Nodes { nodes: status })
}
