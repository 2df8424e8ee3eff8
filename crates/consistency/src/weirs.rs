//! Starts Weirs in front of a stage's servers, and gives them orders.

use std::net::{Ipv4Addr, SocketAddrV4};

use weir_lab::Error;
use weir_lab::servers::{RunningWeir, Servers};
use weir_testkit::{Account, WeirConfig, hostgroup, preflight};

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

/// Starts a Weir whose users are the levels; returns when it knows a writer and all readers.
pub(crate) fn start(stage: &Stage<'_>, variant: Variant) -> Result<RunningWeir, Error> {
    let listen = preflight::free_address(Ipv4Addr::LOCALHOST)?;
    let config = config(&stage.servers, listen, variant);
    let (binary, name) = (stage.args.servers.weir_binary()?, format!("weir-{}", stage.number()));
    let weir = RunningWeir::start(binary, &config, stage.servers.dir(), &name)?;
    wait_ready(&weir, stage)?;
    Ok(weir)
}

/// Waits until a Weir knows a writer and has all other servers as readers.
pub(crate) fn wait_ready(weir: &RunningWeir, stage: &Stage<'_>) -> Result<(), Error> {
    let readers = stage.servers.all().len() - 1;
    stage.stop.wait("a writer and all readers in Weir's roles", READY_TIMEOUT_S, || {
        Ok(weir.writer()?.is_some() && weir.readers()?.len() >= readers)
    })
}

/// Moves the writer role; what Weir said if it did not.
pub(crate) fn switch_over(weir: &RunningWeir) -> Result<Result<(), String>, Error> {
    let told = weir.tell(&["switchover", &RunningWeir::hostgroup(), "--grace-ms", GRACE_MS])?;
    // What it waits for is said before, line by line.
    let end = told.text.lines().last().unwrap_or_default().to_owned();
    Ok(if told.succeeded { Ok(()) } else { Err(end) })
}

fn config(servers: &Servers, listen: SocketAddrV4, variant: Variant) -> WeirConfig {
    let mut config = servers.weir_config(listen);
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
