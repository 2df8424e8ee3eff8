//! Reads a server's own report of asynchronous replication.

use crate::{Endpoint, ReadOnlyCheck};

/// More sources than a replica is given; of more the lag is unknown.
const CHANNELS_MAX: usize = 256;

/// A server's read_only variables and how far it is behind its sources, as of one probe. The default is a server that
/// says nothing of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaState {
    /// `read_only`; none if there is no such variable.
    pub read_only: Option<bool>,
    /// `innodb_read_only`
    pub innodb_read_only: Option<bool>,
    /// `super_read_only`: MySQL only.
    pub super_read_only: Option<bool>,
    /// How far it is behind.
    pub lag: Lag,
    /// How its replicas name it: `server_uuid`, or MariaDB's `server_id`; empty if it has not said.
    pub id: String,
    /// MariaDB's `server_uid`, a hash of the machine and the port; empty on servers without.
    pub uid: String,
    /// MariaDB's `gtid_domain_id`; empty on MySQL.
    pub domain: String,
    /// From whom it replicates; none: from nobody.
    pub source: Option<SourceLink>,
}

/// A replica's source, and the connection to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLink {
    /// `Source_UUID`, or MariaDB's `Master_Server_Id`; empty before the first connection, and with several sources.
    pub id: String,
    /// Where the replica looks for it; none with several sources.
    pub endpoint: Option<Endpoint>,
    /// Whether it gets anything.
    pub link: Link,
}

/// A replica's connection to its source: the thread that receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Link {
    /// It is connected.
    Up,
    /// Its last attempt to connect has met with nobody.
    Down,
    /// It tries for the first time.
    Trying,
    /// It is not connected for another reason: it was stopped, or refused.
    Idle,
}

impl SourceLink {
    /// Whether a server is the source.
    pub fn names(&self, endpoint: &Endpoint, id: &str) -> bool {
        (!id.is_empty() && self.id == id) || self.endpoint.as_ref() == Some(endpoint)
    }
}

/// The lag of a server behind its sources: with several behind the one of which it is farthest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lag {
    /// It replicates from nobody.
    #[default]
    NoReplica,
    /// `Seconds_Behind_Source`, `Seconds_Behind_Master`
    Seconds(u64),
    /// Nobody knows: a thread of the replication does not run (NULL), or the value makes no sense.
    Stopped,
}

impl ReplicaState {
    /// Reads variables (name and value), and for each source its row of SHOW REPLICA STATUS (MySQL) or SHOW ALL SLAVES
    /// STATUS (MariaDB) as names and values; NULL is none.
    ///
    /// A source counts as stopped if a thread of it does not run, also while the server still shows how far behind it
    /// was.
    pub fn from_rows<'a, Row>(
        variables: impl IntoIterator<Item = (&'a str, &'a str)>,
        sources: impl IntoIterator<Item = Row>,
    ) -> Self
    where
        Row: IntoIterator<Item = (&'a str, Option<&'a str>)>,
    {
        let mut state = Self::default();
        let mut number = "";
        for (name, value) in variables {
            let is_on = Some(!(value.trim().eq_ignore_ascii_case("OFF") || value.trim() == "0"));
            match name.to_ascii_lowercase().as_str() {
                "read_only" => state.read_only = is_on,
                "innodb_read_only" => state.innodb_read_only = is_on,
                "super_read_only" => state.super_read_only = is_on,
                "server_uuid" => state.id = name_of(value),
                "server_id" => number = value,
                "server_uid" => state.uid = name_of(value),
                "gtid_domain_id" => state.domain = name_of(value),
                _ => {}
            }
        }
        if state.id.is_empty() {
            state.id = name_of(number);
        }
        for (count, source) in sources.into_iter().enumerate() {
            if count >= CHANNELS_MAX {
                state.lag = Lag::Stopped;
                break;
            }
            let (lag, link) = source_of(source);
            state.lag = state.lag.max(lag);
            state.source = Some(if count == 0 { link } else { SourceLink::of_several() });
        }
        state
    }

    /// What the history of its own writes is called. MariaDB's `server_id` alone is often 1; empty if it has not said.
    pub fn history(&self) -> String {
        let parts = [&self.id, &self.domain, &self.uid].map(String::as_str);
        if self.id.is_empty() { String::new() } else { parts.join(" ").trim_end().to_owned() }
    }

    /// Whether a check calls the server read_only.
    ///
    /// # Errors
    /// The name of a variable that the check needs and the server does not have.
    pub fn is_read_only(&self, check: ReadOnlyCheck) -> Result<bool, &'static str> {
        let read_only = || self.read_only.ok_or("read_only");
        let innodb_read_only = || self.innodb_read_only.ok_or("innodb_read_only");
        match check {
            ReadOnlyCheck::ReadOnly => read_only(),
            ReadOnlyCheck::InnodbReadOnly => innodb_read_only(),
            ReadOnlyCheck::SuperReadOnly => self.super_read_only.ok_or("super_read_only"),
            ReadOnlyCheck::Both => Ok(read_only()? & innodb_read_only()?),
            ReadOnlyCheck::Either => Ok(read_only()? | innodb_read_only()?),
        }
    }
}

impl SourceLink {
    fn of_several() -> Self {
        Self { id: String::new(), endpoint: None, link: Link::Idle }
    }
}

/// CR_CONNECTION_ERROR, CR_CONN_HOST_ERROR, CR_SERVER_GONE_ERROR, CR_SERVER_LOST: nobody was there, or is any more. Others
/// come from a server that lives, or say nothing of it, such as a name that can't be resolved.
const NOBODY_THERE: [&str; 4] = ["2002", "2003", "2006", "2013"];
/// Longer names are cut; those of servers have 36 characters.
const NAME_CHARS_MAX: usize = 64;
/// No host's name is longer.
const HOST_CHARS_MAX: usize = 255;

fn name_of(text: &str) -> String {
    text.trim().chars().take(NAME_CHARS_MAX).collect()
}

/// How far behind one source, and how connected. The columns were renamed in MySQL 8.0.22.
fn source_of<'a>(row: impl IntoIterator<Item = (&'a str, Option<&'a str>)>) -> (Lag, SourceLink) {
    let (mut seconds, mut running, mut receives, mut errno) = (None, true, "", "");
    let (mut uuid, mut number, mut host, mut port) = (None, "", "", None);
    for (name, value) in row {
        let text = value.unwrap_or_default().trim();
        let is_yes = text.eq_ignore_ascii_case("Yes");
        match name.to_ascii_lowercase().as_str() {
            "seconds_behind_source" | "seconds_behind_master" => seconds = text.parse().ok(),
            "replica_io_running" | "slave_io_running" => (receives, running) = (text, running && is_yes),
            "replica_sql_running" | "slave_sql_running" => running &= is_yes,
            "last_io_errno" => errno = text,
            "source_uuid" | "master_uuid" => uuid = Some(text),
            "master_server_id" if text != "0" => number = text,
            "source_host" | "master_host" => host = text,
            "source_port" | "master_port" => port = text.parse().ok(),
            _ => {}
        }
    }
    let is_host = !host.is_empty() && host.chars().count() <= HOST_CHARS_MAX;
    let tries = ["connecting", "preparing"].contains(&receives.to_ascii_lowercase().as_str());
    let link = match errno {
        _ if receives.eq_ignore_ascii_case("Yes") => Link::Up,
        errno if NOBODY_THERE.contains(&errno) => Link::Down,
        "" | "0" if tries => Link::Trying,
        _ => Link::Idle,
    };
    let endpoint = port.filter(|_| is_host).map(|port| Endpoint::new(host, port));
    let lag = seconds.filter(|_| running).map_or(Lag::Stopped, Lag::Seconds);
    (lag, SourceLink { id: name_of(uuid.unwrap_or(number)), endpoint, link })
}
