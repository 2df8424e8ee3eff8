//! Describes why a procedure was not carried out. What is shown here, users see.

use super::ServerError;
use crate::Endpoint;

/// Weir is to end, and nothing is waited for any more. Order again what was given up, once Weir runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("weir is shutting down")]
pub struct Ending;

/// Why a procedure was not carried out, or only in part.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ProcedureError {
    /// A server refused a statement, or gave no answer.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// Weir is to end.
    #[error(transparent)]
    Ending(#[from] Ending),
    /// Another Weir is at work: it has the lock of a server.
    #[error("another Weir is doing this: it holds the lock at {server}")]
    LockHeld {
        /// The server.
        server: Endpoint,
    },
    /// Fewer than half of the servers could be locked.
    #[error("only {locked} servers can be locked, {needed} are needed{}", because(.causes))]
    TooFewLocks {
        /// How many could.
        locked: usize,
        /// How many must.
        needed: usize,
        /// Why the others could not, where that is known.
        causes: Vec<ServerError>,
    },
    /// Locks were lost with their connections.
    #[error("only {locked} servers are still locked, {needed} are needed")]
    LocksLost {
        /// How many are left.
        locked: usize,
        /// How many must be.
        needed: usize,
    },
    /// The writer that is to be replaced lives.
    #[error("{server} is not lost: it answers")]
    WriterAnswers {
        /// The writer.
        server: Endpoint,
    },
    /// A replica takes writes: somebody may have made it the writer.
    #[error("{server} is not read_only: it may be the next writer already")]
    MaybeNextWriter {
        /// The replica.
        server: Endpoint,
    },
    /// A replica is connected to the writer that is to be replaced.
    #[error("{server} still receives from {lost}")]
    StillReceives {
        /// The replica.
        server: Endpoint,
        /// The writer.
        lost: Endpoint,
    },
    /// A replica has connected to the lost writer in the meantime.
    #[error("{server} receives from {lost} again")]
    ReceivesAgain {
        /// The replica.
        server: Endpoint,
        /// The writer.
        lost: Endpoint,
    },
    /// Fewer than half of the servers have lost the writer.
    #[error("only {votes} replicas report now that they can't connect to {lost}, {needed} are needed{}", each("; ", .left))]
    TooFewVotes {
        /// How many have.
        votes: usize,
        /// The writer.
        lost: Endpoint,
        /// How many must.
        needed: usize,
        /// What is known of the others.
        left: Vec<String>,
    },
    /// A replica's applier stands still.
    #[error("{server} does not apply what it has received: {error}")]
    AppliesNothing {
        /// The replica.
        server: Endpoint,
        /// The server's words.
        error: String,
    },
    /// A replica has not applied in time what it has received.
    #[error("{cause} (waited {seconds} s)")]
    AppliesTooSlowly {
        /// How the last wait ended.
        cause: ServerError,
        /// How long was waited in all.
        seconds: u64,
    },
    /// Fewer than half of the servers can replicate from the next writer.
    #[error("only {replicas} replicas can replicate from {target}, {needed} are needed")]
    TooFewReplicas {
        /// How many can.
        replicas: usize,
        /// The next writer.
        target: Endpoint,
        /// How many must.
        needed: usize,
    },
    /// A server takes writes that must not.
    #[error("{server} is writable")]
    Writable {
        /// The server.
        server: Endpoint,
    },
    /// Each replica that may be the writer lacks something that another one has.
    #[error("no replica that may become the writer has received everything that the others have: {}", .positions.join(" | "))]
    NoneHasAll {
        /// The replicas with their positions.
        positions: Vec<String>,
    },
    /// A server that should be a replica is none.
    #[error("{server} has no source")]
    NoSource {
        /// The server.
        server: Endpoint,
    },
    /// A replica is further than when it was compared with the others.
    #[error("{server} has received more meanwhile")]
    ReceivedMore {
        /// The replica.
        server: Endpoint,
    },
    /// The next writer was told to take writes and did not answer; its replicas stay with it.
    #[error("{server} may be writable ({cause}): the others replicate from it")]
    MaybeWritableSource {
        /// The next writer.
        server: Endpoint,
        /// What kept the answer away.
        cause: Box<ProcedureError>,
    },
    /// A server was told to take writes and did not answer.
    #[error("{server} may be writable: {cause}")]
    MaybeWritable {
        /// The server.
        server: Endpoint,
        /// What kept the answer away.
        cause: Box<ProcedureError>,
    },
    /// The target of a switchover was told to take writes, and nobody knows whether it does.
    #[error("{server} may be writable")]
    MaybeWritableTarget {
        /// The target.
        server: Endpoint,
    },
    /// An order had no answer, and then a new connection could not tell what has become of it.
    #[error("{cause}; then {again}")]
    Unanswered {
        /// What became of the order.
        cause: ServerError,
        /// What became of the question.
        again: Box<ProcedureError>,
    },
    /// Something failed, and not all that was done before could be undone.
    #[error("{cause}{}", each("; not undone: ", .left))]
    NotUndone {
        /// What failed.
        cause: Box<ProcedureError>,
        /// What could not be undone.
        left: Vec<String>,
    },
    /// A server takes writes after it was made read_only.
    #[error("{server} is not read_only although it was told to be")]
    NotReadOnly {
        /// The server.
        server: Endpoint,
    },
    /// A server has more than one source.
    #[error("{server} replicates from {sources} servers")]
    SeveralSources {
        /// The server.
        server: Endpoint,
        /// How many.
        sources: usize,
    },
    /// A new replica has not connected to its source in time.
    #[error("{server} does not replicate yet: {error}")]
    NotReplicating {
        /// The replica.
        server: Endpoint,
        /// The server's words.
        error: String,
    },
    /// The role has moved before there was the lock.
    #[error("{server} is not the writer any more")]
    NotTheWriter {
        /// The former writer.
        server: Endpoint,
    },
    /// A server that comes back has transactions of its own.
    #[error(
        "{server} has transactions that {writer} lacks ({errant}): it is read_only and gets no work until you have dealt with them and made it a replica of {writer}"
    )]
    Errant {
        /// The server.
        server: Endpoint,
        /// The writer.
        writer: Endpoint,
        /// The transactions.
        errant: String,
    },
    /// The old writer of a switchover has transactions of its own.
    #[error("{server} has transactions that {writer} lacks ({errant}): it is read_only")]
    ErrantOldWriter {
        /// The old writer.
        server: Endpoint,
        /// The next one.
        writer: Endpoint,
        /// The transactions.
        errant: String,
    },
    /// A server that comes back has been given another source.
    #[error("{server} is read_only, replicates from elsewhere and is left alone")]
    LeftAlone {
        /// The server.
        server: Endpoint,
    },
    /// More than one server takes writes.
    #[error("{} are writable: set read_only on all but one", .servers.join(" and "))]
    SeveralWritable {
        /// The servers.
        servers: Vec<String>,
    },
    /// The old writer of a switchover has been given a source.
    #[error("{server} replicates from another server by now")]
    ReplicatesByNow {
        /// The old writer.
        server: Endpoint,
    },
    /// The target of a switchover can't be asked whether it takes writes.
    #[error("{cause}: it may be writable, so {from} stays read_only")]
    TargetSilent {
        /// Why it can't.
        cause: Box<ProcedureError>,
        /// The old writer.
        from: Endpoint,
    },
    /// The target of a switchover is no replica of the old writer.
    #[error("{server} does not replicate from {source_server}")]
    NotItsReplica {
        /// The target.
        server: Endpoint,
        /// The old writer.
        source_server: Endpoint,
    },
    /// Both servers of a switchover have what the other lacks.
    #[error("{from} and {to} both have what the other lacks: {last} | {next}")]
    Diverged {
        /// The old writer.
        from: Endpoint,
        /// The target.
        to: Endpoint,
        /// The old writer's position.
        last: String,
        /// The target's.
        next: String,
    },
    /// A server has a source outside of the switchover.
    #[error("{server} replicates neither from {from} nor from {to}: there may be another writer")]
    AnotherSource {
        /// The server.
        server: Endpoint,
        /// The old writer.
        from: Endpoint,
        /// The target.
        to: Endpoint,
    },
    /// A server takes writes that Weir has made read_only.
    #[error("somebody else has made {server} writable")]
    OpenedByAnother {
        /// The server.
        server: Endpoint,
    },
    /// Two switchovers are in the journal, with different old writers.
    #[error("{one} and {two} are both recorded as old writers")]
    TwoOldWriters {
        /// One of them.
        one: Endpoint,
        /// The other.
        two: Endpoint,
    },
    /// A server of the switchover could not be locked.
    #[error("{server} does not answer")]
    Silent {
        /// The server.
        server: Endpoint,
    },
    /// An account that read_only does not stop writes to the old writer.
    #[error("a client that bypasses Weir still writes to {server}, although it is read_only")]
    WrittenBesideWeir {
        /// The old writer.
        server: Endpoint,
    },
    /// The old writer was made read_only by somebody else.
    #[error("{server} does not write any more")]
    WritesNoMore {
        /// The old writer.
        server: Endpoint,
    },
    /// The target takes writes before the switchover.
    #[error("{server} is writable already")]
    WritableAlready {
        /// The target.
        server: Endpoint,
    },
    /// A third server takes writes.
    #[error("{server} is writable, too")]
    WritableToo {
        /// The server.
        server: Endpoint,
    },
    /// The old writer takes no writes after it was made writable again.
    #[error("{server} is still read_only")]
    StillReadOnly {
        /// The old writer.
        server: Endpoint,
    },
    /// The old writer is a replica itself.
    #[error("{server} replicates from another server itself")]
    IsReplica {
        /// The old writer.
        server: Endpoint,
    },
    /// The target's replication is not fit for a switchover.
    #[error("{server} does not replicate by GTID, or: {error}")]
    Unfit {
        /// The target.
        server: Endpoint,
        /// The server's words.
        error: String,
    },
    /// The target has no source, or several.
    #[error("{server} replicates from {sources} servers, not from {source_server} alone")]
    NotItsReplicaAlone {
        /// The target.
        server: Endpoint,
        /// How many sources it has.
        sources: usize,
        /// The old writer.
        source_server: Endpoint,
    },
    /// A switchover failed and could not be undone; another Weir is at work on it.
    #[error("{cause}; {obstacle}")]
    LeftToAnother {
        /// What failed.
        cause: Box<ProcedureError>,
        /// Why it could not be undone.
        obstacle: Box<ProcedureError>,
    },
    /// A switchover failed and could not be undone, nor finished: nobody writes.
    #[error("{cause}; {obstacle}, so {from} stays read_only ({why}): {hint}")]
    HalfMade {
        /// What failed.
        cause: Box<ProcedureError>,
        /// Why it could not be undone.
        obstacle: Box<ProcedureError>,
        /// The old writer.
        from: Endpoint,
        /// Why it could not be finished.
        why: Box<ProcedureError>,
        /// What is to be done, by Weir or by hand.
        hint: String,
    },
}

impl ProcedureError {
    /// The same, with what could not be undone.
    pub(super) fn with(self, left: Vec<String>) -> Self {
        if left.is_empty() { self } else { Self::NotUndone { cause: Box::new(self), left } }
    }
}

fn each(before: &str, texts: &[String]) -> String {
    texts.iter().map(|text| format!("{before}{text}")).collect()
}

fn because(causes: &[ServerError]) -> String {
    let causes: Vec<String> = causes.iter().map(ToString::to_string).collect();
    if causes.is_empty() { String::new() } else { format!(": {}", causes.join("; ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_and_what_is_left_follow_the_words() {
        let left = || vec!["a".to_owned(), "b".to_owned()];
        let answers = || ProcedureError::WriterAnswers { server: Endpoint::new("db1", 3306) };
        assert_eq!(answers().with(Vec::new()).to_string(), "db1:3306 is not lost: it answers");
        assert_eq!(
            answers().with(left()).to_string(),
            "db1:3306 is not lost: it answers; not undone: a; not undone: b"
        );
        let lost = Endpoint::new("db1", 3306);
        let votes = ProcedureError::TooFewVotes { votes: 1, lost, needed: 2, left: left() };
        let told = "only 1 replicas report now that they can't connect to db1:3306, 2 are needed; a; b";
        assert_eq!(votes.to_string(), told);
        let locks = |causes| ProcedureError::TooFewLocks { locked: 1, needed: 2, causes }.to_string();
        let silent = |host| ServerError::no_answer(&Endpoint::new(host, 3306), "silent");
        let told = "only 1 servers can be locked, 2 are needed: a:3306: silent; b:3306: silent";
        assert_eq!(locks(vec![silent("a"), silent("b")]), told);
        assert_eq!(locks(Vec::new()), "only 1 servers can be locked, 2 are needed");
    }
}
