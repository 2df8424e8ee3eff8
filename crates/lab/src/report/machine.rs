//! Describes the machine on which the figures were measured.

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde::Serialize;

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
    /// Asks the system and the programs, each with the option that makes it tell its version; `mariadb` is what the
    /// servers say of theirs.
    pub fn observe<'p>(mariadb: &str, programs: impl IntoIterator<Item = (&'p Path, &'p str)>) -> Machine {
        Machine {
            cpus: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            cpu: cpu_name(),
            kernel: kernel_release(),
            mariadb: mariadb.to_owned(),
            versions: programs.into_iter().filter_map(|(path, option)| first_line(path, option)).collect(),
        }
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
fn first_line(program: &Path, option: &str) -> Option<String> {
    let output = Command::new(program).arg(option).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    // HAProxy adds its address.
    let line = text.lines().next()?.split(" - https").next()?;
    Some(line.to_owned())
}
