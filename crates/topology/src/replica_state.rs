//! What a server says of asynchronous replication.

use crate::ReadOnlyCheck;

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
}

/// How far a server is behind its sources: with several behind the one of which it is farthest.
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
        for (name, value) in variables {
            let is_on = Some(!(value.trim().eq_ignore_ascii_case("OFF") || value.trim() == "0"));
            match name.to_ascii_lowercase().as_str() {
                "read_only" => state.read_only = is_on,
                "innodb_read_only" => state.innodb_read_only = is_on,
                "super_read_only" => state.super_read_only = is_on,
                _ => {}
            }
        }
        for (count, source) in sources.into_iter().enumerate() {
            if count >= CHANNELS_MAX {
                state.lag = Lag::Stopped;
                break;
            }
            state.lag = state.lag.max(lag(source));
        }
        state
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

/// How far behind one source. The columns were renamed in MySQL 8.0.22.
fn lag<'a>(source: impl IntoIterator<Item = (&'a str, Option<&'a str>)>) -> Lag {
    let (mut seconds, mut running) = (None, true);
    for (name, value) in source {
        match name.to_ascii_lowercase().as_str() {
            "seconds_behind_source" | "seconds_behind_master" => {
                seconds = value.and_then(|value| value.trim().parse().ok());
            }
            "replica_io_running" | "slave_io_running" | "replica_sql_running" | "slave_sql_running" => {
                running &= value.is_some_and(|value| value.trim().eq_ignore_ascii_case("Yes"));
            }
            _ => {}
        }
    }
    match seconds.filter(|_| running) {
        Some(seconds) => Lag::Seconds(seconds),
        None => Lag::Stopped,
    }
}
