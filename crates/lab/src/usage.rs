//! Reads what a process takes: memory and CPU time, as the kernel counts them (proc(5)).

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::Error;

/// How often memory is looked at for its peak.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// A process of this machine, by its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage(u32);

impl Usage {
    /// That of this process.
    pub fn of(pid: u32) -> Usage {
        Usage(pid)
    }

    /// Resident memory, KiB (`VmRSS` of `status`).
    ///
    /// # Errors
    /// If the process has ended.
    pub fn rss_kib(self) -> Result<u64, Error> {
        let status = self.file("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix("kB"));
        line.and_then(|kib| kib.trim().parse().ok()).ok_or_else(|| self.has_ended())
    }

    /// CPU time used so far by all threads, user and system (`utime` + `stime` of `stat`). Its resolution is the kernel's
    /// clock tick, 10 ms.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn cpu_time(self) -> Result<Duration, Error> {
        cpu_time(&self.file("stat")?).ok_or_else(|| self.has_ended())
    }

    /// The same of the threads whose names begin so; those that have ended are left out.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn cpu_time_of(self, threads: &str) -> Result<Duration, Error> {
        let stats = self.of_threads("stat")?;
        let is_wanted =
            |stat: &&String| stat.split_once('(').is_some_and(|(_, name)| name.starts_with(threads));
        Ok(stats.iter().filter(is_wanted).filter_map(|stat| cpu_time(stat)).sum())
    }

    /// CPU time used so far by the threads that run now, in the kernel's nanoseconds (`schedstat`, first field): ticks of
    /// 10 ms are too coarse for a process that does nothing.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn run_time(self) -> Result<Duration, Error> {
        let sum_ns = self.of_threads("schedstat")?.iter().filter_map(|text| run_time_ns(text)).sum();
        Ok(Duration::from_nanos(sum_ns))
    }

    /// Does something and gives the most resident memory that the process had meanwhile, KiB, too.
    pub fn with_peak<T>(self, work: impl FnOnce() -> T) -> (u64, T) {
        let (is_done, peak_kib) = (AtomicBool::new(false), AtomicU64::new(0));
        let look = || peak_kib.fetch_max(self.rss_kib().unwrap_or_default(), Ordering::Relaxed);
        let result = thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    look();
                    thread::sleep(LOOK_INTERVAL);
                }
            });
            let result = work();
            is_done.store(true, Ordering::Relaxed);
            result
        });
        look();
        (peak_kib.load(Ordering::Relaxed), result)
    }

    fn file(self, name: &str) -> Result<String, Error> {
        let path = format!("/proc/{}/{name}", self.0);
        fs::read_to_string(&path).map_err(Error::io(format!("read {path}")))
    }

    /// This file of every thread; one that has ended meanwhile has none.
    fn of_threads(self, name: &str) -> Result<Vec<String>, Error> {
        let path = format!("/proc/{}/task", self.0);
        let tasks = fs::read_dir(&path).map_err(Error::io(format!("read {path}")))?;
        let files = tasks.filter_map(Result::ok).map(|task| task.path().join(name));
        Ok(files.filter_map(|file| fs::read_to_string(file).ok()).collect())
    }

    fn has_ended(self) -> Error {
        Error::Failed(format!("process {} is not running", self.0))
    }
}

/// User and system time of a process or thread, by its `stat`.
fn cpu_time(stat: &str) -> Option<Duration> {
    // The second field, the name, may itself contain spaces and parentheses.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut times = rest.split_whitespace().skip(11);
    let ticks = times.next()?.parse::<u64>().ok()? + times.next()?.parse::<u64>().ok()?;
    Some(Duration::from_secs(ticks) / u32::try_from(rustix::param::clock_ticks_per_second()).unwrap_or(100))
}

fn run_time_ns(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_at_least_what_is_there() {
        let (peak_kib, result) = Usage::of(std::process::id()).with_peak(|| 7);
        assert_eq!(result, 7);
        assert!(peak_kib > 0);
    }

    #[test]
    fn this_process_has_memory_and_has_used_time() {
        let own = Usage::of(std::process::id());
        assert!(own.rss_kib().unwrap() > 0);
        assert!(own.run_time().unwrap() > Duration::ZERO);
        assert!(own.cpu_time().unwrap() >= own.cpu_time_of("no such thread").unwrap());
        // No process has this id: it is greater than the kernel's limit.
        assert!(Usage::of(u32::MAX).cpu_time().is_err());
    }

    #[test]
    fn times_are_found_behind_a_name_with_parentheses() {
        let stat = "12 (a) b) c) S 1 2 3 4 5 6 7 8 9 10 100 50 0";
        let ticks = u32::try_from(rustix::param::clock_ticks_per_second()).unwrap();
        assert_eq!(cpu_time(stat), Some(Duration::from_secs(150) / ticks));
        assert_eq!(cpu_time("12 (weir) S 1"), None);
    }

    #[test]
    fn run_time_is_the_first_field() {
        assert_eq!(run_time_ns("1234567 89 10\n"), Some(1_234_567));
        assert_eq!(run_time_ns(""), None);
    }
}
