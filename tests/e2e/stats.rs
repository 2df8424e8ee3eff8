//! `weir stats`: what a running Weir has counted, and the socket behind it.

use std::error::Error;
use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use weir_testkit::{Weir, weir_binary};
use weir_tests::session::Param;
use weir_tests::{Case, CaseResult, Env, Session, ensure};

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("stats::digests_of_all_workers_are_summed", digests),
        Case::parallel("stats::digests_follow_their_options", options),
        Case::parallel("stats::errors_are_told_with_their_server", errors),
        Case::parallel("stats::pool_and_servers_tell_of_every_node", pool_and_servers),
        Case::parallel("stats::rules_tell_how_often_they_have_matched", rules),
        Case::parallel("stats::hostile_bytes_at_the_control_socket", hostile_bytes),
        Case::parallel("stats::top_shows_servers_statements_and_pins", top),
        Case::parallel("stats::nobody_there_is_explained", nobody_there),
        Case::parallel("stats::a_second_weir_does_not_take_the_datadir", second_weir),
    ]
}

fn run(arguments: &[&str]) -> Result<(bool, String, String), Box<dyn Error>> {
    let output = Command::new(weir_binary()?).arg("stats").args(arguments).output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((output.status.success(), text(&output.stdout), text(&output.stderr)))
}

fn config(weir: &Weir) -> String {
    weir.config_path().display().to_string()
}

/// The rows of a report.
fn report(weir: &Weir, subject: &str) -> Result<Vec<Value>, Box<dyn Error>> {
    let (is_good, out, err) = run(&[subject, "--json", "-c", &config(weir)])?;
    ensure!(is_good && err.is_empty(), "{subject}: {err}");
    Ok(out.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
}

/// Rows with this digest text.
fn with_text<'a>(rows: &'a [Value], text: &str) -> Vec<&'a Value> {
    rows.iter().filter(|row| row["digest_text"] == text).collect()
}

/// Digest texts of [`known_traffic`]: 20 of them, 4 and 8.
pub(crate) const SELECTS: &str = "select name from items where id IN (?,?,?,...)";
pub(crate) const INSERTS: &str = "INSERT INTO items (id,name) VALUES (?,?)";
pub(crate) const EXECUTIONS: &str = "SELECT name FROM items WHERE id = ?";

/// Four sessions that have run what is known, and are still there.
pub(crate) fn known_traffic(weir: &Weir, schema: &str) -> Result<Vec<Session>, Box<dyn Error>> {
    let mut sessions = Vec::new();
    for _ in 0..4 {
        sessions.push(Session::open(weir.addr(), schema)?);
    }
    sessions[0].run("CREATE TABLE items (id INT PRIMARY KEY, name VARCHAR(20))")?;
    for (at, session) in sessions.iter_mut().enumerate() {
        session.run(&format!("INSERT INTO items (id, name) VALUES ({at}, 'n{at}')"))?;
        for id in 0..5 {
            session.rows(&format!("select name\n  from items where id IN ({at}, {id}, 3, 4, 5)"))?;
        }
        let statement = session.prepare(EXECUTIONS)?;
        for id in [7, 8] {
            session.execute(&statement, &[Param::Int(id)])?;
        }
    }
    Ok(sessions)
}

fn digests(env: &Env) -> CaseResult {
    let weir = env.weir(|config| {
        config.variable("threads", 2);
    })?;
    let schema = env.schema()?;
    let _sessions = known_traffic(&weir, &schema)?;
    let rows = report(&weir, "digests")?;
    let selects = with_text(&rows, SELECTS);
    let sum = |rows: &[&Value], column: &str| rows.iter().filter_map(|row| row[column].as_u64()).sum::<u64>();
    ensure!(sum(&selects, "count_star") == 20, "{selects:?}");
    ensure!(sum(&selects, "sum_rows_sent") >= 20, "{selects:?}");
    for row in &selects {
        ensure!(row["digest"].as_str().is_some_and(|hash| hash.len() == 18), "{row}");
        ensure!(row["schemaname"] == schema.as_str() && row["username"] == "app", "{row}");
        ensure!(row["client_address"] == "", "{row}");
        let time = |column: &str| row[column].as_u64().unwrap_or_default();
        ensure!(time("min_time_us") <= time("p50_us") && time("p50_us") <= time("max_time_us"), "{row}");
        ensure!(time("max_time_us") > 0 && time("first_seen") <= time("last_seen"), "{row}");
    }
    let inserts = with_text(&rows, INSERTS);
    ensure!((sum(&inserts, "count_star"), sum(&inserts, "sum_rows_affected")) == (4, 4), "{inserts:?}");
    let executions = with_text(&rows, EXECUTIONS);
    ensure!(sum(&executions, "count_star") == 8, "{executions:?}");

    let commands = report(&weir, "commands")?;
    let counts =
        |word: &str| commands.iter().find(|row| row["command"] == word).map(|row| &row["count_star"]);
    ensure!(counts("INSERT") == Some(&4.into()) && counts("SELECT") == Some(&28.into()), "{commands:?}");

    let (is_good, table, _) = run(&["digests", "--top", "2", "-c", &config(&weir)])?;
    let lines: Vec<&str> = table.lines().collect();
    ensure!(is_good && lines.len() == 3 && lines[0].starts_with("hostgroup  schemaname"), "{table}");
    Ok(())
}

fn options(env: &Env) -> CaseResult {
    let weir = env.weir(|config| {
        config.variable("query_digests_lowercase", true);
        config.variable("query_digests_no_digits", true);
        config.variable("query_digests_track_hostname", true);
        config.variable("query_digests_grouping_limit", 1);
    })?;
    let mut session = Session::open(weir.addr(), "test")?;
    session.rows("SELECT 1 AS A1B2, COALESCE(1, 2, 3, 4)")?;
    let rows = report(&weir, "digests")?;
    let found = with_text(&rows, "select ? as a?b?,coalesce(?,...)");
    ensure!(found.len() == 1 && found[0]["client_address"] == "127.0.0.1", "{rows:?}");

    let quiet = env.weir(|config| {
        config.variable("query_digests", false);
    })?;
    Session::open(quiet.addr(), "test")?.rows("SELECT 1")?;
    ensure!(report(&quiet, "digests")?.is_empty(), "query_digests = false");
    Ok(())
}

fn errors(env: &Env) -> CaseResult {
    let weir = env.weir(|_| {})?;
    let mut session = Session::open(weir.addr(), "test")?;
    for _ in 0..3 {
        session.refused("SELECT * FROM no_such_table_here", 1146)?;
    }
    session.refused("SELEC 1", 1064)?;
    let rows = report(&weir, "errors")?;
    let missing: Vec<_> = rows.iter().filter(|row| row["errno"] == 1146).collect();
    let count: u64 = missing.iter().filter_map(|row| row["count_star"].as_u64()).sum();
    ensure!(count == 3, "{rows:?}");
    ensure!(missing[0]["username"] == "app" && missing[0]["schemaname"] == "test", "{rows:?}");
    let nodes = env.cluster()?.nodes();
    ensure!(nodes.iter().any(|node| missing[0]["server"] == node.addr().to_string()), "{rows:?}");
    ensure!(
        missing[0]["last_error"].as_str().is_some_and(|text| text.contains("no_such_table_here")),
        "{rows:?}"
    );
    ensure!(rows.iter().any(|row| row["errno"] == 1064 && row["count_star"] == 1), "{rows:?}");
    Ok(())
}

fn rules(env: &Env) -> CaseResult {
    let weir = env.weir(|config| {
        config.variable("threads", 2);
        for (rule_id, pattern) in [(7, "^SELECT"), (9, "^DELETE")] {
            let row = [("rule_id", rule_id.into()), ("active", 1.into()), ("match_digest", pattern.into())];
            config.push("mysql_query_rules", &row);
        }
    })?;
    for _ in 0..4 {
        Session::open(weir.addr(), "test")?.rows("SELECT 1")?;
    }
    let rows = report(&weir, "rules")?;
    let hits: Vec<_> = rows.iter().map(|row| (row["rule_id"].as_u64(), row["hits"].as_u64())).collect();
    ensure!(hits == [(Some(7), Some(4)), (Some(9), Some(0))], "{rows:?}");
    Ok(())
}

fn pool_and_servers(env: &Env) -> CaseResult {
    let weir = env.weir(|_| {})?;
    let mut session = Session::open(weir.addr(), "test")?;
    session.run("BEGIN")?;
    session.run("DO 1")?;
    let nodes = env.cluster()?.nodes().len();
    let rows = report(&weir, "pool")?;
    ensure!(rows.len() == nodes, "{rows:?}");
    let sum = |column: &str| rows.iter().filter_map(|row| row[column].as_u64()).sum::<u64>();
    ensure!(sum("used") == 1 && sum("queries") >= 2 && sum("opened") >= 1, "{rows:?}");
    ensure!(sum("bytes_sent") > 0 && sum("bytes_received") > 0, "{rows:?}");

    let rows = report(&weir, "servers")?;
    let writers = rows.iter().filter(|row| row["role"] == "writer").count();
    ensure!(writers == 1 && rows.len() >= nodes, "{rows:?}");
    ensure!(rows.iter().all(|row| row["status"] == "ONLINE" && row["reason"] != ""), "{rows:?}");
    Ok(())
}

fn hostile_bytes(env: &Env) -> CaseResult {
    let weir = env.weir(|_| {})?;
    let path = weir.datadir().join("weir.sock");
    let mode = fs::metadata(&path)?.permissions().mode();
    ensure!(mode & 0o777 == 0o600, "mode {mode:o}");
    let long = vec![b'{'; 100_000];
    for (bytes, wanted) in [
        (b"\n".as_slice(), "not a valid request"),
        (b"\xff\xfe\0\x01\n", "not a valid request"),
        (b"{\"report\": \"everything\"}\n", "not a valid request"),
        (b"{\"report\": \"pool\", \"also\": 1}\n", "not a valid request"),
        (b"[[[[[[[[[[[[[[[[[[[[\n", "not a valid request"),
        (b"GET / HTTP/1.1\r\n\r\n", "not a valid request"),
        (&long, "at most"),
        (b"{\"report\": \"pool\"}", "columns"),
    ] {
        let mut stream = UnixStream::connect(&path)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        // It may have answered and closed before it has taken everything.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        ensure!(answer.contains(wanted), "{}: {answer}", bytes[..bytes.len().min(40)].escape_ascii());
    }
    // One that says nothing is waited for only so long, and one that leaves at once does no harm.
    let silent = UnixStream::connect(&path)?;
    drop(UnixStream::connect(&path)?);
    ensure!(!report(&weir, "pool")?.is_empty(), "no report behind a silent client");
    drop(silent);
    Session::open(weir.addr(), "test")?.rows("SELECT 1")?;
    Ok(())
}

fn nobody_there(env: &Env) -> CaseResult {
    let weir = env.weir(|_| {})?;
    let (config, datadir) = (config(&weir), weir.datadir().display().to_string());
    ensure!(run(&["pool", "--datadir", &datadir])?.0, "--datadir");
    drop(weir);
    for door in [["-c", &config], ["--datadir", &datadir]] {
        let (is_good, out, err) = run(&["pool", door[0], door[1]])?;
        ensure!(!is_good && out.is_empty() && err.contains("no weir answers"), "{err}");
    }
    let (is_good, _, err) = run(&["pool"])?;
    ensure!(!is_good && err.contains("--datadir"), "{err}");
    Ok(())
}

fn second_weir(env: &Env) -> CaseResult {
    let weir = env.weir(|_| {})?;
    let address = env.free_address()?;
    let text = fs::read_to_string(weir.config_path())?;
    let other = env.dir()?.join(format!("second-{}.toml", address.port()));
    fs::write(&other, text.replace(&weir.addr().to_string(), &address.to_string()))?;
    let output = Command::new(weir_binary()?).arg("serve").arg("-c").arg(&other).output()?;
    let err = String::from_utf8_lossy(&output.stderr);
    ensure!(!output.status.success() && err.contains("another weir runs with this datadir"), "{err}");
    ensure!(!report(&weir, "pool")?.is_empty(), "the first one's socket is gone");
    Ok(())
}

fn top(env: &Env) -> CaseResult {
    let weir = env.weir(|config| {
        config.variable("threads", 2);
    })?;
    let mut pinned = Session::open(weir.addr(), "test")?;
    pinned.run("SET @kept = 1")?;
    pinned.rows("SELECT 'top', 1")?;
    let top = |arguments: &[&str]| -> Result<(bool, String, String), Box<dyn Error>> {
        let output = Command::new(weir_binary()?).arg("top").args(arguments).output()?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok((output.status.success(), text(&output.stdout), text(&output.stderr)))
    };
    let config = config(&weir);
    let (is_good, picture, error) =
        top(&["--once", "-c", &config, "--columns", "150", "--interval-ms", "200"])?;
    ensure!(is_good && error.is_empty(), "{error}");
    let has = |words: &[&str]| picture.lines().any(|line| words.iter().all(|word| line.contains(word)));
    ensure!(has(&["cluster of hostgroup 100: writer 127."]), "{picture}");
    ensure!(has(&["100", "writer", "ONLINE"]) && has(&["102", "reader", "ONLINE"]), "{picture}");
    ensure!(has(&["app", "SELECT ?,?"]), "{picture}");
    ensure!(has(&["app", "127.0.0.1", "Sleep", "user_variable"]), "{picture}");
    ensure!(!picture.contains("'top'"), "a literal: {picture}");
    ensure!(picture.lines().count() == 40, "{picture}");

    let (is_good, _, error) = top(&["--once", "--datadir", "/nowhere"])?;
    ensure!(!is_good && error.contains("/nowhere/weir.sock: no weir answers"), "{error}");
    Ok(())
}
