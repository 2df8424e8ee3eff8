//! A session under test, one that disturbs it, and one that tells what is right.

use std::error::Error;
use std::net::SocketAddrV4;

use weir_protocol::capability::Capabilities;
use weir_protocol::status::StatusFlags;
use weir_testkit::wire::Login;
use weir_testkit::{Account, Weir, WeirConfig};
use weir_tests::session::{Answer, Done, Outcome, Prepared};
use weir_tests::{CaseResult, Env, Session, ensure};

/// Weir's number for "no connection within connect_timeout_server_max".
pub(super) const NO_CONNECTION: u16 = 9001;
/// Flags that mean something to an application.
const SHOWN: StatusFlags =
    StatusFlags::IN_TRANS.union(StatusFlags::AUTOCOMMIT).union(StatusFlags::MORE_RESULTS_EXISTS);
/// How long the other session waits for the connection, milliseconds.
const PATIENCE_MS: i64 = 600;

/// A session under test, one that disturbs it over the same connection, and one straight at the server, which tells
/// what is right.
pub(crate) struct Trio {
    pub(super) weir: Weir,
    pub(super) mine: Session,
    pub(super) other: Session,
    pub(super) reference: Session,
    server: SocketAddrV4,
    /// Schemas of the session under test and of the reference, which appear in messages.
    pub(super) schemas: [String; 2],
    /// What was run so far.
    history: Vec<String>,
    /// How often the other session could not use the connection because a pin held it.
    held: usize,
}

impl Trio {
    /// All three have tables `t` and `log` of their own; `log` counts from 1000.
    pub(crate) fn new(env: &Env) -> Result<Trio, Box<dyn Error>> {
        let node = env.cluster()?.node(1);
        let mut schemas = Vec::new();
        for _ in 0..3 {
            let schema = env.schema()?;
            node.root_query(&tables(&schema))?;
            schemas.push(schema);
        }
        let weir = env.narrow_weir_with(&[1], 1, impatient)?;
        Trio::with(weir, node.addr(), schemas)
    }

    /// The same with one MySQL server.
    pub(crate) fn at_mysql(env: &Env) -> Result<Trio, Box<dyn Error>> {
        let server = env.mysql()?.source();
        let mut schemas = Vec::new();
        for _ in 0..3 {
            let schema = env.mysql_schema()?;
            server.root_query(&tables(&schema))?;
            schemas.push(schema);
        }
        Trio::with(env.mysql_weir_with(1, impatient)?, server.addr(), schemas)
    }

    /// The same, with sessions that may send several statements in one text.
    pub(crate) fn with_several(mut self) -> Result<Trio, Box<dyn Error>> {
        let [mine, reference] = self.schemas.clone();
        let other = self.other.value("SELECT DATABASE()")?;
        self.mine = several_at(self.weir.addr(), &mine)?;
        self.other = several_at(self.weir.addr(), &other)?;
        self.reference = several_at(self.server, &reference)?;
        Ok(self)
    }

    /// The session under test and the reference end, and others come, which may send several statements in one text.
    pub(super) fn log_in_anew(&mut self) -> CaseResult {
        if let Ok(answer) = self.mine.reset() {
            answer.done()?; // it may have held the connection
        }
        self.mine = several_at(self.weir.addr(), &self.schemas[0])?;
        self.reference = several_at(self.server, &self.schemas[1])?;
        Ok(())
    }

    /// Both answers to a text, the reference's with the schema of the other, after another session's turn.
    pub(crate) fn both(&mut self, sql: &str) -> Result<[String; 2], Box<dyn Error>> {
        self.disturb()?;
        let [mine, reference] = &self.schemas;
        let (through, straight) =
            (self.mine.query(sql)?, self.reference.query(&sql.replace(mine, reference))?);
        Ok([whole(&through), whole(&straight).replace(reference, mine)])
    }

    /// Both answers to a COM_STMT_PREPARE.
    pub(crate) fn prepare_both(&mut self, sql: &str) -> Result<[String; 2], Box<dyn Error>> {
        let [through, straight] =
            [&mut self.mine, &mut self.reference].map(|session| session.try_prepare(sql));
        let shown = |answer| match answer {
            Ok(prepared) => {
                let Prepared { params, columns, .. } = prepared;
                format!("{params} parameters, {} columns", columns.len())
            }
            Err(refused) => format!("{refused:?}"),
        };
        Ok([shown(through?), shown(straight?)])
    }

    fn with(weir: Weir, server: SocketAddrV4, schemas: Vec<String>) -> Result<Trio, Box<dyn Error>> {
        let [mine, other, reference] = schemas.as_slice() else { return Err("three schemas".into()) };
        Ok(Trio {
            mine: Session::open(weir.addr(), mine)?,
            other: Session::open(weir.addr(), other)?,
            reference: Session::open(server, reference)?,
            weir,
            server,
            schemas: [mine.clone(), reference.clone()],
            history: Vec::new(),
            held: 0,
        })
    }

    /// Runs the statement through Weir and straight, and compares; between two statements of the session another
    /// one uses the connection.
    pub(super) fn same(&mut self, sql: &str) -> CaseResult {
        self.disturb()?;
        self.history.push(sql.to_owned());
        let (through, straight) = (self.mine.query(sql)?, self.reference.query(sql)?);
        let (ours, right) = (self.essence(&through)?, self.essence(&straight)?);
        let before = &self.history[self.history.len().saturating_sub(6)..];
        ensure!(ours == right, "{}: {ours}, straight {right}", before.join("; "));
        Ok(())
    }

    /// What must be the same.
    fn essence(&self, answer: &Answer) -> Result<String, String> {
        let [mine, reference] = &self.schemas;
        let Ok(Done { affected_rows, insert_id, warnings, .. }) = answer.done() else {
            return Ok(format!("error {:?}", answer.error()));
        };
        let text = format!(
            "{affected_rows} affected, insert id {insert_id}, {warnings} warnings, {:?} {:?}",
            answer.column_names(),
            answer.rows()?
        );
        Ok(text.replace(reference, mine))
    }

    /// FOUND_ROWS() through Weir and straight, whose use MySQL warns of where no literal stands in its place.
    pub(super) fn same_found_rows(&mut self) -> CaseResult {
        const FOUND: &str = "SELECT FOUND_ROWS()";
        self.disturb()?;
        self.history.push(FOUND.to_owned());
        let (through, straight) = (self.mine.query(FOUND)?.rows()?, self.reference.value(FOUND)?);
        let before = &self.history[self.history.len().saturating_sub(6)..];
        ensure!(through == [[&*straight]], "{}: {through:?}, straight {straight}", before.join("; "));
        Ok(())
    }

    /// Leaves the connection with other ids, counts and warnings, if it can be had.
    pub(crate) fn disturb(&mut self) -> CaseResult {
        let inserted = self.other.query("INSERT INTO t (v) VALUES (1), (2), (3)")?;
        if inserted.error() == Some(NO_CONNECTION) {
            self.held += 1;
            return Ok(());
        }
        self.other.run("SELECT SQL_CALC_FOUND_ROWS id FROM t LIMIT 2")?;
        self.other.run("SELECT CAST('other' AS SIGNED), CAST('other' AS SIGNED) FROM t LIMIT 1")?;
        Ok(())
    }

    /// The connection was really shared: statements of the case have held it no longer than this.
    pub(super) fn ensure_held_at_most(&self, times: usize) -> CaseResult {
        let (held, of) = (self.held, self.history.len());
        ensure!(held <= times, "{held} of {of} times the connection was held, expected {times}");
        Ok(())
    }

    /// Ends what holds the connection, and goes back to the session's schema.
    pub(crate) fn begin_anew(&mut self) -> CaseResult {
        for (session, schema) in [&mut self.mine, &mut self.reference].into_iter().zip(&self.schemas) {
            session.reset()?.done()?;
            session.use_schema(schema)?.done()?;
        }
        Ok(())
    }

    pub(super) fn all_same(&mut self, statements: &[&str]) -> CaseResult {
        statements.iter().try_for_each(|sql| self.same(sql))
    }
}

fn several_at(server: SocketAddrV4, schema: &str) -> Result<Session, Box<dyn Error>> {
    let mut login = Login::new(Account::APP).schema(schema);
    login.capabilities |= Capabilities::MULTI_STATEMENTS;
    Ok(Session::with(server, &login)?)
}

/// All results, with what an application can see of each.
fn whole(answer: &Answer) -> String {
    let results = answer.results.iter().map(|outcome| match outcome {
        Outcome::Ok(Done { affected_rows, insert_id, warnings, status, .. }) => {
            format!("OK {affected_rows} affected, id {insert_id}, {warnings} warnings, {:?}", *status & SHOWN)
        }
        Outcome::Rows(rows) => {
            let text = rows.text_rows().unwrap_or_default();
            format!("{text:?}, {} warnings, {:?}", rows.end.warnings, rows.end.status & SHOWN)
        }
        Outcome::Err { code, sqlstate, message } => format!("error {code} {sqlstate} {message}"),
    });
    results.collect::<Vec<String>>().join(" | ")
}

/// What [`Trio`] works on.
fn tables(schema: &str) -> String {
    format!(
        "USE {schema}; CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, k INT UNIQUE, v INT); \
         CREATE TABLE log (id INT PRIMARY KEY AUTO_INCREMENT, t_id BIGINT) AUTO_INCREMENT = 1000"
    )
}

fn impatient(config: &mut WeirConfig) {
    config.variable("connect_timeout_server_max", PATIENCE_MS);
}
