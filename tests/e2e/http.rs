//! HTTP: health, metrics and the JSON API of a running Weir.

use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::time::Duration;

use serde_json::Value;
use weir_testkit::{Account, Weir, WeirConfig, weir_binary};
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

use crate::admin::{self, Admin};

const PATIENCE: Duration = Duration::from_secs(60);

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("http::metrics_of_known_traffic", known_traffic),
        Case::parallel("http::pages_show_what_runs_and_need_a_password", pages),
        Case::parallel("http::a_cluster_without_a_writer_takes_nobody_elses_clients_away", readiness),
        Case::parallel("http::options_change_while_weir_runs", options_change),
        Case::parallel("http::what_an_admin_loads_takes_effect", by_admin),
        Case::parallel("http::secrets_are_told_to_nobody", secrets),
    ]
}

/// Serves HTTP at this address.
pub(crate) fn serve_http(config: &mut WeirConfig, at: SocketAddrV4) {
    let admin = config.document_mut().entry("admin_variables").or_insert(toml_edit::table());
    if let Some(admin) = admin.as_table_mut() {
        admin.insert("web_enabled", toml_edit::value(true));
        admin.insert("web_ip", toml_edit::value(at.ip().to_string()));
        admin.insert("web_port", toml_edit::value(i64::from(at.port())));
        admin.insert("stats_credentials", toml_edit::value("stats:s3cret"));
        admin.insert("web_token", toml_edit::value("t0ken"));
    }
}

/// A Weir with one worker more than one, and where it serves HTTP.
fn weir(env: &Env) -> Result<(Weir, SocketAddrV4), Box<dyn Error>> {
    let at = env.free_address()?;
    let weir = env.weir(|config| {
        config.variable("threads", 2);
        serve_http(config, at);
    })?;
    // A moment after clients are served.
    eventually("HTTP is served", PATIENCE, || Ok(TcpStream::connect(at).is_ok()))?;
    Ok((weir, at))
}

/// Status and body of a GET with the token, if it is to be shown.
pub(crate) fn get(at: SocketAddrV4, path: &str, headers: &str) -> Result<(u16, String), Box<dyn Error>> {
    let mut stream = TcpStream::connect(at)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n{headers}\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("no head")?;
    let status = head.split(' ').nth(1).ok_or("no status")?.parse()?;
    // Whatever is sent in pieces is not what these tests are about.
    ensure!(!head.to_lowercase().contains("transfer-encoding"), "{head}");
    Ok((status, body.to_owned()))
}

pub(crate) const TOKEN: &str = "Authorization: Bearer t0ken\r\n";
const OPEN: &str = "Authorization: Bearer t0ken\r\nAccept: application/openmetrics-text; version=1.0.0\r\n";

/// The metrics by name and labels, as they are written; an error if OpenMetrics would not take them.
fn scrape(at: SocketAddrV4) -> Result<HashMap<String, f64>, Box<dyn Error>> {
    let (status, text) = get(at, "/metrics", OPEN)?;
    ensure!(status == 200, "{status}: {text}");
    parse(&text)
}

/// A strict reader of OpenMetrics 1.0: one block for each family, HELP and TYPE before its samples, names that fit the
/// type, no sample twice, buckets that rise, and the end marked.
fn parse(text: &str) -> Result<HashMap<String, f64>, Box<dyn Error>> {
    let text = text.strip_suffix("# EOF\n").ok_or("no end")?;
    let (mut families, mut samples) = (HashSet::new(), HashMap::new());
    let (mut name, mut kind) = (String::new(), String::new());
    let mut last_bucket: Option<(String, f64)> = None;
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            name = help.split(' ').next().unwrap_or_default().to_owned();
            ensure!(families.insert(name.clone()), "{name} has two blocks");
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (of, is) = rest.split_once(' ').ok_or("TYPE")?;
            ensure!(of == name, "{line}: not of {name}");
            kind = is.to_owned();
            continue;
        }
        let (sample, number) = line.rsplit_once(' ').ok_or_else(|| format!("no sample: {line}"))?;
        let number: f64 = number.parse()?;
        let (of, labels) = sample.split_once('{').unwrap_or((sample, "}"));
        ensure!(labels.ends_with('}'), "{line}");
        let suffix = of.strip_prefix(name.as_str()).ok_or_else(|| format!("{line}: not of {name}"))?;
        let fits = match kind.as_str() {
            "counter" => suffix == "_total",
            "gauge" | "unknown" => suffix.is_empty(),
            "histogram" => ["_bucket", "_count", "_sum"].contains(&suffix),
            _ => false,
        };
        ensure!(fits && number >= 0.0, "{line}: no sample of a {kind}");
        if suffix == "_bucket" {
            let (series, limit) = labels.rsplit_once("le=\"").ok_or("le")?;
            if let Some((before, count)) = &last_bucket
                && before == series
            {
                ensure!(number >= *count, "{line}: less than the bucket before");
            }
            last_bucket = (!limit.starts_with("+Inf")).then(|| (series.to_owned(), number));
        }
        ensure!(samples.insert(sample.to_owned(), number).is_none(), "{sample} is there twice");
    }
    Ok(samples)
}

/// The sum of all samples of a name with these labels, in any order.
fn sum(samples: &HashMap<String, f64>, name: &str, labels: &[&str]) -> f64 {
    let is_wanted = |sample: &str| {
        sample.split('{').next() == Some(name) && labels.iter().all(|label| sample.contains(label))
    };
    samples.iter().filter(|(sample, _)| is_wanted(sample)).map(|(_, number)| number).sum()
}

fn known_traffic(env: &Env) -> CaseResult {
    let (weir, at) = weir(env)?;
    // Whoever started it has looked whether it listens: a client, too, that a busy worker sees a moment later.
    let mut before = HashMap::new();
    eventually("the look at the port is counted", PATIENCE, || {
        before = scrape(at)?;
        Ok(sum(&before, "proxysql_client_connections_total", &["status=\"created\""]) == 1.0)
    })?;
    let mut sessions = Vec::new();
    for _ in 0..4 {
        sessions.push(Session::open(weir.addr(), "test")?);
    }
    for session in &mut sessions {
        for number in 0..25 {
            session.rows(&format!("SELECT 'scraped', {number}"))?;
        }
    }
    let _ = sessions[0].rows("SELECT * FROM there_is_no_such_table");
    let after = scrape(at)?;
    let grown = |name: &str, labels: &[&str]| sum(&after, name, labels) - sum(&before, name, labels);
    ensure!(sum(&after, "proxysql_client_connections_connected", &[]) == 4.0, "clients");
    let created = grown("proxysql_client_connections_total", &["status=\"created\""]);
    ensure!(created == 4.0, "created: {created}");
    ensure!(grown("proxysql_questions_total", &[]) >= 101.0, "questions");
    ensure!(grown("weir_commands_total", &["command=\"SELECT\""]) == 101.0, "commands");
    let text = "digest_text=\"SELECT ?,?\"";
    ensure!(sum(&after, "weir_digest_statement_seconds_count", &[text]) == 100.0, "digest: {after:?}");
    ensure!(sum(&after, "weir_digest_statement_seconds_bucket", &[text, "le=\"+Inf\""]) == 100.0, "buckets");
    ensure!(sum(&after, "weir_digest_statement_seconds_sum", &[text]) > 0.0, "sum");
    ensure!(sum(&after, "weir_hostgroup_statement_seconds_count", &[]) >= 101.0, "hostgroups");
    ensure!(grown("proxysql_connpool_conns_queries_total", &["hostgroup=\"10"]) >= 101.0, "queries");
    ensure!(grown("mysql_error_total", &["code=\"1146\""]) == 1.0, "errors: {after:?}");
    ensure!(sum(&after, "weir_cluster_writers", &["hostgroup=\"100\""]) == 1.0, "writers");
    ensure!(sum(&after, "proxysql_connpool_conns_status", &["hostgroup=\"100\""]) == 1.0, "status");
    ensure!(sum(&after, "weir_server_role", &["role=\"writer\""]) == 1.0, "role");
    ensure!(sum(&after, "proxysql_mysql_thread_workers", &[]) == 2.0, "workers");
    for sample in ["proxysql_slow_queries_total", "weir_log_lines_dropped_total{log=\"events\"}"] {
        ensure!(after.contains_key(sample), "{sample}");
    }
    ensure!(sum(&after, "process_open_fds", &[]) > 10.0, "descriptors");
    let shown: Vec<&String> = after.keys().filter(|sample| sample.contains("scraped")).collect();
    ensure!(shown.is_empty(), "a literal of a statement: {shown:?}");
    Ok(())
}

fn readiness(env: &Env) -> CaseResult {
    let at = env.free_address()?;
    let dead = "127.0.0.1:1".parse()?;
    let ask = |path: &str| get(at, path, "");
    // A second cluster, of which nobody is there.
    let weir = env.weir(|config| {
        serve_http(config, at);
        config.server(dead, 200, &[]).push(
            "mysql_galera_hostgroups",
            &[
                ("writer_hostgroup", 200.into()),
                ("backup_writer_hostgroup", 201.into()),
                ("reader_hostgroup", 202.into()),
                ("offline_hostgroup", 203.into()),
            ],
        );
        config.user(Account { user: "second", password: "x" }, 200, &[]);
    })?;
    eventually("HTTP is served", PATIENCE, || Ok(TcpStream::connect(at).is_ok()))?;
    let no_writer = "cluster of hostgroup 200 has no writer";
    eventually("ready", PATIENCE, || Ok(ask("/readyz?hostgroup=100")? == (200, "ready\n".to_owned())))?;
    let (status, body) = ask("/readyz")?;
    ensure!(status == 200 && body.starts_with("ready\n") && body.contains(no_writer), "{status} {body}");
    let (status, body) = ask("/readyz?hostgroup=200")?;
    ensure!(status == 503 && body.starts_with("not ready\n") && body.contains(no_writer), "{status} {body}");
    eventually("readers", PATIENCE, || Ok(ask("/readyz?hostgroup=102")?.0 == 200))?;
    ensure!(ask("/readyz?hostgroup=202")?.0 == 503, "no readers");
    ensure!(ask("/readyz?hostgroup=4711")?.0 == 404, "no hostgroup");
    ensure!(ask("/readyz?hostgroup=x")?.0 == 400, "no number");
    drop(weir);
    // Nobody can be served at all.
    let mut config = WeirConfig::for_servers(&[dead], env.free_address()?);
    serve_http(&mut config, at);
    let _weir = env.weir_with(&config)?;
    eventually("HTTP is served", PATIENCE, || Ok(TcpStream::connect(at).is_ok()))?;
    let (status, body) = ask("/readyz")?;
    ensure!(status == 503 && body.contains("cluster of hostgroup 100 has no writer"), "{status} {body}");
    Ok(())
}

fn pages(env: &Env) -> CaseResult {
    let (weir, at) = weir(env)?;
    ensure!(get(at, "/healthz", "")? == (200, "ok\n".to_owned()), "healthz");
    eventually("ready", PATIENCE, || Ok(get(at, "/readyz", "")? == (200, "ready\n".to_owned())))?;
    for path in ["/metrics", "/api/v1/status", "/api/v1/processlist"] {
        let (status, body) = get(at, path, "")?;
        ensure!(
            status == 401 && !body.contains("s3cret") && !body.contains("t0ken"),
            "{path}: {status} {body}"
        );
        // admin:admin, which counts on this machine.
        ensure!(get(at, path, "Authorization: Basic YWRtaW46YWRtaW4=\r\n")?.0 == 200, "{path}");
        // stats:s3cret
        ensure!(get(at, path, "Authorization: Basic c3RhdHM6czNjcmV0\r\n")?.0 == 200, "{path}");
        // stats:stats
        ensure!(get(at, path, "Authorization: Basic c3RhdHM6c3RhdHM=\r\n")?.0 == 401, "{path}");
    }
    let page = |path: &str| -> Result<Value, Box<dyn Error>> {
        let (status, body) = get(at, path, TOKEN)?;
        ensure!(status == 200, "{path}: {status} {body}");
        Ok(serde_json::from_str(&body)?)
    };
    let mut pinned = Session::open(weir.addr(), "test")?;
    pinned.run("SET @secret = 'hidden'")?;
    let status = page("/api/v1/status")?;
    ensure!(status["clients"] == 1 && status["workers"] == 2, "{status}");
    ensure!(
        status["clusters"][0]["writers"].as_array().is_some_and(|writers| writers.len() == 1),
        "{status}"
    );
    let topology = page("/api/v1/topology")?;
    let servers = topology["servers"].as_array().ok_or("servers")?;
    ensure!(servers.iter().any(|server| server["role"] == "writer" && server["reason"] != ""), "{topology}");
    ensure!(page("/api/v1/servers")?["servers"].as_array().is_some_and(|rows| !rows.is_empty()), "servers");
    let digests = page("/api/v1/digests?limit=1")?;
    ensure!(digests["digests"].as_array().is_some_and(|rows| rows.len() == 1), "{digests}");
    let list = page("/api/v1/processlist")?;
    let row = &list["sessions"][0];
    ensure!(row["pins"] == "user_variable" && row["username"] == "app", "{list}");
    ensure!(!list.to_string().contains("hidden"), "{list}");
    Ok(())
}

fn options_change(env: &Env) -> CaseResult {
    let (first, second) = (env.free_address()?, env.free_address()?);
    let mut wanted = WeirConfig::for_cluster(env.cluster()?, env.free_address()?);
    // As the environment may set it: it is not to change here.
    wanted.variable("io_driver", "epoll");
    let weir = Weir::start(&weir_binary()?, &wanted, env.dir()?, "http")?;
    ensure!(TcpStream::connect(first).is_err(), "nothing is served unless it is wanted");
    serve_http(&mut wanted, first);
    weir.reload(&wanted)?;
    eventually("served", PATIENCE, || Ok(get(first, "/healthz", "").is_ok_and(|(status, _)| status == 200)))?;
    serve_http(&mut wanted, second);
    weir.reload(&wanted)?;
    eventually("served elsewhere", PATIENCE, || {
        Ok(get(second, "/healthz", "").is_ok_and(|(status, _)| status == 200))
    })?;
    eventually("no more there", PATIENCE, || Ok(TcpStream::connect(first).is_err()))?;
    Ok(())
}

fn by_admin(env: &Env) -> CaseResult {
    let (first, second) = (env.free_address()?, env.free_address()?);
    let (_weir, admin) = admin::start(env, |config| serve_http(config, first))?;
    ensure!(get(first, "/metrics", TOKEN)?.0 == 200, "not served");
    admin.run(&format!(
        "SET admin-web_port={}; SET admin-web_token='another'; SET admin-stats_credentials='stats:new'; \
         LOAD ADMIN VARIABLES TO RUNTIME",
        second.port()
    ))?;
    // It was taken when LOAD has answered.
    ensure!(first.ip() == second.ip(), "web_ip stays");
    ensure!(get(second, "/healthz", "")? == (200, "ok\n".to_owned()), "not served there");
    for (known, status) in [
        ("Authorization: Bearer another\r\n", 200),
        (TOKEN, 401),
        // stats:new, stats:s3cret
        ("Authorization: Basic c3RhdHM6bmV3\r\n", 200),
        ("Authorization: Basic c3RhdHM6czNjcmV0\r\n", 401),
    ] {
        let (answered, body) = get(second, "/metrics", known)?;
        ensure!(answered == status, "{known}: {answered} {body}");
    }
    eventually("no more there", PATIENCE, || Ok(TcpStream::connect(first).is_err()))?;
    let names = |text: &str| -> HashSet<String> {
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        types.map(str::to_owned).collect()
    };
    let scraped = get(second, "/metrics", "Authorization: Bearer another\r\n")?.1;
    let (scraped, shown) = (names(&scraped), names(&metrics(&admin)?));
    ensure!(shown.contains("proxysql_questions_total counter"), "{shown:?}");
    ensure!(shown == scraped, "only one has {:?}", shown.symmetric_difference(&scraped));
    Ok(())
}

/// SHOW PROMETHEUS METRICS at the admin port.
fn metrics(admin: &Admin) -> Result<String, Box<dyn Error>> {
    // One value, in which the client writes the ends of lines as two characters.
    Ok(admin.run("SHOW PROMETHEUS METRICS")?.concat().replace("\\n", "\n"))
}

fn secrets(env: &Env) -> CaseResult {
    let own = ["Sec1ret-of-a-user", "Sec2ret-of-the-watcher", "Sec3ret-token", "Sec4ret-in-a-statement"];
    let [user, watcher, token, typed] = own;
    let at = env.free_address()?;
    let (weir, admin) = admin::start(env, |config| {
        serve_http(config, at);
        config.user(Account { user: "keeper", password: user }, 100, &[]);
        config.admin_variable("stats_credentials", format!("watcher:{watcher}"));
        config.admin_variable("web_token", token);
    })?;
    let mut session = Session::open(weir.addr(), "test")?;
    session.run(&format!("SET @known = '{typed}'"))?;
    // With an error in its syntax.
    let refused = session.run(&format!("CREATE USER somebody IDENTIFIED BY '{typed}' REQUIRE NOTHING"));
    ensure!(refused.is_err(), "it was taken");
    let authorization = format!("Authorization: Bearer {token}\r\n");
    let mut seen = metrics(&admin)?;
    for path in [
        "/metrics",
        "/api/v1/status",
        "/api/v1/topology",
        "/api/v1/servers",
        "/api/v1/digests",
        "/api/v1/processlist",
    ] {
        let (status, body) = get(at, path, &authorization)?;
        ensure!(status == 200 && body.len() > 2, "{path}: {status} {body}");
        seen.push_str(&body);
    }
    // Those of servers and of admins are short words, which stand in names as well.
    for secret in own {
        let line = seen.lines().find(|line| line.contains(secret));
        ensure!(line.is_none(), "{secret} is told: {line:?}");
    }
    Ok(())
}
