//! Writes the clients' scripts: commands by chance, fit for the state that the session is in.

use crate::client::Client;
use crate::random::Random;
use crate::token::{Token, Wishes};

/// What may happen in a run, and thus what a client has to put up with.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// Connections to servers break, dials fail.
    pub loses_connections: bool,
    /// Clients kill each other.
    pub kills: bool,
    /// There may be too few connections for all, or none.
    pub may_starve: bool,
    /// One writer, readers that follow.
    pub is_replicated: bool,
    /// Transactions write a row that tells whether they were committed.
    pub marks_commits: bool,
    /// A write in flight does not run again on the same server (`transaction_replay = 'safe'`). The world chooses by its seed.
    pub is_careful: bool,
    /// Users say what becomes of transactions, and hostgroups the opposite.
    pub users_decide: bool,
    /// Results of reads up to this size are held back until they are complete.
    pub retry_buffer_bytes: u32,
    /// Clients send reads of open transactions to the readers.
    pub leaves_transactions: bool,
    /// The cluster rolls back transactions that wait for their next statement (Galera's 1213).
    pub aborts: bool,
    /// Servers turn statements away for a while (Galera's 1047).
    pub turns_away: bool,
    /// New configurations come.
    pub reloads: bool,
    /// In the end the workers drain, and nobody quits by itself.
    pub drains: bool,
    /// A write in so many is longer than a megabyte; 0 for none.
    pub long_writes: usize,
    /// Clients vanish in the middle of anything.
    pub vanish_percent: u64,
    pub sleeps: bool,
    pub workers: usize,
    pub max_connections: u32,
    pub clients: usize,
    pub statements: usize,
    /// Results as long as this, now and then.
    pub kilobytes: usize,
}

/// The texts that clients prepare.
pub(crate) const STATEMENTS: [&str; 3] =
    ["SELECT ? FROM t", "SELECT ? FROM t WHERE 1=1", "INSERT INTO t VALUES (?)"];

/// What a SELECT may ask for besides its token.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Special {
    ConnectionId,
    RowCount,
    LastInsertId,
}

impl Special {
    pub(crate) fn sql(self) -> &'static str {
        match self {
            Self::ConnectionId => "CONNECTION_ID()",
            Self::RowCount => "ROW_COUNT()",
            Self::LastInsertId => "LAST_INSERT_ID()",
        }
    }
}

/// A command.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Read(Token),
    Write(Token),
    Special(Token, Special),
    /// Of the client's n-th statement.
    Execute(Token, usize),
    /// One of [`STATEMENTS`].
    Prepare(usize),
    Close(u32),
    /// BEGIN, COMMIT, ROLLBACK, KILL.
    Query(String),
    Use(String, String),
    InitDb(String),
    /// Text, name, value.
    Set(String, &'static str, String),
    Warnings(String, Option<String>),
    Reset,
    ChangeUser(&'static str, String),
    Ping,
    Quit,
}

/// The next command (or several at once) of a client with nothing on its mind.
pub(crate) fn next(client: &mut Client, random: &mut Random, rules: &Rules, ids: &[u32], now: u64) {
    if client.statements_left == 0 {
        return client.send(Op::Quit, now);
    }
    client.statements_left -= usize::from(!rules.drains);
    let op = match random.below(100) {
        0..30 => {
            let mut wishes = wishes(random, rules);
            let believed = &client.believed;
            wishes.leaves = rules.leaves_transactions
                && believed.in_transaction
                && believed.is_autocommit
                && random.percent(70);
            Op::Read(client.token(wishes, None))
        }
        30..45 => {
            let mut wishes = Wishes { sleep_ms: 0, kilobytes: 0, ..wishes(random, rules) };
            if rules.long_writes > 0 && random.below(rules.long_writes) == 0 {
                wishes.kilobytes = 900 + random.below(800);
            }
            Op::Write(client.token(wishes, None))
        }
        45..52 => {
            let special = random.pick(&[Special::ConnectionId, Special::RowCount, Special::LastInsertId]);
            Op::Special(client.token(Wishes::default(), None), special)
        }
        52..62 => transaction(client, random),
        62..74 => set(random),
        74..78 => {
            let schema = random.pick(&["a", "b", "c"]).to_string();
            if random.percent(50) { Op::InitDb(schema) } else { Op::Use(format!("USE {schema}"), schema) }
        }
        78..88 => prepared(client, random, rules),
        88..90 => Op::Reset,
        90..92 => {
            let user = if random.percent(50) { "app" } else { "bob" };
            Op::ChangeUser(user, random.pick(&["a", "b"]).to_string())
        }
        92..94 => Op::Ping,
        94..97 if rules.kills && ids.len() > 1 => {
            let what = random.pick(&["QUERY", "QUERY", "CONNECTION"]);
            Op::Query(format!("KILL {what} {}", random.pick(ids)))
        }
        _ => Op::Warnings("SHOW WARNINGS".into(), client.warning.clone()),
    };
    let may_follow = matches!(op, Op::Read(_))
        && client.believed.is_autocommit
        && !client.believed.in_transaction
        && random.percent(15);
    client.send(op, now);
    if may_follow {
        // Sent ahead, as some drivers do.
        let token = client.token(Wishes::default(), None);
        client.send(Op::Read(token), now);
    }
}

fn wishes(random: &mut Random, rules: &Rules) -> Wishes {
    Wishes {
        fails: random.percent(8),
        warns: random.percent(15),
        sleep_ms: if rules.sleeps && random.percent(10) { 1 + random.below(300) as u64 } else { 0 },
        leaves: false,
        kilobytes: if random.percent(4) { random.below(rules.kilobytes + 1) } else { 0 },
    }
}

fn transaction(client: &Client, random: &mut Random) -> Op {
    let text = match (client.believed.in_transaction, random.below(10)) {
        (true, 0..7) => "COMMIT",
        (true, _) => "ROLLBACK",
        (false, _) => "BEGIN",
    };
    Op::Query(text.into())
}

fn set(random: &mut Random) -> Op {
    let (text, name, value) = match random.below(9) {
        0 | 1 => {
            let value = format!("+0{}:00", random.below(4));
            (format!("SET time_zone='{value}'"), "time_zone", value)
        }
        2 => {
            let value = (5 + random.below(3)).to_string();
            (format!("SET SESSION innodb_lock_wait_timeout={value}"), "innodb_lock_wait_timeout", value)
        }
        3 => {
            let value = random.pick(&["ANSI_QUOTES", "STRICT_TRANS_TABLES"]).to_string();
            (format!("SET SESSION sql_mode='{value}'"), "sql_mode", value)
        }
        4 | 5 => {
            let value = random.pick(&["latin1", "utf8mb4"]).to_string();
            (format!("SET NAMES {value}"), "NAMES", value)
        }
        6 => {
            let value = random.below(100).to_string();
            (format!("SET @x={value}"), "@x", value)
        }
        7 => {
            let value = (1_000_000 + random.below(100)).to_string();
            (format!("SET last_insert_id={value}"), "last_insert_id", value)
        }
        _ => {
            let value = random.pick(&["0", "1", "1"]).to_string();
            (format!("SET autocommit={value}"), "autocommit", value)
        }
    };
    Op::Set(text, name, value)
}

fn prepared(client: &mut Client, random: &mut Random, rules: &Rules) -> Op {
    if client.statements.is_empty() || random.percent(25) {
        return Op::Prepare(random.below(STATEMENTS.len()));
    }
    let at = random.below(client.statements.len());
    if random.percent(10) {
        return Op::Close(client.statements.remove(at).id);
    }
    let statement = client.statements[at].clone();
    let mut wishes = wishes(random, rules);
    if statement.is_write {
        wishes.sleep_ms = 0;
        wishes.kilobytes = 0;
    }
    Op::Execute(client.token(wishes, Some(statement.prepared_in)), at)
}
