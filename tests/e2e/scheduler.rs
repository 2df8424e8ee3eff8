//! The scheduler: programs run at their interval.

use std::error::Error;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use weir_testkit::{Weir, WeirConfig, hostgroup};
use weir_tests::{Case, CaseResult, Env, ensure, eventually};

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("scheduler::a_program_gets_its_arguments_and_is_heard", heard),
        Case::parallel("scheduler::a_program_never_runs_twice_at_a_time", never_twice),
        Case::parallel("scheduler::a_program_that_hangs_is_killed_with_what_it_started", killed),
        Case::parallel("scheduler::other_rows_are_taken_without_a_run_too_many", reload),
        Case::parallel("scheduler::a_check_script_takes_a_server_out_at_the_admin_port", check_script),
        Case::parallel("scheduler::no_program_outlives_weir", end),
    ]
}

const PATIENCE: Duration = Duration::from_secs(30);

/// A shell script in a directory of its own.
fn script(env: &Env, name: &str, text: &str) -> Result<PathBuf, Box<dyn Error>> {
    let dir = env.dir()?.join(format!("scheduler-{name}"));
    fs::create_dir_all(&dir)?;
    let path = dir.join("run.sh");
    fs::write(&path, format!("#!/bin/sh\ncd {}\n{text}\n", dir.display()))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700))?;
    Ok(path)
}

/// A file beside the script.
fn beside(script: &Path, name: &str) -> PathBuf {
    script.with_file_name(name)
}

fn lines(path: &Path) -> usize {
    fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

fn schedule(config: &mut WeirConfig, id: i64, interval_ms: i64, path: &Path, arguments: &[&str]) {
    let filename = path.display().to_string();
    let mut row =
        vec![("id", id.into()), ("interval_ms", interval_ms.into()), ("filename", filename.as_str().into())];
    let names = ["arg1", "arg2", "arg3", "arg4", "arg5"];
    row.extend(names.iter().zip(arguments).map(|(name, argument)| (*name, (*argument).into())));
    config.push("scheduler", &row);
}

/// A Weir that needs no server.
fn weir(env: &Env, change: impl FnOnce(&mut WeirConfig)) -> Result<(Weir, WeirConfig), Box<dyn Error>> {
    let mut config = WeirConfig::new(env.free_address()?);
    change(&mut config);
    Ok((env.weir_with(&config)?, config))
}

fn timeout_ms(config: &mut WeirConfig, timeout_ms: i64) {
    config.document_mut()["admin_variables"]["scheduler_timeout_ms"] = toml_edit::value(timeout_ms);
}

fn is_running(pid: &str) -> bool {
    // A zombie that nobody has waited for is over, too.
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().next().map(str::to_owned));
    state.is_some_and(|state| state != "Z" && state != "X")
}

fn heard(env: &Env) -> CaseResult {
    let text = "printf '%s|' \"$@\"; echo; env | grep -v -e ^PWD -e ^OLDPWD -e ^SHLVL -e ^_= ; echo trouble >&2; exit 3";
    let path = script(env, "heard", text)?;
    let (weir, _) = weir(env, |config| schedule(config, 7, 200, &path, &["a b", "", "$HOME;c"]))?;
    weir.wait_log("says=\"a b||$HOME;c|\"", PATIENCE)?;
    weir.wait_log("says=\"trouble\"", PATIENCE)?;
    weir.wait_log("ended with an error id=7", PATIENCE)?;
    let log = weir.log();
    ensure!(log.contains("code=3"), "{log}");
    let says = log.lines().filter(|line| line.contains("says=")).collect::<Vec<_>>();
    let is_known = |line: &&&str| line.contains("a b||") || line.contains("trouble");
    ensure!(says.iter().all(|line| is_known(&line)), "the environment is not empty: {says:?}");
    Ok(())
}

fn never_twice(env: &Env) -> CaseResult {
    // Whoever finds another one there says so.
    let text = "mkdir lock || { echo twice >> twice; exit 1; }\necho run >> runs\nsleep 0.5\nrmdir lock";
    let path = script(env, "twice", text)?;
    let (weir, _) = weir(env, |config| schedule(config, 1, 100, &path, &[]))?;
    eventually("several runs", PATIENCE, || Ok(lines(&beside(&path, "runs")) >= 4))?;
    ensure!(!beside(&path, "twice").exists(), "it ran twice at a time");
    let log = weir.log();
    ensure!(log.contains("still running, turn skipped"), "{log}");
    Ok(())
}

fn killed(env: &Env) -> CaseResult {
    let text = "sleep 1000 &\necho $! > child\necho $$ > own\nwait";
    let path = script(env, "killed", text)?;
    let (weir, _) = weir(env, |config| {
        timeout_ms(config, 500);
        schedule(config, 1, 200, &path, &[]);
    })?;
    weir.wait_log("killed, it took longer than scheduler_timeout_ms", PATIENCE)?;
    // It is started again and again: each one's child ends with it.
    let child = fs::read_to_string(beside(&path, "child"))?;
    eventually("the child is gone", PATIENCE, || Ok(!is_running(&child)))
}

fn reload(env: &Env) -> CaseResult {
    let often = script(env, "often", "echo run >> runs")?;
    let rarely = script(env, "rarely", "echo run >> runs")?;
    let (weir, mut config) = weir(env, |config| {
        schedule(config, 1, 200, &often, &[]);
        schedule(config, 2, 100_000, &rarely, &[]);
    })?;
    eventually("a run", PATIENCE, || Ok(lines(&beside(&often, "runs")) >= 2))?;
    config.document_mut().remove("scheduler");
    schedule(&mut config, 2, 100_000, &rarely, &[]);
    weir.reload(&config)?;
    weir.wait_log("configuration applied", PATIENCE)?;
    // One may have been on its way.
    let runs = || lines(&beside(&often, "runs"));
    let mut before = runs();
    eventually("no more runs", PATIENCE, || {
        std::thread::sleep(Duration::from_millis(500));
        Ok(std::mem::replace(&mut before, runs()) == runs())
    })?;
    ensure!(!beside(&rarely, "runs").exists(), "what runs rarely has run at once");
    config.document_mut().remove("scheduler");
    schedule(&mut config, 2, 200, &rarely, &[]);
    weir.reload(&config)?;
    eventually("a run at the new interval", PATIENCE, || Ok(lines(&beside(&rarely, "runs")) >= 2))
}

/// As scripts for ProxySQL's scheduler do: they look at the nodes, and tell the admin port.
fn check_script(env: &Env) -> CaseResult {
    let text = r#"
        ADMIN="mariadb --no-defaults -uadmin -padmin -h127.0.0.1 -P$1 --batch --skip-column-names"
        $ADMIN -e "SELECT hostname, port, status FROM mysql_servers WHERE hostgroup_id = $2" | while read host port status; do
            wanted=ONLINE
            [ -e "busy-$host" ] && wanted=OFFLINE_SOFT
            [ "$status" = "$wanted" ] && continue
            echo "$host:$port is to be $wanted"
            $ADMIN -e "UPDATE mysql_servers SET status='$wanted' WHERE hostname='$host' AND port=$port;
                LOAD MYSQL SERVERS TO RUNTIME"
        done"#;
    let path = script(env, "check", text)?;
    let port = env.free_address()?;
    let mut config = WeirConfig::for_cluster(env.cluster()?, env.free_address()?);
    config.admin(port);
    let weir = env.weir_with(&config)?;
    let node = env.cluster()?.nodes()[1].addr();
    let admin = |sql: &str| -> Result<String, Box<dyn Error>> {
        let mut client = Command::new("mariadb");
        client.args(["--no-defaults", "-uadmin", "-padmin", "-h127.0.0.1", &format!("-P{}", port.port())]);
        let output = client.args(["--batch", "--skip-column-names", "-e", sql]).output()?;
        ensure!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    admin(&format!(
        "INSERT INTO scheduler (id, interval_ms, filename, arg1, arg2) VALUES (1, 500, '{}', '{}', '{}');
         LOAD SCHEDULER TO RUNTIME",
        path.display(),
        port.port(),
        hostgroup::WRITER
    ))?;
    let status = || {
        let (host, port) = (node.ip(), node.port());
        let of_node = format!("WHERE hostname='{host}' AND port={port}");
        admin(&format!("SELECT DISTINCT status FROM runtime_mysql_servers {of_node}"))
    };
    eventually("the node serves", PATIENCE, || Ok(status()? == "ONLINE"))?;
    let busy = beside(&path, &format!("busy-{}", node.ip()));
    fs::write(&busy, "")?;
    weir.wait_log("is to be OFFLINE_SOFT", PATIENCE)?;
    eventually("the node is out", PATIENCE, || Ok(status()? == "OFFLINE_SOFT"))?;
    fs::remove_file(&busy)?;
    weir.wait_log("is to be ONLINE", PATIENCE)?;
    eventually("the node is back", PATIENCE, || Ok(status()? == "ONLINE"))
}

fn end(env: &Env) -> CaseResult {
    // It does not end when it is asked to.
    let path = script(env, "end", "trap '' TERM\necho $$ > own\nwhile :; do sleep 0.1; done")?;
    let (weir, _) = weir(env, |config| schedule(config, 1, 100, &path, &[]))?;
    let own = beside(&path, "own");
    eventually("it runs", PATIENCE, || Ok(lines(&own) == 1))?;
    weir.sigterm()?;
    weir.wait_exit(PATIENCE)?;
    let pid = fs::read_to_string(own)?;
    eventually("it is gone", PATIENCE, || Ok(!is_running(&pid)))
}
