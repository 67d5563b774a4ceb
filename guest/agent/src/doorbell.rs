//! The machine's doorbell: a page of the machine's own, to which a workload stores while it waits.
//!
//! Only Folioscope's own monitor has one. It is found in the device tree and mapped through `/dev/mem`, so it needs no
//! driver. A kernel without either has none, and its checkpoints work as they do on any other machine.

use std::fs;
use std::os::fd::AsRawFd;
use std::path::Path;

use protocol::DOORBELL_COMPATIBLE;

use crate::slots;
use crate::sys;

/// Address at which a workload maps the page: right behind the slots, under the same last-level table.
const WORKLOAD_ADDRESS: usize = slots::WORKLOAD_ADDRESS + slots::BYTES;

/// The page, mapped into this process until its end.
#[derive(Clone, Copy, Debug)]
pub struct Doorbell(*mut u64);

impl Doorbell {
    /// Maps the doorbell, if there is one.
    pub fn find() -> Option<Self> {
        let address = address(Path::new("/sys/firmware/devicetree/base"))?;
        let file = fs::File::from(sys::open("/dev/mem", libc::O_RDWR | libc::O_SYNC).ok()?);
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE;
        let low = std::ptr::without_provenance_mut(WORKLOAD_ADDRESS);
        let (bytes, offset) = (sys::page_size() as usize, i64::try_from(address).ok()?);
        // SAFETY: it replaces no mapping, and the page is a device of the machine that only takes stores.
        let page = unsafe { libc::mmap(low, bytes, prot, flags, file.as_raw_fd(), offset) };
        (page != libc::MAP_FAILED).then(|| Self(page.cast()))
    }

    /// Returns the word to store to.
    pub fn as_ptr(self) -> *mut u64 {
        self.0
    }
}

/// Returns the physical address in the node that is compatible with a doorbell. The root has two cells for addresses.
fn address(base: &Path) -> Option<u64> {
    let nodes = fs::read_dir(base).ok()?.flatten();
    let mut bells = nodes.filter(|node| {
        let compatible = fs::read(node.path().join("compatible")).unwrap_or_default();
        let mut names = compatible.split(|&byte| byte == 0);
        names.any(|name| name == DOORBELL_COMPATIBLE.as_bytes())
    });
    let reg = fs::read(bells.next()?.path().join("reg")).ok()?;
    let cells: [u8; 8] = reg.get(..8)?.try_into().ok()?;
    Some(u64::from_be_bytes(cells))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_is_found_by_what_it_is_compatible_with() {
        let base = std::env::temp_dir().join(format!("folioscope-tree-{}", std::process::id()));
        for (node, compatible) in [
            ("serial@9000000", &b"ns16550a\0"[..]),
            ("bell@9020000", b"other\0folioscope,doorbell\0"),
        ] {
            fs::create_dir_all(base.join(node)).unwrap();
            fs::write(base.join(node).join("compatible"), compatible).unwrap();
            let mut reg = 0x0902_0000_u64.to_be_bytes().to_vec();
            reg.extend(0x1_0000_u64.to_be_bytes());
            fs::write(base.join(node).join("reg"), reg).unwrap();
        }
        assert_eq!(address(&base), Some(0x0902_0000));
        fs::remove_dir_all(base.join("bell@9020000")).unwrap();
        assert_eq!(address(&base), None);
        fs::remove_dir_all(&base).unwrap();
    }
}
