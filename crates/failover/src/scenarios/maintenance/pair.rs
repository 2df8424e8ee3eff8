//! Starts two Weirs in front of one cluster, each with an admin port and clients of its own.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use serde_json::Value;
use weir_client::{Connection, Options};
use weir_lab::{Error, Moment};
use weir_testkit::{hostgroup, preflight};

use super::GRACE_MS;
use crate::peer::{Peer, start_weir};
use crate::run::Run;
use crate::stage::{Finished, Stage};
use weir_lab::servers::{RunningWeir, Server, Servers, Told};

/// The longest until both Weirs know each other, see all servers well, and could move the role.
const READY_TIMEOUT_S: u64 = 60;
/// How often they are asked: each time a program is started.
const LOOK: Duration = Duration::from_millis(60);
/// The account of the admin interface, as it is without a setting.
const ADMIN: &str = "admin";
/// What the replicas of a source replicate with.
const REPLICATION: &str = "replication";

/// Two running Weirs.
pub(super) struct Pair {
    weirs: [Peer; 2],
    admins: [SocketAddrV4; 2],
}

/// What clients of the one and of the other see meanwhile.
pub(super) struct Runs([Run; 2]);

impl Pair {
    /// Returns when they know each other.
    pub(super) fn start(stage: &Stage<'_>) -> Result<Pair, Error> {
        let admins =
            [preflight::free_address(Ipv4Addr::LOCALHOST)?, preflight::free_address(Ipv4Addr::LOCALHOST)?];
        let is_replication = matches!(stage.servers()?, Servers::Replication(_));
        let start = |admin: SocketAddrV4| {
            let started = start_weir(stage, |config| {
                let mut row = vec![
                    ("writer_hostgroup", hostgroup::WRITER.into()),
                    ("switchover_pin_grace_ms", i64::from(GRACE_MS).into()),
                ];
                if is_replication {
                    row.push(("replication_username", REPLICATION.into()));
                    row.push(("replication_password", REPLICATION.into()));
                }
                config.admin(admin).push("weir_topology", &row);
            })?;
            Ok::<_, Error>(Peer::Weir(Box::new(started)))
        };
        let pair = Pair { weirs: [start(admins[0])?, start(admins[1])?], admins };
        pair.ready(stage, 0)?;
        Ok(pair)
    }

    /// Load and probes through each of them.
    pub(super) fn runs(&self, stage: &Stage<'_>) -> Result<Runs, Error> {
        let [one, two] = &self.weirs;
        let threads = stage.scale.load.threads.div_ceil(2);
        Ok(Runs([stage.run_with(&[one, two], threads)?, stage.run_with(&[two, one], threads)?]))
    }

    /// One of them, counted from 0.
    pub(super) fn weir(&self, at: usize) -> Result<&RunningWeir, Error> {
        let weir = self.weirs.get(at).and_then(Peer::weir);
        weir.ok_or_else(|| Error::Impossible("no Weir".to_owned()))
    }

    fn both(&self) -> Result<[&RunningWeir; 2], Error> {
        Ok([self.weir(0)?, self.weir(1)?])
    }

    /// Waits until both agree on the writer, read from all others, and `by` could move the role. Returns the writer.
    pub(super) fn ready(&self, stage: &Stage<'_>, by: usize) -> Result<Server, Error> {
        let servers = stage.servers()?;
        let mut last = String::new();
        let mut writer = None;
        let waited = stage.stop.wait("two Weirs that see everything well", READY_TIMEOUT_S, || {
            writer = self.agreed()?;
            let Some(address) = writer else { return look_again(stage) };
            for weir in self.both()? {
                let status = weir.status()?;
                let others = status["clusters"][0]["other_weirs"].as_array().map_or(0, Vec::len);
                let all = servers.awake().len();
                if others != 1
                    || weir.readers()?.iter().filter(|reader| **reader != address).count() + 1 != all
                {
                    last = status.to_string();
                    return look_again(stage);
                }
            }
            let told = self.weir(by)?.tell(&["switchover", &RunningWeir::hostgroup(), "--dry-run"])?;
            last.clone_from(&told.text);
            if told.succeeded { Ok(true) } else { look_again(stage) }
        });
        match (waited, writer) {
            (Ok(()), Some(writer)) => servers.at(writer),
            (Err(Error::Timeout { what, .. }), _) => Err(Error::Answer { what, answer: last }),
            (Err(error), _) => Err(error),
            (Ok(()), None) => Err(Error::Impossible("there is no writer".to_owned())),
        }
    }

    /// The writer, if both have the same one.
    fn agreed(&self) -> Result<Option<SocketAddrV4>, Error> {
        let [one, two] = self.both()?;
        let writer = one.writer()?;
        Ok(writer.filter(|writer| two.writer().is_ok_and(|other| other == Some(*writer))))
    }

    /// One that does not write: another one each round.
    pub(super) fn reader(&self, stage: &Stage<'_>, writer: &Server, round: usize) -> Result<Server, Error> {
        let readers: Vec<Server> =
            stage.servers()?.awake().into_iter().filter(|server| server.index != writer.index).collect();
        let reader = readers.get(round % readers.len().max(1)).cloned();
        reader.ok_or_else(|| Error::Impossible("no reader".to_owned()))
    }

    /// `mysql_servers.status` of a server, at one of them, as its user types it.
    pub(super) fn set_status(&self, at: usize, server: &Server, status: &str) -> Result<(), Error> {
        let admin = self.admins[at];
        let options = Options::new(&admin.ip().to_string(), admin.port(), ADMIN, ADMIN);
        let mut connection = Connection::connect(&options)?;
        let (ip, port) = (server.address.ip(), server.address.port());
        let update =
            format!("UPDATE mysql_servers SET status='{status}' WHERE hostname='{ip}' AND port={port}");
        connection.query(&update)?;
        connection.query("LOAD MYSQL SERVERS TO RUNTIME")?;
        Ok(())
    }

    /// Waits until a server that was taken out gets nothing new at either, and no session is left there.
    pub(super) fn wait_empty(&self, stage: &Stage<'_>, server: &Server) -> Result<Told, Error> {
        self.wait_empty_at(stage, server, &self.both()?)
    }

    /// The same at some of the two.
    pub(super) fn wait_empty_at(
        &self,
        stage: &Stage<'_>,
        server: &Server,
        weirs: &[&RunningWeir],
    ) -> Result<Told, Error> {
        wait(stage, server, weirs, "is out and empty", |place| {
            place["status"] == "OFFLINE_SOFT" && place["used"].as_u64() == Some(0)
        })
    }

    /// Waits until a server works again at both.
    pub(super) fn wait_back(&self, stage: &Stage<'_>, server: &Server) -> Result<Told, Error> {
        wait(stage, server, &self.both()?, "works again", |place| place["status"] != "OFFLINE_SOFT")
    }
}

fn wait(
    stage: &Stage<'_>,
    server: &Server,
    weirs: &[&RunningWeir],
    what: &str,
    is_so: impl Fn(&Value) -> bool,
) -> Result<Told, Error> {
    let name = server.address.to_string();
    let mut last = String::new();
    let waited = stage.stop.wait(what, READY_TIMEOUT_S, || {
        for weir in weirs {
            let status = weir.status()?;
            let places = status["servers"].as_array().map(Vec::as_slice).unwrap_or_default();
            let mut places = places.iter().filter(|place| place["server"] == name.as_str()).peekable();
            if places.peek().is_none() || !places.all(&is_so) {
                last = format!("{}: {}", weir.process().name(), status["servers"]);
                return look_again(stage);
            }
        }
        Ok(true)
    });
    match waited {
        Ok(()) => Ok(Told { succeeded: true, text: String::new() }),
        Err(Error::Timeout { timeout_s, .. }) => {
            let text = format!("it was not seen within {timeout_s} s that {name} {what}: {last}");
            Ok(Told { succeeded: false, text })
        }
        Err(error) => Err(error),
    }
}

fn look_again(stage: &Stage<'_>) -> Result<bool, Error> {
    stage.stop.sleep(LOOK)?;
    Ok(false)
}

impl Runs {
    /// Notes what is done, for both.
    pub(super) fn mark(&mut self, text: &str) -> Moment {
        let [one, two] = &mut self.0;
        two.mark(text);
        one.mark(text)
    }

    /// Waits until everything is as usual, and ends both.
    pub(super) fn finish(self, stage: &Stage<'_>) -> Result<[Finished; 2], Error> {
        stage.stop.sleep(stage.scale.settle)?;
        let Runs([one, two]) = self;
        Ok([stage.finish(one)?, stage.finish(two)?])
    }
}
