//! The same sessions twice: at Weir, and straight at the writer in a copy of the schemas.

use std::error::Error;
use std::fs;
use std::net::SocketAddrV4;
use std::time::Duration;

use weir_protocol::capability::Capabilities;
use weir_protocol::charset;
use weir_protocol::resultset::ColumnDefinition;
use weir_protocol::status::StatusFlags;
use weir_testkit::wire::Login;
use weir_testkit::{Account, Weir};
use weir_tests::session::{Answer, Done, Outcome, Param, Prepared};
use weir_tests::{Env, Session, eventually};

use super::generate::{Action, SESSIONS, SLOTS, Step};
use super::target::{Family, Target};

/// Weir's number for a wait in vain.
const NO_CONNECTION: u16 = 9001;
const UNKNOWN_STATEMENT: u16 = 1243;
/// How long a slow machine may take for what comes about by itself.
const PATIENCE: Duration = Duration::from_secs(60);
/// Status flags that mean something to an application.
const FLAGS: StatusFlags = StatusFlags::IN_TRANS
    .union(StatusFlags::AUTOCOMMIT)
    .union(StatusFlags::MORE_RESULTS_EXISTS)
    .union(StatusFlags::DB_DROPPED)
    .union(StatusFlags::NO_BACKSLASH_ESCAPES)
    .union(StatusFlags::IN_TRANS_READONLY);

/// What a trace shows nothing with: the monitor, the preparation of the tables.
const TRACE_WITHOUT: [&str; 6] = [
    "wsrep_",
    "monitor",
    "DELETE FROM t",
    "SHOW TABLES LIKE 'x%'",
    "INFORMATION_SCHEMA",
    "session_track_state_change=ON",
];

/// The first answer that is not the same.
#[derive(Debug)]
pub(super) struct Mismatch {
    /// Which step.
    pub(super) at: usize,
    pub(super) through: String,
    pub(super) straight: String,
}

type Failure = Box<dyn Error>;

/// Weir, the servers behind it and both copies of the schemas.
pub(super) struct Stage<'a> {
    // The sessions need it.
    _weir: Weir,
    target: Target<'a>,
    runs: u32,
    through: Side,
    straight: Side,
}

/// One of the twins.
struct Side {
    server: SocketAddrV4,
    /// What the names of its schemas begin with: of the same length for both.
    prefix: String,
    players: Vec<Player>,
}

/// A session with its prepared statements.
struct Player {
    session: Session,
    login: Login,
    slots: [Option<Slot>; SLOTS],
    is_second_user: bool,
}

struct Slot {
    sql: String,
    prepared: Prepared,
    has_types: bool,
}

impl<'a> Stage<'a> {
    pub(super) fn new(env: &'a Env, family: Family) -> Result<Stage<'a>, Failure> {
        let (weir, target) = Target::start(env, family)?;
        let side = |server| Side { server, prefix: String::new(), players: Vec::new() };
        let (through, straight) = (side(weir.addr()), side(target.writer_addr()));
        let mut stage = Stage { _weir: weir, target, runs: 0, through, straight };
        stage.renew()?;
        Ok(stage)
    }

    /// Fresh schemas, after a failure has made the copies differ.
    pub(super) fn renew(&mut self) -> Result<(), Failure> {
        let root = self.target.writer_addr();
        self.runs += 1;
        for (side, letter) in [(&mut self.through, 'w'), (&mut self.straight, 's')] {
            side.players.clear();
            if !side.prefix.is_empty() {
                let mut session = Session::open(root, "test")?;
                session.run(&format!("DROP DATABASE {}a", side.prefix))?;
                session.run(&format!("DROP DATABASE {}b", side.prefix))?;
            }
            side.prefix = format!("p{letter}{:04}", self.runs);
            side.create(root, self.target.family())?;
        }
        Ok(())
    }

    /// Plays the steps on both sides. Returns how many ran, and the first that differs.
    pub(super) fn play(&mut self, steps: &[Step]) -> Result<(usize, Option<Mismatch>), Failure> {
        for side in [&mut self.through, &mut self.straight] {
            side.players.clear();
            side.clean(self.target.writer_addr())?;
        }
        (0..SESSIONS).try_for_each(|session| self.wait_begun_anew(session))?;
        for side in [&mut self.through, &mut self.straight] {
            side.players = (0..SESSIONS).map(|at| side.player(at)).collect::<Result<_, _>>()?;
        }
        let mut ran = 0;
        for (at, step) in steps.iter().enumerate() {
            match self.step(step)? {
                Compared::Same => ran += 1,
                Compared::NotRun => self.let_go()?,
                Compared::Different { through, straight } => {
                    return Ok((ran, Some(Mismatch { at, through, straight })));
                }
            }
        }
        for session in 0..SESSIONS {
            if let Some((through, straight)) = self.different_settings(session)? {
                return Ok((ran, Some(Mismatch { at: steps.len().saturating_sub(1), through, straight })));
            }
        }
        Ok((ran, None))
    }

    /// Plays the steps once more; returns what both nodes were sent meanwhile, by whomever.
    pub(super) fn trace(&mut self, steps: &[Step]) -> Result<String, Failure> {
        self.renew()?;
        let files = self.target.start_logs()?;
        let played = self.play(steps);
        self.target.stop_logs()?;
        let mut text = String::new();
        for (name, file) in files {
            let log = String::from_utf8_lossy(&fs::read(file)?).into_owned();
            let lines = log.lines().filter(|line| !TRACE_WITHOUT.iter().any(|part| line.contains(part)));
            text += &format!("{name}:\n{}\n", lines.collect::<Vec<&str>>().join("\n"));
        }
        played.map(|_| text)
    }

    fn step(&mut self, step: &Step) -> Result<Compared, Failure> {
        let through = self.through.act(step)?;
        if through.answer.as_ref().is_some_and(is_refused) {
            return Ok(Compared::NotRun);
        }
        let straight = self.straight.act(step)?;
        if matches!(step.action, Action::Reconnect | Action::ChangeUser(_)) {
            self.wait_begun_anew(step.session)?;
        }
        let is_without_found_rows = through.is_without_found_rows;
        let (through, straight) =
            (through.text, straight.text.replace(&self.straight.prefix, &self.through.prefix));
        if through != straight {
            return Ok(Compared::Different { through, straight });
        }
        Ok(if is_without_found_rows { Compared::NotRun } else { Compared::Same })
    }

    /// A session has just left, and another one comes in its place: that finds the locks of the one before until both
    /// sides have cleaned up behind it, and it may find the reader behind what the one before wrote.
    fn wait_begun_anew(&self, session: usize) -> Result<(), Failure> {
        let mut asking = Session::open(self.target.writer_addr(), "test")?;
        for side in [&self.through, &self.straight] {
            let is_used = format!("SELECT IS_USED_LOCK('{}l{session}') IS NOT NULL", side.prefix);
            eventually("the lock of a session that left is free", PATIENCE, || {
                Ok(asking.value(&is_used)? == "0")
            })?;
        }
        self.target.wait_reader()?;
        Ok(())
    }

    /// Too many sessions hold connections: all begin anew.
    fn let_go(&mut self) -> Result<(), Failure> {
        for side in [&mut self.through, &mut self.straight] {
            for player in &mut side.players {
                player.session.reset()?.done()?;
                player.slots = Default::default();
            }
            for player in &mut side.players {
                player.wait_found_rows()?;
            }
        }
        Ok(())
    }

    /// All variables of a session, where they differ; not those that hold a connection's own ids and positions.
    fn different_settings(&mut self, session: usize) -> Result<Option<(String, String)>, Failure> {
        const SQL: &str = "SHOW SESSION VARIABLES WHERE Variable_name NOT LIKE 'session_track%' AND Variable_name NOT LIKE 'gtid%' AND Variable_name NOT IN \
             ('pseudo_thread_id', 'last_gtid', 'timestamp', 'rand_seed1', 'rand_seed2', 'last_insert_id', 'identity', \
             'insert_id', 'error_count', 'warning_count', 'statement_id')";
        let answer = self.through.players[session].session.query(SQL)?;
        if is_refused(&answer) {
            return Ok(None);
        }
        let straight = self.straight.players[session].session.query(SQL)?;
        if answer.error().is_some() && answer.error() == straight.error() {
            // Another session's DDL has ended the transaction.
            return Ok(None);
        }
        let named = |error| format!("settings of session {session}: {error}");
        let (through, straight) = (answer.rows().map_err(named)?, straight.rows().map_err(named)?);
        let as_through =
            |row: &Vec<String>| row.join("=").replace(&self.straight.prefix, &self.through.prefix);
        let straight: Vec<String> = straight.iter().map(as_through).collect();
        let through: Vec<String> = through.iter().map(|row| row.join("=")).collect();
        let only = |these: &[String], those: &[String]| -> Vec<String> {
            these.iter().filter(|line| !those.contains(line)).cloned().collect()
        };
        let (more, less) = (only(&through, &straight), only(&straight, &through));
        let shown = |lines: Vec<String>| format!("settings of session {session}: {}", lines.join(", "));
        Ok((more != less).then(|| (shown(more), shown(less))))
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        for side in [&mut self.through, &mut self.straight] {
            side.players.clear();
            // The servers go with their data in any case.
            let _ = self.target.root_query(&format!("DROP DATABASE {0}a; DROP DATABASE {0}b", side.prefix));
        }
    }
}

enum Compared {
    Same,
    /// Weir had no connection for it, so it did not run straight either.
    NotRun,
    Different {
        through: String,
        straight: String,
    },
}

/// An answer, and what of it must be the same.
struct Acted {
    answer: Option<Answer>,
    text: String,
    /// There was no connection for [`Player::give_found_rows`] afterwards.
    is_without_found_rows: bool,
}

impl Acted {
    fn new(answer: Option<Answer>, text: String) -> Acted {
        Acted { answer, text, is_without_found_rows: false }
    }
}

impl Side {
    fn create(&self, server: SocketAddrV4, family: Family) -> Result<(), Failure> {
        let mut session = Session::open(server, "test")?;
        for letter in ["b", "a"] {
            session.run(&format!("CREATE DATABASE {}{letter}", self.prefix))?;
            session.use_schema(&format!("{}{letter}", self.prefix))?.done()?;
            for at in 0..SESSIONS {
                session.run(&format!("CREATE TABLE t{at} (id INT PRIMARY KEY AUTO_INCREMENT, v INT)"))?;
            }
        }
        // Elsewhere statements that use them fail on both sides.
        if family == Family::Galera {
            for at in 0..SESSIONS {
                session.run(&format!("CREATE SEQUENCE q{at} NOCACHE"))?;
            }
        }
        for sql in [
            "CREATE PROCEDURE p_set() SET time_zone = '+11:00', @x = 11",
            "CREATE PROCEDURE p_fail(n INT) BEGIN SET time_zone = '+07:00', @x = n; CREATE TEMPORARY TABLE IF NOT EXISTS \
             left_over AS SELECT n; SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'enough'; END",
            "CREATE PROCEDURE p_temp(n INT) CREATE TEMPORARY TABLE IF NOT EXISTS of_call AS SELECT n",
            "CREATE PROCEDURE p_rows(n INT) BEGIN SELECT n; SELECT n + 1, DATABASE(); END",
            "CREATE FUNCTION f(n INT) RETURNS INT NO SQL BEGIN SET @y = n; RETURN n; END",
        ] {
            session.run(sql)?;
        }
        Ok(())
    }

    /// Empties all tables.
    fn clean(&self, server: SocketAddrV4) -> Result<(), Failure> {
        let mut session = Session::open(server, "test")?;
        for letter in ["a", "b"] {
            session.use_schema(&format!("{}{letter}", self.prefix))?.done()?;
            let more = session.rows("SHOW TABLES LIKE 'x%'")?;
            for table in more.concat() {
                session.run(&format!("DROP TABLE {table}"))?;
            }
            for at in 0..SESSIONS {
                session.run(&format!("DELETE FROM t{at}"))?;
            }
        }
        Ok(())
    }

    fn player(&self, at: usize) -> Result<Player, Failure> {
        let schema = format!("{}{}", self.prefix, if at == 1 { "b" } else { "a" });
        let mut login = Login::new(Account::APP).schema(&schema);
        match at {
            1 => login.capabilities |= Capabilities::FOUND_ROWS,
            2 => login.capabilities |= Capabilities::MULTI_STATEMENTS,
            3 => login.capabilities |= Capabilities::MULTI_STATEMENTS | Capabilities::SESSION_TRACK,
            4 => login.capabilities -= Capabilities::DEPRECATE_EOF,
            _ => {}
        }
        if at == 4 {
            login.collation = 8; // latin1_swedish_ci
        }
        let mut player = Player::new(self.server, login)?;
        player.wait_found_rows()?;
        Ok(player)
    }

    fn act(&mut self, step: &Step) -> Result<Acted, Failure> {
        let prefix = self.prefix.clone();
        if step.action == Action::Reconnect {
            let login = self.players[step.session].login.clone();
            self.players[step.session] = Player::new(self.server, login)?;
            let is_without_found_rows = !self.players[step.session].give_found_rows()?;
            return Ok(Acted { is_without_found_rows, ..Acted::new(None, String::new()) });
        }
        let player = &mut self.players[step.session];
        let acted = player.act(&step.action, &prefix);
        acted.map_err(|error| format!("{step}: {error}").into())
    }
}

impl Player {
    fn new(server: SocketAddrV4, login: Login) -> Result<Player, Failure> {
        let session = Session::with(server, &login)?;
        Ok(Player { session, login, slots: Default::default(), is_second_user: false })
    }

    /// Servers leave FOUND_ROWS() of a session that begins to chance: it is that of an earlier one. False if there was
    /// no connection for that.
    fn give_found_rows(&mut self) -> Result<bool, Failure> {
        Ok(!is_refused(&self.session.query("SELECT 1")?))
    }

    /// Makes both sides the same again in what Weir can't know after such a statement: FOUND_ROWS(), and whether older
    /// warnings are over. False if there was no connection for that.
    fn level(&mut self, sql: &str, answer: &Answer) -> Result<bool, Failure> {
        if is_refused(answer) || !(runs_unseen(sql) || has_hidden_query(sql)) {
            return Ok(true);
        }
        if runs_unseen(sql) && answer.done().is_ok_and(|done| done.warnings == 0) {
            // It uses a table, which ends older warnings.
            return Ok(!is_refused(&self.session.query("SHOW TABLES LIKE 'nothing'")?));
        }
        self.give_found_rows()
    }

    /// [`Player::give_found_rows`] while no session holds a connection for long.
    fn wait_found_rows(&mut self) -> Result<(), Failure> {
        eventually("there is a connection for a session that begins", PATIENCE, || self.give_found_rows())
    }

    fn act(&mut self, action: &Action, prefix: &str) -> Result<Acted, Failure> {
        let id = self.session.id().to_string();
        let text = |sql: &str| sql.replace("{p}", prefix).replace("{id}", &id);
        let answer = match action {
            Action::Query(sql) => {
                let answer = self.session.query(&text(sql))?;
                let is_without_found_rows = !self.level(sql, &answer)?;
                let text = essence(&answer, !is_answered_by_weir(sql));
                return Ok(Acted { is_without_found_rows, ..Acted::new(Some(answer), text) });
            }
            // MySQL's answers to these two repeat the number of warnings of whatever ran last.
            Action::InitDb(_) | Action::Ping => {
                let answer = match action {
                    Action::InitDb(schema) => self.session.use_schema(&text(schema))?,
                    _ => self.session.ping()?,
                };
                let status = answer.done().map(|done| done.status & FLAGS);
                return Ok(Acted::new(Some(answer), format!("{status:?}")));
            }
            Action::Prepare(slot, sql) => return self.prepare(*slot, &text(sql)),
            Action::Execute(slot, params) => return self.execute(*slot, params, true),
            Action::ExecuteAgain(slot, params) => return self.execute(*slot, params, false),
            Action::Close(slot) => {
                if let Some(slot) = self.slots[*slot].take() {
                    self.session.close(&slot.prepared)?;
                }
                return Ok(Acted::new(None, String::new()));
            }
            Action::Reset => {
                self.slots = Default::default();
                self.session.reset()?
            }
            Action::ChangeUser(schema) => {
                self.slots = Default::default();
                self.is_second_user = !self.is_second_user;
                let account = if self.is_second_user { Account::APP2 } else { Account::APP };
                let schema = text(schema);
                self.session.change_user(account, &schema)?
            }
            Action::Reconnect => return Err("the side does this".into()),
        };
        let is_without_found_rows = !self.give_found_rows()?;
        let text = essence(&answer, true);
        Ok(Acted { is_without_found_rows, ..Acted::new(Some(answer), text) })
    }

    fn prepare(&mut self, slot: usize, sql: &str) -> Result<Acted, Failure> {
        if let Some(old) = self.slots[slot].take() {
            self.session.close(&old.prepared)?;
        }
        match self.session.try_prepare(sql)? {
            Ok(prepared) => {
                let columns: Vec<String> = prepared.columns.iter().map(|bytes| definition(bytes)).collect();
                let text = format!("{} parameters, columns {columns:?}", prepared.params);
                self.slots[slot] = Some(Slot { sql: sql.to_owned(), prepared, has_types: false });
                Ok(Acted::new(None, text))
            }
            Err(outcome) => {
                let answer = Answer { results: vec![outcome] };
                let text = essence(&answer, true);
                Ok(Acted::new(Some(answer), text))
            }
        }
    }

    fn execute(&mut self, slot: usize, params: &[Param], with_types: bool) -> Result<Acted, Failure> {
        // A statement of this slot that could not be prepared.
        let Some(slot) = &mut self.slots[slot] else {
            return Ok(Acted::new(None, String::new()));
        };
        let mut params = params.to_vec();
        params.resize(usize::from(slot.prepared.params), Param::Null);
        // Types that were sent once hold; those of other values than integers are sent always.
        let are_integers = params.iter().all(|param| matches!(param, Param::Int(_)));
        let with_types = with_types || !slot.has_types || !are_integers;
        let answer = self.session.execute_with(&slot.prepared, &params, with_types)?;
        slot.has_types = are_integers;
        let sql = slot.sql.clone();
        let is_without_found_rows = !self.level(&sql, &answer)?;
        let text = essence(&answer, true);
        Ok(Acted { is_without_found_rows, ..Acted::new(Some(answer), text) })
    }
}

/// Weir had no connection for it.
fn is_refused(answer: &Answer) -> bool {
    answer.error() == Some(NO_CONNECTION)
}

/// A query whose rows are not sent sets FOUND_ROWS() too, which Weir does not follow.
fn has_hidden_query(sql: &str) -> bool {
    sql.contains(" SELECT ")
        && !["SELECT", "(SELECT", "WITH", "EXECUTE"].iter().any(|verb| sql.starts_with(verb))
}

/// What runs in it does not show: there may be a query, and tables, or nothing.
fn runs_unseen(sql: &str) -> bool {
    ["CALL", "EXECUTE", "BEGIN NOT"].iter().any(|verb| sql.starts_with(verb))
}

/// Weir puts a literal in its place, whose definition may differ.
fn is_answered_by_weir(sql: &str) -> bool {
    ["_COUNT()", "FOUND_ROWS()", "CONNECTION_ID()", "session_track", "_count"]
        .iter()
        .any(|part| sql.contains(part))
        || sql.starts_with("SHOW")
}

/// What must be the same.
fn essence(answer: &Answer, with_definitions: bool) -> String {
    let results = answer.results.iter().map(|outcome| match outcome {
        Outcome::Ok(done) => format!("OK, {}", done_text(done)),
        // It names the statement by the id that this connection knows it by.
        Outcome::Err { code: UNKNOWN_STATEMENT, .. } => format!("error {UNKNOWN_STATEMENT}"),
        Outcome::Err { code, sqlstate, message } => {
            format!("error {code} {sqlstate} {}", without_row_number(message))
        }
        Outcome::Rows(rows) => {
            let columns: Vec<String> = if with_definitions {
                rows.columns.iter().map(|c| definition(c)).collect()
            } else {
                rows.names()
            };
            let values = if with_definitions {
                rows.rows.iter().map(|row| shown(row)).collect()
            } else {
                let text = rows.text_rows().unwrap_or_default();
                text.iter().map(|row| without_row_number(&row.join(", "))).collect::<Vec<String>>()
            };
            format!("columns {columns:?}, rows {values:?}, {}", done_text(&rows.end))
        }
    });
    results.collect::<Vec<String>>().join(" | ")
}

/// Servers count the rows of a warning on from an earlier statement's.
fn without_row_number(message: &str) -> String {
    message.split(" at row ").next().unwrap_or_default().to_owned()
}

/// A column's definition with its character set in place of the collation: that a server shows depends on how the
/// character set was set, by one statement or several.
fn definition(bytes: &[u8]) -> String {
    let Ok(column) = ColumnDefinition::parse(bytes, Capabilities::empty()) else { return shown(bytes) };
    let charset = charset::by_id(column.collation).map_or("?", |collation| collation.charset);
    let mut rest = Vec::new();
    ColumnDefinition { collation: 0, ..column }.write(Capabilities::empty(), &mut rest);
    format!("{} in {charset}", shown(&rest))
}

fn done_text(done: &Done) -> String {
    // Changes before an error are tracked by the next OK, and which that is depends on what is tracked: so the
    // entries are compared elsewhere.
    let Done { affected_rows, insert_id, status, warnings, info, tracks: _ } = done;
    let status = *status & FLAGS;
    format!("{affected_rows} affected, id {insert_id}, {status:?}, {warnings} warnings, {info:?}")
}

fn shown(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}
