//! Clients connect through several addresses and Unix sockets, which change while Weir runs.

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use weir_testkit::{Weir, WeirConfig};
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("listeners::the_mariadb_client_through_a_unix_socket", unix_socket),
        Case::parallel("listeners::several_addresses_of_both_tables", several),
        Case::parallel("listeners::a_stale_socket_file_is_replaced", stale_socket),
        Case::parallel("listeners::a_reload_changes_them_and_sessions_stay", reload),
    ]
}

const PATIENCE: Duration = Duration::from_secs(10);

/// Runs the mariadb client with these options for where to connect.
fn mariadb(options: &[&str], password: &str, sql: &str) -> std::io::Result<Output> {
    Command::new("mariadb")
        .args(["--no-defaults", "-uapp", &format!("-p{password}"), "-N", "-B", "-e", sql])
        .args(options)
        .output()
}

/// What the client prints when all is well.
fn printed(options: &[&str], sql: &str) -> Result<String, Box<dyn std::error::Error>> {
    let output = mariadb(options, "app", sql)?;
    ensure!(output.status.success(), "{options:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

fn through(path: &Path) -> String {
    format!("--socket={}", path.display())
}

fn config(env: &Env) -> Result<WeirConfig, String> {
    Ok(WeirConfig::for_cluster(env.cluster()?, env.free_address()?))
}

/// A directory with a path short enough for sockets.
fn directory(env: &Env, name: &str) -> Result<PathBuf, Box<dyn std::error::Error>> {
    let dir = env.dir()?.join(name);
    fs::create_dir_all(&dir)?;
    Ok(dir)
}

fn unix_socket(env: &Env) -> CaseResult {
    let path = directory(env, "unix")?.join("weir.sock");
    let mut config = config(env)?;
    config.variable("interfaces", format!("{};{}", config.listen(), path.display()));
    let weir = env.weir_with(&config)?;
    let metadata = fs::metadata(&path)?;
    let mode = metadata.permissions().mode() & 0o777;
    ensure!(metadata.file_type().is_socket() && mode == 0o777, "mode {mode:o}");
    for more in ["--skip-ssl", "--ssl", "--default-auth=caching_sha2_password"] {
        let user = printed(&[&through(&path), more], "SELECT CURRENT_USER()")?;
        ensure!(user == "app@%", "{more}: {user}");
    }
    let refused = mariadb(&[&through(&path)], "wrong", "SELECT 1")?;
    let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
    let wanted = "ERROR 1045 (28000): Access denied for user 'app'@'localhost' (using password: YES)";
    ensure!(errors.contains(wanted), "{errors}");
    weir.sigterm()?;
    let status = weir.wait_exit(PATIENCE)?;
    ensure!(status.success() && !path.exists(), "{status}, the socket is still there: {}", path.exists());
    Ok(())
}

fn several(env: &Env) -> CaseResult {
    let path = directory(env, "several")?.join("own.sock");
    let (second, third) = (env.free_address()?, env.free_address()?);
    let mut config = config(env)?;
    config.variable("interfaces", format!("{}; {second}", config.listen()));
    config.push("weir_listeners", &[("address", third.to_string().into()), ("mode", "split".into())]);
    config.push("weir_listeners", &[("address", path.display().to_string().into())]);
    let weir = env.weir_with(&config)?;
    for address in [weir.addr(), second, third] {
        let mut session = Session::open(address, "test")?;
        let user = session.value("SELECT CURRENT_USER()")?;
        ensure!(user == "app@%", "{address}: {user}");
    }
    let user = printed(&[&through(&path)], "SELECT CURRENT_USER()")?;
    ensure!(user == "app@%", "{user}");
    // A kill travels from one to the other: they are doors to one house.
    let mut victim = Session::open(second, "test")?;
    printed(&[&through(&path)], &format!("KILL {}", victim.id()))?;
    ensure!(victim.query("SELECT 1").is_err(), "the session is still there");
    Ok(())
}

fn stale_socket(env: &Env) -> CaseResult {
    let path = directory(env, "stale")?.join("weir.sock");
    drop(UnixListener::bind(&path)?);
    let mut config = config(env)?;
    config.push("weir_listeners", &[("address", path.display().to_string().into())]);
    let weir = env.weir_with(&config)?;
    printed(&[&through(&path)], "SELECT 1")?;
    // A second one must not take it away from the first.
    let mut second = self::config(env)?;
    second.push("weir_listeners", &[("address", path.display().to_string().into())]);
    let refused = env.weir_with(&second).map(|_| ()).err().unwrap_or_default();
    ensure!(refused.contains("another program listens there"), "{refused}");
    printed(&[&through(&path)], "SELECT 1")?;
    drop(weir); // killed: it can't tidy up
    ensure!(path.exists(), "who has removed it?");
    let _next = env.weir_with(&config)?;
    printed(&[&through(&path)], "SELECT 1")?;
    Ok(())
}

fn reload(env: &Env) -> CaseResult {
    let dir = directory(env, "reload")?;
    let (first, second) = (dir.join("1.sock"), dir.join("2.sock"));
    let mut config = config(env)?;
    let listen = config.listen();
    config.variable("interfaces", format!("{listen};{}", first.display()));
    let weir = env.weir_with(&config)?;
    let mut session = Session::open(weir.addr(), "test")?;
    session.run("SET @mine = 7")?;

    let more = env.free_address()?;
    config.variable("interfaces", format!("{more};{}", second.display()));
    weir.reload(&config)?;
    weir.wait_log("configuration applied", PATIENCE)?;
    eventually("the old addresses are closed", PATIENCE, || {
        Ok(Session::open(listen, "test").is_err() && !first.exists())
    })?;
    printed(&[&through(&second)], "SELECT 1")?;
    Session::open(more, "test")?.value("SELECT 1")?;
    let mine = session.value("SELECT @mine")?;
    ensure!(mine == "7", "the session has lost its state: {mine}");

    // One that can't be had changes nothing.
    config.variable("interfaces", format!("{listen};{}", dir.join("no/dir.sock").display()));
    weir.reload(&config)?;
    weir.wait_log("configuration rejected", PATIENCE)?;
    ensure!(says_why(&weir), "{}", weir.log());
    ensure!(Session::open(listen, "test").is_err(), "half of a configuration was taken");
    printed(&[&through(&second)], "SELECT 1")?;
    Ok(())
}

fn says_why(weir: &Weir) -> bool {
    weir.log().contains("the directory must exist")
}
