// SPDX-License-Identifier: GPL-2.0-only
//! Waits for an instant of a running guest that shows what is wanted.

use std::time::Duration;

/// How often a guest is stopped until it shows what is wanted, and how long it runs between two stops.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    /// Maximum number of stops, at least 1.
    pub stops: u32,
    /// Time between two of them.
    pub between: Duration,
}

impl Wait {
    /// Calls `stop` until it returns `Ok`, what is wanted, or the stops are used up, or the guest does not run between
    /// them; then `Err`, what the last stop has shown instead.
    ///
    /// # Errors
    /// As `stop`.
    pub fn until<S: ?Sized, T, W, E>(
        self,
        guest: &mut S,
        runs: impl Fn(&S) -> bool,
        mut stop: impl FnMut(&mut S) -> Result<Result<T, W>, E>,
    ) -> Result<Result<T, W>, E> {
        let mut left = self.stops;
        loop {
            left = left.saturating_sub(1);
            let shown = stop(guest)?;
            if shown.is_ok() || left == 0 || !runs(guest) {
                return Ok(shown);
            }
            std::thread::sleep(self.between);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Wait = Wait {
        stops: 5,
        between: Duration::ZERO,
    };

    /// Stops a guest that shows what is wanted at the third stop; returns the result and the number of stops.
    fn waited(wait: Wait, runs: bool) -> (Result<u32, u32>, u32) {
        let mut stops = 0;
        let shown = wait.until(
            &mut stops,
            |_| runs,
            |stops| {
                *stops += 1;
                Ok::<_, ()>(if *stops == 3 { Ok(*stops) } else { Err(*stops) })
            },
        );
        (shown.unwrap(), stops)
    }

    #[test]
    fn it_ends_with_what_is_wanted() {
        assert_eq!(waited(WAIT, true), (Ok(3), 3));
    }

    #[test]
    fn it_ends_with_the_last_stop() {
        assert_eq!(waited(Wait { stops: 2, ..WAIT }, true), (Err(2), 2));
    }

    #[test]
    fn a_guest_that_stands_still_is_stopped_once() {
        assert_eq!(waited(WAIT, false), (Err(1), 1));
    }

    #[test]
    fn an_error_ends_it() {
        let failed = WAIT.until(&mut (), |()| true, |()| Err::<Result<(), ()>, _>("gone"));
        assert_eq!(failed, Err("gone"));
    }
}
