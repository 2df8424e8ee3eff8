//! Clients of the admin port that mean harm, or know no better.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use weir_lab::Usage;
use weir_testkit::{Account, Weir};
use weir_tests::{CaseResult, Env, Session, ensure, eventually};

use super::{Admin, PATIENCE, start};

/// What reaches out of the database, or changes what it is.
pub(super) fn outside(env: &Env) -> CaseResult {
    let (weir, admin) = start(env, |_| {})?;
    eventually("the admin port is there", PATIENCE, || Ok(admin.run("SELECT 1").is_ok()))?;
    let file = env.dir()?.join("never.db");
    let path = file.display();
    for sql in [
        format!("ATTACH DATABASE '{path}' AS never"),
        format!("ATTACH '{path}' AS never"),
        format!("VACUUM INTO '{path}'"),
        format!("VACUUM main INTO '{path}'"),
        format!("SELECT writefile('{path}', 'x')"),
        "SELECT readfile('/etc/passwd')".to_owned(),
        "SELECT load_extension('/tmp/never.so')".to_owned(),
        "SELECT edit('x')".to_owned(),
        "DETACH DATABASE disk".to_owned(),
        "PRAGMA writable_schema = 1".to_owned(),
        "PRAGMA main.journal_mode = OFF".to_owned(),
        format!("PRAGMA temp_store_directory = '{}'", env.dir()?.display()),
        "CREATE TABLE never (id INT)".to_owned(),
        "CREATE TEMP TABLE never (id INT)".to_owned(),
        "CREATE TRIGGER never AFTER INSERT ON mysql_servers BEGIN DELETE FROM mysql_users; END".to_owned(),
        "DROP TABLE mysql_users".to_owned(),
        "ALTER TABLE mysql_users ADD COLUMN never INT".to_owned(),
        "INSERT INTO sqlite_master VALUES ('table', 'never', 'never', 0, '')".to_owned(),
        "DELETE FROM runtime_mysql_users".to_owned(),
        "BEGIN".to_owned(),
        "SAVEPOINT never".to_owned(),
        "LOAD DATA LOCAL INFILE '/etc/passwd' INTO TABLE mysql_users".to_owned(),
    ] {
        // Some are taken as what clients of MySQL say, and do nothing.
        let output = admin.output(&sql)?;
        let is_polite = matches!(sql.as_str(), "BEGIN" | "SAVEPOINT never");
        ensure!(is_polite || !output.status.success(), "{sql} was taken");
        ensure!(output.stdout.is_empty(), "{sql}: {}", String::from_utf8_lossy(&output.stdout));
    }
    ensure!(!file.exists(), "a file was written");
    ensure!(admin.run("SELECT COUNT(*) FROM mysql_users")? == ["3"], "users are lost");
    Session::open(weir.addr(), "test")?.value("SELECT 1")?;
    Ok(())
}

/// Statements that would take all time or all memory.
pub(super) fn bombs(env: &Env) -> CaseResult {
    let (weir, admin) = start(env, |_| {})?;
    eventually("the admin port is there", PATIENCE, || Ok(admin.run("SELECT 1").is_ok()))?;
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT COUNT(*) FROM n";
    let refused = admin.refusal(endless)?;
    ensure!(refused.contains("took too long"), "{refused}");
    for sql in [
        "SELECT zeroblob(2000000000)",
        "SELECT replace(hex(zeroblob(8000000)), '0', 'xxxxxxxxxxxxxxxx')",
        "WITH RECURSIVE n(i, t) AS (SELECT 1, 'x' UNION ALL SELECT i + 1, t || t FROM n) SELECT MAX(LENGTH(t)) FROM n",
    ] {
        admin.refusal(sql)?;
    }
    // However deep: answered or refused.
    admin.output(&format!("SELECT {}1{}", "(".repeat(20_000), ")".repeat(20_000)))?;
    ensure!(admin.run("SELECT 1")? == ["1"], "the port is gone");
    let taken = rss_kib(&weir)?;
    ensure!(taken < 1 << 20, "Weir has {taken} KiB");
    Ok(())
}

fn rss_kib(weir: &Weir) -> Result<u64, weir_lab::Error> {
    Usage::of(weir.process().pid()).rss_kib()
}

/// Connections that say nothing, or announce what never comes.
pub(super) fn silent(env: &Env) -> CaseResult {
    let (weir, admin) = start(env, |_| {})?;
    eventually("the admin port is there", PATIENCE, || Ok(admin.run("SELECT 1").is_ok()))?;
    let before = rss_kib(&weir)?;
    let mut crowd = Vec::new();
    for at in 0..400_u32 {
        let mut stream = TcpStream::connect(admin.addr)?;
        if at.is_multiple_of(2) {
            // A packet of 16 MB is announced. Who has been turned away may have been reset.
            let _ = stream.write_all(&[0xff, 0xff, 0xff, 1, 0, 0]);
        }
        crowd.push(stream);
    }
    // The data port does not notice.
    for _ in 0..20 {
        Session::open(weir.addr(), "test")?.value("SELECT 1")?;
    }
    let grown = rss_kib(&weir)?.saturating_sub(before);
    ensure!(grown < 256 << 10, "{grown} KiB for connections that say nothing");
    drop(crowd);
    eventually("an admin comes in again", PATIENCE, || Ok(admin.run("SELECT 1").is_ok()))?;
    // Bytes that are no login.
    for junk in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 64], &[0xff; 64], &[1, 0, 0, 1, 0x85]] {
        let mut stream = TcpStream::connect(admin.addr)?;
        stream.set_read_timeout(Some(Duration::from_millis(500)))?;
        let _ = stream.write_all(junk);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    ensure!(admin.run("SELECT 1")? == ["1"], "the port is gone");
    Ok(())
}

/// What must not be told to anybody who has not been given it.
pub(super) fn secrets(env: &Env) -> CaseResult {
    let (user, own, watcher) = ("Sec1ret-of-a-user", "Sec2ret-of-the-admin", "Sec3ret-of-the-watcher");
    let (weir, admin) = start(env, |config| {
        config.user(Account { user: "keeper", password: user }, 100, &[]);
        config.admin_variable("admin_credentials", format!("boss:{own}"));
        config.admin_variable("stats_credentials", format!("watcher:{watcher}"));
    })?;
    let boss = Admin { addr: admin.addr, user: "boss".to_owned(), password: own.to_owned() };
    let looks = Admin { addr: admin.addr, user: "watcher".to_owned(), password: watcher.to_owned() };
    eventually("the admin port is there", PATIENCE, || Ok(boss.run("SELECT 1").is_ok()))?;
    ensure!(admin.refusal("SELECT 1")?.contains("1045"), "the usual password was taken");
    let typed = "Sec4ret-that-was-typed";
    boss.run(&format!(
        "INSERT INTO mysql_users (username, password, default_hostgroup) VALUES ('late', '{typed}', 100)"
    ))?;
    boss.run("LOAD MYSQL USERS TO RUNTIME")?;
    boss.refusal(&format!(
        "INSERT INTO mysql_users (username, password) VALUES ('late', '{typed}') nonsense"
    ))?;
    let _ = Session::with(
        weir.addr(),
        &weir_testkit::wire::Login::new(Account { user: "keeper", password: "wrong" }),
    );
    for sql in [
        "SELECT * FROM mysql_users",
        "SELECT * FROM runtime_mysql_users",
        "SELECT * FROM global_variables",
        "SELECT * FROM disk.mysql_users",
        "UPDATE mysql_users SET active = 0",
        "LOAD MYSQL USERS TO RUNTIME",
    ] {
        looks.refusal(sql)?;
    }
    let mut seen = weir.log();
    for sql in [
        "SHOW TABLES",
        "SELECT * FROM stats_mysql_users",
        "SELECT * FROM stats_mysql_global",
        "SHOW VARIABLES",
    ] {
        let output = looks.output(sql)?;
        seen.push_str(&String::from_utf8_lossy(&output.stdout));
        seen.push_str(&String::from_utf8_lossy(&output.stderr));
    }
    for secret in [user, own, watcher, typed] {
        let line = seen.lines().find(|line| line.contains(secret));
        ensure!(line.is_none(), "{secret} is told: {line:?}");
    }
    Ok(())
}
