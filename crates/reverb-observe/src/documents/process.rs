//! What the system tells of this process.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// Returns the memory of the process that is resident, in bytes. `None` where the system does not tell.
pub fn resident_bytes() -> Option<u64> {
    // The file exists on Linux only.
    let sizes = read_to_string("/proc/self/statm").ok()?;
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

/// Returns the memory that the process may use, in bytes: the lowest limit of its control groups, or the memory of the
/// machine. `None` where the system does not tell.
pub fn memory_limit() -> Option<u64> {
    let meminfo = read_to_string("/proc/meminfo").ok()?;
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let total = total.split_ascii_whitespace().next()?.parse::<u64>().ok()? * 1024;
    let groups = read_to_string("/proc/self/cgroup").unwrap_or_default();
    // A file of a group without a limit has the text `max` in version 2, and a huge number in version 1.
    let limit = |file: PathBuf| read_to_string(file).ok()?.trim().parse::<u64>().ok();
    Some(limit_files(&groups).into_iter().filter_map(limit).chain([total]).min().unwrap_or(total))
}

/// The files with the memory limits of the groups in `/proc/self/cgroup`, and of the groups that contain them.
fn limit_files(groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for group in groups.lines() {
        let mut parts = group.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (root, name) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|one| one == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let path = Path::new(path.trim_start_matches('/'));
        files.extend(path.ancestors().map(|group| Path::new(root).join(group).join(name)));
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_those_of_all_groups_up_to_the_root() {
        let files = limit_files("12:cpu,cpuacct:/job\n9:memory:/job\n0::/a/b\n");
        let names: Vec<_> = files.iter().map(|file| file.to_str().unwrap()).collect();
        let version_1 =
            ["/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
        let version_2 = ["/sys/fs/cgroup/a/b/memory.max", "/sys/fs/cgroup/a/memory.max", "/sys/fs/cgroup/memory.max"];
        assert_eq!(names, [&version_1[..], &version_2[..]].concat());
    }

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
