// SPDX-License-Identifier: GPL-2.0-only
//! A workload's settings in the guest, and their undoing: swap, KSM, huge pages, sizes, mounts.

use std::time::Duration;

use protocol::{Command, Operation, Outcome, ProcessId, EROFS_FILE};

use super::{Stage, StageResult, THP};
use crate::Error;

/// Bytes of the swap area; zram takes memory only for its contents.
const SWAP: u64 = 64 << 20;
const ZRAM: &str = "/sys/block/zram0";
const DEVICE: &str = "/dev/zram0";

/// Maximum number of attempts for pages that were left behind.
const TRIES: u32 = 10;

/// A RAM disk, and the mount point of its file system.
const RAM_DISK: &str = "/sys/block/ram1";
const RAM_DEVICE: &str = "/dev/ram1";
const MOUNTED: &str = "/tmp/folioscope-disk";

/// Cleanup actions, run in reverse order after the workload's processes exit.
#[derive(Debug)]
pub(super) enum Undo {
    /// A command.
    Command(Command),
    /// An operation, for which a process is started.
    Operation(Operation),
}

impl Stage<'_> {
    /// Returns the contents of a file of sysfs or procfs, trimmed; `None` if it does not exist.
    ///
    /// # Errors
    /// As every request to the guest.
    pub fn knob(&mut self, path: &str) -> Result<Option<String>, Error> {
        let text = self.guest.read_file(path)?;
        Ok(text.map(|text| text.trim().to_owned()))
    }

    /// Returns whether a knob is there, also one that cannot be read.
    ///
    /// # Errors
    /// As every request to the guest.
    pub fn exists(&mut self, path: &str) -> Result<bool, Error> {
        let read = Command::ReadFile {
            path: path.into(),
            process: None,
            offset: 0,
            // It is opened, and nothing of it is read.
            max: Some(0),
        };
        match self.guest.command(read, self.guest.deadline()) {
            Ok(_) => Ok(true),
            Err(Error::Guest { failure, .. }) => Ok(failure.errno() != Some("ENOENT")),
            Err(error) => Err(error),
        }
    }

    /// Sets a knob.
    ///
    /// # Errors
    /// As every request to the guest.
    pub fn set(&mut self, path: &str, text: &str) -> StageResult {
        self.guest.write_file(path, text, None)
    }

    /// Sets a knob, and restores it at the end.
    pub(super) fn set_for_now(&mut self, path: &str, text: &str) -> Result<bool, Error> {
        let Some(before) = self.knob(path)? else {
            return Ok(false);
        };
        // A choice lists all values, with brackets around its own.
        let chosen = before
            .split_once('[')
            .and_then(|(_, rest)| rest.split_once(']'));
        let before = chosen.map_or(before.as_str(), |(own, _)| own).to_owned();
        self.undo.push(Undo::Command(write_file(path, &before)));
        self.set(path, text)?;
        Ok(true)
    }

    /// Lets processes map more than there is memory: at 64K the span of one level-2 descriptor can be more than that.
    ///
    /// # Errors
    /// As every request to the guest.
    pub fn overcommit(&mut self) -> StageResult {
        self.set_for_now("/proc/sys/vm/overcommit_memory", "1")
            .map(drop)
    }

    /// Returns an operation that is done at the end.
    ///
    /// # Errors
    /// None.
    pub fn after(&mut self, op: Operation) -> StageResult {
        self.undo.push(Undo::Operation(op));
        Ok(())
    }

    pub(super) fn undo_all(&mut self) -> StageResult {
        let mut helper = None;
        while let Some(undo) = self.undo.pop() {
            match undo {
                Undo::Command(command) => {
                    self.guest.command(command, self.guest.deadline())?;
                }
                Undo::Operation(op) => {
                    let process = match helper {
                        Some(process) => process,
                        None => *helper.insert(self.guest.spawn("tour")?.process),
                    };
                    self.guest.op(process, op)?;
                }
            }
        }
        if let Some(process) = helper {
            self.guest
                .command(Command::Kill { process }, self.guest.deadline())?;
        }
        Ok(())
    }

    /// Returns whether folios of a block's size are enabled in sysfs: `always` or `never`. (Policies other than `sysfs`
    /// do not ask for anonymous faults; swap-in always does.)
    ///
    /// # Errors
    /// As every request to the guest.
    pub fn block_size(&mut self, choice: &str) -> StageResult {
        let path = format!("{THP}/hugepages-{}kB/enabled", self.block / 1024);
        if self.knob(&path)?.is_some() {
            self.set(&path, choice)?;
        }
        Ok(())
    }

    /// Lets sysfs decide, and enables only the sizes below a block's; returns false if there are none.
    ///
    /// # Errors
    /// As every request to the guest.
    pub fn only_smaller_sizes(&mut self) -> Result<bool, Error> {
        let below: Vec<u64> = self
            .guest
            .hello()
            .mthp
            .iter()
            .filter(|size| size.enabled.is_some() && size.size_kib * 1024 < self.block)
            .map(|size| size.size_kib)
            .collect();
        if below.is_empty() || self.size().is_none_or(|size| size.enabled.is_none()) {
            return Ok(false);
        }
        if self.guest.hello().anon_order_policy.is_some() {
            self.undo.push(Undo::Command(write_file(
                &format!("{THP}/anon_order/policy"),
                &self.policy,
            )));
            self.guest.set_policy("sysfs")?;
        }
        self.block_size("never")?;
        for size in below {
            self.set_for_now(&format!("{THP}/hugepages-{size}kB/enabled"), "always")?;
        }
        Ok(true)
    }

    /// Returns whether the kernel can swap to zram.
    ///
    /// # Errors
    /// As every request to the guest.
    pub fn has_zram(&mut self) -> Result<bool, Error> {
        let size = self.knob(&format!("{ZRAM}/disksize"))?;
        Ok(size.is_some() && self.knob("/proc/swaps")?.is_some())
    }

    /// Swaps to zram from now on, and to nothing again at the end; false where the kernel cannot.
    ///
    /// # Errors
    /// As every request to the guest.
    pub fn swap_on_zram(&mut self) -> Result<bool, Error> {
        if !self.has_zram()? {
            return Ok(false);
        }
        self.undo
            .push(Undo::Command(write_file(&format!("{ZRAM}/reset"), "1")));
        self.set(&format!("{ZRAM}/disksize"), &SWAP.to_string())?;
        let on = Command::SwapOn {
            path: DEVICE.into(),
            format: true,
        };
        self.guest.command(on, self.guest.deadline())?;
        self.undo.push(Undo::Command(Command::SwapOff {
            path: DEVICE.into(),
        }));
        Ok(true)
    }

    /// Swaps to this disk until the end. It has a swap area's header.
    ///
    /// # Errors
    /// As every request to the guest.
    pub fn swap_on_disk(&mut self, path: &str) -> StageResult {
        let on = Command::SwapOn {
            path: path.into(),
            format: false,
        };
        self.guest.command(on, self.guest.deadline())?;
        self.undo
            .push(Undo::Command(Command::SwapOff { path: path.into() }));
        Ok(())
    }

    /// Returns the bytes that are in the swap cache.
    ///
    /// # Errors
    /// As every request to the guest.
    pub fn swap_cached(&mut self) -> Result<u64, Error> {
        // It is counted by CPU, and they are added up when this is read.
        self.knob("/proc/sys/vm/stat_refresh")?;
        let text = self.knob("/proc/meminfo")?.unwrap_or_default();
        Ok(swap_cached(&text))
    }

    /// Brings back all that is swapped out, and swaps to the same devices again.
    ///
    /// # Errors
    /// As all that asks the guest.
    pub fn swap_off_and_on(&mut self) -> StageResult {
        let devices = swap_devices(&self.knob("/proc/swaps")?.unwrap_or_default());
        for path in devices.clone() {
            let off = Command::SwapOff { path };
            self.guest.command(off, self.guest.deadline())?;
        }
        for path in devices {
            let format = false;
            let on = Command::SwapOn { path, format };
            self.guest.command(on, self.guest.deadline())?;
        }
        Ok(())
    }

    /// Returns a file of `length` bytes of the pattern on a file system that reads ahead, until the end; its path.
    /// Nothing where the kernel cannot.
    ///
    /// # Errors
    /// As every request to the guest.
    pub fn erofs(&mut self, length: u64) -> Result<Option<String>, Error> {
        let known = self.knob("/proc/filesystems")?.unwrap_or_default();
        if !known.split_whitespace().any(|name| name == "erofs")
            || self.knob(&format!("{RAM_DISK}/size"))?.is_none()
        {
            return Ok(None);
        }
        let mount = Command::MountErofs {
            device: RAM_DEVICE.into(),
            directory: MOUNTED.into(),
            length,
        };
        self.guest.command(mount, self.guest.deadline())?;
        self.undo.push(Undo::Command(Command::Unmount {
            directory: MOUNTED.into(),
        }));
        Ok(Some(format!("{MOUNTED}/{EROFS_FILE}")))
    }

    /// Returns the sizes of hugetlb pages, in bytes.
    pub fn hugetlb_sizes(&self) -> Vec<u64> {
        let sizes = self.guest.hello().hugetlb.iter();
        let mut sizes: Vec<u64> = sizes.map(|size| size.size_kib * 1024).collect();
        sizes.sort_unstable();
        sizes
    }

    /// Has the kernel keep so many hugetlb pages of a size until the end; false where it cannot.
    ///
    /// # Errors
    /// As every request to the guest.
    pub fn hugetlb_pages(&mut self, size: u64, count: u64) -> Result<bool, Error> {
        let path = format!(
            "/sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages",
            size / 1024
        );
        self.set_for_now(&path, &count.to_string())?;
        let found = self.knob(&path)?.and_then(|text| text.parse::<u64>().ok());
        Ok(found.is_some_and(|found| found >= count))
    }

    /// Returns whether the kernel keeps so many hugetlb pages of a size.
    ///
    /// # Errors
    /// As every request to the guest.
    pub fn has_huge_pages_of(&mut self, size: u64, count: u64) -> Result<bool, Error> {
        let path = format!(
            "/sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages",
            size / 1024
        );
        let found = self.knob(&path)?.and_then(|text| text.parse::<u64>().ok());
        Ok(found.is_some_and(|found| found >= count))
    }

    /// Returns how often a fault tried a folio of a block's or a PMD's size and failed.
    pub(super) fn count_fallbacks(&mut self) -> Result<u64, Error> {
        let mut count = 0;
        for size in [self.block, self.pmd] {
            for counter in ["anon_fault_fallback", "shmem_fallback"] {
                count += self.count(counter, size)?;
            }
        }
        Ok(count)
    }

    /// Returns what the kernel has counted for folios of `size` bytes; 0 where it does not count it.
    fn count(&mut self, counter: &str, size: u64) -> Result<u64, Error> {
        let text = self.knob(&format!(
            "{THP}/hugepages-{}kB/stats/{counter}",
            size / 1024
        ))?;
        Ok(text.and_then(|text| text.parse().ok()).unwrap_or(0))
    }

    /// Returns how many NUMA nodes have memory.
    ///
    /// # Errors
    /// As every request to the guest.
    pub fn nodes(&mut self) -> Result<usize, Error> {
        let text = self.knob("/sys/devices/system/node/has_memory")?;
        Ok(text.map_or(1, |text| count_list(&text)))
    }

    /// Mounts /tmp again with an option, and without huge pages at the end; false where that fails.
    ///
    /// # Errors
    /// As every request to the guest.
    pub fn remount_tmp(&mut self, option: &str) -> Result<bool, Error> {
        let remount = |option: &str| {
            let argv = ["mount", "-o", &format!("remount,{option}"), "/tmp"];
            Command::Run {
                argv: argv.map(str::to_owned).to_vec(),
                input: None,
                process: None,
            }
        };
        match self.guest.command(remount(option), self.guest.deadline())? {
            Outcome::Program(end) if matches!(end.how, protocol::Ended::Exit { status: 0 }) => {
                self.undo.push(Undo::Command(remount("huge=never")));
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Moves every page of the range to this node, and again those that were left behind. The pages of a folio that was
    /// split are tried once, and those for which there is no memory at that moment are only counted (mm/migrate.c,
    /// `migrate_pages()`).
    ///
    /// # Errors
    /// As [`Self::on_node`].
    pub fn bring_to(
        &mut self,
        process: ProcessId,
        start: u64,
        length: u64,
        node: i32,
    ) -> StageResult {
        let mut left = TRIES;
        loop {
            self.op(process, crate::ops::move_pages(start, length, Some(node)))?;
            left -= 1;
            match self.on_node(process, start, length, node) {
                Err(Error::Input(_)) if left > 0 => std::thread::sleep(Duration::from_millis(20)),
                there => return there,
            }
        }
    }

    /// Moves the folios in one piece each. If a folio of a block's size was split because the node had no room for it,
    /// it is unknown from here on what must be folded. The lack of room is visible: the allocation waits for compaction
    /// and reclaim first (`alloc_migration_target()`, `GFP_TRANSHUGE`). A folio that was split without that is an
    /// error.
    ///
    /// # Errors
    /// As [`Self::on_node`].
    pub fn bring_whole_to(
        &mut self,
        process: ProcessId,
        start: u64,
        length: u64,
        node: i32,
    ) -> StageResult {
        let (splits, stalls) = (self.count("split", self.block)?, self.stalls()?);
        self.bring_to(process, start, length, node)?;
        let waited = self.stalls()?.is_none_or(|count| Some(count) > stalls);
        self.short |= waited && self.count("split", self.block)? > splits;
        Ok(())
    }

    /// Returns how often a task waited for reclaim or compaction; `None` if the kernel does not count it
    /// (`CONFIG_VM_EVENT_COUNTERS`).
    fn stalls(&mut self) -> Result<Option<u64>, Error> {
        let text = self.knob("/proc/vmstat")?.unwrap_or_default();
        let counted = text.lines().filter_map(|line| line.split_once(' '));
        Ok(counted
            .filter(|(name, _)| name.starts_with("allocstall") || *name == "compact_stall")
            .filter_map(|(_, count)| count.parse::<u64>().ok())
            .reduce(|one, other| one + other))
    }

    /// Returns every page of the range is on this node now.
    ///
    /// # Errors
    /// As every request to the guest, and if a page is not there: then nothing has moved, and there is nothing to judge.
    pub fn on_node(
        &mut self,
        process: ProcessId,
        start: u64,
        length: u64,
        node: i32,
    ) -> StageResult {
        let asked = crate::ops::move_pages(start, length, None);
        match self.op(process, asked)? {
            Outcome::Nodes { nodes } if nodes.iter().all(|found| *found == node) => Ok(()),
            Outcome::Nodes { nodes } => Err(Error::Input(format!(
                "move_pages was to bring all pages of 0x{start:x}-0x{:x} to node {node}, and they are on {nodes:?}",
                start + length
            ))),
            other => Err(crate::guest::unexpected("move_pages", &other)),
        }
    }
}

/// Returns the devices of `/proc/swaps`.
fn swap_devices(text: &str) -> Vec<String> {
    let lines = text.lines().skip(1);
    let names = lines.filter_map(|line| line.split_whitespace().next());
    names.map(str::to_owned).collect()
}

/// Returns the bytes in the swap cache by `/proc/meminfo`.
fn swap_cached(text: &str) -> u64 {
    let of = |line: &str| {
        let kib = line
            .strip_prefix("SwapCached:")?
            .trim()
            .strip_suffix("kB")?;
        kib.trim().parse::<u64>().ok()
    };
    text.lines().find_map(of).unwrap_or(0) * 1024
}

fn write_file(path: &str, text: &str) -> Command {
    Command::WriteFile {
        path: path.into(),
        text: text.into(),
        process: None,
        create: false,
    }
}

/// Returns the number of elements in a list of the kernel's, such as `0-1,4`.
fn count_list(text: &str) -> usize {
    let number = |text: &str| text.trim().parse::<usize>().ok();
    text.split(',')
        .filter_map(|part| match part.split_once('-') {
            Some((first, last)) => Some(number(last)? + 1 - number(first)?),
            None => number(part).map(|_| 1),
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::{count_list, swap_cached, swap_devices};

    #[test]
    fn lists_are_counted() {
        assert_eq!(count_list("0\n"), 1);
        assert_eq!(count_list("0-1"), 2);
        assert_eq!(count_list("0-1,4,6-7"), 5);
        assert_eq!(count_list(""), 0);
    }

    #[test]
    fn swap_areas_are_listed() {
        let text = "Filename\t\tType\t\tSize\tUsed\tPriority\n\
                    /dev/cross-swap partition\t65532\t128\t1\n/dev/zram0 partition 65532 0 2\n";
        assert_eq!(swap_devices(text), ["/dev/cross-swap", "/dev/zram0"]);
        assert_eq!(swap_devices(""), [""; 0]);
        let text = "MemFree:  17 kB\nSwapCached:          128 kB\n";
        assert_eq!((swap_cached(text), swap_cached("")), (128 << 10, 0));
    }
}
