//! The guest's memory by virtual addresses, as the CPU at hand has them.

use std::ffi::c_int;

use qemu_plugin::sys::{qemu_plugin_read_memory_vaddr, GByteArray};

// QEMU is linked with GLib, so both are there when it loads us.
extern "C" {
    fn g_byte_array_new() -> *mut GByteArray;
    /// With a `free_segment` that is not 0 its bytes as well.
    fn g_byte_array_free(array: *mut GByteArray, free_segment: c_int) -> *mut u8;
}

/// `count` bytes from `va` on; `None` where some of it is not mapped. It costs a walk of the tables.
///
/// The crate's own function hands QEMU the first two members of a `GByteArray` and no more, where GLib's
/// `g_byte_array_set_size()` reads, and may write by, those that lie behind.
pub fn read(va: u64, count: usize) -> Option<Vec<u8>> {
    // SAFETY: takes nothing; what it gives is ours until it is freed below.
    let array = unsafe { g_byte_array_new() };
    // SAFETY: the array is a whole one of GLib's; QEMU makes it as large as it has to be. This is called from callbacks of a
    // CPU alone, which is what QEMU reads by.
    let read = unsafe { qemu_plugin_read_memory_vaddr(va, array, count) };
    // SAFETY: `len` bytes from `data` on are the array's, and nobody else has it.
    let bytes = read.then(|| unsafe {
        std::slice::from_raw_parts((*array).data, (*array).len as usize).to_vec()
    });
    // SAFETY: ours, not freed before, and not used behind.
    unsafe { g_byte_array_free(array, 1) };
    bytes.filter(|bytes| bytes.len() == count)
}
