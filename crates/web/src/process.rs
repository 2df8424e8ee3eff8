//! Describes the process as the system sees it, by the names that Prometheus' own libraries give ("Writing client
//! libraries").

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::param::clock_ticks_per_second;
use rustix::process::{Resource, getrlimit};
use weir_http::Family;
use weir_statistics::process::{cpu_time, memory};

/// What the system tells.
pub(super) fn families(uptime_s: f64) -> Vec<Family> {
    let gauge = |name, help, number: u64| Family::gauge(name, help).with(&[], number);
    let (cpu, memory) = (cpu_time(), memory());
    let cpu_s = (cpu.user_ticks + cpu.system_ticks) as f64 / clock_ticks_per_second().max(1) as f64;
    let mut families = vec![
        Family::counter("process_cpu_seconds", "CPU time of all threads.").with(&[], cpu_s),
        gauge("process_resident_memory_bytes", "Memory in use.", memory.resident_bytes),
        gauge("process_virtual_memory_bytes", "Address space.", memory.virtual_bytes),
    ];
    if let Ok(entries) = fs::read_dir("/proc/self/fd") {
        // One of them reads the directory.
        let open = (entries.count() as u64).saturating_sub(1);
        families.push(gauge("process_open_fds", "File descriptors in use.", open));
        families.push(gauge("proxysql_fds_in_use", "File descriptors in use.", open));
    }
    if let Some(most) = getrlimit(Resource::Nofile).current {
        families.push(gauge("process_max_fds", "Maximum number of file descriptors.", most));
    }
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    let help = "Start time of Weir, in seconds since 1970.";
    families.push(Family::gauge("process_start_time_seconds", help).with(&[], (now_s - uptime_s).floor()));
    families
}
