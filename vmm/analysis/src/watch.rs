// SPDX-License-Identifier: GPL-2.0-only
//! A process of a live guest, looked at again and again.

use changes::{entries, Diff, Space};
use linux::absent::SwapTypes;
use report::listing::Maps;
use snapshot::Memory;
use untrusted::Text;

use crate::diff::{compare, events as events_of, mapped, who, Ground, LOCKED, NO_RECORD};
use crate::{tasks, Error};

/// A process of a live guest at one instant, as [`crate::tasks::see`] has seen it.
#[derive(Debug)]
pub struct Moment {
    space: tasks::Space,
    memory: Memory,
}

impl Moment {
    /// With the memory that was read for it.
    #[must_use]
    pub fn new(space: tasks::Space, memory: Memory) -> Self {
        Self { space, memory }
    }

    /// Its VMAs, and what its tables have in each.
    #[must_use]
    pub fn maps(&self) -> Maps {
        self.space.maps(&self.memory)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &Text {
        &self.space.task.name
    }

    /// Returns its pid, and when it was started.
    #[must_use]
    pub fn who(&self) -> (u32, u64) {
        (self.space.task.tgid, self.space.task.started_ns)
    }

    /// Returns the events since an earlier moment.
    ///
    /// # Errors
    /// Where entries of this kernel are laid out differently.
    pub fn since(&self, before: &Moment) -> Result<Diff, Error> {
        let (earlier, now) = (before.ground()?, self.ground()?);
        let (before, now) = ((&before.memory, earlier), (&self.memory, now));
        Ok(compare(before, now, None))
    }

    fn ground(&self) -> Result<Ground, Error> {
        let space = &self.space;
        let (entries, problems) = entries(&self.memory, &space.regime);
        let gathered = space.gathered();
        let of_table = gathered.as_ref().ok();
        let of_table = of_table.and_then(|all| all.space(space.regime.root.0));
        let ground = Ground {
            upper: Some(space.upper()),
            layout: match gathered {
                Ok(gathered) => Ok(gathered.layout()),
                Err(not_known) => Err(not_known.why.to_string()),
            },
            spaces: vec![Space {
                who: who(&space.task),
                mm: space.task.mm,
                // Whether another process has the address space, all address spaces tell.
                faults: of_table.and_then(|space| space.faults),
                entries,
                problems,
                vmas: match space.lock.is_held() {
                    true => Err(LOCKED.into()),
                    false => Ok(space.vmas.clone()),
                },
            }],
            listed: None,
            mapped: mapped(&self.memory, gathered, space.regime),
            names: match gathered {
                Ok(gathered) => gathered.swap.clone(),
                Err(_) => SwapTypes::OPEN,
            },
            events: events_of(gathered),
            records: space.orders().cloned().ok_or(NO_RECORD.into()),
            release: space.release().map(str::to_owned),
            page_size: space.regime.granule.bytes(),
        };
        ground.of_this_layout()
    }
}
