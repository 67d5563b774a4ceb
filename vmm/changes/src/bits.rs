// SPDX-License-Identifier: GPL-2.0-only
//! Meaning of the bits of an entry that have changed.

use linux::pte::bits;

use crate::event::Kind;
use crate::view::Entry;
use crate::why::Why;

/// Tells what changed beside the frame. Of an entry that is of the `same` memory all is told; of another one only whether it is
/// folded, and whether the CPU may use it.
pub(crate) fn entry_bits(
    (before, after): (&Entry, &Entry),
    same: bool,
    tell: &mut dyn FnMut((Kind, Why)),
) {
    let (was, is) = (before.pte(), after.pte());
    if before.level == after.level {
        match (was.valid_cont(), is.valid_cont()) {
            (false, true) => tell((Kind::Fold, Why::Nothing)),
            (true, false) => tell((Kind::Unfold, Why::Nothing)),
            _ => {}
        }
    }
    let denied = was.valid() != is.valid();
    match (was.valid(), is.valid()) {
        (true, false) => tell((Kind::Deny, Why::Nothing)),
        (false, true) => tell((Kind::Allow, Why::Nothing)),
        _ => {}
    }
    if !same {
        return;
    }
    if was.write() != is.write() || was.uffd_wp() != is.uffd_wp() {
        let why = match was.uffd_wp() != is.uffd_wp() {
            true => Why::Userfaultfd,
            false => Why::Nothing,
        };
        let kind = match is.write() && !is.uffd_wp() {
            true => Kind::WriteUnprotect,
            false if was.write() || is.uffd_wp() => Kind::WriteProtect,
            false => Kind::WriteUnprotect,
        };
        tell((kind, why));
    }
    match (before.dirty, after.dirty) {
        (false, true) => tell((Kind::Dirty, Why::Nothing)),
        (true, false) => tell((Kind::Clean, Why::Nothing)),
        _ => {}
    }
    match (before.young, after.young) {
        (false, true) => tell((Kind::Young, Why::Nothing)),
        (true, false) => tell((Kind::Old, Why::Nothing)),
        _ => {}
    }
    let changed = (was.0 ^ is.0) & other_bits(before, after);
    if changed != 0 && !denied {
        tell((Kind::Attributes, Why::Bits(changed)));
    }
}

/// Bits that no other kind of event tells of.
fn other_bits(before: &Entry, after: &Entry) -> u64 {
    const TOLD: u64 = bits::VALID
        | bits::RDONLY
        | bits::AF
        | bits::WRITE
        | bits::CONT
        | bits::DIRTY
        | bits::UFFD_WP
        | bits::SPECIAL
        | bits::DEVMAP
        | 1 << 1;
    /// Address bits of any granule, those of bits 8 to 15 with 52-bit addresses too.
    const ADDRESS: u64 = 0x0003_ffff_ffff_f000;
    let low = match before.frame == after.frame {
        true => 0,
        false => 0b11 << 8,
    };
    !(TOLD | ADDRESS | low)
}
