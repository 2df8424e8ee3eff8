//! Reasons of refused logins are in Weir's log and in the audit log, not told to clients.

use std::fs;
use std::time::Duration;

use serde_json::Value;
use weir_testkit::wire::{Login, RawClient};
use weir_testkit::{Account, Weir, hostgroup};
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

pub(super) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("login::the_log_says_why_a_login_is_refused", reasons),
        Case::parallel("login::a_flood_of_refused_logins_fills_no_log", flood),
    ]
}

const PATIENCE: Duration = Duration::from_secs(20);
/// A password that must be in no log.
const SESAME: &str = "open-sesame";

/// Code and message of a login that is refused.
fn refused(weir: &Weir, login: &Login) -> Result<(u16, String), Box<dyn std::error::Error>> {
    let packet = RawClient::connect(weir.addr())?.authenticate(login)?;
    let err = packet.err()?;
    Ok((err.code, String::from_utf8_lossy(err.message).into_owned()))
}

/// Lines of Weir's log about refused logins.
fn lines(weir: &Weir) -> Vec<String> {
    weir.log().lines().filter(|line| line.contains("login refused")).map(str::to_owned).collect()
}

fn reasons(env: &Env) -> CaseResult {
    let weir = env.weir(|config| {
        config.variable("auditlog_filename", "audit");
        for (user, column, value) in
            [("gone", "active", 0), ("sealed", "use_ssl", 1), ("full", "max_connections", 0)]
        {
            let account = Account { user, password: SESAME };
            config.user(account, hostgroup::WRITER, &[(column, value.into())]);
        }
    })?;
    // As long as there is no writer, nobody can be asked for a schema.
    Session::open(weir.addr(), "test")?.run("DO 1")?;
    let login = |user: &'static str, password: &'static str| Login::new(Account { user, password });
    let cases = [
        (login("nobody", SESAME), 1045, "no such user"),
        (login("app", SESAME), 1045, "wrong password"),
        (login("app", ""), 1045, "no password was given"),
        (login("gone", SESAME), 1045, "the user is not active"),
        (login("sealed", SESAME), 1045, "the user may log in over TLS only (use_ssl, REQUIRE SSL)"),
        (login("full", SESAME), 1226, "max_connections of the user is reached"),
        (Login::new(Account::APP).schema("no_such_schema"), 1049, "a server refuses it"),
    ];
    for (login, code, reason) in &cases {
        let (user, (told, message)) = (login.user.as_str(), refused(&weir, login)?);
        ensure!(told == *code, "{user}, {reason}: {told} {message}");
        let used = if login.password.is_empty() { "NO" } else { "YES" };
        let denied = format!("Access denied for user '{user}'@'127.0.0.1' (using password: {used})");
        ensure!(told != 1045 || message == denied, "the client is told more: {message}");
    }
    let found = lines(&weir);
    ensure!(found.len() == cases.len(), "{found:#?}");
    for ((login, code, reason), line) in cases.iter().zip(&found) {
        for wanted in [
            format!("user=\"{}\"", login.user.as_str()),
            "peer=127.0.0.1:".to_owned(),
            format!("listener={}", weir.addr()),
            format!("reason=\"{reason}\""),
            format!("code={code}"),
        ] {
            ensure!(line.contains(&wanted), "no {wanted} in {line}");
        }
    }
    let path = weir.datadir().join("audit.00000001");
    let mut errors: Vec<Value> = Vec::new();
    eventually("all of them are in the audit log", PATIENCE, || {
        let text = fs::read_to_string(&path).unwrap_or_default();
        let whole = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        errors = whole.filter(|line| line["event"] == "MySQL_Client_Connect_ERR").collect();
        Ok(errors.len() == cases.len())
    })?;
    // Each worker has its own way to it: they may stand in another order.
    let address = weir.addr().to_string();
    for (login, _, reason) in &cases {
        let is_it = |line: &&Value| {
            line["extra_info"].as_str().is_some_and(|text| text.ends_with(reason))
                && line["username"] == login.user.as_str()
                && line["proxy_addr"] == address.as_str()
        };
        ensure!(errors.iter().filter(is_it).count() == 1, "{}, {reason}: {errors:?}", login.user);
    }
    let all = weir.log() + &fs::read_to_string(&path)?;
    ensure!(!all.contains(SESAME), "a password is in a log");
    Ok(())
}

fn flood(env: &Env) -> CaseResult {
    const LOGINS: u64 = 300;
    let weir = env.weir(|config| {
        config.variable("threads", 1).arguments(&["--log-format", "json"]);
    })?;
    let mut login = Login::new(Account { user: "", password: SESAME });
    login.user = "x".repeat(5000);
    for _ in 0..LOGINS {
        refused(&weir, &login)?;
    }
    let found = lines(&weir);
    ensure!(found.len() >= 20 && (found.len() as u64) < LOGINS, "{} lines for {LOGINS}", found.len());
    ensure!(found.iter().all(|line| line.len() < 1200), "a line as long as a client likes");
    // None is forgotten: a line tells how many before it had none.
    eventually("all are told of", Duration::from_secs(60), || {
        let mut told = 0;
        for line in weir.log().lines().filter(|line| line.starts_with('{')) {
            let line: Value = serde_json::from_str(line)?;
            let fields = &line["fields"];
            told +=
                u64::from(fields["message"] == "login refused") + fields["left_out"].as_u64().unwrap_or(0);
        }
        Ok(told == LOGINS)
    })
}
