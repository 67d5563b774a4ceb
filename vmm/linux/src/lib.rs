//! What the rig knows of the Linux guest it judges.
//!
//! Pure functions over bytes, text and guest memory: kernel images and what they were packed in ([`image`]), a vmlinux's
//! symbols ([`symbols`]) or the kernel's own in its memory ([`kallsyms`]), `/proc/PID/maps` ([`vma`]), the kernel's record of
//! why it chose a folio's order ([`order`]), pages and their folios ([`folio`]), what its own getters say ([`getters`]), what it counts of all memory ([`counted`]), of one
//! file ([`cache`]) and of contiguous blocks ([`contpte`]), Linux's own reading of a descriptor ([`pte`]), and the name of one
//! that is not present ([`absent`]).
//! Nothing here decides what is right or wrong; that is the crate `verdict`.

pub mod absent;
pub mod cache;
pub mod contpte;
pub mod counted;
pub mod folio;
pub mod getters;
pub mod image;
pub mod kallsyms;
pub mod kernel_memory;
pub mod order;
pub mod pte;
pub mod release;
pub mod symbols;
pub mod vma;
