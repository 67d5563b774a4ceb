// SPDX-License-Identifier: GPL-2.0-only
//! The method `translate`: the machine's own translation beside ours, for tests.

use std::time::Duration;

use analysis::Wait;
use stage1::{Half, PhysMemory, Regime, VirtualAddress};

use super::parameters::Translate;
use super::results::{Pair, Pairs};
use crate::guest::{Guest, Poke};
use crate::Error;

/// Stops until the machine is in a state that [`translate`] needs.
const STOPS: Wait = Wait {
    stops: 400,
    between: Duration::from_millis(1),
};

/// Maximum number of addresses of one request: the machine translates each while the guest is stopped.
const MOST_ADDRESSES: usize = 4096;

/// Translates addresses of either half by the machine's own translation and by ours, at one instant.
///
/// QEMU translates for a load at the CPU's exception level. The CPU in the wait loop (EL0) translates in the lower
/// half, and one at EL1 in the upper half, if there is one. `el0_read` and `el1_read` are the permissions by our
/// decoding.
pub(super) fn translate(guest: &mut Guest, p: &Translate) -> Result<Pairs, Error> {
    if p.addresses.len() > MOST_ADDRESSES {
        return Err(Error::Input(format!(
            "expected at most {MOST_ADDRESSES} addresses in one request and found {}; ask for them in several",
            p.addresses.len()
        )));
    }
    let checkpoint = guest
        .held()
        .find(|(id, _)| *id == p.process)
        .and_then(|(_, process)| process.checkpoint)
        .ok_or_else(|| Error::Input(format!("{} is not held; hold it first", p.process)))?;
    let pokes: Vec<Poke> = p.pokes.iter().map(Poke::from).collect();
    if !pokes.is_empty() {
        guest.forget_copy();
    }
    let wants_upper = p.addresses.iter().any(|va| va >> 55 & 1 == 1);
    let shown = STOPS.until(
        guest,
        |_| true,
        |guest| {
            let mut paused = guest.machine().pause()?;
            let lower = paused.cpus.iter().find(|cpu| checkpoint.holds(cpu));
            let upper = paused.cpus.iter().find(|cpu| cpu.el() == 1);
            let (Some(lower), true) = (lower, upper.is_some() || !wants_upper) else {
                paused.resume()?;
                return Ok(Err(()));
            };
            let (low, high) = (lower.index, upper.map(|cpu| cpu.index));
            let halves = [
                (low, Regime::new(&lower.system, Half::Lower)?),
                match upper {
                    Some(cpu) => (cpu.index, Regime::new(&cpu.system, Half::Upper)?),
                    None => (low, Regime::new(&lower.system, Half::Upper)?),
                },
            ];
            let before = swap(&mut paused, &pokes)?;
            let pairs = both(&mut paused, &halves, &p.addresses);
            swap(&mut paused, &before)?;
            paused.resume()?;
            Ok::<_, Error>(Ok(Pairs {
                lower_cpu: low,
                upper_cpu: high,
                pairs: pairs?,
            }))
        },
    )?;
    shown.map_err(|()| {
        Error::Input(format!(
            "in {} looks no CPU was in the wait loop of {} while another was at EL1",
            STOPS.stops, p.process
        ))
    })
}

/// Compares our translation with the machine's, address by address; `halves` are the CPU to use and its regime, lower
/// and upper.
fn both(
    paused: &mut machine::Paused<'_>,
    halves: &[(usize, Regime); 2],
    addresses: &[u64],
) -> Result<Vec<Pair>, Error> {
    let mut pairs = Vec::with_capacity(addresses.len());
    for &va in addresses {
        let (cpu, regime) = &halves[(va >> 55 & 1) as usize];
        let theirs = paused.translate(*cpu, VirtualAddress(va))?;
        let mut pair = Pair {
            va,
            ours: None,
            machine: theirs.map(|pa| pa.0),
            word: None,
            level: None,
            el0_read: None,
            el1_read: None,
        };
        if let stage1::Lookup::Mapped {
            entry,
            pa,
            permissions,
        } = stage1::lookup(&paused.memory, regime, VirtualAddress(va))
        {
            pair.ours = Some(pa.0);
            pair.word = Some(entry.descriptor.word);
            pair.level = Some(entry.descriptor.level.number());
            pair.el0_read = Some(permissions.el0_read);
            pair.el1_read = Some(permissions.el1_read);
        }
        pairs.push(pair);
    }
    Ok(pairs)
}

/// Writes words into guest memory; returns the old ones, in the order that undoes it.
fn swap(paused: &mut machine::Paused<'_>, pokes: &[Poke]) -> Result<Vec<Poke>, Error> {
    let word = |poke: &Poke| {
        let words = paused.memory.words(poke.address, 1);
        let words = words.ok_or_else(|| poke.refused())?;
        Ok(Poke {
            address: poke.address,
            word: words[0],
        })
    };
    let before: Vec<Poke> = (pokes.iter().rev().map(word)).collect::<Result<_, Error>>()?;
    for poke in pokes {
        paused.write(poke.address, &poke.word.to_le_bytes())?;
    }
    Ok(before)
}
