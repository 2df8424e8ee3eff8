//! Clients that come and go over one kept connection to the server: each finds it as if it were new.
//!
//! The four ways in which proxies with persistent connections were seen to fail, each with the steps of a user at
//! the command line.

use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use weir_testkit::wire::{Login, RawClient};
use weir_testkit::{Account, Node, Weir};
use weir_tests::{Case, CaseResult, Env, Session, ensure};

/// How long the rollback for a client that has left may take.
const ROLLBACK_TIMEOUT: Duration = Duration::from_secs(20);
const AUTOCOMMIT: &str = "SHOW VARIABLES LIKE 'autocommit'";
const CLIENT_CHARSET: &str = "SELECT DATABASE(), @@session.character_set_client";

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("persistent_connections::each_client_is_in_its_own_schema", own_schema),
        Case::parallel("persistent_connections::each_client_has_its_own_character_set", own_charset),
        Case::parallel("persistent_connections::clients_that_leave_at_once_after_set_names", hasty_leavers),
        Case::parallel("persistent_connections::autocommit_off_ends_with_its_client", own_autocommit),
        Case::parallel(
            "persistent_connections::autocommit_off_and_a_delete_is_rolled_back",
            implicit_rollback,
        ),
        Case::parallel("persistent_connections::a_started_transaction_is_rolled_back", started_rollback),
        Case::parallel("persistent_connections::other_leavings_end_with_their_client", other_leavings),
    ]
}

fn own_schema(env: &Env) -> CaseResult {
    let weir = env.narrow_weir(&[1], 1)?;
    let shared = connection(&weir)?;
    for schema in ["test", "mysql", "test", "sbtest", "mysql"] {
        let shown = client(&weir, "SELECT DATABASE()", &[schema])?;
        ensure!(shown == format!("{schema}\n"), "a client that connects to {schema} is in {shown}");
    }
    let shown = client(&weir, "USE sbtest; SELECT DATABASE()", &["test"])?;
    ensure!(shown == "sbtest\n", "after USE sbtest: {shown}");
    let shown = client(&weir, "SELECT DATABASE()", &["test"])?;
    ensure!(shown == "test\n", "after another client's USE: {shown}");
    ensure_shared(&weir, &shared)
}

fn own_charset(env: &Env) -> CaseResult {
    let weir = env.narrow_weir(&[1], 1)?;
    let shared = connection(&weir)?;
    let utf8 = ["mysql", "--default-character-set=utf8"];
    for _ in 0..2 {
        let shown = client(&weir, CLIENT_CHARSET, &utf8)?;
        ensure!(shown == "mysql\tutf8mb3\n", "the client with utf8 has {shown}");
        client(&weir, "SET NAMES latin1", &["mysql"])?;
        let shown = client(&weir, CLIENT_CHARSET, &utf8)?;
        ensure!(shown == "mysql\tutf8mb3\n", "after another client's SET NAMES latin1: {shown}");
    }
    // What the names stand for: the same letter is two bytes for one client and one for the other.
    for (charset, hex) in [("utf8mb4", "C3A9"), ("latin1", "E9"), ("cp850", "82"), ("utf8mb4", "C3A9")] {
        let option = format!("--default-character-set={charset}");
        let written = Command::new("printf").arg(format!("SELECT HEX('{}')", bytes_of(hex))).output()?.stdout;
        let shown = client_bytes(&weir, &written, &["test", &option])?;
        ensure!(shown == format!("{hex}\n"), "the letter of {charset} is {shown}");
    }
    ensure_shared(&weir, &shared)
}

/// Weir asks the server what a SET NAMES with words that are new to it has done to the collation; who leaves
/// meanwhile leaves a connection that is as good as before.
fn hasty_leavers(env: &Env) -> CaseResult {
    let weir = env.narrow_weir(&[1], 1)?;
    // All with the same capabilities: others would have to be logged in anew for.
    let id =
        "SELECT ID FROM information_schema.PROCESSLIST WHERE INFO LIKE '%left_at_once%' LOCK IN SHARE MODE";
    let shared = Session::open(weir.addr(), "test")?.value(id)?;
    for number in 0..40 {
        let mut hasty = RawClient::login(weir.addr(), &Login::new(Account::APP).schema("test"))?;
        let set_names = format!("\x03SET NAMES /* {number} */ latin1 COLLATE latin1_german1_ci");
        hasty.send_command(set_names.as_bytes())?;
        hasty.packets().read_packet()?;
        drop(hasty);
        let shown = Session::open(weir.addr(), "test")?.value("SELECT @@session.character_set_client")?;
        ensure!(shown == "utf8mb4", "after a client with latin1: {shown}");
    }
    let now = Session::open(weir.addr(), "test")?.value(id)?;
    ensure!(now == shared, "the clients did not share a connection: first {shared}, now {now}");
    Ok(())
}

fn own_autocommit(env: &Env) -> CaseResult {
    let weir = env.narrow_weir(&[1], 1)?;
    let shared = connection(&weir)?;
    for _ in 0..3 {
        let shown = client(&weir, AUTOCOMMIT, &[])?;
        ensure!(shown == "autocommit\tON\n", "a new client has {shown}");
        let shown = client(&weir, &format!("SET autocommit=0; {AUTOCOMMIT}"), &[])?;
        ensure!(shown == "autocommit\tOFF\n", "the client that switched it off has {shown}");
    }
    let shown = client(&weir, AUTOCOMMIT, &[])?;
    ensure!(shown == "autocommit\tON\n", "a new client has {shown}");
    ensure_shared(&weir, &shared)
}

fn implicit_rollback(env: &Env) -> CaseResult {
    let (weir, schema) = (env.narrow_weir(&[1], 1)?, thousand_rows(env)?);
    let shared = connection(&weir)?;
    let node = env.cluster()?.node(1);
    client(&weir, "SET autocommit=0; DELETE FROM t WHERE id < 100", &[&schema])?;
    no_transaction_stays(node, &schema)?;
    let shown = client(&weir, "SELECT COUNT(*) FROM t", &[&schema])?;
    ensure!(shown == "1000\n", "rows after the client has left without COMMIT: {shown}");
    // A client that switches autocommit off and does nothing else takes nothing from the next one.
    client(&weir, "SET autocommit=0", &[&schema])?;
    client(&weir, "DELETE FROM t WHERE id < 100", &[&schema])?;
    no_transaction_stays(node, &schema)?;
    let shown = client(&weir, "SELECT COUNT(*) FROM t", &[&schema])?;
    ensure!(shown == "901\n", "rows after a DELETE with autocommit: {shown}");
    ensure_shared(&weir, &shared)
}

fn started_rollback(env: &Env) -> CaseResult {
    let (weir, schema) = (env.narrow_weir(&[1], 1)?, thousand_rows(env)?);
    let node = env.cluster()?.node(1);
    let shown = client(&weir, "START TRANSACTION; SELECT 1 FROM t LIMIT 1", &[&schema])?;
    ensure!(shown == "1\n", "the SELECT in the transaction gives {shown}");
    no_transaction_stays(node, &schema)?;
    client(&weir, "BEGIN; UPDATE t SET v = 7; INSERT INTO t VALUES (5000, 1)", &[&schema])?;
    no_transaction_stays(node, &schema)?;
    let shown = client(&weir, "SELECT COUNT(*), MAX(v) FROM t", &[&schema])?;
    ensure!(shown == "1000\t0\n", "the rows after two clients left without COMMIT: {shown}");

    // The same for a client that says no goodbye.
    let mut vanishing = Session::open(weir.addr(), &schema)?;
    vanishing.run("START TRANSACTION")?;
    vanishing.run("DELETE FROM t")?;
    vanishing.vanish();
    no_transaction_stays(node, &schema)?;
    let shown = client(&weir, "SELECT COUNT(*) FROM t", &[&schema])?;
    ensure!(shown == "1000\n", "rows after the client has vanished: {shown}");
    Ok(())
}

fn other_leavings(env: &Env) -> CaseResult {
    let (weir, schema) = (env.narrow_weir(&[1], 1)?, thousand_rows(env)?);
    let leave = "SET @x = 7; SET sql_mode = 'ANSI'; SET SESSION sql_select_limit = 1; CREATE TEMPORARY TABLE t (z INT); \
                 DO GET_LOCK('left_behind', 0); SET timestamp = 1; SET SESSION TRANSACTION READ ONLY; \
                 SET last_insert_id = 9; LOCK TABLES t WRITE";
    client(&weir, leave, &[&schema])?;
    let look = "SELECT @x, @@sql_mode = @@global.sql_mode, @@sql_select_limit = @@global.sql_select_limit, \
                IS_FREE_LOCK('left_behind'), NOW() > '2020-01-01', @@tx_read_only, LAST_INSERT_ID()";
    let shown = client(&weir, look, &[&schema])?;
    ensure!(shown == "NULL\t1\t1\t1\t1\t0\t0\n", "the next client finds {shown}");
    let shown = client(&weir, "INSERT INTO t VALUES (2000, 0); SELECT COUNT(*) FROM t", &[&schema])?;
    ensure!(shown == "1001\n", "the next client's table: {shown}");
    Ok(())
}

/// Runs the statements in the ordinary client, with the schema or options given; returns its table.
fn client(weir: &Weir, sql: &str, more: &[&str]) -> Result<String, String> {
    client_bytes(weir, sql.as_bytes(), more)
}

fn client_bytes(weir: &Weir, sql: &[u8], more: &[&str]) -> Result<String, String> {
    use std::os::unix::ffi::OsStrExt;
    let mut command = Command::new("mariadb");
    command.args(["--no-defaults", "--skip-ssl", "--batch", "--skip-column-names"]);
    command.arg(format!("-h{}", weir.addr().ip())).arg(format!("-P{}", weir.addr().port()));
    command.args([format!("-u{}", Account::APP.user), format!("-p{}", Account::APP.password)]);
    command.arg("-e").arg(std::ffi::OsStr::from_bytes(sql)).args(more);
    let Output { status, stdout, stderr } = command.output().map_err(|error| format!("mariadb: {error}"))?;
    if status.success() {
        Ok(String::from_utf8_lossy(&stdout).into_owned())
    } else {
        let (sql, stderr) = (String::from_utf8_lossy(sql), String::from_utf8_lossy(&stderr));
        Err(format!("{sql} {more:?}: {stderr}\n{}", weir.log()))
    }
}

/// `\xC3\xA9` for "C3A9", as printf takes it.
fn bytes_of(hex: &str) -> String {
    hex.as_bytes().chunks(2).map(|pair| format!("\\x{}", String::from_utf8_lossy(pair))).collect()
}

/// A schema with the table t (id, v) of the rows 1 to 1000.
fn thousand_rows(env: &Env) -> Result<String, Box<dyn std::error::Error>> {
    let schema = env.schema()?;
    let node = env.cluster()?.node(1);
    node.root_query(&format!(
        "USE {schema}; CREATE TABLE t (id INT PRIMARY KEY, v INT); \
         INSERT INTO t SELECT seq, 0 FROM seq_1_to_1000"
    ))?;
    Ok(schema)
}

/// Waits until no connection in this schema has a transaction open.
fn no_transaction_stays(node: &Node, schema: &str) -> CaseResult {
    let sql = format!(
        "SELECT t.trx_state, t.trx_rows_modified FROM information_schema.INNODB_TRX t \
         JOIN information_schema.PROCESSLIST p ON p.ID = t.trx_mysql_thread_id WHERE p.DB = '{schema}'"
    );
    let deadline = Instant::now() + ROLLBACK_TIMEOUT;
    loop {
        let open = node.root_query(&sql)?;
        if open.is_empty() {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "transactions {open:?} outlive their client");
        // The server renews this table every 100 ms.
        thread::sleep(Duration::from_millis(110));
    }
}

/// The server's id of the connection that serves a client now. A case that sees the same one at its beginning and
/// its end knows that its clients shared it.
fn connection(weir: &Weir) -> Result<String, String> {
    // The connection finds itself in the list by the text that it runs.
    let own_id = format!("own_id_{}", weir.addr().port());
    let list = "information_schema.PROCESSLIST";
    client(weir, &format!("SELECT ID FROM {list} WHERE INFO LIKE '%{own_id}%' LOCK IN SHARE MODE"), &["test"])
}

fn ensure_shared(weir: &Weir, shared: &str) -> CaseResult {
    let now = connection(weir)?;
    ensure!(now == shared, "the clients did not share a connection: first {shared}, now {now}");
    Ok(())
}
