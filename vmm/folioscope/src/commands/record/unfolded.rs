//! What the recorder has beside the tour.

use protocol::{Advice, Protection};

use crate::guest::{unexpected, Guest};
use crate::ops::{advise, map, protect, write};
use crate::stage::{block_size, THP};
use crate::Error;

/// A workload that sets out from where the tour never is: a block of which every page is mapped and that is not folded.
pub(super) const UNFOLDED: &str = "unfolded";

/// Takes one page's right to be written and gives it back, so that the block is unfolded; then the same with the block.
pub(super) fn mprotect_unfolded(guest: &mut Guest) -> Result<(), Error> {
    const BOTH: &[Protection] = &[Protection::Read, Protection::Write];
    const READ: &[Protection] = &[Protection::Read];
    let page = guest.hello().page_size;
    let block = block_size(page);
    if guest.hello().anon_order_policy.is_some() {
        guest.set_policy("variable")?;
    } else {
        let size = format!("{THP}/hugepages-{}kB/enabled", block / 1024);
        guest.write_file(&size, "always", None)?;
    }
    let process = guest.spawn(UNFOLDED)?.process;
    let mapped = guest.op(process, map(2 * block, 0))?;
    let protocol::Outcome::Mapped { address, .. } = mapped else {
        return Err(unexpected("mmap", &mapped));
    };
    let one = address + 5 * page;
    for operation in [
        advise(address, 2 * block, Advice::Hugepage),
        write(address, 2 * block),
        protect(one, page, READ),
        protect(one, page, BOTH),
        protect(address, block, READ),
        protect(address, block, BOTH),
        write(address, 2 * block),
    ] {
        guest.op(process, operation)?;
    }
    Ok(())
}
