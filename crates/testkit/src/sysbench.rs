//! Runs sysbench, and reads its reports.

use std::fs::{self, File};
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::process::{Process, log_tail, run_checked};
use crate::{Account, TestkitError, preflight};

/// The longest that filling the tables may take.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(300);
/// A run that does not end this long after its time is stuck.
const GRACE: Duration = Duration::from_secs(30);

/// One of sysbench's workloads against one address, in the text protocol.
#[derive(Debug, Clone)]
pub struct Sysbench {
    /// As in "oltp_point_select", or the path of a script.
    pub workload: String,
    /// Where to connect.
    pub server: SocketAddrV4,
    /// Who connects.
    pub account: Account,
    /// The schema with the tables.
    pub schema: String,
    /// How many tables.
    pub tables: u32,
    /// Rows per table.
    pub table_rows: u32,
    /// Connections, each with a thread.
    pub threads: u32,
    /// How long to run.
    pub time_s: u32,
    /// Further arguments, as in "--db-ps-mode=auto" or "--mysql-ignore-errors=1213".
    pub extra: Vec<String>,
    /// Where it runs: with `--mysql-ssl=on` it reads `cacert.pem`, `client-cert.pem` and `client-key.pem` there.
    pub working_dir: Option<PathBuf>,
}

impl Sysbench {
    /// A workload with one table of 10 000 rows in the schema sbtest, as app, 4 threads, 5 s.
    pub fn new(workload: &str, server: SocketAddrV4) -> Sysbench {
        Sysbench {
            workload: workload.to_owned(),
            server,
            account: Account::APP,
            schema: "sbtest".to_owned(),
            tables: 1,
            table_rows: 10_000,
            threads: 4,
            time_s: 5,
            extra: Vec::new(),
            working_dir: None,
        }
    }

    /// Makes and fills the tables.
    pub fn prepare(&self) -> Result<(), TestkitError> {
        run_checked("sysbench prepare", self.command()?.arg("prepare"), PREPARE_TIMEOUT).map(drop)
    }

    /// Starts a run and returns at once, so that something can happen meanwhile. Its output goes to
    /// `DIR/NAME.log`.
    pub fn start(&self, dir: &Path, name: &str) -> Result<SysbenchRun, TestkitError> {
        let log_path = dir.join(format!("{name}.log"));
        let doing = || TestkitError::io(format!("write {}", log_path.display()));
        File::create(&log_path).map_err(doing())?;
        let mut command = self.command()?;
        let process = Process::spawn_logged(name, command.arg("run"), &log_path)?;
        Ok(SysbenchRun { process, log_path, time_s: self.time_s })
    }

    fn command(&self) -> Result<Command, TestkitError> {
        let mut command = Command::new(preflight::program("sysbench", "sysbench")?);
        command.arg(&self.workload).args([
            "--db-driver=mysql".to_owned(),
            "--db-ps-mode=disable".to_owned(),
            "--percentile=99".to_owned(),
            format!("--mysql-host={}", self.server.ip()),
            format!("--mysql-port={}", self.server.port()),
            format!("--mysql-user={}", self.account.user),
            format!("--mysql-password={}", self.account.password),
            format!("--mysql-db={}", self.schema),
            format!("--tables={}", self.tables),
            format!("--table-size={}", self.table_rows),
            format!("--threads={}", self.threads),
            format!("--time={}", self.time_s),
        ]);
        command.args(&self.extra);
        if let Some(dir) = &self.working_dir {
            command.current_dir(dir);
        }
        Ok(command)
    }
}

/// A run that was started with [`Sysbench::start`]; dropping it kills it.
#[derive(Debug)]
pub struct SysbenchRun {
    process: Process,
    log_path: PathBuf,
    time_s: u32,
}

impl SysbenchRun {
    /// Kills it and returns everything it has printed.
    ///
    /// # Errors
    /// If it has ended by itself.
    pub fn stop(self) -> Result<String, TestkitError> {
        if let Some(status) = self.process.exit_status() {
            return Err(TestkitError::ServerExited {
                name: "sysbench".to_owned(),
                status: status.to_string(),
                log_tail: log_tail(&self.log_path, 15),
            });
        }
        self.process.kill();
        let doing = TestkitError::io(format!("read {}", self.log_path.display()));
        Ok(String::from_utf8_lossy(&fs::read(&self.log_path).map_err(doing)?).into_owned())
    }

    /// Waits for its end and reads its report.
    pub fn wait(self) -> Result<SysbenchReport, TestkitError> {
        let timeout = Duration::from_secs(u64::from(self.time_s)) + GRACE;
        let status = self.process.wait_exit(timeout).ok_or_else(|| TestkitError::Timeout {
            what: "the end of sysbench".to_owned(),
            timeout_s: timeout.as_secs_f64(),
            details: String::new(),
        })?;
        if !status.success() {
            return Err(TestkitError::ProgramFailed {
                program: "sysbench".to_owned(),
                status: status.to_string(),
                output: log_tail(&self.log_path, 15),
            });
        }
        let doing = TestkitError::io(format!("read {}", self.log_path.display()));
        SysbenchReport::parse(&fs::read_to_string(&self.log_path).map_err(doing)?)
    }
}

/// The numbers at the end of a sysbench run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SysbenchReport {
    /// Statements that were answered: reads, writes, and others such as BEGIN and COMMIT.
    pub statements: u64,
    /// Transactions (sysbench's events) that were completed.
    pub transactions: u64,
    /// Errors that the workload's options told it to ignore, each of which repeats a transaction.
    pub ignored_errors: u64,
    /// Connections that were made again.
    pub reconnects: u64,
    /// The time all of this took, seconds.
    pub time_s: f64,
    /// Mean latency of a transaction, milliseconds.
    pub latency_avg_ms: f64,
    /// 99th percentile of a transaction's latency, milliseconds.
    pub latency_p99_ms: f64,
    /// Longest latency of a transaction, milliseconds.
    pub latency_max_ms: f64,
}

impl SysbenchReport {
    /// Statements per second.
    pub fn statements_per_s(&self) -> f64 {
        self.statements as f64 / self.time_s
    }

    /// Reads sysbench's report (version 1.0) out of all that it printed.
    pub fn parse(text: &str) -> Result<SysbenchReport, TestkitError> {
        let number = |label: &str| number_after(text, label);
        Ok(SysbenchReport {
            statements: number("queries:")? as u64,
            transactions: number("transactions:")? as u64,
            ignored_errors: number("ignored errors:")? as u64,
            reconnects: number("reconnects:")? as u64,
            time_s: number("total time:")?,
            latency_avg_ms: number("avg:")?,
            latency_p99_ms: number("99th percentile:")?,
            latency_max_ms: number("max:")?,
        })
    }
}

fn number_after(text: &str, label: &str) -> Result<f64, TestkitError> {
    let value = text
        .lines()
        .find_map(|line| line.trim().strip_prefix(label))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|word| word.trim_end_matches('s').parse().ok());
    value.ok_or_else(|| TestkitError::ProgramFailed {
        program: "sysbench".to_owned(),
        status: format!("its report has no {label:?}"),
        output: crate::process::tail(text, 15),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "\
Running the test with following options:
Number of threads: 4

SQL statistics:
    queries performed:
        read:                            1400
        write:                           400
        other:                           200
        total:                           2000
    transactions:                        100    (15.29 per sec.)
    queries:                             2000   (305.89 per sec.)
    ignored errors:                      3      (0.00 per sec.)
    reconnects:                          1      (0.00 per sec.)

General statistics:
    total time:                          6.5370s
    total number of events:              100

Latency (ms):
         min:                                   61.04
         avg:                                   65.33
         max:                                   87.57
         99th percentile:                       70.55
         sum:                                 6532.83
";

    #[test]
    fn a_report_is_read() {
        let report = SysbenchReport::parse(REPORT).unwrap();
        assert_eq!((report.statements, report.transactions), (2000, 100));
        assert_eq!((report.ignored_errors, report.reconnects), (3, 1));
        assert_eq!(
            (report.latency_avg_ms, report.latency_p99_ms, report.latency_max_ms),
            (65.33, 70.55, 87.57)
        );
        assert!((report.statements_per_s() - 305.95).abs() < 0.01);
    }

    #[test]
    fn a_cut_report_is_an_error_that_names_what_is_missing() {
        let cut = REPORT.split("Latency").next().unwrap();
        assert!(SysbenchReport::parse(cut).unwrap_err().to_string().contains("avg:"));
    }
}
