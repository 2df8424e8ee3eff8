//! Says why an operation was not carried out. What is shown here, users see.

use std::io;
use std::path::PathBuf;

use weir_client::Error;
pub use weir_topology::procedure::Ending;
use weir_topology::procedure::ProcedureError;
use weir_topology::{Endpoint, InstanceId};

/// Why the writer role was not moved.
#[derive(Debug, thiserror::Error)]
pub enum SwitchoverError {
    /// No cluster has this writer hostgroup.
    #[error(
        "{hostgroup} is not the writer hostgroup of a cluster; those are: {}",
        known.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    )]
    NoCluster {
        /// What was asked for.
        hostgroup: u32,
        /// The writer hostgroups that there are.
        known: Vec<u32>,
    },
    /// The cluster was taken out of the configuration meanwhile.
    #[error("the cluster is not configured any more")]
    NotConfigured,
    /// Nobody has the role.
    #[error("there is no writer now: {reasons}")]
    NoWriter {
        /// Each server with its reason.
        reasons: String,
    },
    /// Each of several servers has it.
    #[error("there are several writers: nothing to switch")]
    SeveralWriters,
    /// The target has it.
    #[error("{0} is the writer already")]
    IsWriter(Endpoint),
    /// The target can't have it.
    #[error("{to} can't be the writer: {why}")]
    CannotWrite {
        /// The target.
        to: Endpoint,
        /// Its reason, in words.
        why: String,
    },
    /// The target could have it when the switchover began.
    #[error("{to} can't be the writer any more: {why}")]
    CannotWriteAnyMore {
        /// The target.
        to: Endpoint,
        /// Its reason, in words.
        why: String,
    },
    /// No target was given, and there is none.
    #[error("no other server can be the writer: {reasons}")]
    NoTarget {
        /// Each server with its reason.
        reasons: String,
    },
    /// Another Weir moves the role; its sessions are waited for.
    #[error("a switchover to {to} by {by}, another Weir, is under way: try again when it has ended")]
    AnotherSwitchover {
        /// Its target.
        to: Endpoint,
        /// The Weir.
        by: InstanceId,
    },
    /// Statements would be held until the leases of Weirs end that are not heard of.
    #[error(
        "{names} may still write to {from} for {seconds} s, and has not been heard of lately: try again after that"
    )]
    SilentWeirs {
        /// These Weirs.
        names: String,
        /// Until the last of their leases ends.
        seconds: u64,
        /// The writer.
        from: Endpoint,
    },
    /// Others could not be asked.
    #[error(
        "whether other Weirs write to this cluster is not known: weir.topology could not be read or written within {seconds} s (see the log)"
    )]
    OthersUnknown {
        /// How long it was waited for.
        seconds: u64,
    },
    /// Others are there and can't be asked.
    #[error("the other Weirs can't be asked to hold statements: {trouble}")]
    OthersUntold {
        /// What is wrong, and the next step.
        trouble: String,
    },
    /// Who holds for it is not known any more.
    #[error("the switchover to {to} is not announced to the other Weirs any more (see the log)")]
    Unannounced {
        /// The target.
        to: Endpoint,
    },
    /// The order was to leave another writer than the one that there is now.
    #[error("the writer role has moved from {from} to {to} meanwhile")]
    MovedMeanwhile {
        /// The writer when the switchover was planned.
        from: Endpoint,
        /// The writer now.
        to: Endpoint,
    },
    /// A worker that has not answered may still let sessions write.
    #[error("a worker has been too busy to answer for seconds")]
    BusyWorker,
    /// The grace is over.
    #[error("sessions may still write to {from}: {sessions}{}", if *is_forced { "" } else { " (--force closes them)" })]
    SessionsWrite {
        /// The writer.
        from: Endpoint,
        /// How many, and what lets them.
        sessions: String,
        /// They have been closed, in vain.
        is_forced: bool,
    },
    /// The same with other Weirs' sessions.
    #[error(
        "sessions of other Weirs may still write to {from}: {names} (or they do not know the next writer: see their logs)"
    )]
    OtherWeirsWrite {
        /// The writer.
        from: Endpoint,
        /// The Weirs.
        names: String,
    },
    /// The target lags.
    #[error("{to} has not applied everything within {seconds} s")]
    NotCaughtUp {
        /// The target.
        to: Endpoint,
        /// How long it was waited for.
        seconds: u64,
    },
    /// The monitor does not see what was done.
    #[error("{server} is not seen as the writer after {seconds} s: {why}")]
    NotSeen {
        /// The server that has been given the role.
        server: Endpoint,
        /// How long it was waited for.
        seconds: u64,
        /// Its reason, in words.
        why: String,
    },
    /// The account that moves the role can't log in.
    #[error("can't log in at {host}:{port} as {user}: {cause}")]
    Login {
        /// The server's host.
        host: String,
        /// Its port.
        port: u16,
        /// The account.
        user: String,
        /// What it was told.
        cause: Error,
    },
    /// A server did not answer a statement, or refused it.
    #[error("{server}: {cause}")]
    Server {
        /// The server.
        server: Endpoint,
        /// What it said.
        cause: Error,
    },
    /// The account may not have the group move its primary.
    #[error("{user} lacks a privilege: GRANT {privilege} ON *.* TO {user}")]
    LacksPrivilege {
        /// The account.
        user: String,
        /// What it needs.
        privilege: &'static str,
    },
    /// The account may not see whether there are transactions.
    #[error("{user} can't see transactions: GRANT PROCESS ON *.* TO {user} ({cause})")]
    TransactionsUnseen {
        /// The account.
        user: String,
        /// What it was told.
        cause: Error,
    },
    /// The function that moves the primary takes what is no member's id.
    #[error("{0} has accepted an invalid member id, so Weir can't check its privileges")]
    AcceptsNoId(Endpoint),
    /// The target has no id by which the group knows it.
    #[error("{0} has no server_uuid")]
    NoServerUuid(Endpoint),
    /// The group does not move its primary.
    #[error("the group refuses: {0}")]
    GroupRefuses(Error),
    /// The group would wait for these, and nobody could take that back.
    #[error(
        "{count} transactions of readers, or of clients that bypass Weir, are left on {from} (--force makes the group close their connections)"
    )]
    TransactionsLeft {
        /// How many, as the server says.
        count: String,
        /// The primary.
        from: Endpoint,
    },
    /// The cluster's roles are read from a variable that nothing but a restart changes.
    #[error("check_type uses innodb_read_only, which no statement can set")]
    InnodbReadOnly,
    /// A step of a procedure at the servers has failed.
    #[error(transparent)]
    Procedure(ProcedureError),
    /// A step has failed, and the way back was not seen to its end.
    #[error("{cause}; {then}")]
    Returning {
        /// The step.
        cause: ProcedureError,
        /// What came after that.
        then: Box<SwitchoverError>,
    },
    /// It was given up when the role was about to move.
    #[error("{cause}; whether {to} becomes the writer is not known yet")]
    Undecided {
        /// Why it was given up.
        cause: Box<SwitchoverError>,
        /// The target.
        to: Endpoint,
    },
    /// Statements were held, and it was given up.
    #[error("{cause}: undone after {held_ms} ms, {now}")]
    Undone {
        /// Why.
        cause: Box<SwitchoverError>,
        /// How long statements were held.
        held_ms: u128,
        /// Who writes now, in words.
        now: String,
    },
    /// The system gives no thread to carry it out.
    #[error("can't start a thread: {0}")]
    NoThread(io::Error),
    /// Weir is to end.
    #[error(transparent)]
    Ending(#[from] Ending),
}

/// Why a server was not drained, or is not let in.
#[derive(Debug, thiserror::Error)]
pub enum DrainError {
    /// Nobody has configured it.
    #[error("{0} is not in mysql_servers")]
    NotConfigured(Endpoint),
    /// Its writer role could not be moved first.
    #[error("{server} was not drained: it is the writer of hostgroup {hostgroup}, and {cause}")]
    StaysWriter {
        /// The server.
        server: Endpoint,
        /// The writer hostgroup.
        hostgroup: u32,
        /// Why the role stays.
        cause: Box<SwitchoverError>,
    },
    /// Another Weir is about to make it the writer.
    #[error("{server} was not drained: it is to be the writer of hostgroup {hostgroup}: {cause}")]
    BecomesWriter {
        /// The server.
        server: Endpoint,
        /// The writer hostgroup.
        hostgroup: u32,
        /// The switchover.
        cause: Box<SwitchoverError>,
    },
    /// Other Weirs have drained the other servers at the same moment.
    #[error("{server} was not drained: without it hostgroup {hostgroup} has no writer ({reasons})")]
    LastWriter {
        /// The server.
        server: Endpoint,
        /// The writer hostgroup.
        hostgroup: u32,
        /// Each of the others with its reason.
        reasons: String,
    },
    /// Other Weirs want it out.
    #[error(
        "{server} is undrained here, but still drained by {names}: run `weir undrain` there (or, if it is OFFLINE_SOFT in mysql_servers there, set it ONLINE)"
    )]
    WantedOut {
        /// The server.
        server: Endpoint,
        /// The Weirs.
        names: String,
    },
    /// Other Weirs want it out that may be no more.
    #[error(
        "{server} is undrained here, but still drained by {names}, which has not been heard of lately: run `weir undrain` there, or, if that Weir no longer exists, `weir undrain --force` here"
    )]
    WantedOutInSilence {
        /// The server.
        server: Endpoint,
        /// The Weirs.
        names: String,
    },
    /// `weir drain` is not what keeps it out.
    #[error(
        "{0} is OFFLINE_SOFT in mysql_servers, which `weir undrain` does not change: set its status to ONLINE there, and load it"
    )]
    OfflineSoft(Endpoint),
    /// What other Weirs have said of the server could not be taken back.
    #[error(
        "{0} is undrained here, but the rows of other Weirs in weir.drains could not be removed: see `weir status`"
    )]
    RowsRemain(Endpoint),
    /// The disk does not take the list.
    #[error("{}: the list of drained servers can't be written: {cause}", datadir.display())]
    Unsaved {
        /// Where it would be.
        datadir: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
    /// Weir is to end.
    #[error(transparent)]
    Ending(#[from] Ending),
}
