//! The words that writes to memory store, so that a later look can tell which page it sees.

/// Returns the word that a write of `touch` stores at a virtual address: one step of SplitMix64 over the address and
/// the salt. Neighbouring pages, and the same page under another salt, differ in about half of their bits; zero, which
/// a fresh page holds, comes up for no address below 2^56 in practice.
pub fn pattern(address: u64, salt: u64) -> u64 {
    let mut z = address ^ salt.rotate_left(32) ^ 0x9e37_79b9_7f4a_7c15;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
