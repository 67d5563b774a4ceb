// SPDX-License-Identifier: GPL-2.0-only
//! A kernel's release, as far as rules depend on it.

use std::fmt;

/// The numbers of a kernel release, `6.12.117` of `6.12.117-cloud-arm64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Release {
    /// The first number.
    pub major: u32,
    /// The second.
    pub minor: u32,
    /// The third number, the stable release; 0 if there is none. A distribution may keep the first one's name, so no
    /// rule depends on it.
    pub patch: u32,
}

impl Release {
    /// The first release whose software bits [`crate::pte`] decodes. From 6.11 on `PTE_PRESENT_INVALID` is bit 11 and
    /// `PTE_UFFD_WP` bit 58. Before it bit 58 was `PTE_PROT_NONE` and bit 11 part of a swap entry's offset.
    pub const FIRST_WITH_THIS_LAYOUT: Release = Release::new(6, 11, 0);

    /// Creates the release with these numbers.
    pub const fn new(major: u32, minor: u32, patch: u32) -> Release {
        Release {
            major,
            minor,
            patch,
        }
    }

    /// Reads a release as `uname -r` or the kernel's banner gives it; `None` if it does not start
    /// with two numbers.
    pub fn parse(text: &str) -> Option<Release> {
        let (major, rest) = text.trim().split_once('.')?;
        let (minor, rest) = leading(rest);
        let patch = rest.strip_prefix('.').map(|rest| leading(rest).0);
        Some(Release {
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
            patch: patch.and_then(|digits| digits.parse().ok()).unwrap_or(0),
        })
    }

    /// Returns whether both are of one stable series: `6.12` of both.
    pub fn same_series(self, other: Release) -> bool {
        (self.major, self.minor) == (other.major, other.minor)
    }

    /// Returns whether descriptors of this release are laid out as [`crate::pte`] decodes them.
    pub fn has_this_layout(self) -> bool {
        self >= Release::FIRST_WITH_THIS_LAYOUT
    }
}

/// The start of the kernel's banner (`linux_banner`, init/version.c). The release follows.
pub const BANNER: &[u8] = b"Linux version ";

/// The longest release in bytes: `__NEW_UTS_LEN`.
pub const LONGEST: usize = 64;

/// Returns the release in a banner that `text` begins with: `6.12.117-x` of `Linux version 6.12.117-x (builder@host)
/// ...`. The kernel's memory also has the banner's format string and messages that begin like it.
pub fn in_banner(text: &[u8]) -> Option<&str> {
    let rest = text.strip_prefix(BANNER)?;
    let end = rest.iter().take(LONGEST).position(|&byte| byte == b' ')?;
    let release = std::str::from_utf8(&rest[..end]).ok()?;
    Release::parse(release).map(|_| release)
}

/// Splits `text` behind its leading digits.
fn leading(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit());
    text.split_at(end.unwrap_or(text.len()))
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        match self.patch {
            0 => Ok(()),
            patch => write!(f, ".{patch}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_read_and_ordered() {
        let of = |text| Release::parse(text).map(|r| (r.major, r.minor, r.patch));
        assert_eq!(of("6.12.117-cloud-arm64"), Some((6, 12, 117)));
        assert_eq!(of("6.18.15+deb14-arm64"), Some((6, 18, 15)));
        assert_eq!(of("6.13-rc1+"), Some((6, 13, 0)));
        assert_eq!(of("7.0"), Some((7, 0, 0)));
        assert_eq!(of("6.12."), Some((6, 12, 0)));
        assert_eq!(of("six.twelve"), None);
        assert_eq!(of("6"), None);
        assert!(Release::parse("6.12.1").unwrap().has_this_layout());
        assert!(!Release::parse("6.1.0-48-arm64").unwrap().has_this_layout());
        assert!(Release::parse("10.1").unwrap().has_this_layout());
        assert!(Release::parse("6.12.9") < Release::parse("6.12.10"));
        for text in ["6.12", "6.12.117"] {
            assert_eq!(Release::parse(text).unwrap().to_string(), text);
        }
        assert!(Release::new(6, 12, 1).same_series(Release::new(6, 12, 117)));
        assert!(!Release::new(6, 12, 1).same_series(Release::new(7, 12, 1)));
    }

    #[test]
    fn a_banner_names_a_release() {
        let of = |text: &'static str| in_banner(text.as_bytes());
        let banner = "Linux version 6.12.117-x (a@b) (gcc) #1 SMP";
        assert_eq!(of(banner), Some("6.12.117-x"));
        for other in [
            "Linux version %s (%s)",
            "Linux version 6.12",
            "Linux 6.12 x",
            "",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
