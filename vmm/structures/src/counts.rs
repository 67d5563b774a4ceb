// SPDX-License-Identifier: GPL-2.0-only
//! Counters of a kernel with our patches, CPU by CPU, added up: tables that have their own size.

use linux::contpte;
use linux::order::counts::{self, Decision};
use stage1::PhysMemory;

use crate::kernel::View;
use crate::per_cpu::{word, PerCpu};
use crate::{Kernel, StructureError};

/// A table of counters per CPU, and whether it counts at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts<T> {
    /// True if it is switched on.
    pub on: bool,
    /// The counters since it last was.
    pub counted: T,
}

/// How often each order was decided on (mm/anon_order.c of the patches): `anon_order_table`, a pointer per CPU, which is null
/// before it is first asked for, or on kernels of older patches `anon_order_counts`, the table itself.
///
/// # Errors
/// Where the kernel has no such table, or it is not as the patches have it.
pub fn orders<M: PhysMemory + ?Sized>(
    kernel: &Kernel,
    view: View<'_, M>,
) -> Result<Counts<Vec<Decision>>, StructureError> {
    let pointers = kernel.variable("anon_order_table").is_ok();
    let name = if pointers {
        "anon_order_table"
    } else {
        "anon_order_counts"
    };
    let tables = Tables::new(kernel, view, name)?;
    let mut sums = Vec::new();
    let mut known = None;
    for va in tables.addresses() {
        let va = match pointers {
            true => view.number(name, va, word(8))?,
            false => va,
        };
        if va == 0 {
            continue;
        }
        let header = tables.header(view, va)?;
        let dimensions = tables.known(va, counts::Dimensions::decode(header))?;
        if *known.get_or_insert(dimensions) != dimensions {
            return tables.known(va, Err("another CPU's has another size".into()));
        }
        let cells = tables.words(view, va.wrapping_add(counts::HEADER), dimensions.cells())?;
        sums.resize(cells.len(), 0);
        let sum = sums.iter_mut().zip(cells);
        sum.for_each(|(sum, count): (&mut u64, u64)| *sum = sum.wrapping_add(count));
    }
    Ok(Counts {
        on: is_on(kernel, view, "anon_order_recording")?,
        counted: known.map_or_else(Vec::new, |known| known.decisions(&sums)),
    })
}

/// Events of contiguous blocks (`contpte_counts`, arch/arm64/mm/contpte_events.c of the patches).
///
/// # Errors
/// As [`orders`].
pub fn contpte<M: PhysMemory + ?Sized>(
    kernel: &Kernel,
    view: View<'_, M>,
) -> Result<Counts<contpte::Counts>, StructureError> {
    let tables = Tables::new(kernel, view, "contpte_counts")?;
    let mut counted = contpte::Counts::default();
    for va in tables.addresses() {
        let header = tables.header(view, va)?;
        let dimensions = tables.known(va, contpte::Dimensions::decode(header))?;
        let words = tables.words(view, va.wrapping_add(contpte::HEADER), dimensions.words())?;
        dimensions.add(&words, &mut counted);
    }
    Ok(Counts {
        on: is_on(kernel, view, "contpte_counting")?,
        counted,
    })
}

/// One table per CPU.
struct Tables {
    name: &'static str,
    variable: u64,
    cpus: PerCpu,
}

impl Tables {
    fn new<M: PhysMemory + ?Sized>(
        kernel: &Kernel,
        view: View<'_, M>,
        name: &'static str,
    ) -> Result<Self, StructureError> {
        Ok(Self {
            name,
            variable: kernel.variable(name)?,
            cpus: PerCpu::new(kernel, view)?,
        })
    }

    fn addresses(&self) -> impl Iterator<Item = u64> + '_ {
        let cpus = 0..self.cpus.offsets.len();
        cpus.map(|cpu| self.cpus.address(self.variable, cpu))
    }

    fn header<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        va: u64,
    ) -> Result<[u8; 16], StructureError> {
        let bytes = view.bytes(self.name, va, 16)?;
        Ok(std::array::from_fn(|at| bytes[at]))
    }

    fn words<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        va: u64,
        count: usize,
    ) -> Result<Vec<u64>, StructureError> {
        let bytes = view.bytes(self.name, va, 8 * count as u64)?;
        let words = bytes.chunks_exact(8);
        Ok(words
            .map(|word| u64::from_le_bytes(std::array::from_fn(|at| word[at])))
            .collect())
    }

    fn known<T>(&self, va: u64, found: Result<T, String>) -> Result<T, StructureError> {
        found.map_err(|why| StructureError::Inconsistent {
            what: self.name,
            va,
            why,
        })
    }
}

/// Returns whether a static key is set: `key.enabled.counter` is what `struct static_key_false` begins with.
fn is_on<M: PhysMemory + ?Sized>(
    kernel: &Kernel,
    view: View<'_, M>,
    name: &'static str,
) -> Result<bool, StructureError> {
    let enabled = view.number(name, kernel.variable(name)?, word(4))?;
    Ok(enabled as u32 as i32 > 0)
}
