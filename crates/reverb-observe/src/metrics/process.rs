//! The metrics of the process, with the names that all clients of Prometheus use, and the memory that it may use. Linux
//! tells them in `/proc`; elsewhere they are absent.

use super::families::{Family, Number, Writer};
use crate::documents::{cpu_seconds, memory_limit, resident_bytes};
use std::fmt::Result;
use std::fs::{read_dir, read_to_string};

const START_TIME: Family = Family::seconds("process_start_time", "Unix time at which the process was started.");
const CPU: Family = Family::seconds("process_cpu", "Processor time of the process.");
const RESIDENT: Family = Family::bytes("process_resident_memory", "Resident memory of the process.");
const MEMORY_LIMIT: Family = Family::bytes(
    "reverb_memory_limit",
    "Memory that the process may use: the lowest limit of its control groups, or the memory of the machine.",
);
const OPEN_FILES: Family = Family::plain("process_open_fds", "Open file descriptors.");
const MAX_FILES: Family = Family::plain("process_max_fds", "Maximum number of open file descriptors.");

/// Writes the metrics of this process.
pub fn write(writer: &mut Writer<'_>) -> Result {
    let one = |value: Option<Number>| value.map(|value| (&[][..], value)).into_iter();
    writer.counters(&CPU, one(cpu_seconds().map(Number::from)))?;
    writer.gauges(&START_TIME, one(start_time().map(Number::from)))?;
    writer.gauges(&RESIDENT, one(resident_bytes().map(Number::from)))?;
    writer.gauges(&MEMORY_LIMIT, one(memory_limit().map(Number::from)))?;
    // Without the descriptor with which the folder is read.
    let open_files = read_dir("/proc/self/fd").ok().map(|entries| (entries.count() as u64).saturating_sub(1));
    writer.gauges(&OPEN_FILES, one(open_files.map(Number::from)))?;
    writer.gauges(&MAX_FILES, one(max_files().map(Number::from)))
}

/// The Unix time in seconds at which the process was started.
fn start_time() -> Option<f64> {
    let stat = read_to_string("/proc/self/stat").ok()?;
    // The name of the program, which is in parentheses, may contain anything. The state, field 3, follows it.
    let ticks: u64 = stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(22 - 3)?.parse().ok()?;
    // SAFETY: the call only returns a number.
    let ticks_per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    Some(boot_time()? as f64 + ticks as f64 / ticks_per_second as f64)
}

/// The Unix time in seconds at which the machine was started.
fn boot_time() -> Option<u64> {
    let stat = read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

fn max_files() -> Option<u64> {
    let limits = read_to_string("/proc/self/limits").ok()?;
    limits.lines().find_map(|line| line.strip_prefix("Max open files"))?.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::seconds;
    use std::path::Path;
    use std::time::SystemTime;

    #[test]
    fn the_process_is_within_its_limit_and_has_started() {
        if Path::new("/proc/self/stat").exists() {
            assert!(resident_bytes().unwrap() < memory_limit().unwrap());
            let now = seconds(SystemTime::now());
            let started = start_time().unwrap();
            assert!(started <= now && started > now - 86_400.0, "{started} {now}");
        }
    }
}
