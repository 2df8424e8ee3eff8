//! Upgrade in place: a new process takes the listening sockets of the running one.

use std::error::Error;
use std::io::Read;
use std::net::SocketAddrV4;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use weir_testkit::{Weir, WeirConfig, weir_binary};
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

use crate::switchover::{run, text, wait_writer, writer};

mod admin_and_http;

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("takeover::twice_under_load_nobody_is_refused", under_load),
        Case::parallel("takeover::transactions_end_in_the_old_process", transactions),
        Case::parallel("takeover::the_new_process_has_its_own_configuration", other_configuration),
        Case::parallel("takeover::one_that_can_t_start_changes_nothing", faults),
        Case::parallel("takeover::one_that_is_killed_before_it_is_ready_changes_nothing", killed_new),
        Case::parallel("takeover::one_whose_predecessor_is_killed_goes_on_alone", killed_old),
        Case::serial("takeover::the_writer_stays_where_it_is", writer_stays),
        Case::parallel("takeover::admins_and_scrapers_are_not_refused", admin_and_http::nobody_is_refused),
        Case::parallel("takeover::nothing_is_saved_meanwhile", admin_and_http::nothing_is_saved),
        Case::parallel("takeover::a_signal_starts_the_new_version", by_signal),
    ]
}

const PATIENCE: Duration = Duration::from_secs(60);

/// What clients meet that come and go all the time.
#[derive(Debug, Default)]
struct Load {
    stop: AtomicBool,
    connected: AtomicU32,
    failed: AtomicU32,
    written: AtomicU32,
}

impl Load {
    /// Each connection runs one statement.
    fn come_and_go(&self, addr: SocketAddrV4) {
        while !self.stop.load(Ordering::Relaxed) {
            let done = Session::open(addr, "test").and_then(|mut session| session.value("SELECT 1"));
            match done {
                Ok(_) => drop(self.connected.fetch_add(1, Ordering::Relaxed)),
                Err(error) => self.fail(&error.to_string()),
            }
        }
    }

    fn come_through(&self, path: &Path) {
        while !self.stop.load(Ordering::Relaxed) {
            let mut greeting = [0; 5];
            let done = UnixStream::connect(path).and_then(|mut stream| stream.read_exact(&mut greeting));
            match done {
                // Header, then protocol version 10.
                Ok(()) if greeting[4] == 10 => drop(self.connected.fetch_add(1, Ordering::Relaxed)),
                other => self.fail(&format!("{other:?} {greeting:?}")),
            }
        }
    }

    /// One connection for as long as it lasts: what is acknowledged has to be there.
    fn write(&self, addr: SocketAddrV4, schema: &str) {
        let mut id = 0;
        while !self.stop.load(Ordering::Relaxed) {
            let Ok(mut session) = Session::open(addr, schema) else {
                self.fail("no session to write");
                continue;
            };
            while !self.stop.load(Ordering::Relaxed) {
                id += 1;
                if session.run(&format!("INSERT INTO t VALUES ({id})")).is_err() {
                    break;
                }
                self.written.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn fail(&self, what: &str) {
        eprintln!("takeover: {what}");
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    fn wait_more(&self) -> CaseResult {
        let before = self.connected.load(Ordering::Relaxed);
        let written = self.written.load(Ordering::Relaxed);
        eventually("clients come and write", PATIENCE, || {
            Ok(self.connected.load(Ordering::Relaxed) > before + 50
                && self.written.load(Ordering::Relaxed) > written)
        })
    }
}

fn under_load(env: &Env) -> CaseResult {
    let path = env.dir()?.join("takeover.sock");
    let mut config = WeirConfig::for_cluster(env.cluster()?, env.free_address()?);
    config.variable("interfaces", format!("{};{}", config.listen(), path.display()));
    let first = env.weir_with(&config)?;
    let schema = env.schema()?;
    Session::open(first.addr(), &schema)?.run("CREATE TABLE t (id INT PRIMARY KEY)")?;
    let load = Load::default();
    let last = thread::scope(|scope| -> Result<Weir, Box<dyn Error>> {
        scope.spawn(|| load.come_and_go(first.addr()));
        scope.spawn(|| load.come_and_go(first.addr()));
        scope.spawn(|| load.come_through(&path));
        scope.spawn(|| load.write(first.addr(), &schema));
        let done = (|| {
            load.wait_more()?;
            let second = first.follow(&weir_binary()?, None)?;
            load.wait_more()?;
            let third = second.follow(&weir_binary()?, None)?;
            load.wait_more()?;
            for old in [&first, &second] {
                ensure!(old.wait_exit(PATIENCE)?.success(), "{}", old.log());
            }
            load.wait_more()?;
            Ok(third)
        })();
        load.stop.store(true, Ordering::Relaxed);
        done
    })?;
    let (connected, failed) = (load.connected.into_inner(), load.failed.into_inner());
    ensure!(failed == 0, "{failed} of {connected} were turned away");
    // At the writer: a reader may still be about to apply what other sessions have written.
    let count = Session::open(last.addr(), &schema)?.value("SELECT COUNT(*) FROM t FOR UPDATE")?;
    let (count, written) = (count.parse::<u32>()?, load.written.into_inner());
    // An INSERT whose connection was closed may have been done, one for each time.
    ensure!((written..=written + 4).contains(&count), "{count} rows, {written} acknowledged");
    last.sigterm()?;
    ensure!(last.wait_exit(PATIENCE)?.success() && !path.exists(), "the socket's file is left");
    Ok(())
}

fn transactions(env: &Env) -> CaseResult {
    let first = env.weir(|_| {})?;
    let schema = env.schema()?;
    let mut inside = Session::open(first.addr(), &schema)?;
    inside.run("CREATE TABLE t (id INT PRIMARY KEY)")?;
    inside.run("BEGIN")?;
    inside.run("INSERT INTO t VALUES (1)")?;
    let mut idle = Session::open(first.addr(), &schema)?;
    idle.run("DO 1")?;
    let second = first.follow(&weir_binary()?, None)?;
    eventually("an idle session is closed", PATIENCE, || Ok(idle.run("DO 1").is_err()))?;
    inside.run("INSERT INTO t VALUES (2)")?;
    ensure!(first.process().exit_status().is_none(), "a transaction is open, and the old process has ended");
    inside.run("COMMIT")?;
    ensure!(first.wait_exit(PATIENCE)?.success(), "{}", first.log());
    ensure!(
        Session::open(second.addr(), &schema)?.value("SELECT COUNT(*) FROM t FOR UPDATE")? == "2",
        "lost"
    );
    // Its own commands reach the new one, by the same socket.
    let status = run(&second, &["status"])?;
    ensure!(status.status.success(), "{}", text(&status.stderr));
    let late = Command::new("timeout")
        .arg("20")
        .arg(weir_binary()?)
        .args(["serve", "-c"])
        .arg(second.config_path())
        .output()?;
    ensure!(text(&late.stderr).contains("another weir runs with this datadir"), "{}", text(&late.stderr));
    Ok(())
}

fn other_configuration(env: &Env) -> CaseResult {
    let [left, new] = ["left.sock", "new.sock"].map(|name| env.dir().map(|dir| dir.join(name)));
    let (left, new) = (left?, new?);
    let config = WeirConfig::for_cluster(env.cluster()?, env.free_address()?);
    let (listen, more) = (config.listen(), env.free_address()?);
    let mut before = config.clone();
    before.variable("interfaces", format!("{listen};{}", left.display())).variable("threads", 1);
    let first = env.weir_with(&before)?;
    let mut after = config.clone();
    after.variable("interfaces", format!("{more};{listen};{}", new.display())).variable("threads", 3);
    let second = first.follow(&weir_binary()?, Some(&after))?;
    Session::open(more, "test")?.value("SELECT 1")?;
    Session::open(listen, "test")?.value("SELECT 1")?;
    ensure!(new.exists() && !left.exists(), "files: {} {}", new.exists(), left.exists());
    ensure!(second.log().contains("workers=3"), "{}", second.log());
    ensure!(first.wait_exit(PATIENCE)?.success(), "{}", first.log());
    ensure!(new.exists(), "the old process has removed what is not its own");
    Ok(())
}

fn faults(env: &Env) -> CaseResult {
    let config = WeirConfig::for_cluster(env.cluster()?, env.free_address()?);
    let first = env.weir_with(&config)?;
    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    let mut in_use = config.clone();
    in_use.variable("interfaces", format!("{};{}", config.listen(), taken.local_addr()?));
    let mut unknown = config.clone();
    unknown.variable("no_such_variable", 1);
    let mut blind = config.clone();
    blind.variable("monitor_password", "wrong");
    for (broken, wanted) in [
        (&unknown, "unknown key"),
        (&in_use, "another program listens there"),
        (&blind, "it knows a writer of hostgroup 100"),
    ] {
        let next = first.begin_follow(&weir_binary()?, Some(broken))?;
        ensure!(!next.wait_exit(PATIENCE)?.success(), "{}", next.log());
        ensure!(next.log().contains(wanted), "{wanted}: {}", next.log());
        let mut session = Session::open(first.addr(), "test")?;
        session.run("DO 1 /* FOR UPDATE */")?;
    }
    // As if nothing had been.
    first.reload(&config)?;
    first.wait_log("configuration applied", PATIENCE)?;
    let second = first.follow(&weir_binary()?, None)?;
    Session::open(second.addr(), "test")?.value("SELECT 1")?;
    // Without a Weir to take over from it starts as usual.
    second.sigterm()?;
    second.wait_exit(PATIENCE)?;
    let third = second.begin_follow(&weir_binary()?, None)?;
    third.wait_log("started", PATIENCE)?;
    Session::open(third.addr(), "test")?.value("SELECT 1")?;
    Ok(())
}

/// A configuration with which a new process looks for a writer until it gives up.
fn blind(config: &WeirConfig) -> WeirConfig {
    let mut blind = config.clone();
    blind.variable("monitor_password", "wrong");
    blind
}

fn killed_new(env: &Env) -> CaseResult {
    let config = WeirConfig::for_cluster(env.cluster()?, env.free_address()?);
    let first = env.weir_with(&config)?;
    wait_writer(&first)?;
    let mut session = Session::open(first.addr(), "test")?;
    session.run("SET @mine = 7")?;
    let next = first.begin_follow(&weir_binary()?, Some(&blind(&config)))?;
    first.wait_log("a new process is about to take over", PATIENCE)?;
    // Meanwhile nothing is changed.
    let server = env.cluster()?.node(3).addr().to_string();
    let drained = run(&first, &["undrain", &server])?;
    ensure!(text(&drained.stderr).contains("a new process is about to take over"), "{drained:?}");
    first.reload(&config)?;
    first.wait_log("error=a new process is about to take over", PATIENCE)?;
    next.process().kill();
    eventually("the old process changes things again", PATIENCE, || {
        Ok(run(&first, &["undrain", &server])?.status.success())
    })?;
    ensure!(session.value("SELECT @mine")? == "7", "the session has lost its state");
    ensure!(first.process().exit_status().is_none(), "{}", first.log());
    first.follow(&weir_binary()?, None)?;
    ensure!(first.wait_exit(PATIENCE)?.success(), "{}", first.log());
    Ok(())
}

fn killed_old(env: &Env) -> CaseResult {
    let mut config = WeirConfig::for_cluster(env.cluster()?, env.free_address()?);
    let path = env.dir()?.join("orphan.sock");
    config.variable("interfaces", format!("{};{}", config.listen(), path.display()));
    let first = env.weir_with(&config)?;
    wait_writer(&first)?;
    // A server that does not answer is waited for: long enough to kill the old process before it is asked for its sockets.
    config.server("192.0.2.1:3306".parse()?, 7, &[]);
    let second = first.begin_follow(&weir_binary()?, Some(&config))?;
    first.wait_log("a new process is about to take over", PATIENCE)?;
    first.process().kill();
    second.wait_log("started", PATIENCE)?;
    let log = second.log();
    ensure!(log.contains("the old process has died") || log.contains("taken over: "), "{log}");
    Session::open(second.addr(), "test")?.run("DO 1 /* FOR UPDATE */")?;
    ensure!(run(&second, &["status"])?.status.success(), "{}", second.log());
    UnixStream::connect(&path)?;
    second.sigterm()?;
    ensure!(second.wait_exit(PATIENCE)?.success() && !path.exists(), "the socket's file is left");
    Ok(())
}

fn writer_stays(env: &Env) -> CaseResult {
    env.forget_epochs()?;
    // With the privileges for weir.topology, and without.
    let own = env.account()?;
    for account in [Some(own), None] {
        let mut config = WeirConfig::for_cluster(env.cluster()?, env.free_address()?);
        if let Some(account) = account {
            config.monitor(account);
        }
        let first = env.weir_with(&config)?;
        wait_writer(&first)?;
        let moved = run(&first, &["switchover", "100", "--grace-ms", "8000"])?;
        ensure!(moved.status.success(), "{}", text(&moved.stderr));
        let before = writer(&first)?;
        let mut inside = Session::open(first.addr(), "test")?;
        inside.run("BEGIN")?;
        let second = first.follow(&weir_binary()?, None)?;
        ensure!(writer(&second)? == before, "the writer was {before}: {}", second.log());
        inside.run("COMMIT")?;
        ensure!(first.wait_exit(PATIENCE)?.success(), "{}", first.log());
        ensure!(writer(&second)? == before, "the writer was {before}: {}", second.log());
    }
    Ok(())
}

/// A process that the test has not started itself.
struct Stranger(String);

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-KILL", &self.0]).output();
    }
}

fn by_signal(env: &Env) -> CaseResult {
    let dir = env.dir()?.join("by-signal");
    std::fs::create_dir_all(dir.join("data"))?;
    let manager = UnixDatagram::bind(dir.join("notify.sock"))?;
    manager.set_read_timeout(Some(PATIENCE))?;
    let told = || -> Result<String, Box<dyn Error>> {
        let mut bytes = [0; 100];
        let count = manager.recv(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes[..count]).into_owned())
    };
    let config = WeirConfig::for_cluster(env.cluster()?, env.free_address()?);
    let file = dir.join("weir.toml");
    std::fs::write(&file, config.render(&dir.join("data")))?;
    let mut first = Command::new(weir_binary()?)
        .args(["serve", "-c"])
        .arg(&file)
        .env("NOTIFY_SOCKET", dir.join("notify.sock"))
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn()?;
    let of_first = Stranger(first.id().to_string());
    let said = told()?;
    ensure!(said == format!("READY=1\nMAINPID={}", of_first.0), "{said}");
    ensure!(Command::new("kill").args(["-USR2", &of_first.0]).status()?.success(), "no such process");
    let (one, other) = (told()?, told()?);
    let pid =
        [&one, &other].iter().find_map(|said| said.strip_prefix("READY=1\nMAINPID=")).ok_or("not ready")?;
    let second = Stranger(pid.to_owned());
    ensure!([one.clone(), other.clone()].contains(&format!("MAINPID={pid}")), "{one} {other}");
    ensure!(first.wait()?.success(), "the first has ended with an error");
    // Its number may be another's by now.
    std::mem::forget(of_first);
    Session::open(config.listen(), "test")?.value("SELECT 1")?;
    ensure!(Command::new("kill").arg(&second.0).status()?.success(), "no such process");
    eventually("it has ended", PATIENCE, || Ok(Session::open(config.listen(), "test").is_err()))
}
