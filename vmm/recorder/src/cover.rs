// SPDX-License-Identifier: GPL-2.0-only
//! Decodes the entries that a TLBI invalidates (Arm ARM C5.5 and D8.17).

use std::fmt;

use stage1::{Granule, Level, Regime};

/// The CPUs that a TLBI reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Its own.
    Local,
    /// All in the Inner or Outer Shareable domain.
    Shared,
}

/// The ASIDs that a TLBI reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asids {
    /// All ASIDs, and global entries.
    All,
    /// One ASID, and global entries: by VA.
    OneOrGlobal(u16),
    /// One ASID alone: by ASID.
    One(u16),
}

/// The coverage of a TLBI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cover {
    /// The CPUs.
    pub scope: Scope,
    pub(crate) asids: Asids,
    /// The VAs, first and last; `None` for all.
    pub(crate) vas: Option<[u64; 2]>,
    /// Only the last level's entries.
    pub(crate) last_level: bool,
    /// The level by the hint: only leaves of it are covered.
    pub(crate) level: Option<Level>,
    /// A hint of a granule that is not in use: nothing need be invalidated.
    pub(crate) wrong_granule: bool,
    /// True for a range form.
    pub(crate) range: bool,
}

impl Cover {
    /// Returns what the operation covers under `regime`, which gives the granule and how a range's base is written;
    /// `None` for an operation that does not concern EL1's stage 1.
    #[must_use]
    pub fn new(opcode: u32, operand: u64, regime: &Regime) -> Option<Self> {
        let (op1, crm, op2) = (opcode >> 16 & 7, opcode >> 8 & 0xf, opcode >> 5 & 7);
        let scope = match crm {
            6 | 7 => Scope::Local,
            _ => Scope::Shared,
        };
        let all = Self {
            scope,
            asids: Asids::All,
            vas: None,
            last_level: false,
            level: None,
            wrong_granule: false,
            range: false,
        };
        let asid = (operand >> 48) as u16;
        match (op1, crm, op2) {
            // VMALLE1; from EL2 ALLE1 and VMALLS12E1.
            (0, 1 | 3 | 7, 0) | (4, 1 | 3 | 7, 4 | 6) => Some(all),
            // ASIDE1.
            (0, 1 | 3 | 7, 2) => Some(Self {
                asids: Asids::One(asid),
                ..all
            }),
            // VAE1, VAAE1, VALE1, VAALE1; their range forms.
            (0, 1 | 3 | 7 | 2 | 5 | 6, 1 | 3 | 5 | 7) => {
                let by_va = Self {
                    asids: if op2 & 2 == 0 {
                        Asids::OneOrGlobal(asid)
                    } else {
                        Asids::All
                    },
                    last_level: op2 & 4 != 0,
                    ..all
                };
                Some(if matches!(crm, 2 | 5 | 6) {
                    by_va.range(operand, regime)
                } else {
                    by_va.page(operand, regime)
                })
            }
            _ => None,
        }
    }

    /// Decodes the operand of a page form: VA\[55:12\] in bits \[43:0\], TTL in \[47:44\].
    fn page(self, operand: u64, regime: &Regime) -> Self {
        let bytes = regime.granule.bytes();
        let first = sign_extended(operand << 12, 55) & !(bytes - 1);
        let (granule, level) = ((operand >> 46 & 3) as u8, (operand >> 44 & 3) as u8);
        let hint = granule != 0;
        Self {
            vas: Some([first, first | (bytes - 1)]),
            wrong_granule: hint && granule != number(regime.granule),
            level: if hint { level_of(level, regime) } else { None },
            ..self
        }
    }

    /// Decodes the operand of a range form: `BaseADDR` in bits \[36:0\], TTL \[38:37\], NUM \[43:39\], SCALE \[45:44\],
    /// TG \[47:46\].
    fn range(self, operand: u64, regime: &Regime) -> Self {
        let granule = (operand >> 46 & 3) as u8;
        let (num, scale) = (operand >> 39 & 0x1f, (operand >> 44 & 3) as u32);
        // With TCR_EL1.DS the base is in units of 64K.
        let unit = if regime.ds {
            16
        } else {
            regime.granule.shift()
        };
        let first = sign_extended(operand << unit, unit + 36);
        let bytes = (num + 1) << (5 * scale + 1 + regime.granule.shift());
        let ttl = (operand >> 37 & 3) as u8;
        Self {
            vas: Some([first, first.saturating_add(bytes - 1)]),
            // TG 0 is reserved.
            wrong_granule: granule != number(regime.granule),
            level: if ttl == 0 {
                None
            } else {
                level_of(ttl, regime)
            },
            range: true,
            ..self
        }
    }

    /// Returns the ASID, where it is of one alone.
    #[must_use]
    pub fn asid(&self) -> Option<u16> {
        match self.asids {
            Asids::All => None,
            Asids::OneOrGlobal(asid) | Asids::One(asid) => Some(asid),
        }
    }

    /// Returns the VAs, first and last; `None` for all.
    #[must_use]
    pub fn vas(&self) -> Option<[u64; 2]> {
        self.vas
    }

    /// Returns whether it leaves out entries that are not of the last level.
    #[must_use]
    pub fn last_level(&self) -> bool {
        self.last_level
    }

    /// Returns the level of its hint.
    #[must_use]
    pub fn level(&self) -> Option<Level> {
        self.level
    }

    /// Returns whether it reaches `cpu` when `own` executes it.
    #[must_use]
    pub fn reaches(&self, own: u16, cpu: u16) -> bool {
        self.scope == Scope::Shared || own == cpu
    }

    /// Returns whether it reaches entries that are cached for `asid`, or globally.
    #[must_use]
    pub fn has_asid(&self, asid: Option<u16>) -> bool {
        match (self.asids, asid) {
            (Asids::All, _) | (Asids::OneOrGlobal(_), None) => true,
            (Asids::OneOrGlobal(one) | Asids::One(one), Some(asid)) => one == asid,
            (Asids::One(_), None) => false,
        }
    }

    /// Returns whether it touches the VAs from `first` to `last`.
    #[must_use]
    pub fn touches(&self, first: u64, last: u64) -> bool {
        self.vas
            .is_none_or(|[low, high]| low <= last && first <= high)
    }
}

impl fmt::Display for Cover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.scope {
            Scope::Local => "a TLBI of its own CPU",
            Scope::Shared => "a TLBI",
        })?;
        if let Some([first, last]) = self.vas {
            write!(f, " of VA {first:#x} to {last:#x}")?;
        }
        match self.asids {
            Asids::All => (),
            Asids::OneOrGlobal(asid) | Asids::One(asid) => write!(f, " of ASID {asid}")?,
        }
        if self.last_level {
            f.write_str(", last level only")?;
        }
        if let Some(level) = self.level {
            write!(f, ", level hint {level}")?;
        }
        if self.wrong_granule {
            f.write_str(", hint of another granule")?;
        }
        Ok(())
    }
}

/// Returns TG of a TLBI.
fn number(granule: Granule) -> u8 {
    match granule {
        Granule::K4 => 1,
        Granule::K16 => 2,
        Granule::K64 => 3,
    }
}

/// Returns the level of a hint; `None` where the number is reserved, which is then no hint.
fn level_of(number: u8, regime: &Regime) -> Option<Level> {
    match (number, regime.granule) {
        (0, Granule::K4) if regime.ds => Some(Level::L0),
        (0, _) => None,
        (1, Granule::K16) if !regime.ds => None,
        (number, _) => Level::from_number(number as i8),
    }
}

/// Returns `value` with all bits above bit `top` equal to that bit.
fn sign_extended(value: u64, top: u32) -> u64 {
    let up = 63 - top.min(63);
    ((value << up) as i64 >> up) as u64
}
