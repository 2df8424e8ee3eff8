//! Starts Weirs in front of a stage's servers, and gives them orders.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::process::Command;

use weir_lab::Error;
use weir_lab::servers::Servers;
use weir_testkit::{Account, Weir, WeirConfig, hostgroup, preflight};

use crate::place::{Level, Setting, WRITER_ONLY, Way};
use crate::stage::Stage;

/// The longest that Weir may take to know a writer and its readers.
const READY_TIMEOUT_S: u64 = 60;
/// How long a switchover lets transactions end, milliseconds.
const GRACE_MS: &str = "2000";
/// What replicas replicate with.
const REPLICATION: &str = "replication";

/// What distinguishes one Weir from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    /// Nothing.
    Plain,
    /// `reads = fastest`.
    Fastest,
    /// Every connection to a server has this setting.
    Servers(Setting),
}

impl Variant {
    /// The one that a way needs.
    pub(crate) fn of(way: Way) -> Variant {
        match way {
            Way::At(_) | Way::WriterOnly => Variant::Plain,
            Way::Fastest => Variant::Fastest,
            Way::Servers(setting) => Variant::Servers(setting),
        }
    }
}

/// A running Weir, whose users are the levels.
#[derive(Debug)]
pub(crate) struct RunningWeir {
    weir: Weir,
    binary: PathBuf,
}

impl RunningWeir {
    /// Starts one; returns when it knows a writer and all readers.
    pub(crate) fn start(stage: &Stage<'_>, variant: Variant) -> Result<RunningWeir, Error> {
        let listen = preflight::free_address(Ipv4Addr::LOCALHOST)?;
        let config = config(&stage.servers, listen, variant);
        let binary = stage.args.servers.weir_binary()?;
        let weir = Weir::start(&binary, &config, stage.servers.dir(), &format!("weir-{}", stage.number()))?;
        let weir = RunningWeir { weir, binary };
        weir.wait_ready(stage)?;
        Ok(weir)
    }

    /// Waits until it knows a writer and has all other servers as readers.
    pub(crate) fn wait_ready(&self, stage: &Stage<'_>) -> Result<(), Error> {
        let readers = stage.servers.all().len() - 1;
        stage.stop.wait("a writer and all readers in Weir's roles", READY_TIMEOUT_S, || {
            Ok(self.writer()?.is_some() && self.readers()?.len() >= readers)
        })
    }

    /// Where clients connect.
    pub(crate) fn address(&self) -> SocketAddrV4 {
        self.weir.addr()
    }

    /// The writer, if there is one now.
    pub(crate) fn writer(&self) -> Result<Option<SocketAddrV4>, Error> {
        let status = self.status()?;
        let writer = status["clusters"][0]["writers"][0].as_str();
        Ok(writer.and_then(|text| text.parse().ok()))
    }

    /// Servers that read now.
    pub(crate) fn readers(&self) -> Result<Vec<SocketAddrV4>, Error> {
        let status = self.status()?;
        let servers = status["servers"].as_array().cloned().unwrap_or_default();
        let reads = |server: &&serde_json::Value| {
            server["hostgroup"].as_i64() == Some(hostgroup::READER)
                && server["status"].as_str().is_some_and(|status| status.eq_ignore_ascii_case("online"))
        };
        let address = |server: &serde_json::Value| server["server"].as_str()?.parse().ok();
        Ok(servers.iter().filter(reads).filter_map(address).collect())
    }

    /// Moves the writer role; what it said if it did not.
    pub(crate) fn switch_over(&self) -> Result<Result<(), String>, Error> {
        let (succeeded, text) =
            self.tell(&["switchover", &hostgroup::WRITER.to_string(), "--grace-ms", GRACE_MS])?;
        // What it waits for is said before, line by line.
        let end = text.lines().last().unwrap_or_default().to_owned();
        Ok(if succeeded { Ok(()) } else { Err(end) })
    }

    fn status(&self) -> Result<serde_json::Value, Error> {
        let (_, text) = self.tell(&["status", "--json"])?;
        serde_json::from_str(&text)
            .map_err(|_| Error::Answer { what: "weir status --json".to_owned(), answer: text })
    }

    /// `weir ARGUMENTS` with its configuration: whether it succeeded, and what it said.
    fn tell(&self, arguments: &[&str]) -> Result<(bool, String), Error> {
        let mut command = Command::new(&self.binary);
        command.args(arguments).arg("-c").arg(self.weir.config_path());
        let output = command.output().map_err(Error::io("run weir"))?;
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            text.push_str(&String::from_utf8_lossy(&output.stderr));
        }
        Ok((output.status.success(), text.trim().to_owned()))
    }
}

fn config(servers: &Servers, listen: SocketAddrV4, variant: Variant) -> WeirConfig {
    let addresses: Vec<SocketAddrV4> = servers.all().iter().map(|server| server.address).collect();
    let mut config = match servers {
        Servers::Galera(_) => WeirConfig::for_servers(&addresses, listen),
        Servers::Group(_) => WeirConfig::for_group(&addresses, listen),
        Servers::Replication(_) => WeirConfig::for_replication(&addresses, listen),
    };
    for level in Level::ALL {
        let attributes = format!("{{\"weir_consistency\": \"{level}\"}}");
        config.user(level.account(), hostgroup::WRITER, &[("attributes", attributes.into())]);
    }
    let Account { user, .. } = WRITER_ONLY;
    config.user(WRITER_ONLY, hostgroup::WRITER, &[]).push(
        "mysql_query_rules",
        &[
            ("rule_id", 1.into()),
            ("active", 1.into()),
            ("username", user.into()),
            ("destination_hostgroup", hostgroup::WRITER.into()),
            ("apply", 1.into()),
        ],
    );
    if let Servers::Replication(_) = servers {
        config.push(
            "weir_topology",
            &[
                ("writer_hostgroup", hostgroup::WRITER.into()),
                ("replication_username", REPLICATION.into()),
                ("replication_password", REPLICATION.into()),
            ],
        );
    }
    match variant {
        Variant::Plain => {}
        Variant::Fastest => {
            let row = [("hostgroup_id", hostgroup::WRITER.into()), ("reads", "fastest".into())];
            config.push("weir_hostgroups", &row);
        }
        Variant::Servers(setting) => drop(config.variable("init_connect", setting.sql())),
    }
    config
}
