//! The commands in the guide: each is known, makes sense to the program that it names, and runs where it can.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use weir_testkit::{Account, weir_binary};
use weir_tests::{Case, CaseResult, Env, ensure, eventually};

use crate::http::{get, serve_http};

mod sql;

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("guide::statements_run_as_they_stand_there", sql::run),
        Case::parallel("guide::every_command_is_known_and_makes_sense", makes_sense),
        Case::parallel("guide::commands_run_as_they_stand_there", run),
    ]
}

const PATIENCE: Duration = Duration::from_secs(60);

/// Beginnings of blocks that are no commands.
const NO_COMMANDS: &[(&str, &str)] = &[
    ("  what happened", "the report of make demo"),
    ("WARN ", "lines of the log"),
    ("INFO ", "lines of the log"),
    ("ERROR ", "lines of the log"),
    ("weir_cluster_writers ==", "queries of Prometheus"),
    ("cluster of hostgroup 10:", "a part of what weir status shows"),
    ("15 3 * * *", "a line of a crontab, whose commands are among the others"),
    ("server weir1 ", "a line of a configuration of HAProxy"),
];

/// Commands that run in front of a cluster as they stand in the guide, with its names of files, servers and accounts.
const RUN: &[&str] = &[
    "weir --help",
    "weir check -c /etc/weir/weir.toml",
    "weir config check -c /var/lib/proxysql/proxysql.db",
    "weir config diff  -c /etc/proxysql.cnf --with /var/lib/proxysql/proxysql.db",
    "weir config import /var/lib/proxysql/proxysql.db --datadir /var/lib/weir",
    "weir config export -c /var/lib/proxysql/proxysql.db -o /etc/weir/weir.toml",
    "weir config check -c /etc/proxysql.cnf",
    "weir donor 10 -c /etc/weir/weir.toml",
    "weir stats digests -c /etc/weir/weir.toml --top 20",
    "weir stats errors --datadir /var/lib/weir --json | jq 'select(.errno == 1062)'",
    "weir status --datadir /var/lib/weir        # who writes, who reads, and why",
    "weir status -c /etc/weir/weir.toml --log 3",
    "weir top -c /etc/weir/weir.toml --once > picture.txt",
    "weir drain 10.0.0.12:3306 -c /etc/weir/weir.toml",
    "weir undrain 10.0.0.12:3306 -c /etc/weir/weir.toml",
    "weir switchover 10 -c /etc/weir/weir.toml",
    "weir check -c /etc/weir/weir.toml && kill -HUP \"$(cat /var/lib/weir/weir.pid)\"",
    "echo '{\"report\": \"pool\"}' | socat - UNIX-CONNECT:/var/lib/weir/weir.sock",
    "curl http://weir:6080/readyz",
    "curl \"http://weir:6080/readyz?hostgroup=10\"",
    "curl -u stats:PASSWORD http://weir:6080/metrics",
    "curl -H 'Authorization: Bearer TOKEN' 'http://weir:6080/api/v1/digests?limit=20' | jq '.digests[] | {digest_text, p95_us}'",
    "mariadb -h127.0.0.1 -P6033 -uapp -p        # an application",
    "mariadb -h127.0.0.1 -P6033 -uapp -p shop",
    "mariadb -h127.0.0.1 -P6033 -uapp -p --ssl",
    "mariadb -h127.0.0.1 -P6033 -uapp -p --ssl -e status | grep Cipher",
    "mariadb -uadmin -padmin -h127.0.0.1 -P6032",
];

/// What does not run here, and why.
const NOT_RUN: &[(&str, &str)] = &[
    ("weir init ", "makes accounts: the cases of `init`"),
    ("weir serve ", "runs until it is stopped: every case does that"),
    ("weir top -c /etc/weir/weir.toml", "needs a terminal: the cases of `terminal`"),
    ("weir top --datadir", "needs a terminal: the cases of `terminal`"),
    ("weir check -c bad.toml", "fails, as it should: cli::check_names_every_fault"),
    ("mariadb --socket=", "a path of another machine: the cases of `listeners`"),
    ("mariadb --protocol=tcp", "a name of the certificate: the cases of `entry_points`"),
    ("mariadbd ", "starts a server"),
    ("kill -USR2", "replaces the process: takeover::a_signal_starts_the_new_version"),
    ("make ", "runs for minutes or starts these tests: only the target is looked for"),
    ("cargo build --release", "builds for minutes"),
    ("sudo ", "changes this machine"),
    ("systemctl ", "changes this machine"),
    ("install -m", "changes this machine"),
    ("openssl req", "an example of a tool that is not Weir's"),
    ("docker ", "needs a container engine: scripts/package-test runs the image without one"),
    ("sha256sum -c ", "needs the packages: scripts/package-test compares their sums"),
    ("setsid ", "make failover, with another group of processes"),
];

/// A command or a block of the guide.
struct Found {
    file: String,
    text: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new(".")).to_owned()
}

/// All commands of the README and the guide, and scripts as a whole.
fn commands() -> Result<Vec<Found>, Box<dyn Error>> {
    let mut all = Vec::new();
    for Found { file, text: block } in blocks(&["", "sh", "bash", "console"])? {
        let texts = of_block(&block).map_err(|error| format!("{file}: {error}"))?;
        all.extend(texts.into_iter().map(|text| Found { file: file.clone(), text }));
    }
    Ok(all)
}

/// The blocks of code of these languages in the README and the guide.
fn blocks(languages: &[&str]) -> Result<Vec<Found>, Box<dyn Error>> {
    let mut files = vec![root().join("README.md")];
    for entry in fs::read_dir(root().join("docs/guide"))? {
        files.push(entry?.path());
    }
    files.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    files.sort();
    let mut all = Vec::new();
    for path in files {
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let texts = blocks_of(&fs::read_to_string(&path)?, languages);
        all.extend(texts.into_iter().map(|text| Found { file: file.clone(), text }));
    }
    Ok(all)
}

fn blocks_of(text: &str, languages: &[&str]) -> Vec<String> {
    let (mut blocks, mut open): (Vec<String>, Option<(bool, String)>) = (Vec::new(), None);
    for line in text.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(language)) => open = Some((languages.contains(&language.trim()), String::new())),
            (Some((is_wanted, block)), Some(_)) => {
                blocks.extend(is_wanted.then(|| std::mem::take(block)));
                open = None;
            }
            (Some((_, block)), None) => {
                block.push_str(line);
                block.push('\n');
            }
            (None, None) => {}
        }
    }
    blocks
}

/// Behind `$ ` where a block shows what is printed, too; else each line.
fn of_block(block: &str) -> Result<Vec<String>, String> {
    if block.starts_with("#!") {
        return Ok(vec![block.to_owned()]);
    }
    if NO_COMMANDS.iter().any(|(begin, _)| block.starts_with(begin)) {
        return Ok(Vec::new());
    }
    let joined = block.replace("\\\n", " ");
    let typed: Vec<&str> = joined.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
    let typed = if typed.is_empty() { joined.lines().collect() } else { typed };
    let texts: Vec<String> =
        typed.into_iter().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect();
    let is_command = |text: &String| {
        RUN.contains(&text.as_str()) || NOT_RUN.iter().any(|(begin, _)| text.starts_with(begin))
    };
    match texts.iter().find(|text| !is_command(text)) {
        Some(unknown) => Err(format!(
            "{unknown:?} is in none of the lists: add it to RUN, or to NOT_RUN or NO_COMMANDS with the reason"
        )),
        None => Ok(texts),
    }
}

/// What stands behind a command to explain it.
fn without_remark(text: &str) -> &str {
    let is_make = text.starts_with("make ");
    let end = text.find(if is_make { "   " } else { "  #" }).unwrap_or(text.len());
    text[..end].trim_end()
}

fn makes_sense(_: &Env) -> CaseResult {
    let makefile = fs::read_to_string(root().join("Makefile"))?;
    let found = commands()?;
    ensure!(found.len() > 50, "only {} commands were found", found.len());
    for Found { file, text } in &found {
        let text = without_remark(text);
        let mut shell = Command::new("sh").arg("-n").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        shell.stdin.take().ok_or("no input")?.write_all(text.as_bytes())?;
        let output = shell.wait_with_output()?;
        ensure!(output.status.success(), "{file}: {text}: {}", String::from_utf8_lossy(&output.stderr));
        if let Some(target) = text.strip_prefix("make ").and_then(|rest| rest.split_whitespace().next()) {
            let is_there = makefile.lines().any(|line| line.starts_with(&format!("{target}:")));
            ensure!(is_there, "{file}: {text}: the Makefile has no {target}");
        }
        for arguments in of_weir(text) {
            let mut command = Command::new("sh");
            let line = format!("exec \"$WEIR\" {arguments} --help");
            let output = command.arg("-c").arg(line).env("WEIR", weir_binary()?).output()?;
            let error = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "{file}: weir {arguments}: {error}");
        }
    }
    // A list with what is nowhere any more tells nothing.
    let texts: BTreeSet<&str> = found.iter().map(|found| found.text.as_str()).collect();
    for wanted in RUN {
        ensure!(texts.contains(wanted), "{wanted:?} is not in the guide");
    }
    for (begin, _) in NOT_RUN {
        ensure!(texts.iter().any(|text| text.starts_with(begin)), "{begin:?} is not in the guide");
    }
    Ok(())
}

/// The arguments of each `weir` in a command, also of one within `$(...)`.
fn of_weir(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    for (at, _) in text.match_indices("weir ") {
        let before = text[..at].chars().next_back();
        let begins = at == 0 || text[..at].ends_with("$(") || text[..at].ends_with("&& ");
        if !begins || before.is_some_and(char::is_alphanumeric) {
            continue;
        }
        let rest = &text[at + "weir ".len()..];
        let end = rest.find([')', '|', '>', '&', ';']).unwrap_or(rest.len());
        all.push(rest[..end].trim().to_owned());
    }
    all
}

fn run(env: &Env) -> CaseResult {
    let (http, admin, dir) = (env.free_address()?, env.free_address()?, env.dir()?.join("guide"));
    fs::create_dir_all(&dir)?;
    let _ = symlink(weir_binary()?, dir.join("weir"));
    let schema = env.schema()?;
    let weir = env.weir(|config| {
        config.admin(admin);
        serve_http(config, http);
    })?;
    eventually("a writer", PATIENCE, || {
        Ok(get(http, "/readyz?hostgroup=100", "").is_ok_and(|(status, _)| status == 200))
    })?;
    let cnf = dir.join("proxysql.cnf");
    fs::copy(root().join("docs/guide/proxysql.cnf"), &cnf)?;
    let proxysql = dir.join("proxysql");
    let imported =
        shell(&dir, &format!("weir config import {} --datadir {}", cnf.display(), proxysql.display()))?;
    ensure!(imported.status.success(), "{imported:?}");
    fs::rename(proxysql.join("weir.db"), proxysql.join("proxysql.db"))?;

    let text = |path: &Path| path.display().to_string();
    let exported = text(&dir.join("exported.toml"));
    let node = env.cluster()?.node(2).addr().to_string();
    let replaced: &[(&str, &str)] = &[
        ("-o /etc/weir/weir.toml", &format!("-o {exported}")),
        ("/etc/weir/weir.toml", &text(weir.config_path())),
        ("/etc/proxysql.cnf", &text(&cnf)),
        ("/var/lib/proxysql", &text(&proxysql)),
        ("--datadir /var/lib/weir", &format!("--datadir {}", text(weir.datadir()))),
        ("/var/lib/weir", &text(weir.datadir())),
        ("10.0.0.12:3306", &node),
        ("weir donor 10 ", "weir donor 100 "),
        ("weir switchover 10 ", "weir switchover 100 "),
        ("hostgroup=10", "hostgroup=100"),
        ("http://weir:6080", &format!("http://{http}")),
        ("stats:PASSWORD", "stats:s3cret"),
        ("Bearer TOKEN", "Bearer t0ken"),
        ("mariadb ", "mariadb --no-defaults "),
        ("-P6033", &format!("-P{}", weir.addr().port())),
        ("-P6032", &format!("-P{}", admin.port())),
        ("-uapp -p", &format!("-uapp -p{}", Account::APP.password)),
        (" shop", &format!(" {schema}")),
    ];
    let mut ran = 0;
    for Found { file, text } in commands()? {
        if !RUN.contains(&text.as_str()) {
            continue;
        }
        let mut line = text.clone();
        for (from, to) in replaced {
            line = line.replace(from, to);
        }
        let output = shell(&dir, &line)?;
        let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.success(), "{file}: {text}\n{line}\n{}\n{out}\n{error}", output.status);
        ran += 1;
    }
    ensure!(ran >= RUN.len(), "{ran} commands have run");
    Ok(())
}

/// Runs a line, which reads nothing, with this `weir`.
fn shell(dir: &Path, line: &str) -> Result<Output, Box<dyn Error>> {
    let path = format!("{}:{}", dir.display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("bash");
    command.args(["-o", "pipefail", "-c", line]).env("PATH", path).current_dir(dir).stdin(Stdio::null());
    Ok(command.output()?)
}
