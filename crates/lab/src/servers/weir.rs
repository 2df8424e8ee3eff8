//! Runs a Weir in front of servers, gives it orders by its command line, and reads what it says of its servers.

use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use weir_testkit::{Process, Weir, WeirConfig, hostgroup};

use super::Servers;
use crate::Error;
use crate::probe::Target;

/// A running Weir and the binary that gives it orders; ended with it.
#[derive(Debug)]
pub struct RunningWeir {
    weir: Weir,
    binary: PathBuf,
    log_path: PathBuf,
}

/// What an order of Weir's command line has come to.
#[derive(Debug)]
pub struct Told {
    /// Whether it exited with 0.
    pub succeeded: bool,
    /// What it printed, errors last.
    pub text: String,
}

impl RunningWeir {
    /// Starts one; its files go into `dir`, named after `name`. It need not know its servers yet.
    pub fn start(binary: PathBuf, config: &WeirConfig, dir: &Path, name: &str) -> Result<RunningWeir, Error> {
        let weir = Weir::start(&binary, config, dir, name)?;
        Ok(RunningWeir { weir, binary, log_path: log_path(dir, name) })
    }

    /// The same in a network namespace.
    pub fn start_in(
        namespace: &str,
        binary: PathBuf,
        config: &WeirConfig,
        dir: &Path,
        name: &str,
    ) -> Result<RunningWeir, Error> {
        let weir = Weir::start_in(namespace, &binary, config, dir, name)?;
        Ok(RunningWeir { weir, binary, log_path: log_path(dir, name) })
    }

    /// Kills it and starts it again with the same configuration, at once.
    pub fn restart(self) -> Result<RunningWeir, Error> {
        let RunningWeir { weir, binary, log_path } = self;
        Ok(RunningWeir { weir: weir.restart(&binary)?, binary, log_path })
    }

    /// Writes another configuration over its file, and has it read that. Returns at once.
    pub fn reload(&self, config: &WeirConfig) -> Result<(), Error> {
        Ok(self.weir.reload(config)?)
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddrV4 {
        self.weir.addr()
    }

    /// The same, for writes as for reads.
    pub fn target(&self) -> Target {
        Target { writes: self.address(), reads: self.address() }
    }

    /// Its process.
    pub fn process(&self) -> &Process {
        self.weir.process()
    }

    /// Its log.
    pub fn log_path(&self) -> &Path {
        &self.log_path
    }

    /// How often its log has this text.
    pub fn times_logged(&self, text: &str) -> usize {
        self.weir.log().matches(text).count()
    }

    /// Runs `weir ARGUMENTS` with its configuration.
    pub fn tell(&self, arguments: &[&str]) -> Result<Told, Error> {
        let mut command = Command::new(&self.binary);
        command.args(arguments).arg("-c").arg(self.weir.config_path());
        let output = command.output().map_err(Error::io("run weir"))?;
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            text.push_str(&String::from_utf8_lossy(&output.stderr));
        }
        Ok(Told { succeeded: output.status.success(), text: text.trim().to_owned() })
    }

    /// `weir status --json`.
    pub fn status(&self) -> Result<Value, Error> {
        let Told { text, .. } = self.tell(&["status", "--json"])?;
        serde_json::from_str(&text)
            .map_err(|_| Error::Answer { what: "weir status --json".to_owned(), answer: text })
    }

    /// The writer of the first cluster, if there is one now.
    pub fn writer(&self) -> Result<Option<SocketAddrV4>, Error> {
        let status = self.status()?;
        let writer = status["clusters"][0]["writers"][0].as_str();
        Ok(writer.and_then(|text| text.parse().ok()))
    }

    /// Servers that read now.
    pub fn readers(&self) -> Result<Vec<SocketAddrV4>, Error> {
        let status = self.status()?;
        let servers = status["servers"].as_array().cloned().unwrap_or_default();
        let reads = |server: &&Value| {
            server["hostgroup"].as_i64() == Some(hostgroup::READER)
                && server["status"].as_str().is_some_and(|status| status.eq_ignore_ascii_case("online"))
        };
        let address = |server: &Value| server["server"].as_str()?.parse().ok();
        Ok(servers.iter().filter(reads).filter_map(address).collect())
    }

    /// `weir donor`: what a node that joins has as its `wsrep_sst_donor`.
    pub fn donors(&self) -> Result<String, Error> {
        let told = self.tell(&["donor", &RunningWeir::hostgroup()])?;
        match told.succeeded {
            true => Ok(told.text),
            false => Err(Error::Answer { what: "weir donor".to_owned(), answer: told.text }),
        }
    }

    /// The hostgroup that orders name.
    pub fn hostgroup() -> String {
        hostgroup::WRITER.to_string()
    }
}

impl Servers {
    /// A configuration in front of them: read/write split, for the user app.
    pub fn weir_config(&self, listen: SocketAddrV4) -> WeirConfig {
        let addresses: Vec<SocketAddrV4> = self.all().iter().map(|server| server.address).collect();
        match self {
            Servers::Galera(_) => WeirConfig::for_servers(&addresses, listen),
            Servers::Group(_) => WeirConfig::for_group(&addresses, listen),
            Servers::Replication(_) => WeirConfig::for_replication(&addresses, listen),
        }
    }
}

fn log_path(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.log"))
}
