//! Reads the logs of servers and proxies while they are written, and notes when their lines appeared.
//!
//! A line's own time has a resolution of a second in MariaDB's log. Asking the servers instead would add to the load
//! whose pauses are measured.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::Moment;
use crate::record::{Mark, Source};

/// How exactly a line's time is known.
const INTERVAL: Duration = Duration::from_millis(2);
/// More marks are of no use to anybody.
const MARKS_MAX: usize = 5_000;

/// A log that grows.
#[derive(Debug)]
pub struct Log {
    /// Whose.
    pub source: Source,
    /// Where.
    pub path: PathBuf,
}

/// A thread that reads logs from their present ends on.
#[derive(Debug)]
pub struct Watch {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<Mark>>>,
}

impl Watch {
    /// Starts it.
    pub fn start(logs: Vec<Log>) -> Watch {
        let stop = Arc::new(AtomicBool::new(false));
        let thread = {
            let stop = Arc::clone(&stop);
            let mut tails: Vec<Tail> = logs.into_iter().map(Tail::at_end).collect();
            thread::spawn(move || {
                let mut marks = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    tails.iter_mut().for_each(|tail| tail.read(&mut marks));
                    thread::sleep(INTERVAL);
                }
                tails.iter_mut().for_each(|tail| tail.read(&mut marks));
                marks
            })
        };
        Watch { stop, thread: Some(thread) }
    }

    /// What was said, in the order of time.
    pub fn finish(mut self) -> Vec<Mark> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

struct Tail {
    log: Log,
    position: u64,
    /// The beginning of a line whose end is not there yet.
    rest: String,
}

impl Tail {
    fn at_end(log: Log) -> Tail {
        let position = std::fs::metadata(&log.path).map_or(0, |meta| meta.len());
        Tail { log, position, rest: String::new() }
    }

    fn read(&mut self, marks: &mut Vec<Mark>) {
        let length = std::fs::metadata(&self.log.path).map_or(0, |meta| meta.len());
        if length <= self.position {
            return;
        }
        let at = Moment::now();
        let mut bytes = Vec::new();
        let read = File::open(&self.log.path).and_then(|mut file| {
            file.seek(SeekFrom::Start(self.position))?;
            file.take(length - self.position).read_to_end(&mut bytes)
        });
        // What can't be read now is read next time.
        let Ok(count) = read else { return };
        self.position += count as u64;
        self.rest.push_str(&String::from_utf8_lossy(&bytes));
        while let Some(end) = self.rest.find('\n') {
            let line: String = self.rest.drain(..=end).collect();
            let said = match self.log.source {
                Source::Server(_) => server_says(&line),
                _ => weir_says(&line),
            };
            if let Some(text) = said.filter(|_| marks.len() < MARKS_MAX) {
                marks.push(Mark { at, text, source: self.log.source });
            }
        }
    }
}

/// The text of a mark for a view of the group: with quorum, and without.
pub const VIEW: &str = "new view";
/// The same without quorum.
pub const LOST_QUORUM: &str = "no quorum";
/// The text of a mark for a node that has caught up.
pub const SYNCED: &str = "synced";
/// The same for one that gives its data to another.
pub const DONOR: &str = "donor";

/// What is worth a mark in the log of a MariaDB or MySQL server.
fn server_says(line: &str) -> Option<String> {
    if let Some((_, rest)) = line.split_once("New COMPONENT: primary = ") {
        let members = rest.rsplit_once("memb_num = ").map_or("?", |(_, count)| count.trim());
        return Some(match rest.starts_with("yes") {
            true => format!("{VIEW} of {members}"),
            false => format!("{LOST_QUORUM}: view of {members}"),
        });
    }
    let shifts = line.split_once("Shifting ").map(|(_, shift)| shift);
    if shifts.is_some_and(|shift| shift.contains("-> SYNCED")) {
        return Some(SYNCED.to_owned());
    }
    if shifts.is_some_and(|shift| shift.contains("-> DONOR/DESYNCED")) {
        return Some(DONOR.to_owned());
    }
    // Group Replication: the member that becomes primary says so when it has applied everything (MY-011510).
    line.contains("This server is working as primary member").then(|| format!("{VIEW}: primary"))
}

/// Whether it is "hostgroup 100 127.0.0.52:3306: writer: ...", as Weir logs it.
pub fn is_new_writer(text: &str) -> bool {
    text.starts_with("hostgroup ") && text.contains(": writer: ")
}

/// The parts of Weir that decide about servers.
const TELLERS: [&str; 3] = ["topology_thread: ", "switchover: ", "evictor: "];

/// What Weir says of roles and evictions.
fn weir_says(line: &str) -> Option<String> {
    if !(line.contains(" INFO ") || line.contains(" WARN ")) {
        return None;
    }
    let (_, said) = TELLERS.iter().find_map(|teller| line.split_once(teller))?;
    Some(said.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn lines_that_matter_become_marks() {
        let line = "2026-11-21 12:00:00 0 [Note] WSREP: New COMPONENT: primary = yes, bootstrap = no, my_idx = 0, memb_num = 2\n";
        assert_eq!(server_says(line).as_deref(), Some("new view of 2"));
        assert_eq!(server_says(&line.replace("yes", "no")).as_deref(), Some("no quorum: view of 2"));
        let line = "0 [Note] WSREP: Shifting JOINED -> SYNCED (TO: 1234)\n";
        assert_eq!(server_says(line).as_deref(), Some(SYNCED));
        assert_eq!(server_says("ready for connections\n"), None);
        let line = "2026-11-21T09:05:15.3Z  INFO weir_monitor::topology_thread: hostgroup 20 n1: backup writer: could write\n";
        assert_eq!(weir_says(line).as_deref(), Some("hostgroup 20 n1: backup writer: could write"));
    }

    #[test]
    fn a_log_is_read_from_its_end_on_and_in_whole_lines() {
        let path = std::env::temp_dir().join(format!("weir-failover-watch-{}", std::process::id()));
        std::fs::write(&path, "x topology_thread: hostgroup INFO old\n").unwrap();
        let mut tail = Tail::at_end(Log { source: Source::Proxy(1), path: path.clone() });
        let mut file = File::options().append(true).open(&path).unwrap();
        let mut marks = Vec::new();
        file.write_all(b" INFO weir_monitor::topology_thread: on").unwrap();
        tail.read(&mut marks);
        assert!(marks.is_empty());
        file.write_all(b"e\n INFO weir_monitor::topology_thread: two\n").unwrap();
        tail.read(&mut marks);
        let said: Vec<&str> = marks.iter().map(|mark| mark.text.as_str()).collect();
        assert_eq!(said, ["one", "two"]);
        std::fs::remove_file(&path).unwrap();
    }
}
