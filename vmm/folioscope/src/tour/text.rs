// SPDX-License-Identifier: GPL-2.0-only
//! Executable mappings of a file system that reads ahead, as tmpfs does not: a program's text.

use linux::release::Release;
use protocol::{Access, Backing, Operation, Order, Placement, Protection};

use super::Workload;
use crate::ops::touch;
use crate::stage::{Stage, StageResult};

/// Size of arm64's readahead of executable mappings (`exec_folio_order()`), in bytes.
const EXECUTABLE: u64 = 64 << 10;
/// Default read-ahead of a device (`VM_READAHEAD_PAGES`), in bytes.
const AHEAD: u64 = 128 << 10;

pub(super) const TEXT: Workload = Workload {
    name: "text",
    title: "executable memory of a file that is read ahead",
    run: text,
    sequences: false,
};

fn text(stage: &mut Stage<'_>) -> StageResult {
    let (block, page) = (stage.block(), stage.page());
    let length = 8 * EXECUTABLE;
    if !stage.since(Release::new(6, 16, 0)) {
        return stage.leave_out("the kernel reads executable memory as it reads any other");
    }
    let Some(path) = stage.erofs(length)? else {
        return stage.leave_out("the kernel has no EROFS or no RAM disk to put one on");
    };
    let map = |prot: &[Protection]| Operation::Mmap {
        length,
        backing: Backing::File {
            path: path.clone(),
            offset: 0,
        },
        prot: prot.to_vec(),
        flags: vec![],
        place: Placement::default(),
    };
    let runs = [Protection::Read, Protection::Exec];
    let reads = [Protection::Read];
    let fetch = |address| touch(address, page, Access::Read, Order::Forward);
    // A folio of this size is a block on 4K, less than one on 16K, and a page on 64K.
    let folds = block == EXECUTABLE;
    let judged = |stage: &mut Stage<'_>, process, start, length| {
        if folds {
            stage.folded(process, start, length);
        } else {
            stage.not_folded(process, start, length);
        }
    };

    // One page is requested, two folios are read, and the pages around it in one of them are mapped.
    let program = stage.spawn()?;
    let code = stage.map(program, map(&runs))?;
    let inside = 3 * page % EXECUTABLE;
    stage.op(program, fetch(code + EXECUTABLE + inside))?;
    stage.not_folded(program, code, EXECUTABLE);
    judged(stage, program, code + EXECUTABLE, EXECUTABLE);
    stage.not_folded(program, code + 2 * EXECUTABLE, length - 2 * EXECUTABLE);
    stage.not_written(program, code, length);
    stage.clean(program, code, length);
    stage.check(program, "ran")?;

    // The other of them needs no reading.
    stage.op(program, fetch(code + AHEAD))?;
    judged(stage, program, code + EXECUTABLE, AHEAD);
    stage.check(program, "beside")?;
    stage.holds_from(program, code + EXECUTABLE, AHEAD, EXECUTABLE)?;

    // A process that maps it as data has the same folios; data faults bring in single pages, of which no later mapping
    // makes a block.
    let reader = stage.spawn()?;
    let data = stage.map(reader, map(&reads))?;
    stage.op(reader, fetch(data + EXECUTABLE))?;
    stage.op(reader, fetch(data + 5 * EXECUTABLE))?;
    judged(stage, reader, data + EXECUTABLE, EXECUTABLE);
    stage.not_folded(reader, data + 4 * EXECUTABLE, 4 * EXECUTABLE);
    stage.op(program, fetch(code + 5 * EXECUTABLE))?;
    judged(stage, program, code + EXECUTABLE, AHEAD);
    stage.not_folded(program, code + 4 * EXECUTABLE, 4 * EXECUTABLE);
    stage.check(reader, "as data")?;
    stage.check(program, "late")?;
    stage.holds_from(program, code + 5 * EXECUTABLE, EXECUTABLE, 5 * EXECUTABLE)
}
