// SPDX-License-Identifier: GPL-2.0-only
//! Numbers of a trace.

/// Appends a number.
pub(super) fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Returns a difference as a number that is small where the difference is.
pub(super) fn zigzag(difference: u64) -> u64 {
    difference << 1 ^ ((difference as i64 >> 63) as u64)
}

/// Returns the difference back.
pub(super) fn unzigzag(number: u64) -> u64 {
    number >> 1 ^ (number & 1).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_come_back() {
        for difference in [
            0,
            1,
            2,
            u64::MAX,
            1 << 63,
            0x7fff_ffff_ffff_ffff,
            0xdead_beef,
        ] {
            assert_eq!(unzigzag(zigzag(difference)), difference);
        }
        assert_eq!(zigzag(u64::MAX), 1, "-1 is small");
    }
}
