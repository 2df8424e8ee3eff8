//! Runs the procedures that move the role of servers with asynchronous replication: switchover, failover, the way back
//! of an old writer, and the recovery of a switchover whose Weir has died. Here are the steps and their order; a
//! [`Server`] is told what to do by whoever runs a procedure, and so is everything around it ([`Surroundings`]).
//!
//! The rules:
//!
//! 1. Every server that is told something is locked first: GET_LOCK() on the very connection by which everything is
//!    done, on more than half of all servers. A switchover always locks the old writer and the next one, so of two Weirs
//!    one goes on. Servers are locked in one order everywhere, and nobody waits for a lock.
//! 2. What was known before is looked at again under the lock.
//! 3. No server is made writable before the other one has said, asked after it was made read_only, that it is.
//! 4. A statement without an answer may have been carried out, or still be. A new connection gets the lock only when the
//!    old one is over, and with it all that was sent there: what is asked then is true.
//! 5. A switchover is in a journal in the cluster before anything is changed (table `weir.switchovers`): the row is
//!    written on the old writer, replicates with all else, and is removed on the server that writes in the end. A Weir
//!    that dies loses its locks with its connections; the next one that finds the row and gets them finishes the
//!    switchover or undoes it, by what the servers are.

mod error;
mod failover;
mod recovery;
mod rejoin;
mod server_error;
mod steps;
mod switchover;

use std::time::Duration;

use crate::{Endpoint, Millis, SourceLink};

pub use error::{Ending, ProcedureError};
pub use failover::{Candidate, Failover};
pub use recovery::{Recovered, Recovery, Settled};
pub use rejoin::Rejoin;
pub use server_error::ServerError;
pub use switchover::{Moved, Plan, Switchover, Undone};

/// How often it is looked whether something has come to pass.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// No more of a position is shown.
const POSITION_CHARS_MAX: usize = 300;

/// The source of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The source's `server_uuid`, or MariaDB's `server_id`.
    pub id: String,
    /// Both threads run, and positions are global.
    pub is_fit: bool,
    /// Positions are global.
    pub has_positions: bool,
    /// What was received is applied.
    pub applies: bool,
    /// What has been received, without what had been applied before that.
    pub received: String,
    /// The same as the probes see it.
    pub link: SourceLink,
    /// The connection to the source is encrypted.
    pub is_tls: bool,
    /// What the server says of its last error; empty for none.
    pub error: String,
}

/// The account by which a new replica logs in at its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// The account.
    pub user: String,
    /// Its password.
    pub password: String,
    /// Over TLS.
    pub is_tls: bool,
}

/// A switchover that was begun, as a row in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Names the cluster.
    pub writer_hostgroup: u32,
    /// The old writer.
    pub from: Endpoint,
    /// The next one.
    pub to: Endpoint,
    /// The Weir that has begun it.
    pub by_instance: String,
}

/// A connection to a server, with an account that may change replication. After an error nobody knows what of an order was
/// carried out: it may be several statements. When it is dropped, its locks go.
pub trait Server {
    /// Which server it is.
    fn endpoint(&self) -> &Endpoint;
    /// How a replica names it: `server_uuid`, or MariaDB's `server_id`.
    fn id(&self) -> &str;

    /// Tries everything that needs a privilege, without an effect.
    ///
    /// # Errors
    /// The privilege that is missing, in the server's words.
    fn check_privileges(&mut self) -> Result<(), ServerError>;

    /// Takes a lock for as long as the connection lasts; false if another connection has it.
    ///
    /// # Errors
    /// No answer, or a refusal.
    fn lock(&mut self, name: &str) -> Result<bool, ServerError>;

    /// Where it replicates from; nothing if it replicates from nobody.
    ///
    /// # Errors
    /// No answer, or a refusal.
    fn sources(&mut self) -> Result<Vec<Source>, ServerError>;

    /// Whether it is read_only now.
    ///
    /// # Errors
    /// No answer, or a refusal.
    fn is_read_only(&mut self) -> Result<bool, ServerError>;

    /// Takes writes, or takes none any more. That waits for statements that write now.
    ///
    /// # Errors
    /// No answer, or a refusal.
    fn set_read_only(&mut self, is_read_only: bool) -> Result<(), ServerError>;

    /// All transactions that it has applied, in its family's notation.
    ///
    /// # Errors
    /// No answer, a refusal, or no global transaction ids.
    fn position(&mut self) -> Result<String, ServerError>;

    /// The same with those that it has received from a source and not applied yet.
    ///
    /// # Errors
    /// As [`Server::position`].
    fn received(&mut self, source: &Source) -> Result<String, ServerError>;

    /// Whether a position has all of another, both of replicas of one source.
    ///
    /// # Errors
    /// No answer, or a refusal.
    fn covers(&mut self, one: &str, other: &str) -> Result<bool, ServerError>;

    /// All that it has ever applied, by whomever.
    ///
    /// # Errors
    /// As [`Server::position`].
    fn history(&mut self) -> Result<String, ServerError>;

    /// What of another server's history it has never had; none if it has had all.
    ///
    /// # Errors
    /// As [`Server::position`].
    fn lacks(&mut self, history: &str) -> Result<Option<String>, ServerError>;

    /// Waits until it has applied a position.
    ///
    /// # Errors
    /// It has not in time, no answer, or a refusal.
    fn wait_for(&mut self, position: &str, timeout: Duration) -> Result<(), ServerError>;

    /// Whether it has begun to apply a transaction that is not in a position, which [`Server::received`] has told: of that
    /// it has received a part. MySQL's appliers wait for the rest of one for up to 60 s before they stop
    /// (`SLAVE_WAIT_GROUP_DONE` in its source; seen on 9.7).
    ///
    /// # Errors
    /// No answer, or a refusal.
    fn has_part_beyond(&mut self, received: &str) -> Result<bool, ServerError>;

    /// Receives nothing any more, and may go on applying what it has.
    ///
    /// # Errors
    /// No answer, or a refusal.
    fn stop_receiving(&mut self) -> Result<(), ServerError>;

    /// Neither receives nor applies.
    ///
    /// # Errors
    /// No answer, or a refusal.
    fn stop_replication(&mut self) -> Result<(), ServerError>;

    /// Does both again.
    ///
    /// # Errors
    /// No answer, or a refusal.
    fn start_replication(&mut self) -> Result<(), ServerError>;

    /// Forgets its source, so that a restart does not make it a replica again.
    ///
    /// # Errors
    /// No answer, or a refusal.
    fn forget_source(&mut self) -> Result<(), ServerError>;

    /// A replica goes on at another source.
    ///
    /// # Errors
    /// No answer, or a refusal.
    fn follow(&mut self, source: &Endpoint) -> Result<(), ServerError>;

    /// A former writer becomes a replica, from where it stands.
    ///
    /// # Errors
    /// No answer, or a refusal.
    fn become_replica(&mut self, source: &Endpoint, login: &Login) -> Result<(), ServerError>;

    /// The row of a cluster in this server's table; none if there is no row, or no table.
    ///
    /// # Errors
    /// No answer, or a refusal other than that.
    fn entry(&mut self, writer_hostgroup: u32) -> Result<Option<Entry>, ServerError>;

    /// Writes the row, in place of an older one. Returns what keeps the account from it, and what would end that.
    ///
    /// # Errors
    /// No answer.
    fn enter(&mut self, entry: &Entry) -> Result<Option<String>, ServerError>;

    /// Removes the row, if there is one.
    ///
    /// # Errors
    /// No answer, or a refusal.
    fn strike_out(&mut self, writer_hostgroup: u32) -> Result<(), ServerError>;
}

/// Everything that a procedure needs besides servers.
pub trait Surroundings {
    /// A connection to one.
    type Server: Server;

    /// Logs in at a server.
    ///
    /// # Errors
    /// Why it could not.
    fn connect(&mut self, server: &Endpoint) -> Result<Self::Server, ServerError>;

    /// Whether a server lives, whatever it answers.
    fn is_there(&mut self, server: &Endpoint) -> bool;

    /// A clock that never goes back.
    fn now(&mut self) -> Millis;

    /// Lets time pass.
    ///
    /// # Errors
    /// Nothing is waited for any more.
    fn sleep(&mut self, time: Duration) -> Result<(), Ending>;

    /// Somebody may want to know what is being done.
    fn tell(&mut self, step: String);

    /// Whom a former writer logs in as at the next one.
    fn login(&mut self, source: &Endpoint) -> Login;
}

/// The lock of a cluster, one for all Weirs in front of it.
pub fn lock_name(writer_hostgroup: u32) -> String {
    format!("weir_failover_{writer_hostgroup}")
}

/// More than half of so many servers.
fn majority(count: usize) -> usize {
    count / 2 + 1
}

fn shown(position: &str) -> String {
    position.chars().take(POSITION_CHARS_MAX).collect()
}
