//! Runs sysbench's oltp_read_write beside the probes, and its errors.

use std::fs;
use std::path::Path;

use weir_lab::probe::{Target, meaning_of, of_commit};
use weir_lab::record::{Failure, Kind};
use weir_lab::{Error, Moment};
use weir_testkit::{Sysbench, SysbenchRun};

/// sysbench's transaction, and the errors told one by one.
const SCRIPT: &str = include_str!("scripts/load.lua");
/// Longer than any scenario: the run is ended from outside.
const TIME_S: u32 = 24 * 3600;
/// More errors of a run are not kept.
const FAILURES_MAX: usize = 50_000;

/// Which rows sysbench's threads read and change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Keys {
    /// As sysbench chooses: mostly the same few, so threads meet, and what one has read another changes
    Shared,
    /// Each thread has rows of its own: a transaction that runs again finds what it found before
    Own,
}

/// How much load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Amount {
    /// sysbench's threads; 0 for none at all.
    pub(crate) threads: u32,
    /// Transactions per second, all threads together; 0 for as many as possible.
    pub(crate) rate: u32,
    /// Tables.
    pub(crate) tables: u32,
    /// Rows in each.
    pub(crate) table_rows: u32,
    /// Which of them a thread works with.
    pub(crate) keys: Keys,
}

impl Amount {
    /// The run without a script: to make the tables.
    pub(crate) fn sysbench(self, workload: &str, target: Target) -> Sysbench {
        let Amount { threads, tables, table_rows, rate, keys: _ } = self;
        let extra = [format!("--rate={rate}"), "--report-interval=1".to_owned()];
        Sysbench {
            tables,
            table_rows,
            threads: threads.max(1),
            time_s: TIME_S,
            // Everything goes to the script.
            extra: extra.into_iter().chain(["--mysql-ignore-errors=".to_owned()]).collect(),
            ..Sysbench::new(workload, target.writes)
        }
    }

    /// Starts the load; `None` if there shall be none.
    pub(crate) fn start(self, target: Target, dir: &Path, name: &str) -> Result<Option<Load>, Error> {
        if self.threads == 0 {
            return Ok(None);
        }
        let script = dir.join("load.lua");
        fs::write(&script, SCRIPT).map_err(Error::io(format!("write {}", script.display())))?;
        let mut sysbench = self.sysbench(&script.display().to_string(), target);
        if self.keys == Keys::Own {
            sysbench.extra.push("--own-keys=on".to_owned());
        }
        Ok(Some(Load { run: sysbench.start(dir, name)? }))
    }
}

/// A running load.
#[derive(Debug)]
pub(crate) struct Load {
    run: SysbenchRun,
}

/// What a load has seen.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct LoadSeen {
    /// Transactions per second, a figure for each second.
    pub(crate) tps: Vec<f64>,
    /// Its errors.
    pub(crate) failures: Vec<Failure>,
}

impl Load {
    /// Ends it.
    pub(crate) fn finish(self) -> Result<LoadSeen, Error> {
        Ok(LoadSeen::parse(&self.run.stop()?))
    }
}

impl LoadSeen {
    fn parse(text: &str) -> LoadSeen {
        let mut seen = LoadSeen::default();
        for line in text.lines() {
            if let Some(failure) = line.strip_prefix("WEIR-ERROR ").and_then(failure) {
                if seen.failures.len() < FAILURES_MAX {
                    seen.failures.push(failure);
                }
            } else if let Some(tps) = line.split_once(" tps: ").and_then(|(_, rest)| rest.split(' ').next()) {
                seen.tps.extend(tps.parse::<f64>());
            }
        }
        seen
    }
}

/// `NS WHERE ERRNO SQLSTATE MESSAGE`, as the script writes it.
fn failure(line: &str) -> Option<Failure> {
    let mut words = line.splitn(5, ' ');
    let at = Moment(words.next()?.parse().ok()?);
    let lost = match words.next()? {
        "inside" => Kind::Inside,
        "commit" => Kind::Unknown,
        _ => Kind::Outside,
    };
    let (code, sqlstate) = (words.next()?.parse().ok()?, words.next()?);
    let message = words.next().unwrap_or_default();
    let kind = of_commit(meaning_of(code, sqlstate, message, lost), code, message, lost);
    let text = format!("error {code} ({sqlstate}): {message}");
    Some(Failure { at, kind, text, is_load: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_and_throughput_are_read_from_what_sysbench_prints() {
        let text = "\
Threads started!
[ 1s ] thds: 32 tps: 81.85 qps: 1963.45 (r/w/o: 1423.29/344.59/195.57) lat (ms,99%): 811.48 err/s: 0.00 reconn/s: 0.00
WEIR-ERROR 12000000034 commit 1053 08007 Lost connection to n1
WEIR-ERROR 12000000035 inside 1213 40001 Deadlock found; try again
WEIR-ERROR 12000000036 commit 1213 40001 Deadlock found; try again
WEIR-ERROR 12000000036 inside 1213 40001 n1 is read_only now: the transaction was rolled back
WEIR-ERROR 12000000037 outside 9001 HY000 no writer
WEIR-ERROR cut
[ 2s ] thds: 32 tps: 90.00 qps: 1963.45 (r/w/o: 1423.29/344.59/195.57) lat (ms,99%): 811.48 err/s: 0.00 reconn/s: 0.00
";
        let seen = LoadSeen::parse(text);
        assert_eq!(seen.tps, [81.85, 90.0]);
        let kinds: Vec<Kind> = seen.failures.iter().map(|failure| failure.kind).collect();
        assert_eq!(kinds, [Kind::Unknown, Kind::Deadlock, Kind::Deadlock, Kind::Inside, Kind::Outside]);
        assert_eq!(seen.failures[0].at, Moment(12_000_000_034));
        assert_eq!(seen.failures[0].text, "error 1053 (08007): Lost connection to n1");
    }
}
