// SPDX-License-Identifier: GPL-2.0-only
//! Counts the kernel's operations for a fault, a fork and the like, by folio order: stores to the descriptors of the
//! area, TLBIs for it, DSBs.

use std::collections::BTreeMap;

use protocol::{Advice, Command, Operation, Outcome, ProcessId, Protection};

use crate::commands::output::say;
use crate::guest::{unexpected, Guest};
use crate::ops::{map, protect, unmap, write};
use crate::recorded::{Calls, KernelNames};
use crate::stage::{block_size, THP};
use crate::Error;

/// Its name beside the workloads of the tour.
pub(super) const COSTS: &str = "costs";

/// Steps, each with the kernel function under which it is counted: the first of the list that the kernel has.
const STEPS: [(&str, &[&str]); 6] = [
    ("fault", &["handle_mm_fault"]),
    ("fork", &["dup_mmap", "dup_mm", "copy_mm", "copy_process"]),
    ("unfold", &["__contpte_try_unfold"]),
    ("fold", &["__contpte_try_fold"]),
    ("mprotect", &["mprotect_fixup"]),
    ("munmap", &["__vm_munmap"]),
];

/// Largest folio that is tried: a guest has too few larger ones in one piece.
const LARGEST: u64 = 32 << 20;

/// One order's row.
struct Row {
    order: u32,
    cells: BTreeMap<&'static str, Calls>,
    /// The fault did not give one folio of that order, by the descriptors that it wrote.
    other: bool,
}

/// Measures each order that the kernel can be made to give, and prints the table.
pub(super) fn measure(guest: &mut Guest) -> Result<(), Error> {
    let page = guest.hello().page_size;
    if guest.hello().anon_order_policy.is_some() {
        guest.set_policy("sysfs")?;
    }
    let sizes = guest.hello().mthp.iter();
    let sizes = sizes.filter(|size| size.enabled.is_some());
    let sizes: Vec<u64> = sizes.map(|size| size.size_kib).collect();
    let known = guest.names_known();
    let mut rows = Vec::new();
    let all = [page].into_iter().chain(sizes.iter().map(|kib| kib * 1024));
    for bytes in all.filter(|bytes| *bytes <= LARGEST) {
        for kib in &sizes {
            let choice = if kib * 1024 == bytes {
                "always"
            } else {
                "never"
            };
            guest.write_file(&format!("{THP}/hugepages-{kib}kB/enabled"), choice, None)?;
        }
        rows.push(Measured::new(guest, &known, bytes)?.row()?);
    }
    tell(page, &rows)
}

fn tell(page: u64, rows: &[Row]) -> Result<(), Error> {
    say!("by folio order: stores to the area's descriptors, TLBIs that are for it, DSBs, of one folio; - where none was seen");
    let mut head = format!("{:>5} {:>8}", "order", "size");
    for (name, _) in STEPS {
        head += &format!(" {name:>12}");
    }
    say!("{head}");
    for row in rows {
        let size = (page << row.order) / 1024;
        let mut line = format!("{:>5} {:>7}K", row.order, size);
        if row.other {
            say!("{line} left out: no fault was seen that gave this order");
            continue;
        }
        for (name, _) in STEPS {
            let cell = row.cells.get(name).map_or("-".into(), |calls| {
                format!("{}/{}/{}", calls.stores, calls.tlbis, calls.dsbs)
            });
            line += &format!(" {cell:>12}");
        }
        say!("{line}");
    }
    Ok(())
}

/// One process with an area for one folio.
struct Measured<'g> {
    guest: &'g mut Guest,
    known: &'g KernelNames,
    process: ProcessId,
    address: u64,
    bytes: u64,
    cells: BTreeMap<&'static str, Calls>,
}

impl<'g> Measured<'g> {
    fn new(guest: &'g mut Guest, known: &'g KernelNames, bytes: u64) -> Result<Self, Error> {
        let page = guest.hello().page_size;
        // The span of a table of pages: 8 bytes a descriptor.
        let table = page / 8 * page;
        let process = guest.spawn(COSTS)?.process;
        let mapped = guest.op(process, map(table.max(bytes), 0))?;
        let Outcome::Mapped { address, .. } = mapped else {
            return Err(unexpected("mmap", &mapped));
        };
        if bytes < table {
            // A neighbour in the same table, so that the table exists before and stays.
            let beside = address + table - page;
            guest.hint(process, beside, page, Advice::Nohugepage)?;
            guest.op(process, write(beside, page))?;
        }
        guest.hint(process, address, bytes, Advice::Hugepage)?;
        Ok(Self {
            guest,
            known,
            process,
            address,
            bytes,
            cells: BTreeMap::new(),
        })
    }

    /// Does the operation, and counts the actions under the step's function.
    fn count(&mut self, name: &'static str, operation: Operation) -> Result<Outcome, Error> {
        let vas = [self.address, self.address + self.bytes - 1];
        self.guest.count_within(vas)?;
        let outcome = self.guest.op(self.process, operation)?;
        self.keep(name)?;
        Ok(outcome)
    }

    fn keep(&mut self, name: &'static str) -> Result<(), Error> {
        let counted = self.guest.counted(self.known)?;
        let step = STEPS.iter().find(|(step, _)| *step == name);
        let functions = step.map_or(&[][..], |(_, functions)| functions);
        // None if the compiler has inlined it: that does not show what it does.
        let calls = functions.iter().find_map(|function| counted.get(*function));
        self.cells.extend(calls.map(|calls| (name, *calls)));
        Ok(())
    }

    fn row(mut self) -> Result<Row, Error> {
        const BOTH: &[Protection] = &[Protection::Read, Protection::Write];
        const READ: &[Protection] = &[Protection::Read];
        let (page, address, bytes) = (self.guest.hello().page_size, self.address, self.bytes);
        let pages = bytes / page;
        self.count("fault", write(address, page))?;
        let stores = self.cells.get("fault").map_or(0, |calls| calls.stores);
        let by_pages = stores == pages;
        // A PMD's folio is one descriptor of the level above.
        let by_block = bytes == page / 8 * page && stores == 1;
        let other = !by_pages && !by_block;
        if bytes == block_size(page) && by_pages {
            // Folding is tried where the last page's descriptor is written (contpte_try_fold(), asm/pgtable.h).
            let last = address + bytes - page;
            self.count("unfold", protect(last, page, READ))?;
            self.count("fold", protect(last, page, BOTH))?;
        }
        self.count("mprotect", protect(address, bytes, READ))?;
        self.guest.op(self.process, protect(address, bytes, BOTH))?;
        self.guest.op(self.process, write(address, page))?;
        let fork = Operation::Fork {
            name: String::new(),
        };
        match self.count("fork", fork)? {
            Outcome::Spawned(child) => self.end(child.process)?,
            outcome => return Err(unexpected("fork", &outcome)),
        }
        self.count("munmap", unmap(address, bytes))?;
        self.end(self.process)?;
        Ok(Row {
            order: pages.trailing_zeros(),
            cells: self.cells,
            other,
        })
    }

    fn end(&mut self, process: ProcessId) -> Result<(), Error> {
        let deadline = self.guest.deadline();
        let killed = self.guest.command(Command::Kill { process }, deadline);
        killed.map(drop)
    }
}
