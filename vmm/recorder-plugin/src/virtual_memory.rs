// SPDX-License-Identifier: GPL-2.0-only
//! Reads the guest's memory by virtual addresses, as the current CPU translates them.

use std::ffi::c_int;

use qemu_plugin::sys::{qemu_plugin_read_memory_vaddr, GByteArray};

// QEMU is linked with GLib, so both are there when it loads us.
extern "C" {
    fn g_byte_array_new() -> *mut GByteArray;
    /// Frees the array, and with a `free_segment` that is not 0 its bytes as well.
    fn g_byte_array_free(array: *mut GByteArray, free_segment: c_int) -> *mut u8;
}

/// Returns `count` bytes from `va` on; `None` if some of it is not mapped. It costs a walk of the tables.
///
/// The crate's own function passes QEMU only the first two members of a `GByteArray`. GLib's `g_byte_array_set_size()`
/// reads, and may write through, those that lie behind.
pub fn read(va: u64, count: usize) -> Option<Vec<u8>> {
    // SAFETY: takes nothing; the result is ours until it is freed below.
    let array = unsafe { g_byte_array_new() };
    // SAFETY: the array is a whole one of GLib's; QEMU makes it as large as necessary. This is only called from
    // callbacks of a CPU, whose translation QEMU reads by.
    let read = unsafe { qemu_plugin_read_memory_vaddr(va, array, count) };
    // SAFETY: `len` bytes from `data` on are the array's, and no other code has it.
    let bytes = read.then(|| unsafe {
        std::slice::from_raw_parts((*array).data, (*array).len as usize).to_vec()
    });
    // SAFETY: ours, not freed before, and not used behind.
    unsafe { g_byte_array_free(array, 1) };
    bytes.filter(|bytes| bytes.len() == count)
}
