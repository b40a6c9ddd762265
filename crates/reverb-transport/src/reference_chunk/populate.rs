//! Memory that is about to be written to.

/// Below this size the call costs more than it saves.
const LEAST_BYTES: usize = 64 << 10;

/// Asks the system for the pages of new memory in one call. One by one, as they are written to, they take half as long
/// again. Where the system does not know the call, they come one by one.
pub fn populate(memory: &mut [u8]) {
    #[cfg(target_os = "linux")]
    if memory.len() >= LEAST_BYTES {
        // Smaller pages than the machine's are refused, which does no harm.
        const PAGE: usize = 4096;
        let start = memory.as_mut_ptr();
        let skip = start.align_offset(PAGE);
        let size = (memory.len() - skip) & !(PAGE - 1);
        // SAFETY: the range lies within `memory`, which is borrowed for writing; the call changes no content.
        unsafe {
            libc::madvise(start.add(skip).cast(), size, libc::MADV_POPULATE_WRITE);
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _elsewhere = memory;
}
