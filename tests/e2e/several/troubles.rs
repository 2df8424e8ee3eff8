//! Texts of several statements that do not come to their end, are out of the ordinary, or meet a rule.

use std::error::Error;
use std::net::SocketAddrV4;
use std::thread;
use std::time::Duration;

use weir_protocol::capability::Capabilities;
use weir_testkit::wire::Login;
use weir_testkit::{Account, TestkitError, Weir};
use weir_tests::session::{Answer, Outcome};
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

use crate::diagnostics::Trio;

/// How long a server may take to notice something.
const PATIENCE: Duration = Duration::from_secs(25);

pub(super) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("several::killed_in_the_middle", |env| killed(&Place::galera(env)?)),
        Case::parallel("several::killed_in_the_middle_at_mysql", |env| killed(&Place::mysql(env)?)),
        Case::parallel("several::a_client_that_vanishes_in_the_middle", |env| vanished(&Place::galera(env)?)),
        Case::parallel("several::a_client_that_vanishes_in_the_middle_at_mysql", |env| {
            vanished(&Place::mysql(env)?)
        }),
        Case::parallel("several::local_files_at_any_place", |env| local_files(&Place::galera(env)?)),
        Case::parallel("several::local_files_at_any_place_at_mysql", |env| local_files(&Place::mysql(env)?)),
        Case::parallel("several::kill_is_a_statement_of_its_own", |env| kills(&Place::galera(env)?)),
        Case::parallel("several::can_not_be_prepared", |env| prepared(Trio::new(env)?.with_several()?)),
        Case::parallel("several::can_not_be_prepared_at_mysql", |env| {
            prepared(Trio::at_mysql(env)?.with_several()?)
        }),
        Case::parallel("several::many_and_large_ones", |env| large(Trio::new(env)?.with_several()?)),
        Case::parallel("several::many_and_large_ones_at_mysql", |env| {
            large(Trio::at_mysql(env)?.with_several()?)
        }),
        Case::parallel("several::a_rule_meets_the_whole_text", rules),
    ]
}

/// A Weir with few connections, a server behind it, and a schema with a table `t`.
struct Place {
    weir: Weir,
    server: SocketAddrV4,
    schema: String,
}

impl Place {
    fn galera(env: &Env) -> Result<Place, Box<dyn Error>> {
        let (weir, schema) = (env.narrow_weir(&[1], 2)?, env.schema()?);
        Place { weir, server: env.cluster()?.node(1).addr(), schema }.with_table()
    }

    fn mysql(env: &Env) -> Result<Place, Box<dyn Error>> {
        let (weir, schema) = (env.mysql_weir(2)?, env.mysql_schema()?);
        Place { weir, server: env.mysql()?.source().addr(), schema }.with_table()
    }

    fn with_table(self) -> Result<Place, Box<dyn Error>> {
        let sql = "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v INT, word VARCHAR(60))";
        Session::open(self.server, &self.schema)?.run(sql)?;
        Ok(self)
    }

    fn session(&self) -> Result<Session, TestkitError> {
        let several = Capabilities::MULTI_STATEMENTS | Capabilities::LOCAL_FILES;
        let login = Login::new(Account::APP).schema(&self.schema).with(several);
        Session::with(self.weir.addr(), &login)
    }

    /// Waits until a statement with this mark runs at the server, or no longer does.
    fn wait_for(&self, mark: &str, runs: bool) -> CaseResult {
        let mut straight = Session::open(self.server, "")?;
        let (head, tail) = mark.split_at(3);
        let sql = format!(
            "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE CONCAT('%', '{head}', '{tail}', '%')"
        );
        eventually(&format!("{mark} at the server: {runs}"), PATIENCE, || {
            Ok((straight.value(&sql)? != "0") == runs)
        })
    }

    /// How many rows have this value, as the server sees it.
    fn rows_of(&self, v: u32) -> Result<String, TestkitError> {
        Session::open(self.server, &self.schema)?.value(&format!("SELECT COUNT(*) FROM t WHERE v = {v}"))
    }
}

/// The end of the middle statement is all that a KILL QUERY may cost; what ran before it stays.
fn killed(place: &Place) -> CaseResult {
    for (round, command) in ["KILL QUERY", "KILL CONNECTION"].into_iter().enumerate() {
        let first = 900 + 10 * round as u32;
        let mark = format!("mark{first}{}", place.schema);
        let text = format!(
            "INSERT INTO t (v) VALUES ({first}); SELECT SLEEP(30) FROM t /* {mark} */; INSERT INTO t (v) VALUES ({})",
            first + 1
        );
        let mut victim = place.session()?;
        let id = victim.id();
        let running = thread::spawn(move || -> (Session, Result<Answer, TestkitError>) {
            let answer = victim.query(&text);
            (victim, answer)
        });
        place.wait_for(&mark, true)?;
        place.session()?.run(&format!("{command} {id}"))?;
        let (mut victim, answer) = running.join().map_err(|_| "panicked")?;
        place.wait_for(&mark, false)?;
        ensure!(place.rows_of(first)? == "1", "{command}: what ran before the KILL is gone");
        if command == "KILL CONNECTION" {
            let has_end = answer.as_ref().is_ok_and(|answer| answer.error().is_none());
            ensure!(!has_end, "the session's text ended: {answer:?}");
            ensure!(place.rows_of(first + 1)? == "0", "the rest of the text has run");
            continue;
        }
        // Servers end a SLEEP with an error, or with the value 1 and go on.
        let answer = answer?;
        let expected = if answer.error().is_some() { "0" } else { "1" };
        ensure!(place.rows_of(first + 1)? == expected, "behind the killed statement: {answer:?}");
        ensure!(victim.value("SELECT 'on'")? == "on", "the session does not go on");
    }
    // Nothing of it hits those who come next.
    for _ in 0..4 {
        ensure!(place.session()?.value("SELECT 'next'")? == "next", "a later session was hit");
    }
    Ok(())
}

/// What was not committed is gone, and nothing of the session is left on a connection.
fn vanished(place: &Place) -> CaseResult {
    let mark = format!("gone{}", place.schema);
    let begun = format!(
        "BEGIN; INSERT INTO t (v) VALUES (950); SET @dirty = 1, time_zone = '+07:00'; CREATE TEMPORARY TABLE tmp (a INT); \
         SELECT SLEEP(30) FROM t LIMIT 1 /* {mark} */; COMMIT"
    );
    let mut session = place.session()?;
    session.send_query(&begun)?;
    place.wait_for(&mark, true)?;
    session.vanish();
    place.wait_for(&mark, false)?;
    // One that does not read its result, behind a statement that is committed.
    let rows = "SELECT REPEAT('x', 1000000) FROM t a, t b, t c, t d";
    let mut session = place.session()?;
    session.run("INSERT INTO t (v) VALUES (1), (2), (3), (4)")?;
    session.send_query(&format!("INSERT INTO t (v) VALUES (951); {rows}; INSERT INTO t (v) VALUES (952)"))?;
    session.next_result()?;
    session.vanish();
    for _ in 0..4 {
        let mut next = place.session()?;
        let left = next.rows("SELECT @dirty, @@time_zone, @@autocommit")?;
        ensure!(left[0][0] == "NULL" && left[0][1] != "+07:00" && left[0][2] == "1", "left behind: {left:?}");
        next.query("SELECT * FROM tmp")?.error().ok_or("a temporary table was left behind")?;
    }
    eventually("the transaction is rolled back", PATIENCE, || Ok(place.rows_of(950)? == "0"))?;
    ensure!(place.rows_of(951)? == "1", "what was committed is gone");
    // No lock of it is left.
    place.session()?.run("UPDATE t SET word = 'free'")?;
    Ok(())
}

/// Sends a file in answer to the server's question.
fn send_file(session: &mut Session, content: &[u8]) -> CaseResult {
    let asked = session.raw().packets().read_packet()?;
    ensure!(asked.first() == Some(0xFB), "expected a question for a file, got {asked}");
    let sequence = session.raw().packets().write_packet(asked.seq.wrapping_add(1), content)?;
    session.raw().packets().write_packet(sequence, b"")?;
    Ok(())
}

fn local_files(place: &Place) -> CaseResult {
    const LOAD: &str = "LOAD DATA LOCAL INFILE 'data.csv' INTO TABLE t FIELDS TERMINATED BY ',' (v, word)";
    let insert = "INSERT INTO t (v) VALUES (1)";
    for (parts, at) in [([LOAD, insert, insert], 0), ([insert, LOAD, insert], 1), ([insert, insert, LOAD], 2)]
    {
        let mut session = place.session()?;
        session.run("DELETE FROM t")?;
        session.send_query(&parts.join("; "))?;
        let mut results = Vec::new();
        for part in 0..parts.len() {
            if part == at {
                send_file(&mut session, b"7,seven\n8,eight\n")?;
            }
            results.push(session.next_result()?);
        }
        let affected: Vec<u64> = results
            .iter()
            .map(|result| match result {
                Outcome::Ok(done) => done.affected_rows,
                _ => u64::MAX,
            })
            .collect();
        let expected: Vec<u64> = (0..3).map(|part| if part == at { 2 } else { 1 }).collect();
        ensure!(affected == expected, "{parts:?}: {results:?}");
        ensure!(session.value("SELECT COUNT(*) FROM t")? == "4", "{parts:?}: rows are missing");
    }
    // A file that is not finished: what ran before it stays, the rest does not run.
    let mut session = place.session()?;
    session.run("DELETE FROM t")?;
    session.send_query(&format!("INSERT INTO t (v) VALUES (961); {LOAD}; INSERT INTO t (v) VALUES (962)"))?;
    session.next_result()?;
    let asked = session.raw().packets().read_packet()?;
    session.raw().packets().write_packet(asked.seq.wrapping_add(1), b"9,ni")?;
    session.vanish();
    let mut next = place.session()?;
    ensure!(next.value("SELECT COUNT(*) FROM t WHERE v = 961")? == "1", "what ran before the file is gone");
    ensure!(next.value("SELECT COUNT(*) FROM t WHERE v = 962")? == "0", "the text went on behind the file");
    Ok(())
}

/// A server would take Weir's connection ids for its own, and end somebody else's connection.
fn kills(place: &Place) -> CaseResult {
    let mut session = place.session()?;
    for text in [
        "SELECT 1; KILL 1",
        "INSERT INTO t (v) VALUES (970); KILL QUERY CONNECTION_ID(); SELECT 2",
        "KILL 1; SELECT 1",
    ] {
        let answer = session.query(text)?;
        ensure!(answer.error() == Some(1105), "{text}: {answer:?}");
    }
    ensure!(place.rows_of(970)? == "0", "a part of a refused text has run");
    let refused = session.try_prepare("KILL ?")?;
    ensure!(matches!(refused, Err(Outcome::Err { code: 1105, .. })), "{refused:?}");
    ensure!(session.value("SELECT 'kill 1; kill 2'")? == "kill 1; kill 2", "text was taken for statements");
    Ok(())
}

fn prepared(mut trio: Trio) -> CaseResult {
    for text in [
        "SELECT 1; SELECT 2",
        "SELECT 1;",
        "INSERT INTO t (v) VALUES (1); DELETE FROM t",
        "; SELECT 1",
        "SELECT 1; -- x",
    ] {
        let [mine, reference] = trio.prepare_both(text)?;
        ensure!(mine == reference, "{text}: {mine}, straight {reference}");
    }
    // By text several can be prepared one after the other, but not as one.
    for text in [
        "PREPARE a FROM 'SELECT 1; SELECT 2'",
        "PREPARE a FROM 'SELECT 1'; PREPARE b FROM 'SELECT 2'; EXECUTE a; EXECUTE b; DEALLOCATE PREPARE a",
        "EXECUTE b; DEALLOCATE PREPARE b; EXECUTE a",
    ] {
        let [through, straight] = trio.both(text)?;
        ensure!(through == straight, "{text}: {through}, straight {straight}");
    }
    Ok(())
}

fn large(mut trio: Trio) -> CaseResult {
    let many = |statement: &str, count: usize| vec![statement; count].join("; ");
    let wide = format!("INSERT INTO log (t_id) VALUES (LENGTH('{}'))", "x".repeat(100_000));
    let texts = [
        many("DO 1", 3000),
        many("SELECT 1, 'two'", 2000),
        format!("{}; SELECT * FROM nowhere; {}", many("SET @x = 1", 500), many("SELECT 2", 500)),
        // More than Weir collects.
        many(&wide, 30),
        format!("{}; SELECT COUNT(*) FROM log; SELECT LAST_INSERT_ID() > 0", many(&wide, 15)),
        format!("SET @a = 5; BEGIN; {}; ROLLBACK; SELECT @a", many(&wide, 20)),
    ];
    for text in texts {
        let [through, straight] = trio.both(&text)?;
        let name = &text[..text.len().min(40)];
        ensure!(through == straight, "{name}: {} bytes, straight {}", through.len(), straight.len());
        for sql in ["SELECT COUNT(*), SUM(t_id) FROM log", "SELECT LAST_INSERT_ID()", "SELECT @a, @x"] {
            let [through, straight] = trio.both(sql)?;
            ensure!(through == straight, "{sql} after {name}: {through}, straight {straight}");
        }
        trio.begin_anew()?;
    }
    Ok(())
}

/// As with ProxySQL a rule sees all of the text, whose digest is one: what it does, it does to all statements.
fn rules(env: &Env) -> CaseResult {
    let rules = [
        "match_pattern = 'DROP', error_msg = 'not here'",
        "match_digest = '^SELECT \\?; SELECT \\?$', OK_msg = 'two'",
        "match_pattern = 'fifty', replace_pattern = '50', re_modifiers = 'CASELESS,GLOBAL'",
    ];
    let weir = crate::query_rules::weir(env, &rules)?;
    let schema = env.schema()?;
    let login = Login::new(Account::APP).schema(&schema).with(Capabilities::MULTI_STATEMENTS);
    let mut session = Session::with(weir.addr(), &login)?;
    session.run("CREATE TABLE t (v INT)")?;
    let answer = session.query("INSERT INTO t VALUES (1); DROP TABLE t; SELECT 1")?;
    ensure!(answer.error().is_some() && answer.results.len() == 1, "{answer:?}");
    ensure!(session.value("SELECT COUNT(*) FROM t /* FOR UPDATE */")? == "0", "the first statement has run");
    let answer = session.query("SELECT 1; SELECT 2")?;
    ensure!(matches!(answer.results.as_slice(), [Outcome::Ok(_)]), "{answer:?}");
    let answer = session.query("INSERT INTO t VALUES (fifty); SELECT SUM(v) FROM t; SELECT fifty + 1")?;
    let values: Vec<_> = answer
        .results
        .iter()
        .skip(1)
        .map(|result| match result {
            Outcome::Rows(rows) => rows.text_rows().unwrap_or_default().concat().concat(),
            other => format!("{other:?}"),
        })
        .collect();
    ensure!(values == ["50", "51"], "{answer:?}");
    Ok(())
}
