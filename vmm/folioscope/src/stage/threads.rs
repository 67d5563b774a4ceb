// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's own threads on a workload's pages: KSM, khugepaged and NUMA balancing, started and waited for.

use std::time::{Duration, Instant};

use protocol::{Operation, ProcessId};

use super::{Stage, StageResult, THP};
use crate::Error;

/// Switch of NUMA balancing, and the knobs of its scans.
const BALANCING: &str = "/proc/sys/kernel/numa_balancing";
const SCANS: &str = "/sys/kernel/debug/sched/numa_balancing";
const KSM: &str = "/sys/kernel/mm/ksm";
/// Maximum time for their work, which all other work in the guest may precede.
const PATIENCE: Duration = Duration::from_secs(60);
/// Milliseconds between two scans of khugepaged: longer than any workload.
const HOUR: &str = "3600000";

/// Entries that KSM has merged.
#[derive(Clone, Copy, Debug)]
pub struct Merged {
    /// Those that share a page with another one (`pages_sharing`): all but one for each page.
    pub shared: u64,
    /// Those that map the zero page (`ksm_zero_pages`, from 6.6 on).
    pub empty: Option<u64>,
}

impl Stage<'_> {
    /// Lets KSM run until it shares `shared` pages among `sharing` entries more than one each.
    ///
    /// # Errors
    /// As every request to the guest, and if KSM does not reach that.
    pub fn merge(&mut self, shared: u64, sharing: u64) -> StageResult {
        for (knob, text) in [("sleep_millisecs", "1"), ("pages_to_scan", "4096")] {
            self.set_for_now(&format!("{KSM}/{knob}"), text)?;
        }
        // Pages of a process that has ended are counted until the next pass of ksmd: they must not pass for new ones.
        self.set_for_now(&format!("{KSM}/run"), "2")?;
        self.set(&format!("{KSM}/run"), "1")?;
        let started = Instant::now();
        loop {
            let mut found = [0; 2];
            for (at, knob) in found.iter_mut().zip(["pages_shared", "pages_sharing"]) {
                let text = self.knob(&format!("{KSM}/{knob}"))?;
                *at = text.and_then(|text| text.parse().ok()).unwrap_or(0);
            }
            if found == [shared, sharing] {
                // Not while the tables are looked at.
                return self.set(&format!("{KSM}/run"), "0");
            }
            if started.elapsed() > PATIENCE {
                return Err(Error::Input(format!(
                    "KSM shares {} pages among {} more entries after {} s, and {shared} among {sharing} were to come of it; \
                     is something else in the guest mergeable?",
                    found[0],
                    found[1],
                    PATIENCE.as_secs()
                )));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Lets KSM pass over all that is mergeable, until equal pages are merged, and empty ones with the zero page.
    ///
    /// # Errors
    /// As every request to the guest, and if KSM does not get on.
    pub fn merge_all(&mut self) -> Result<Merged, Error> {
        for (knob, text) in [
            ("use_zero_pages", "1"),
            ("sleep_millisecs", "0"),
            ("pages_to_scan", "4096"),
        ] {
            self.set_for_now(&format!("{KSM}/{knob}"), text)?;
        }
        let passes = |stage: &mut Self| -> Result<u64, Error> {
            let text = stage.knob(&format!("{KSM}/full_scans"))?;
            Ok(text.and_then(|text| text.parse().ok()).unwrap_or(0))
        };
        // One that has begun, one that takes checksums (cmp_and_merge_page()), one that merges.
        let before = passes(self)?;
        self.set(&format!("{KSM}/run"), "1")?;
        let started = Instant::now();
        while passes(self)? < before + 3 {
            if started.elapsed() > PATIENCE {
                return Err(Error::Input(format!(
                    "KSM was to pass three times over what is mergeable within {} s, and did not; is ksmd running in this guest?",
                    PATIENCE.as_secs()
                )));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        // Not while the tables are looked at.
        self.set(&format!("{KSM}/run"), "0")?;
        let mut count = |knob: &str| -> Result<Option<u64>, Error> {
            let text = self.knob(&format!("{KSM}/{knob}"))?;
            Ok(text.and_then(|text| text.parse().ok()))
        };
        Ok(Merged {
            shared: count("pages_sharing")?.unwrap_or(0),
            empty: count("ksm_zero_pages")?,
        })
    }

    /// Returns whether NUMA balancing is there, with knobs for its scans.
    ///
    /// # Errors
    /// As every request to the guest.
    pub fn has_numa_balancing(&mut self) -> Result<bool, Error> {
        Ok(self.exists(BALANCING)? && self.exists(&format!("{SCANS}/scan_delay_ms"))?)
    }

    /// Has NUMA balancing scan all memory of a process once, and returns the entries that became hints in all processes.
    ///
    /// # Errors
    /// As every request to the guest, and if the scans do not come about.
    pub fn numa_hints(&mut self, process: ProcessId) -> Result<u64, Error> {
        self.scan_often()?;
        let before = self.hinted()?;
        self.set_for_now(BALANCING, "1")?;
        // A second thread of the process takes its share of a busy host.
        let deadline = self.guest.deadline();
        self.guest.set_deadline(deadline.max(PATIENCE));
        let hinted = self.op(process, Operation::NumaHints {});
        self.guest.set_deadline(deadline);
        hinted?;
        // Not while the tables are looked at.
        self.set(BALANCING, "0")?;
        Ok(self.hinted()?.saturating_sub(before))
    }

    /// Has NUMA balancing, once it is on, scan often, until the end. A thread that begins later takes its period from this.
    ///
    /// # Errors
    /// As every request to the guest.
    pub fn scan_often(&mut self) -> StageResult {
        // So small that a pass is made at once, and new VMAs are in it (`task_scan_min()`, `task_numa_work()`).
        for (knob, text) in [
            ("scan_delay_ms", "0"),
            ("scan_size_mb", "16"),
            ("scan_period_min_ms", "10"),
            // A task that finds its pages where it runs scans less and less often (`update_task_scan_period()`).
            ("scan_period_max_ms", "10"),
        ] {
            self.set_for_now(&format!("{SCANS}/{knob}"), text)?;
        }
        Ok(())
    }

    fn hinted(&mut self) -> Result<u64, Error> {
        let text = self.knob("/proc/vmstat")?.unwrap_or_default();
        let mut lines = text.lines();
        let count = lines.find_map(|line| line.strip_prefix("numa_pte_updates "));
        Ok(count.and_then(|count| count.parse().ok()).unwrap_or(0))
    }

    /// Makes khugepaged leave areas alone that are not full, until the end.
    ///
    /// # Errors
    /// As every request to the guest.
    pub fn no_collapse(&mut self) -> StageResult {
        self.set_for_now(&format!("{THP}/khugepaged/max_ptes_none"), "0")
            .map(drop)
    }

    /// Returns whether khugepaged makes folios of a block's size: since 7.x (mm/khugepaged.c, `mthp_collapse()`).
    ///
    /// # Errors
    /// As every request to the guest.
    pub fn collapses_blocks(&mut self) -> Result<bool, Error> {
        let size = self.block / 1024;
        self.exists(&format!("{THP}/hugepages-{size}kB/stats/collapse_alloc"))
    }

    /// Keeps khugepaged from working until the end, unless it is set to work. It still scans once when a process gives
    /// its first advice for the span of a level-2 descriptor. That has to be before there are pages, or blocks are off
    /// then.
    ///
    /// # Errors
    /// As every request to the guest.
    pub fn rest_khugepaged(&mut self) -> StageResult {
        self.no_collapse()?;
        self.set_for_now(&khugepaged("scan_sleep_millisecs"), HOUR)
            .map(drop)
    }

    /// Lets khugepaged scan until it has seen everything, with leave to fill `missing` pages of a PMD's span: 0 or all
    /// but one. It makes folios of a block's size.
    ///
    /// # Errors
    /// As every request to the guest, and if khugepaged does not finish.
    pub fn collapse(&mut self, missing: u64) -> StageResult {
        let pmd = format!("{THP}/hugepages-{}kB/enabled", self.pmd / 1024);
        self.set_for_now(&pmd, "never")?;
        self.scan(missing)
    }

    /// The same, of folios of a PMD's size, with leave to fill all of its range but one page.
    ///
    /// # Errors
    /// As every request to the guest, and if khugepaged does not finish.
    pub fn collapse_all(&mut self) -> StageResult {
        self.scan(self.pmd / self.page - 1)
    }

    fn scan(&mut self, missing: u64) -> StageResult {
        for (path, text) in [
            (khugepaged("max_ptes_none"), missing.to_string().as_str()),
            (khugepaged("pages_to_scan"), "1000000"),
            (khugepaged("scan_sleep_millisecs"), "0"),
        ] {
            self.set_for_now(&path, text)?;
        }
        // A scan that has begun may be past the pages that it is to see.
        let seen = self.full_scans()? + 2;
        self.scans_until(|now, _| now >= seen, "see all processes twice, and did not")?;
        // Not while the tables are looked at: while no other task wants a CPU, it completes the scan that it has begun.
        // On the one CPU of a guest it would have little of it, as it is nice, and an mm's lock meanwhile.
        self.set(&khugepaged("scan_sleep_millisecs"), HOUR)?;
        self.scans_until(|now, before| now == before, "rest, and went on")
    }

    /// Waits until khugepaged's count of scans, now and a while ago, is as it is to be.
    fn scans_until(&mut self, are: impl Fn(u64, u64) -> bool, was_to: &str) -> StageResult {
        let started = Instant::now();
        let mut before = self.full_scans()?;
        loop {
            std::thread::sleep(Duration::from_millis(20));
            let now = self.full_scans()?;
            if are(now, before) {
                return Ok(());
            }
            if started.elapsed() > PATIENCE {
                return Err(Error::Input(format!(
                    "khugepaged was to {was_to} within {} s (full_scans was {before}, then {now}); is it running in this guest?",
                    PATIENCE.as_secs()
                )));
            }
            before = now;
        }
    }

    fn full_scans(&mut self) -> Result<u64, Error> {
        let text = self.knob(&khugepaged("full_scans"))?;
        Ok(text.and_then(|text| text.parse().ok()).unwrap_or(0))
    }
}

fn khugepaged(knob: &str) -> String {
    format!("{THP}/khugepaged/{knob}")
}
