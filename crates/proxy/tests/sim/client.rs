//! A client: sends statements, knows what state its session must be in, and checks every reply.

use std::collections::VecDeque;

use weir_protocol::auth::native;
use weir_protocol::capability::Capabilities;
use weir_protocol::command::{ChangeUser, Command, StmtExecute};
use weir_protocol::frame;
use weir_protocol::handshake::MYSQL_NATIVE_PASSWORD;
use weir_protocol::ok::OK_HEADER;
use weir_protocol::wire::{Reader, put_lenenc_bytes};

use crate::cluster::{Cluster, Write};
use crate::random::Random;
use crate::reply::{Assembler, Reply};
use crate::script::{Op, Rules, STATEMENTS, Special};
use crate::server::variables::default_collation;
use crate::support::{self, take_packet};
use crate::token::{Claims, Token, Wishes};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Greeting,
    LoggingIn,
    Ready,
    /// Its session has ended, or is about to: nothing more is sent.
    Ending,
}

/// A statement that the client has prepared.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    pub id: u32,
    pub prepared_in: String,
    pub is_write: bool,
    pub is_bound: bool,
}

pub(crate) struct Client {
    pub index: usize,
    /// The id that Weir has given it.
    pub connection_id: u32,
    pub inbox: Vec<u8>,
    pub out: Vec<u8>,
    /// Weir has closed the connection.
    pub is_cut: bool,
    pub statements_left: usize,
    pub believed: Claims,
    pub statements: Vec<Statement>,
    pub user: &'static str,
    phase: Phase,
    capabilities: Capabilities,
    collation: u8,
    pending: VecDeque<(Op, u64)>,
    reply: Assembler,
    numbers: usize,
    /// Writes of the open transaction.
    uncommitted: Vec<(usize, usize)>,
    last_insert_id: u64,
    /// What SHOW WARNINGS is to tell, if that is certain.
    pub warning: Option<String>,
    pub row_count: Option<i64>,
}

/// The state of a session right after a login.
fn fresh(schema: &str, collation: u8) -> Claims {
    let charset = if collation == 8 { "latin1" } else { "utf8mb4" };
    Claims {
        schema: schema.into(),
        time_zone: String::new(),
        lock_wait: String::new(),
        sql_mode: String::new(),
        charset: charset.into(),
        collation: default_collation(charset).into(),
        is_autocommit: true,
        in_transaction: false,
        user_variable: String::new(),
        wrote: 0,
    }
}

impl Client {
    pub(crate) fn new(index: usize, random: &mut Random, statements_left: usize) -> Self {
        let collation = if random.percent(30) { 8 } else { 45 };
        let schema = random.pick(&["a", "a", "b"]);
        Self {
            index,
            connection_id: 0,
            inbox: Vec::new(),
            out: Vec::new(),
            is_cut: false,
            statements_left,
            believed: fresh(schema, collation),
            statements: Vec::new(),
            user: if random.percent(25) { "bob" } else { "app" },
            phase: Phase::Greeting,
            capabilities: if random.percent(30) { support::OLD } else { support::MODERN },
            collation,
            pending: VecDeque::new(),
            reply: Assembler::new(),
            numbers: 0,
            uncommitted: Vec::new(),
            last_insert_id: 0,
            warning: None,
            row_count: None,
        }
    }

    /// Since when the oldest command waits for its reply.
    pub(crate) fn waits_since(&self) -> Option<u64> {
        self.pending.front().map(|(_, sent_at)| *sent_at)
    }

    pub(crate) fn describe(&self) -> String {
        format!("client {} as {}: {:?}, pending {:?}", self.index, self.user, self.phase, self.pending)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.phase == Phase::Ready && self.pending.is_empty()
    }

    pub(crate) fn has_packet(&self) -> bool {
        frame::Header::parse(&self.inbox).is_some_and(|header| self.inbox.len() >= header.packet_len())
    }

    /// A token for the next statement, and the claims that go with it.
    pub(crate) fn token(&mut self, wishes: Wishes, prepared_in: Option<String>) -> Token {
        self.numbers += 1;
        Token { client: self.index, number: self.numbers, claims: self.believed.clone(), prepared_in, wishes }
    }

    /// Sends a command.
    pub(crate) fn send(&mut self, op: Op, now: u64) {
        trace!("client {} sends {op:?}", self.index);
        let mut body = Vec::new();
        let command = match &op {
            Op::Read(token) => {
                let hint = if token.wishes.leaves { "/* hostgroup=1 */ " } else { "" };
                body.extend(format!("{hint}SELECT '{token}' FROM t").bytes());
                Command::Query
            }
            Op::Special(token, special) => {
                body.extend(format!("SELECT {}, '{token}' FROM t", special.sql()).bytes());
                Command::Query
            }
            Op::Write(token) => {
                let filler = "z".repeat(token.wishes.kilobytes << 10);
                body.extend(format!("INSERT INTO t VALUES ('{token}{filler}')").bytes());
                Command::Query
            }
            Op::Execute(token, at) => {
                self.put_execute(token, *at, &mut body);
                Command::StmtExecute
            }
            Op::Prepare(which) => {
                body.extend(STATEMENTS[*which].bytes());
                Command::StmtPrepare
            }
            Op::Close(id) => {
                body.extend(id.to_le_bytes());
                Command::StmtClose
            }
            Op::Query(text) | Op::Use(text, _) | Op::Set(text, ..) | Op::Warnings(text, _) => {
                body.extend(text.bytes());
                Command::Query
            }
            Op::InitDb(schema) => {
                body.extend(schema.bytes());
                Command::InitDb
            }
            Op::Reset => Command::ResetConnection,
            Op::Ping => Command::Ping,
            Op::Quit => Command::Quit,
            Op::ChangeUser(user, schema) => return self.change_user(user, schema, op.clone(), now),
        };
        frame::packet(&mut self.out, &mut 0, |out| {
            out.push(command.code());
            out.extend_from_slice(&body);
        });
        match op {
            Op::Close(_) => {}
            Op::Quit => self.phase = Phase::Ending,
            op => self.pending.push_back((op, now)),
        }
    }

    fn put_execute(&mut self, token: &Token, at: usize, body: &mut Vec<u8>) {
        let statement = &mut self.statements[at];
        let mut whole = Vec::new();
        StmtExecute { stmt_id: statement.id, flags: 0, iteration_count: 1 }.write(&mut whole);
        body.extend_from_slice(&whole[1..]);
        body.push(0);
        // Types come with the first execution only, as drivers do it.
        body.push(u8::from(!statement.is_bound));
        if !statement.is_bound {
            body.extend([0xFD, 0]);
        }
        statement.is_bound = true;
        put_lenenc_bytes(body, token.to_string().as_bytes());
    }

    fn change_user(&mut self, user: &'static str, schema: &str, op: Op, now: u64) {
        let change = ChangeUser {
            user: user.as_bytes(),
            auth_data: b"",
            database: schema.as_bytes(),
            collation: Some(self.collation.into()),
            auth_plugin: Some(MYSQL_NATIVE_PASSWORD),
            attributes: Default::default(),
        };
        weir_protocol::command::put_change_user(&mut self.out, &change, self.capabilities);
        self.pending.push_back((op, now));
    }

    /// Reads one packet.
    pub(crate) fn read(&mut self, cluster: &mut Cluster, rules: &Rules) -> Result<(), String> {
        let Some((sequence, payload)) = take_packet(&mut self.inbox) else { return Ok(()) };
        match self.phase {
            Phase::Greeting => {
                let greeting =
                    weir_protocol::handshake::Greeting::parse(&payload).map_err(|e| e.to_string())?;
                self.connection_id = greeting.thread_id;
                let schema = self.believed.schema.clone();
                let login = support::login(
                    &payload,
                    self.capabilities,
                    self.user.as_bytes(),
                    schema.as_bytes(),
                    self.collation,
                );
                self.out.extend(login);
                self.phase = Phase::LoggingIn;
                Ok(())
            }
            Phase::LoggingIn if sequence == 2 && payload.first() == Some(&OK_HEADER) => {
                self.phase = Phase::Ready;
                Ok(())
            }
            Phase::LoggingIn => Err(format!("login answered with {}", payload.escape_ascii())),
            Phase::Ready | Phase::Ending => self.reply(sequence, &payload, cluster, rules),
        }
    }

    fn reply(
        &mut self,
        sequence: u8,
        payload: &[u8],
        cluster: &mut Cluster,
        rules: &Rules,
    ) -> Result<(), String> {
        let Some((op, _)) = self.pending.front() else {
            return Err(format!("bytes that nobody asked for: {}", payload.escape_ascii()));
        };
        let is_prepare = matches!(op, Op::Prepare(_));
        let Some(reply) = self.reply.packet(sequence, payload, is_prepare, self.capabilities)? else {
            return Ok(());
        };
        if let Reply::Switch(request) = reply {
            let scramble = &request[MYSQL_NATIVE_PASSWORD.len() + 2..][..20];
            let proof = native::response(support::PASSWORD, scramble.try_into().expect("20 bytes"));
            let mut next = self.reply.sequence;
            let proof = proof.expect("a password");
            frame::packet(&mut self.out, &mut next, |out| out.extend_from_slice(&proof));
            self.reply.sequence = next;
            return Ok(());
        }
        self.reply = Assembler::new();
        let Some((op, _)) = self.pending.pop_front() else { return Ok(()) };
        trace!(
            "client {} gets {}",
            self.index,
            format!("{reply:?}").get(..200).map_or(format!("{reply:?}"), str::to_owned)
        );
        let told = format!("{op:?}");
        self.take(op, reply, cluster, rules).map_err(|fault| format!("{fault}\n  to {told}"))
    }

    /// The whole reply to a command.
    fn take(&mut self, op: Op, reply: Reply, cluster: &mut Cluster, rules: &Rules) -> Result<(), String> {
        let warning = self.warning.take();
        let row_count = self.row_count.take();
        if let Reply::Err { code, message } = &reply {
            return self.take_error(&op, *code, message, cluster, rules);
        }
        match (op, reply) {
            (Op::Read(token), Reply::Rows(rows)) => self.take_row(&token, &rows, 0, |_| Ok(())),
            (Op::Execute(token, _), Reply::Rows(rows)) => {
                // 0x00 and a bitmap stand in front of a binary row.
                self.take_row(&token, &rows, 2, |_| Ok(()))
            }
            (Op::Special(token, special), Reply::Rows(rows)) => {
                let expected = match special {
                    Special::ConnectionId => Some(i64::from(self.connection_id)),
                    Special::RowCount => row_count,
                    Special::LastInsertId => Some(self.last_insert_id as i64),
                };
                self.take_row(&token, &rows, 0, |extra| match expected {
                    Some(expected) if expected.to_string().as_bytes() != extra => {
                        Err(format!("{} is {} where it is {expected}", special.sql(), extra.escape_ascii()))
                    }
                    _ => Ok(()),
                })
            }
            (
                Op::Write(token) | Op::Execute(token, _),
                Reply::Ok { affected_rows: 1, insert_id, warnings },
            ) => self.take_write(&token, insert_id, warnings, cluster, rules),
            (Op::Warnings(_, expected), Reply::Rows(rows)) => {
                let expected = expected.or(warning);
                let has = |text: &String| {
                    rows.iter().any(|row| row.windows(text.len()).any(|part| part == text.as_bytes()))
                };
                match expected {
                    Some(text) if !rules.loses_connections && !has(&text) => {
                        Err(format!("SHOW WARNINGS has {} rows and not {text}", rows.len()))
                    }
                    _ => Ok(()),
                }
            }
            (Op::Prepare(which), Reply::Prepared { id, params: 1 }) => {
                let is_write = STATEMENTS[which].starts_with("INSERT");
                let prepared_in = self.believed.schema.clone();
                self.statements.push(Statement { id, prepared_in, is_write, is_bound: false });
                Ok(())
            }
            (op, Reply::Ok { .. }) => self.take_ok(op, cluster, rules),
            (_, reply) => Err(format!("an unfitting reply: {reply:?}")),
        }
    }

    fn take_row(
        &mut self,
        token: &Token,
        rows: &[Vec<u8>],
        skip: usize,
        extra: impl Fn(&[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        let [row] = rows else { return Err(format!("{} rows where one was due", rows.len())) };
        let mut reader = Reader::new(row.get(skip..).unwrap_or_default());
        let mut value = reader.lenenc_bytes().map_err(|error| error.to_string())?;
        if !reader.is_empty() {
            extra(value)?;
            value = reader.lenenc_bytes().map_err(|error| error.to_string())?;
        }
        let text = token.to_string();
        if !value.starts_with(text.as_bytes()) || value.len() != text.len() + (token.wishes.kilobytes << 10) {
            let start = value.get(..300).unwrap_or(value);
            return Err(format!("somebody else's row: {}", start.escape_ascii()));
        }
        self.believed.in_transaction |= !self.believed.is_autocommit;
        self.row_count = Some(-1);
        Ok(())
    }

    fn take_write(
        &mut self,
        token: &Token,
        insert_id: u64,
        warnings: u16,
        cluster: &mut Cluster,
        rules: &Rules,
    ) -> Result<(), String> {
        let write = cluster.writes.get(&token.name()).copied().unwrap_or_default();
        let has_run = write.runs == 1 || (rules.is_replicated && write.runs > 0);
        if !has_run || write.insert_id != insert_id || warnings != u16::from(token.wishes.warns) {
            return Err(format!("an OK that is not this write's: {write:?}"));
        }
        self.last_insert_id = insert_id;
        self.row_count = Some(1);
        self.warning = token.wishes.warns.then(|| token.to_string());
        self.believed.in_transaction |= !self.believed.is_autocommit;
        self.uncommitted.push(token.name());
        if self.believed.in_transaction { Ok(()) } else { self.committed(cluster, rules) }
    }

    /// What the session has written must be committed now.
    fn committed(&mut self, cluster: &mut Cluster, rules: &Rules) -> Result<(), String> {
        for name in std::mem::take(&mut self.uncommitted) {
            let write = cluster.writes.get(&name).copied().unwrap_or_default();
            if write.committed == 0 {
                return Err(format!("write {name:?} was acknowledged and is not committed"));
            }
            if rules.is_replicated {
                self.believed.wrote = self.believed.wrote.max(write.committed);
            }
        }
        Ok(())
    }

    fn take_ok(&mut self, op: Op, cluster: &mut Cluster, rules: &Rules) -> Result<(), String> {
        self.row_count = Some(0);
        match op {
            Op::Query(text) => match text.as_str() {
                "BEGIN" => {
                    self.believed.in_transaction = true;
                    self.committed(cluster, rules)
                }
                "COMMIT" => {
                    self.believed.in_transaction = false;
                    self.committed(cluster, rules)
                }
                "ROLLBACK" => {
                    self.believed.in_transaction = false;
                    self.uncommitted.clear();
                    Ok(())
                }
                _ => {
                    self.row_count = None; // KILL
                    Ok(())
                }
            },
            Op::Use(_, schema) | Op::InitDb(schema) => {
                self.believed.schema = schema;
                Ok(())
            }
            Op::Set(_, name, value) => self.take_set(name, value, cluster, rules),
            Op::Reset | Op::ChangeUser(..) => {
                let schema = match &op {
                    Op::ChangeUser(_, schema) => schema.clone(),
                    _ => self.believed.schema.clone(),
                };
                if let Op::ChangeUser(user, _) = op {
                    self.user = user;
                }
                let wrote = self.believed.wrote;
                self.believed = Claims { wrote, ..fresh(&schema, self.collation) };
                self.uncommitted.clear();
                self.statements.clear();
                self.last_insert_id = 0;
                Ok(())
            }
            Op::Ping => Ok(()),
            op => Err(format!("OK as the reply to {op:?}")),
        }
    }

    fn take_set(
        &mut self,
        name: &'static str,
        value: String,
        cluster: &mut Cluster,
        rules: &Rules,
    ) -> Result<(), String> {
        let believed = &mut self.believed;
        match name {
            "time_zone" => believed.time_zone = value,
            "innodb_lock_wait_timeout" => believed.lock_wait = value,
            "sql_mode" => believed.sql_mode = value,
            "@x" => believed.user_variable = value,
            "last_insert_id" => self.last_insert_id = value.parse().unwrap_or(0),
            "NAMES" => {
                believed.collation = default_collation(&value).into();
                believed.charset = value;
            }
            _ => {
                believed.is_autocommit = value == "1";
                if believed.is_autocommit {
                    believed.in_transaction = false;
                    return self.committed(cluster, rules);
                }
            }
        }
        Ok(())
    }

    fn take_error(
        &mut self,
        op: &Op,
        code: u16,
        message: &str,
        cluster: &mut Cluster,
        rules: &Rules,
    ) -> Result<(), String> {
        self.row_count = Some(-1);
        let token = match op {
            Op::Read(token) | Op::Write(token) | Op::Special(token, _) | Op::Execute(token, _) => Some(token),
            _ => None,
        };
        if let Some(token) = token
            && token.wishes.fails
            && code == 1146
        {
            self.warning = Some(token.to_string());
            return if message == token.to_string() {
                Ok(())
            } else {
                Err(format!("somebody else's error: {message}"))
            };
        }
        // On a connection of their own, they need the session's state; a reader may refuse it.
        let is_state_refused = token.is_some_and(|token| token.wishes.leaves)
            && message.contains("restoring the session's state");
        let is_alone = self.believed.is_autocommit && !self.believed.in_transaction;
        let writes_alone = matches!(op, Op::Write(_)) && is_alone && rules.marks_commits;
        if writes_alone && matches!(code, 1213 | 9001) {
            self.uncommitted.extend(token.map(Token::name));
        }
        if code == 1213 || (writes_alone && code == 9001) {
            self.believed.in_transaction = false;
            for name in std::mem::take(&mut self.uncommitted) {
                if cluster.writes.get(&name).is_some_and(|write| write.committed != 0) {
                    return Err(format!("write {name:?} was committed, and is said to be rolled back"));
                }
                cluster.given_up.insert(name);
            }
        }
        // One that has written nothing has no row.
        let is_marked_commit = rules.marks_commits
            && !self.uncommitted.is_empty()
            && !rules.kills
            && matches!(op, Op::Query(text) if text == "COMMIT")
            && code == 1053;
        if is_marked_commit && message.contains("with it: transaction: it may or may not") {
            return Err(format!("of a COMMIT nobody is said to know: {message}"));
        }
        let loses_it_alone = ["the statement ran: it may", "with it: transaction: it may"];
        // With `safe` it may have gone to a table without transactions.
        if writes_alone
            && !rules.is_careful
            && !rules.kills
            && code == 1053
            && loses_it_alone.iter().any(|words| message.contains(words))
        {
            return Err(format!("of a write nobody is said to know: {message}"));
        }
        let is_fine = match code {
            1213 => {
                rules.aborts
                    || (rules.turns_away && message.contains("has left its cluster"))
                    || (rules.is_replicated && message.contains("can't be run again"))
            }
            1047 => rules.turns_away,
            1317 | 1927 => rules.kills,
            1053 => rules.loses_connections || rules.kills,
            9001 => rules.may_starve,
            // It went with a connection: no answer is better than an older one.
            1105 => {
                let loses = rules.loses_connections || rules.turns_away;
                let lost = ["LAST_INSERT_ID() is lost", "the diagnostics of the last statement are gone"];
                loses && lost.iter().any(|what| message.contains(what))
            }
            1094 | 1095 => matches!(op, Op::Query(text) if text.starts_with("KILL")),
            _ => false,
        };
        let has_effect = |write: &Write| match rules.is_replicated {
            // A server that has not heard of the loss yet still has it open.
            true if writes_alone => write.committed != 0,
            true => write.committed != 0 || (write.runs > 0 && !write.is_rolled_back),
            false => write.runs > 0,
        };
        let ran = token.and_then(|token| cluster.writes.get(&token.name())).is_some_and(has_effect);
        if ran && (code == 9001 || message.contains("had no effect")) {
            return Err(format!("a write that ran is said not to have: {code} {message}"));
        }
        if code == 1053 {
            self.phase = Phase::Ending;
        }
        if is_fine || is_state_refused { Ok(()) } else { Err(format!("error {code}: {message}")) }
    }

    /// Weir has closed the connection.
    pub(crate) fn cut(&mut self, rules: &Rules) -> Result<(), String> {
        let has_left = std::mem::replace(&mut self.is_cut, true);
        let is_expected =
            has_left || rules.drains || self.phase == Phase::Ending || rules.loses_connections || rules.kills;
        if is_expected { Ok(()) } else { Err(format!("Weir has hung up on {}", self.describe())) }
    }
}
