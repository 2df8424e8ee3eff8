//! What the figures were measured on.

use std::fmt;
use std::fs;
use std::process::Command;

use serde::Serialize;
use weir_testkit::{Galera, preflight};

use crate::error::BenchError;

/// The machine and the versions of everything that is compared.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Machine {
    /// CPUs that this process may use; servers, proxy and sysbench share them.
    pub(crate) cpus: usize,
    /// The CPU's name as the kernel gives it.
    pub(crate) cpu: String,
    /// Linux's release.
    pub(crate) kernel: String,
    /// `SELECT VERSION()`.
    pub(crate) mariadb: String,
    /// The first line of `haproxy -v`.
    pub(crate) haproxy: String,
    /// `sysbench --version`.
    pub(crate) sysbench: String,
}

impl Machine {
    /// Asks the system, the cluster and the programs.
    pub(crate) fn observe(cluster: &Galera) -> Result<Machine, BenchError> {
        let rows = cluster.node(1).root_query("SELECT VERSION()")?;
        Ok(Machine {
            cpus: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            cpu: cpu_name(),
            kernel: kernel_release(),
            mariadb: rows.into_iter().flatten().next().unwrap_or_default(),
            haproxy: first_line("haproxy", "-v"),
            sysbench: first_line("sysbench", "--version"),
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "--- {} x {}, Linux {}", self.cpus, self.cpu, self.kernel)?;
        write!(f, "    MariaDB {}; {}; {}", self.mariadb, self.haproxy, self.sysbench)
    }
}

fn kernel_release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

fn cpu_name() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    name.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}

/// Empty if the program can't be asked: a version is worth no failure.
fn first_line(program: &'static str, argument: &str) -> String {
    let Ok(path) = preflight::program(program, program) else { return String::new() };
    let Ok(output) = Command::new(path).arg(argument).output() else { return String::new() };
    String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned()
}
