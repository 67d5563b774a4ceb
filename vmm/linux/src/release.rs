//! A kernel's release, as far as rules depend on it.

use std::fmt;

/// The first two numbers of a kernel release, `6.12` of `6.12.117-cloud-arm64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Release {
    /// The first number.
    pub major: u32,
    /// The second.
    pub minor: u32,
}

impl Release {
    /// The release whose software bits [`crate::pte`] decodes: from 6.11 on `PTE_PRESENT_INVALID`
    /// is bit 11 and `PTE_UFFD_WP` bit 58; before it bit 58 was `PTE_PROT_NONE` and bit 11 part of
    /// a swap entry's offset.
    pub const FIRST_WITH_THIS_LAYOUT: Release = Release {
        major: 6,
        minor: 11,
    };

    /// Reads a release as `uname -r` or the kernel's banner gives it; `None` if it does not start
    /// with two numbers.
    pub fn parse(text: &str) -> Option<Release> {
        let mut numbers = text.trim().splitn(3, '.');
        let major = numbers.next()?.parse().ok()?;
        let minor = numbers.next()?;
        let digits = minor.find(|c: char| !c.is_ascii_digit());
        let minor = minor[..digits.unwrap_or(minor.len())].parse().ok()?;
        Some(Release { major, minor })
    }

    /// Whether descriptors of this release are laid out as [`crate::pte`] reads them.
    pub fn has_this_layout(self) -> bool {
        self >= Release::FIRST_WITH_THIS_LAYOUT
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_read_and_ordered() {
        let of = |text| Release::parse(text).map(|r| (r.major, r.minor));
        assert_eq!(of("6.12.117-cloud-arm64"), Some((6, 12)));
        assert_eq!(of("6.13-rc1+"), Some((6, 13)));
        assert_eq!(of("7.0"), Some((7, 0)));
        assert_eq!(of("six.twelve"), None);
        assert_eq!(of("6"), None);
        assert!(Release::parse("6.12.1").unwrap().has_this_layout());
        assert!(!Release::parse("6.1.0-48-arm64").unwrap().has_this_layout());
        assert!(Release::parse("10.1").unwrap().has_this_layout());
    }
}
