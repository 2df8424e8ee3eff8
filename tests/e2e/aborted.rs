//! A transaction that Galera has aborted is told with 1213 by whatever command comes next. Nothing of that command runs,
//! and behind it the session is in no transaction.

use std::thread;
use std::time::{Duration, Instant};

use weir_protocol::status::StatusFlags;
use weir_testkit::{TestkitError, Weir};
use weir_tests::session::{Outcome, Param};
use weir_tests::{Case, CaseResult, Env, Session, ensure};

const DEADLOCK: u16 = 1213;
/// Longer than what Weir keeps of a command.
const LONG_BYTES: usize = 3_000_000;

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("aborted::every_kind_of_command_tells_it", every_kind),
        Case::parallel("aborted::a_long_statement_is_not_read_as_commands", long_statement),
    ]
}

/// A session and others of the same connection, and what to do about its row from another node.
struct Stage<'e> {
    env: &'e Env,
    schema: String,
    weir: Weir,
    session: Session,
    rounds: u32,
}

impl<'e> Stage<'e> {
    fn new(env: &'e Env) -> Result<Stage<'e>, Box<dyn std::error::Error>> {
        let schema = env.schema()?;
        env.cluster()?.node(1).root_query(&format!(
            "CREATE TABLE {schema}.t (id INT PRIMARY KEY, v INT); \
             CREATE TABLE {schema}.files (id INT PRIMARY KEY AUTO_INCREMENT, parent BIGINT, content LONGBLOB); \
             CREATE TABLE {schema}.log (what VARCHAR(40)); INSERT INTO {schema}.t VALUES (1, 0)"
        ))?;
        let weir = env.narrow_weir(&[1], 1)?;
        let session = Session::open(weir.addr(), &schema)?;
        Ok(Stage { env, schema, weir, session, rounds: 0 })
    }

    /// The session is in a transaction, of which another node's write has made nothing.
    fn abort(&mut self) -> CaseResult {
        self.rounds += 1;
        let value = (self.rounds + 100).to_string();
        // Else it would run again.
        self.session.run("SET weir_replay = OFF")?;
        self.session.run("BEGIN")?;
        self.session.run(&format!("UPDATE t SET v = {}", self.rounds))?;
        let (cluster, schema) = (self.env.cluster()?, &self.schema);
        cluster.node(2).root_query(&format!("SET wsrep_sync_wait = 7; UPDATE {schema}.t SET v = {value}"))?;
        let deadline = Instant::now() + Duration::from_secs(60);
        while cluster.node(1).root_query(&format!("SELECT v FROM {schema}.t"))? != [[value.as_str()]] {
            ensure!(Instant::now() < deadline, "n1 does not get the value {value}");
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

/// What the server answers to a command, by its error.
type AnyCommand = fn(&mut Session) -> Result<Option<u16>, TestkitError>;

fn every_kind(env: &Env) -> CaseResult {
    let commands: [(&str, AnyCommand); 5] = [
        ("PREPARE", |session| {
            let Err(Outcome::Err { code, .. }) = session.try_prepare("SELECT v FROM t WHERE id = ?")? else {
                return Ok(None);
            };
            Ok(Some(code))
        }),
        ("COM_RESET_CONNECTION", |session| Ok(session.reset()?.error())),
        ("COM_PING", |session| Ok(session.ping()?.error())),
        ("a question of Weir's own", |session| {
            Ok(session.query("SET session_track_schema = CONCAT('O', 'N')")?.error())
        }),
        ("COMMIT", |session| Ok(session.query("COMMIT")?.error())),
    ];
    let mut stage = Stage::new(env)?;
    for (what, command) in commands {
        stage.abort()?;
        let mut heard = command(&mut stage.session)?;
        if heard.is_none() {
            // The server answers some without looking at the transaction: the next one tells.
            heard = stage.session.query("DO 1")?.error();
        }
        ensure!(heard == Some(DEADLOCK), "{what}: {heard:?}");
        let status = stage.session.ping()?.done()?.status;
        ensure!(!status.contains(StatusFlags::IN_TRANS), "{what}: {status:?}");
        let mut other = Session::open(stage.weir.addr(), "test")?;
        other.value("SELECT 'the connection is free'").map_err(|error| format!("{what}: {error}"))?;
        let files = stage.session.value("SELECT COUNT(*) FROM files")?;
        ensure!(files == "0", "{what}: {files} rows of an aborted transaction");
    }
    // An execution, whose statement has to be prepared on the connection once more.
    let statement = stage.session.prepare("INSERT INTO files (parent) VALUES (?)")?;
    let mut other = Session::open(stage.weir.addr(), "test")?;
    for at in 0..30 {
        other.prepare(&format!("SELECT {at}"))?;
    }
    stage.abort()?;
    let answer = stage.session.execute(&statement, &[Param::Int(1)])?;
    ensure!(answer.error() == Some(DEADLOCK), "{answer:?}");
    other.value("SELECT 'the connection is free'")?;
    Ok(())
}

/// Its first part is kept while Weir restores LAST_INSERT_ID() in front of it. When that is refused, the rest of the
/// parameter is for nobody, whatever it looks like.
fn long_statement(env: &Env) -> CaseResult {
    let mut stage = Stage::new(env)?;
    let mut other = Session::open(stage.weir.addr(), &stage.schema)?;
    let inserts =
        stage.session.prepare("INSERT INTO files (parent, content) VALUES (LAST_INSERT_ID(), ?)")?;
    // Where a command would begin depends on how much is kept: one of these hits.
    for shift in 0..4 {
        stage.session.run("INSERT INTO files (parent) VALUES (0)")?;
        other.run("INSERT INTO files (parent) VALUES (0)")?;
        stage.abort()?;
        let content = "\0".repeat(shift) + &commands(LONG_BYTES);
        let answer = stage.session.execute(&inserts, &[Param::Text(content)])?;
        ensure!(answer.error() == Some(DEADLOCK), "shift {shift}: {answer:?}");
        let next = stage.session.value("SELECT CONCAT('answer ', 42)")?;
        ensure!(next == "answer 42", "shift {shift}: {next}");
        let run = stage.session.value("SELECT COUNT(*) FROM log")?;
        ensure!(run == "0", "shift {shift}: {run} statements out of a parameter were run");
    }
    // And where nothing is refused it arrives whole.
    let parent: u64 = stage.session.run("INSERT INTO files (parent) VALUES (0)")?.insert_id;
    other.run("INSERT INTO files (parent) VALUES (0)")?;
    let content = commands(LONG_BYTES);
    stage.session.execute(&inserts, &[Param::Text(content.clone())])?.done()?;
    let row = stage.session.rows("SELECT parent, LENGTH(content) FROM files ORDER BY id DESC LIMIT 1")?;
    ensure!(row == [[parent.to_string(), content.len().to_string()]], "{row:?} for {parent}");
    Ok(())
}

/// Bytes that are packets with a statement wherever one may begin: empty ones between them are ping-like commands.
fn commands(bytes: usize) -> String {
    let sql = "INSERT INTO log VALUES ('out of a parameter')  ";
    let packet = format!("{}\0\0\0\x03{sql}", char::from(sql.len() as u8 + 1));
    let part = "\0".repeat(4000) + &packet;
    part.repeat(bytes / part.len() + 1)
}
