//! Describes the machine on which the figures were measured.

use std::fmt;
use std::fs;
use std::process::Command;

use crate::{Galera, TestkitError, preflight};
use serde::Serialize;

/// The programs that are compared or that compare, and the option that makes them tell their version.
const PROGRAMS: [(&str, &str); 3] = [("haproxy", "-v"), ("proxysql", "--version"), ("sysbench", "--version")];

/// The machine and the versions of everything that is compared.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// CPUs that this process may use; servers, proxy and sysbench share them.
    pub cpus: usize,
    /// The CPU's name as the kernel gives it.
    pub cpu: String,
    /// Linux's release.
    pub kernel: String,
    /// `SELECT VERSION()`.
    pub mariadb: String,
    /// First lines of what the other programs say of themselves; those that are not installed are not there.
    pub versions: Vec<String>,
}

impl Machine {
    /// Asks the system, the cluster and the programs.
    pub fn observe(cluster: &Galera) -> Result<Machine, TestkitError> {
        let rows = cluster.node(1).root_query("SELECT VERSION()")?;
        Ok(Machine {
            cpus: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            cpu: cpu_name(),
            kernel: kernel_release(),
            mariadb: rows.into_iter().flatten().next().unwrap_or_default(),
            versions: PROGRAMS.iter().filter_map(|(program, option)| first_line(program, option)).collect(),
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let versions: String = self.versions.iter().map(|version| format!("; {version}")).collect();
        write!(f, "{} x {}, Linux {}; MariaDB {}{versions}", self.cpus, self.cpu, self.kernel, self.mariadb)
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

/// `None` if the program can't be asked: a version is worth no failure.
fn first_line(program: &str, option: &str) -> Option<String> {
    let path = preflight::program(program, "").ok()?;
    let output = Command::new(path).arg(option).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    // HAProxy adds its address.
    let line = text.lines().next()?.split(" - https").next()?;
    Some(line.to_owned())
}
