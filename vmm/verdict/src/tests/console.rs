// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's reports, as kernels have printed them; and lines that only look like one.

use linux::console::{ConsoleReport, Scanner};

/// Everything at once, with a time before each line.
fn reports(text: &str) -> Vec<ConsoleReport> {
    let mut scanner = Scanner::default();
    scanner.feed(b"[    0.000000] Booting Linux on physical CPU 0x0000000000 [0x000f0510]\r\n");
    for (number, line) in text.lines().enumerate() {
        let stamp = format!("[   12.{:06}] ", 1000 + number * 10);
        scanner.feed(format!("{stamp}{line}\r\n").as_bytes());
    }
    scanner.finish()
}

fn headlines(text: &str) -> Vec<String> {
    let of = |report: &ConsoleReport| report.headline().raw().to_owned();
    reports(text).iter().map(of).collect()
}

const WARNING: &str = "\
------------[ cut here ]------------
WARNING: CPU: 1 PID: 57 at mm/huge_memory.c:2543 __split_huge_pmd_locked+0x6a8/0x8f0
Modules linked in:
CPU: 1 UID: 0 PID: 57 Comm: agent Not tainted 6.12.117 #1
Hardware name: linux,dummy-virt (DT)
pstate: 81402009 (Nzcv daif +PAN -UAO -TCO +DIT -SSBS BTYPE=--)
pc : __split_huge_pmd_locked+0x6a8/0x8f0
lr : __split_huge_pmd_locked+0x5c4/0x8f0
sp : ffff80008277bb10
x29: ffff80008277bb10 x28: 0000000000000000 x27: fff00000c1ea8000
Call trace:
 __split_huge_pmd_locked+0x6a8/0x8f0 (P)
 split_huge_pmd_address+0xbc/0x100
 el0t_64_sync+0x198/0x1a0
---[ end trace 0000000000000000 ]---";

#[test]
fn a_warning_is_one_report_to_its_end() {
    let text = format!("random: crng init done\n{WARNING}\nprocess 57 goes on");
    let [report] = &reports(&text)[..] else {
        panic!("{:?}", reports(&text))
    };
    assert_eq!(report.lines.join("\n"), WARNING);
    assert_eq!(report.at, Some(12_001_010));
    assert!(report
        .headline()
        .starts_with("WARNING: CPU: 1 PID: 57 at mm/huge_memory.c:2543"));
    let message = crate::kernel_report(report).message;
    assert!(
        message.lines().count() == 16 && message.contains("\n       Call trace:"),
        "{message}"
    );
    // Two of them are two.
    assert_eq!(reports(&format!("{WARNING}\n{WARNING}")).len(), 2);
}

#[test]
fn the_text_of_a_warning_stands_above_its_place() {
    let text = "\
------------[ cut here ]------------
refcount_t: underflow; use-after-free.
WARNING: CPU: 0 PID: 1 at lib/refcount.c:28 refcount_warn_saturate+0xf4/0x144
Call trace:
 refcount_warn_saturate+0xf4/0x144
---[ end trace 0000000000000000 ]---
------------[ cut here ]------------
pages=3
WARNING: mm/page_counter.c:58 at page_counter_cancel+0x5c/0x70, CPU#1: kworker/1:1/33
Call trace:
 page_counter_cancel+0x5c/0x70
---[ end trace 0000000000000000 ]---";
    assert_eq!(
        headlines(text),
        [
            "WARNING: CPU: 0 PID: 1 at lib/refcount.c:28 refcount_warn_saturate+0xf4/0x144",
            "WARNING: mm/page_counter.c:58 at page_counter_cancel+0x5c/0x70, CPU#1: kworker/1:1/33"
        ]
    );
}

#[test]
fn an_oops_and_its_panic_are_one() {
    let text = "\
------------[ cut here ]------------
kernel BUG at mm/page_table_check.c:118!
Internal error: Oops - BUG: 00000000f2000800 [#1] PREEMPT SMP
CPU: 0 UID: 0 PID: 1 Comm: init Not tainted 6.12.117 #1
Call trace:
 page_table_check_set+0x2d0/0x320
Code: 17ffffa8 d4210000 d4210000 17ffffa6 (d4210000)
---[ end trace 0000000000000000 ]---
note: init[1] exited with irqs disabled
Kernel panic - not syncing: Attempted to kill init! exitcode=0x0000000b
SMP: stopping secondary CPUs
Kernel Offset: disabled
---[ end Kernel panic - not syncing: Attempted to kill init! exitcode=0x0000000b ]---";
    let [report] = &reports(text)[..] else {
        panic!("{:?}", reports(text))
    };
    assert_eq!(
        report.headline(),
        "kernel BUG at mm/page_table_check.c:118!"
    );
    assert_eq!(report.lines.len(), 12);
    let text = "\
Unable to handle kernel NULL pointer dereference at virtual address 0000000000000000
Mem abort info:
  ESR = 0x0000000096000044
Data abort info:
user pgtable: 4k pages, 48-bit VAs, pgdp=0000000041f2b000
[0000000000000000] pgd=0000000000000000, p4d=0000000000000000
Internal error: Oops: 0000000096000044 [#1] PREEMPT SMP
Call trace:
 lkdtm_EXCEPTION+0x8/0x20
---[ end trace 0000000000000000 ]---";
    assert_eq!(reports(text).len(), 1);
    assert_eq!(reports(text)[0].lines.len(), 10);
    assert_eq!(
        headlines("Kernel panic - not syncing: VFS: Unable to mount root fs").len(),
        1
    );
}

#[test]
fn counters_that_are_wrong_have_no_stack() {
    let text = "\
BUG: Bad rss-counter state mm:00000000aabf5d7f type:MM_ANONPAGES val:16
BUG: Bad rss-counter state mm:00000000aabf5d7f type:MM_SWAPENTS val:-3
BUG: non-zero pgtables_bytes on freeing mm: 4096
eth0: link up";
    let found = reports(text);
    let lines: Vec<usize> = found.iter().map(|report| report.lines.len()).collect();
    assert_eq!(lines, [2, 1]);
}

#[test]
fn pages_that_are_wrong() {
    let map = "\
BUG: Bad page map in process tour  pte:e8000041f2bfd3 pmd:8000000410003
addr:0000fffff7c00000 vm_flags:20100073 anon_vma:fff00000c1a8f0d8 mapping:0000000000000000 index:ffff7c00
file:(null) fault:0x0 mmap:0x0 read_folio:0x0
CPU: 0 UID: 0 PID: 44 Comm: tour Not tainted 6.12.117 #1
Hardware name: linux,dummy-virt (DT)
Call trace:
 show_stack+0x18/0x24 (C)
 print_bad_pte+0x188/0x1d0
 exit_mmap+0xf0/0x2b0
Disabling lock debugging due to kernel taint";
    assert_eq!(reports(&format!("{map}\nsomething else")).len(), 1);
    assert_eq!(
        reports(&format!("{map}\nsomething else"))[0].lines.len(),
        10
    );
    let state = "\
BUG: Bad page state in process tour  pfn:41f2b
page: refcount:0 mapcount:1 mapping:0000000000000000 index:0xffff7c00 pfn:0x41f2b
flags: 0x3fffe000000000(node=0|zone=0|lastcpupid=0x1ffff)
raw: 003fffe000000000 dead000000000100 dead000000000122 0000000000000000
page dumped because: nonzero mapcount
Modules linked in:
CPU: 0 UID: 0 PID: 44 Comm: tour Tainted: G    B              6.12.117 #1
Call trace:
 bad_page+0x84/0x120
 free_unref_page+0x1a0/0x3c0";
    assert_eq!(headlines(&format!("{state}\n{map}")).len(), 2);
    assert_eq!(
        headlines("mm/memory.c:434: bad pmd 0060000041f2b003.\nmm/pgtable-generic.c:50: bad pgd 00000000000000ff."),
        [
            "mm/memory.c:434: bad pmd 0060000041f2b003.",
            "mm/pgtable-generic.c:50: bad pgd 00000000000000ff."
        ]
    );
    assert_eq!(
        headlines("get_swap_device: Bad swap file entry 3ffffffffff").len(),
        1
    );
    assert_eq!(
        headlines("BUG kmalloc-64 (Not tainted): Right Redzone overwritten").len(),
        1
    );
}

#[test]
fn splats_in_frames_end_with_them() {
    let bar = "=".repeat(66);
    let kasan = format!(
        "{bar}\nBUG: KASAN: slab-out-of-bounds in kmalloc_oob_right+0x190/0x3a8\nWrite of size 1 at addr fff00000c6b1b373 by task kunit/189\n\nCPU: 0 UID: 0 PID: 189 Comm: kunit\nCall trace:\n dump_stack_lvl+0x78/0x90\n kasan_report+0x7c/0xbc\n\nAllocated by task 189:\n kasan_save_stack+0x3c/0x64\n\nThe buggy address belongs to the object at fff00000c6b1b300\n which belongs to the cache kmalloc-128 of size 128\nMemory state around the buggy address:\n fff00000c6b1b200: 00 00 00\n>fff00000c6b1b300: 00 00 00 03 fc fc\n                   ^\n{bar}"
    );
    let [report] = &reports(&format!("{kasan}\nand on it goes"))[..] else {
        panic!("{:?}", reports(&kasan))
    };
    assert_eq!(report.lines.join("\n"), kasan);
    assert!(report
        .headline()
        .starts_with("BUG: KASAN: slab-out-of-bounds"));
    let lockdep = "\
======================================================
WARNING: possible circular locking dependency detected
6.12.117 #1 Not tainted
------------------------------------------------------
agent/41 is trying to acquire lock:
fff00000c1a8f0d8 (&mm->mmap_lock){++++}-{3:3}, at: __might_fault+0x3c/0x80

but task is already holding lock:
fff00000c2b4e3a0 (ptlock_ptr(ptdesc)){+.+.}-{2:2}, at: __pte_offset_map_lock+0x9c/0x1a0

which lock already depends on the new lock.
 *** DEADLOCK ***
stack backtrace:
CPU: 0 UID: 0 PID: 41 Comm: agent Not tainted 6.12.117 #1
Call trace:
 dump_backtrace+0x94/0xec
 lock_acquire+0x1bc/0x328";
    let text = format!("{lockdep}\nother words\n{bar}\n[ BUG: Invalid wait context ]\n6.12.117 #1 Not tainted\n{lockdep}");
    let lines: Vec<usize> = reports(&text)
        .iter()
        .map(|report| report.lines.len())
        .collect();
    assert_eq!(lines, [17, 3, 17]);
}

#[test]
fn stalls_and_lockups() {
    let text = "\
watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [tour:44]
Modules linked in:
CPU: 1 UID: 0 PID: 44 Comm: tour Not tainted 6.12.117 #1
Call trace:
 contpte_ptep_get_lockless+0x60/0x118 (P)
rcu: INFO: rcu_preempt self-detected stall on CPU
rcu: \t1-....: (5249 ticks this GP) idle=3b04/1/0x4000000000000000 softirq=371/371 fqs=2625
rcu: \t(t=5250 jiffies g=125 q=26 ncpus=2)
CPU: 1 UID: 0 PID: 44 Comm: tour Not tainted 6.12.117 #1
Call trace:
 contpte_ptep_get_lockless+0x60/0x118 (P)
INFO: task khugepaged:33 blocked for more than 122 seconds.
      Not tainted 6.12.117 #1
\"echo 0 > /proc/sys/kernel/hung_task_timeout_secs\" disables this message.
task:khugepaged      state:D stack:0     pid:33    tgid:33    ppid:2      flags:0x00000008
Call trace:
 __switch_to+0xe0/0x120
watchdog: CPU0: Watchdog detected hard LOCKUP on cpu 1
rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:
watchdog: Watchdog detected hard LOCKUP on cpu 1";
    let found = reports(text);
    let lines: Vec<usize> = found.iter().map(|report| report.lines.len()).collect();
    assert_eq!(lines, [5, 6, 6, 1, 1, 1]);
}

/// Lines that kernels print where all is well, and words of programs.
#[test]
fn no_false_alarm() {
    let text = "\
Kernel command line: console=ttyAMA0 BUG: WARNING: CPU: 0 PID: 1 at x kernel BUG at Oops
Unknown kernel command line parameters \"BUG: KASAN\", will be passed to user space.
Run /init as init process
  with arguments:
    WARNING: CPU: 0 PID: 1 at a.c:1 f+0x1/0x2
    BUG: Bad page state
WARNING: Unprivileged eBPF is enabled, data leaks possible via Spectre v2 BHB attacks!
WARNING: 'bootconfig' found on the kernel command line but CONFIG_BOOT_CONFIG is not set.
WARNING: x1-x3 nonzero in violation of boot protocol:
WARNING: Invalid trigger for IRQ1, assuming level low
WARNING: Please fix your firmware
WARNING: memory leak will occur if overlay removed, property: /a/b
WARNING: Flushing system-wide workqueues will be prohibited in near future.
INFO: lockdep is turned off.
INFO: Stall ended before state dump start
arm_arch_timer: WARNING: Invalid trigger for IRQ2, assuming level low
[Firmware Bug]: Kernel image misaligned at boot, please fix your bootloader!
debugfs: DEBUG: nothing
lkdtm: Performing direct entry WARNING
Tainted: G    B
systemd[1]: BUG: nothing is wrong
tour invoked oom-killer: gfp_mask=0x140dca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=0
Out of memory: Killed process 44 (tour)
tour: page allocation failure: order:4, mode:0x140dca(GFP_HIGHUSER_MOVABLE), nodemask=(null)
CPU: 0 UID: 0 PID: 44 Comm: tour Not tainted 6.12.117 #1
Call trace:
 dump_stack_lvl+0x78/0x90
sysrq: Show Blocked State
kmemleak: 3 new suspected memory leaks (see /sys/kernel/debug/kmemleak)
==================================================================
a frame about nothing
lkdtm: BUGGY: a word that begins like one
workqueue: vmstat_update hogged CPU for >10000us 4 times, consider switching to WQ_UNBOUND
mm/memory.c:434: bad luck 17.
INFO: task manager started";
    assert_eq!(headlines(text), Vec::<String>::new());
}

#[test]
fn where_the_kernel_says_when_a_line_without_a_time_is_a_programs() {
    let mut scanner = Scanner::default();
    scanner.feed(b"[    0.000000] Booting Linux\r\nBUG: Bad page state in process a program\r\n");
    // Its log printed again, by dmesg.
    scanner.feed(b"[    9.000000] late\n[    1.000000] BUG: Bad page state in process a  pfn:1\n");
    assert_eq!(scanner.finish(), []);
    // A prompt before it, a caller behind the time, and in pieces.
    for piece in [
        "~ # [    9.5000",
        "00][   T44] BUG: Bad rss-counter sta",
        "te mm:1 type:MM_FILEPAGES val:1\r",
    ] {
        scanner.feed(piece.as_bytes());
        assert_eq!(scanner.take(), []);
    }
    scanner.feed(b"\n");
    assert!(!scanner.is_open(), "it has no more lines");
    let found = scanner.finish();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].at, Some(9_500_000));
    assert_eq!(
        found[0].headline(),
        "BUG: Bad rss-counter state mm:1 type:MM_FILEPAGES val:1"
    );
    // A kernel that never says when: each line is taken for its own.
    let mut scanner = Scanner::default();
    scanner.feed(format!("Booting Linux\n{WARNING}\n").as_bytes());
    assert!(!scanner.is_open());
    assert_eq!(scanner.take()[0].lines.join("\n"), WARNING);
}

#[test]
fn a_report_without_an_end_ends_with_time() {
    let mut scanner = Scanner::default();
    scanner.feed(b"[    5.000000] BUG: scheduling while atomic: tour/44/0x00000002\n");
    scanner.feed(b"[    5.000100] Modules linked in:\n");
    assert!(scanner.is_open() && scanner.take().is_empty());
    scanner.feed(b"[    7.000000] something else\n");
    assert!(!scanner.is_open());
    assert_eq!(scanner.take()[0].lines.len(), 2);
}

/// Whatever bytes come, in whatever pieces: what is found depends on the bytes alone.
#[test]
fn anything() {
    let text: Vec<u8> = format!(
        "[    1.000000] {}\n",
        WARNING.replace('\n', "\n[    1.000000] ")
    )
    .into();
    let mut garbage = text.clone();
    garbage.extend((0..=255).cycle().take(70_000));
    garbage.extend(&text);
    let mut whole = Scanner::default();
    whole.feed(&garbage);
    let whole = whole.finish();
    let mut pieces = Scanner::default();
    garbage.chunks(7).for_each(|piece| pieces.feed(piece));
    assert_eq!(pieces.finish().len(), whole.len());
    assert_eq!(whole[0].lines.join("\n"), WARNING);
}

#[test]
fn reports_without_end_are_counted() {
    let mut scanner = Scanner::default();
    let line = "x".repeat(1000);
    for number in 0..100_000 {
        let second = number / 10;
        scanner
            .feed(format!("[{second:5}.000000] BUG: Bad page state {number} {line}\n").as_bytes());
    }
    let reports = scanner.finish();
    let (last, kept) = reports.split_last().unwrap();
    assert!((4000..5000).contains(&kept.len()), "{}", kept.len());
    let more = 100_000 - kept.len();
    assert!(
        last.headline()
            .starts_with(&format!("{more} more reports of the kernel")),
        "{}",
        last.headline()
    );
    // The next look begins anew.
    scanner.feed(b"[20000.000000] BUG: Bad page state\n");
    assert_eq!(scanner.finish().len(), 1);
}
