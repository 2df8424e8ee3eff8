//! Holds the data that a Weir returns for each picture. Counters are since its start: rates come from two of them.

use serde::{Deserialize, Serialize};

/// A Weir at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TopData {
    /// Its version.
    pub version: String,
    /// Milliseconds since it was started.
    pub at_ms: u64,
    /// Clients connected.
    pub clients: u64,
    /// Of these, those that do or wait for something.
    pub busy: u64,
    /// Sessions with an open transaction.
    pub transactions: u64,
    /// Connections to servers.
    pub server_connections: u64,
    /// Commands of clients so far.
    pub questions: u64,
    /// Those whose roles it decides.
    pub clusters: Vec<Cluster>,
    /// By hostgroup and server.
    pub servers: Vec<Server>,
    /// Statements that ran lately or took longest, not all.
    pub digests: Vec<Digest>,
    /// Sessions, not all where there are many: busy and pinned ones come first.
    pub sessions: Vec<Session>,
}

/// A cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cluster {
    /// The hostgroup that is written to.
    pub writer_hostgroup: u32,
    /// Who takes writes.
    pub writers: Vec<String>,
    /// What the next writer waits for, where there is none.
    pub trouble: Option<String>,
    /// How reads came to be fresh enough, so far; none where none may go to readers.
    #[serde(default)]
    pub reads: Option<Reads>,
}

/// Reads that might go to a reader.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reads {
    /// A reader had at once what they had to see.
    pub at_once: u64,
    /// They waited for one.
    pub waited: u64,
    /// The writer served them at once.
    pub on_writer: u64,
    /// The writer served them after a wait in vain.
    pub timed_out: u64,
    /// How long half of those waited at most that did.
    pub wait_p50_us: u64,
}

/// A server in a hostgroup.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// The hostgroup.
    pub hostgroup: u32,
    /// `HOST:PORT`
    pub server: String,
    /// What it does there.
    pub role: String,
    /// ProxySQL's word for its state.
    pub status: String,
    /// Why it is so.
    pub reason: String,
    /// Connections that sessions have.
    pub used: u64,
    /// Connections that nobody has.
    pub free: u64,
    /// Statements sent so far.
    pub queries: u64,
    /// Their total time.
    pub sum_us: u64,
    /// How long 95 of 100 took at most, of all so far.
    pub p95_us: u64,
    /// How old what it certainly has is; none where nobody knows.
    #[serde(default)]
    pub lag_us: Option<u64>,
    /// Why nobody does, where it is to be checked.
    #[serde(default)]
    pub unchecked: String,
}

/// Statements of one digest, user, schema and hostgroup.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Digest {
    /// The hash, `0x...`.
    pub digest: String,
    /// Where they ran.
    pub hostgroup: u32,
    /// Whose they were.
    pub username: String,
    /// Their schema.
    pub schemaname: String,
    /// From where; empty unless that is told apart.
    pub client_address: String,
    /// How often.
    pub count: u64,
    /// Their total time.
    pub sum_us: u64,
    /// How long 95 of 100 took at most, of all so far.
    pub p95_us: u64,
    /// The statement without its literals.
    pub text: String,
}

/// A session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// The connection id that its client knows.
    pub id: u32,
    /// Its user; empty before the login.
    pub username: String,
    /// Where its client is.
    pub client: String,
    /// Where its statement goes.
    pub hostgroup: Option<u32>,
    /// The server whose connection it has.
    pub server: Option<String>,
    /// What it is at: `Sleep`, `Query`, ...
    pub command: String,
    /// Whether it does or waits for something.
    pub is_busy: bool,
    /// For how long it is at that.
    pub since_ms: u64,
    /// Why it keeps its connection; empty without a pin.
    pub pins: String,
    /// The statement that runs.
    pub text: String,
}
