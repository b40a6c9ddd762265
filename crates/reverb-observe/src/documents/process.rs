//! What the system tells of this process.

/// Returns the memory of the process that is resident, in bytes. `None` where the system does not tell.
pub fn resident_bytes() -> Option<u64> {
    // The file exists on Linux only.
    let sizes = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = sizes.split(' ').nth(1)?.parse().ok()?;
    // SAFETY: the call only returns a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Some(pages.saturating_mul(u64::try_from(page).ok()?))
}

/// Returns the processor time of all threads of the process in seconds. `None` where the system does not tell.
pub fn cpu_seconds() -> Option<f64> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to memory of the size of the structure.
    let told = unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
    // SAFETY: the structure consists of numbers, and all of its bytes were set.
    let usage = unsafe { usage.assume_init() };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    (told == 0).then(|| seconds(usage.ru_utime) + seconds(usage.ru_stime))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn the_system_tells_the_size_and_the_time_of_a_process() {
        let before = resident_bytes().unwrap();
        let memory = std::hint::black_box(vec![1_u8; 64 << 20]);
        assert!(resident_bytes().unwrap() > before + (32 << 20), "{before}");
        drop(memory);
        let begun = cpu_seconds().unwrap();
        while cpu_seconds().unwrap() < begun + 0.01 {
            std::hint::black_box(begun);
        }
    }
}
