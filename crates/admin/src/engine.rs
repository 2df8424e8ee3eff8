//! Names what the admin interface needs of the running Weir.

use weir_config::{Config, TableRows};
use weir_query_log::AuditEvent;
use weir_store::Value;
use weir_topology::Endpoint;

/// Rows of a table, each with its values in the order of the columns.
pub type Rows<'a> = &'a mut dyn Iterator<Item = Vec<Value>>;

/// The running Weir. Called from the threads of admin connections; every call may take seconds.
///
/// No call may wait for somebody who uses the store: an admin thread may hold it meanwhile.
pub trait Engine: Send + Sync + 'static {
    /// Goes by this configuration from now on, whole or not at all; returns when all workers do. `Ok` has warnings:
    /// what only a restart changes.
    ///
    /// # Errors
    /// Why nothing has changed, a sentence each.
    fn apply(&self, config: &Config) -> Result<Vec<String>, Vec<String>>;

    /// Gives `take` the rows of now of a table of stats, stats_history or monitor, or of an observed runtime_ table, with
    /// columns in the order of its DDL, one after the other: a million of them are never there at once. Not called for a
    /// table that is not one of the engine's.
    ///
    /// `take` may use the store, and whatever takes long (asking the workers) is over when it is called.
    fn rows(&self, table: &str, take: &mut dyn FnMut(Rows<'_>));

    /// As [`Engine::rows`], and what has been counted begins again, for the tables whose name ends in `_reset`.
    fn rows_and_reset(&self, table: &str, take: &mut dyn FnMut(Rows<'_>));

    /// Ends a client's session, or only its statement. False if there is none with this id.
    fn kill(&self, thread_id: u64, query_only: bool) -> bool;

    /// Tells the audit log, if there is one, of a session here or of what it has changed. Never waits.
    fn audit(&self, event: &AuditEvent<'_>);

    /// Does what an admin wants done.
    ///
    /// # Errors
    /// Why it was not.
    fn command(&self, command: EngineCommand) -> Result<String, String>;

    /// What [`EngineCommand::Switchover`] would do now; changes nothing.
    ///
    /// # Errors
    /// Why it could not be done.
    fn plan_switchover(&self, hostgroup: u32, to: Option<Endpoint>) -> Result<SwitchoverPlan, String>;

    /// The rows of the configuration file, as it is now.
    ///
    /// # Errors
    /// What is wrong with the file, or that there is none, a sentence each.
    fn file_rows(&self) -> Result<TableRows, Vec<String>>;

    /// Rows as a configuration file.
    ///
    /// # Errors
    /// Why they can't be written so.
    fn config_text(&self, rows: &TableRows) -> Result<String, String>;

    /// What a scraper of `/metrics` would get.
    ///
    /// # Errors
    /// Why there is nothing.
    fn metrics_text(&self) -> Result<String, String>;
}

/// The steps that a switchover would take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchoverPlan {
    /// Who writes now.
    pub writer: Endpoint,
    /// Who would write.
    pub next_writer: Endpoint,
    /// The sessions that would be waited for, in words.
    pub sessions: String,
}

/// An admin's command for the running Weir.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineCommand {
    /// Take no new clients; those who are there stay.
    Pause,
    /// The end of that.
    Resume,
    /// As at SIGTERM: no new clients, transactions end, then Weir ends.
    Shutdown,
    /// End at once.
    Kill,
    /// Close log files and open them anew.
    FlushLogs,
    /// Read certificates and keys again.
    ReloadTls,
    /// Give a server no new work.
    Drain(Endpoint),
    /// Give it work again.
    Undrain {
        /// The server that is drained.
        server: Endpoint,
        /// Also if a Weir that is gone has drained it.
        force: bool,
    },
    /// Move the writer role of a cluster.
    Switchover {
        /// The cluster's writer hostgroup.
        hostgroup: u32,
        /// The next writer; none: the best of those who can.
        to: Option<Endpoint>,
        /// Close the sessions that would write to the old writer after the grace.
        force: bool,
    },
}
