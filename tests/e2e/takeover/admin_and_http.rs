//! The admin port and HTTP through a takeover, and what admins may do meanwhile.

use std::error::Error;
use std::io::Read;
use std::net::SocketAddrV4;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use weir_testkit::wire::Login;
use weir_testkit::{Account, WeirConfig, weir_binary};
use weir_tests::{CaseResult, Env, Session, ensure, eventually};

use super::{PATIENCE, blind};
use crate::admin::Admin;
use crate::http::{TOKEN, get, serve_http};
use crate::switchover::wait_writer;

const ADMIN: Account = Account { user: "admin", password: "admin" };

/// Who comes to the admin port, its Unix socket and HTTP, all the time.
#[derive(Debug, Default)]
struct Visitors {
    stop: AtomicBool,
    /// Visits that went well, by door.
    visits: [AtomicU32; 3],
    refusals: Mutex<Vec<String>>,
}

impl Visitors {
    fn come(&self, door: usize, visit: impl Fn() -> CaseResult) {
        while !self.stop.load(Ordering::Relaxed) {
            match visit() {
                Ok(()) => drop(self.visits[door].fetch_add(1, Ordering::Relaxed)),
                Err(error) => self.refusals().push(format!("door {door}: {error}")),
            }
        }
    }

    fn refusals(&self) -> MutexGuard<'_, Vec<String>> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until some more have come to each door, or one was refused.
    fn wait_more(&self) -> CaseResult {
        let count = || self.visits.each_ref().map(|visits| visits.load(Ordering::Relaxed));
        let before = count();
        eventually("visitors come", PATIENCE, || {
            let has_more = count().iter().zip(before).all(|(now, before)| *now > before + 20);
            Ok(has_more || !self.refusals().is_empty())
        })
    }
}

fn log_in(admin: SocketAddrV4) -> CaseResult {
    let mut session = Session::with(admin, &Login::new(ADMIN))?;
    ensure!(session.value("SELECT COUNT(*) FROM main.mysql_users")?.parse::<u32>()? > 0, "no users");
    Ok(())
}

/// Header, then protocol version 10.
fn be_greeted(path: &Path) -> CaseResult {
    let mut greeting = [0; 5];
    UnixStream::connect(path)?.read_exact(&mut greeting)?;
    ensure!(greeting[4] == 10, "{greeting:?}");
    Ok(())
}

fn scrape(http: SocketAddrV4) -> CaseResult {
    for path in ["/healthz", "/metrics"] {
        let (status, body) = get(http, path, TOKEN)?;
        ensure!(status == 200, "{path}: {status} {body}");
    }
    Ok(())
}

pub(super) fn nobody_is_refused(env: &Env) -> CaseResult {
    let path = env.dir()?.join("takeover-admin.sock");
    let (admin, http) = (env.free_address()?, env.free_address()?);
    let mut config = WeirConfig::for_cluster(env.cluster()?, env.free_address()?);
    config.admin_variable("mysql_ifaces", format!("{admin};{}", path.display()));
    serve_http(&mut config, http);
    let first = env.weir_with(&config)?;
    // Keeps the old process.
    let mut inside = Session::open(first.addr(), "test")?;
    inside.run("BEGIN")?;
    let mut old = Session::with(admin, &Login::new(ADMIN))?;
    old.run("SELECT 1")?;
    let visitors = Visitors::default();
    let second = thread::scope(|scope| -> Result<_, Box<dyn Error>> {
        scope.spawn(|| visitors.come(0, || log_in(admin)));
        scope.spawn(|| visitors.come(1, || be_greeted(&path)));
        scope.spawn(|| visitors.come(2, || scrape(http)));
        let done = (|| {
            visitors.wait_more()?;
            let second = first.follow(&weir_binary()?, None)?;
            visitors.wait_more()?;
            Ok(second)
        })();
        visitors.stop.store(true, Ordering::Relaxed);
        done
    })?;
    let refusals = visitors.refusals();
    ensure!(refusals.is_empty(), "{} were refused: {refusals:?}", refusals.len());
    // Who is at the old one may look around for a moment, and then learns where to go.
    let refused = old.run("DELETE FROM mysql_users").map_err(|error| error.to_string());
    ensure!(refused.as_ref().is_err_and(|error| error.contains("connect again")), "{refused:?}");
    // The same, once the moment is over; on a slow machine it was over before.
    eventually("an old session ends", PATIENCE, || Ok(old.run("SELECT 1").is_err()))?;
    inside.run("COMMIT")?;
    ensure!(first.wait_exit(PATIENCE)?.success(), "{}", first.log());
    log_in(admin)?;
    be_greeted(&path)?;
    scrape(http)?;
    second.sigterm()?;
    ensure!(second.wait_exit(PATIENCE)?.success() && !path.exists(), "the socket's file is left");
    Ok(())
}

pub(super) fn nothing_is_saved(env: &Env) -> CaseResult {
    let addr = env.free_address()?;
    let mut config = WeirConfig::for_cluster(env.cluster()?, env.free_address()?);
    config.admin(addr);
    let first = env.weir_with(&config)?;
    wait_writer(&first)?;
    let admin = Admin::at(addr);
    let save = "SAVE MYSQL SERVERS TO DISK";
    admin.run(save)?;
    let next = first.begin_follow(&weir_binary()?, Some(&blind(&config)))?;
    first.wait_log("a new process is about to take over", PATIENCE)?;
    for sql in [
        save,
        "UPDATE disk.mysql_servers SET weight = 7",
        "DELETE FROM disk.mysql_users",
        "PROXYSQL FLUSH CONFIGDB",
        "LOAD MYSQL SERVERS TO RUNTIME",
    ] {
        let refusal = admin.refusal(sql)?;
        ensure!(refusal.contains("a new process is about to take over from this one"), "{sql}: {refusal}");
    }
    ensure!(
        admin.run("SELECT COUNT(*) FROM disk.mysql_servers WHERE weight = 7")? == ["0"],
        "it was changed"
    );
    next.process().kill();
    eventually("it can be saved again", PATIENCE, || Ok(admin.run(save).is_ok()))
}
