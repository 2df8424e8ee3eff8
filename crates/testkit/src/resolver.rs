//! Gives a test a resolver of its own: it sets what names mean to the processes that are started with it, and to
//! nobody else.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{TestkitError, not_run};

/// Nobody answers there, so that names which the file does not know fail at once.
const NOBODY: &str = "nameserver 127.255.255.253\noptions timeout:1 attempts:1\n";
/// Puts two files over those of the system, in a mount namespace of its own, and becomes another program.
const SCRIPT: &str =
    "mount --bind \"$1\" /etc/hosts && mount --bind \"$2\" /etc/resolv.conf && shift 2 && exec \"$@\"";

/// Files in place of `/etc/hosts` and `/etc/resolv.conf`, for the processes of [`OwnResolver::command`].
#[derive(Debug)]
pub struct OwnResolver {
    hosts: PathBuf,
    resolv_conf: PathBuf,
}

impl OwnResolver {
    /// Files named after `name` in `dir`. None, which is noted as not run, where there can be no mount namespace: that takes
    /// root.
    ///
    /// # Errors
    /// When the files can't be written.
    pub fn new(dir: &Path, name: &str) -> Result<Option<OwnResolver>, TestkitError> {
        let own = OwnResolver {
            hosts: dir.join(format!("{name}-hosts")),
            resolv_conf: dir.join(format!("{name}-resolv.conf")),
        };
        own.set(&[])?;
        write(&own.resolv_conf, NOBODY)?;
        let tried = own.command(Path::new("true")).output();
        let why = match tried {
            Ok(output) if output.status.success() => return Ok(Some(own)),
            Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
            Err(error) => format!("unshare: {error}"),
        };
        not_run("servers whose names change their meaning (no mount namespace for a resolver)", &why);
        Ok(None)
    }

    /// What names mean from now on. One that is named several times has several addresses.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn set(&self, names: &[(&str, IpAddr)]) -> Result<(), TestkitError> {
        let lines = names.iter().map(|(name, address)| format!("{address} {name}\n"));
        // In place, for it is mounted. Who reads it at the same moment finds less in it.
        write(&self.hosts, &lines.collect::<String>())
    }

    /// Other names are asked of this server (port 53) from now on, and its answer is waited for half a minute.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn ask(&self, nameserver: IpAddr) -> Result<(), TestkitError> {
        write(&self.resolv_conf, &format!("nameserver {nameserver}\noptions timeout:30 attempts:1\n"))
    }

    /// A program that goes by these files.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", SCRIPT, "sh"]);
        command.arg(&self.hosts).arg(&self.resolv_conf).arg(program);
        command
    }
}

fn write(path: &Path, text: &str) -> Result<(), TestkitError> {
    fs::write(path, text).map_err(TestkitError::io(format!("write {}", path.display())))
}
