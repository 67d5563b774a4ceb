// SPDX-License-Identifier: GPL-2.0-only
//! Numbers packed into bytes: seven bits in each, the lowest first, the eighth says that more follow (LEB128).

use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;

/// A sequence of numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Packed(Vec<u8>);

impl Packed {
    /// Adds a number.
    pub fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    /// Adds a number that may be below 0: small ones of either sign take few bytes.
    pub fn signed(&mut self, number: i64) {
        self.number((number << 1 ^ number >> 63) as u64);
    }

    /// Bytes so far.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// As text for JSON.
    pub fn text(&self) -> String {
        STANDARD.encode(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_numbers_take_a_byte() {
        let mut packed = Packed::default();
        for number in [0, 127, 128, u64::MAX] {
            packed.number(number);
        }
        let mut expected = vec![0, 127, 0x80, 1];
        expected.extend([0xff; 9]);
        expected.push(1);
        assert_eq!(packed.0, expected);
    }

    #[test]
    fn signs_take_the_lowest_bit() {
        let mut packed = Packed::default();
        for number in [0, -1, 1, -64, i64::MIN] {
            packed.signed(number);
        }
        assert_eq!(packed.0[..4], [0, 1, 2, 127]);
        assert_eq!(packed.0[4..13], [0xff; 9]);
        assert_eq!(packed.0[13], 1);
        assert_eq!(packed.text(), "AAECf////////////wE=");
    }
}
