//! A disk that is full or hangs: traffic goes on, it is told, and all goes on when there is room again.

use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use weir_testkit::{Weir, WeirConfig, not_run, weir_binary};
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

use crate::admin::{self, Admin};

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("disk::traffic_goes_on_when_it_is_full_and_all_else_with_room_again", datadir),
        Case::parallel("disk::weir_s_own_log_may_be_on_a_full_one", own_log),
        // Others may listen at a port for the moment for which it is let go.
        Case::serial("disk::a_certificate_that_can_t_be_read_yet_holds_up_only_who_loads_it", hanging),
    ]
}

const PATIENCE: Duration = Duration::from_secs(60);

/// Room on such a file system is given by pages.
const PAGE_BYTES: u64 = 4096;

/// A small file system in memory, which is gone when this is dropped.
struct Disk(PathBuf);

impl Disk {
    /// None where it may not be mounted: that takes root.
    fn mount(path: &Path) -> Result<Option<Self>, Box<dyn Error>> {
        fs::create_dir_all(path)?;
        let mut mount = Command::new("mount");
        let output = mount.args(["-t", "tmpfs", "-o", "size=8m,mode=0700", "tmpfs"]).arg(path).output()?;
        if output.status.success() {
            return Ok(Some(Self(path.to_owned())));
        }
        not_run("what happens on a full disk", &String::from_utf8_lossy(&output.stderr));
        Ok(None)
    }

    fn fill(&self) -> Result<(), Box<dyn Error>> {
        let mut file = File::create(self.0.join("ballast"))?;
        // By smaller and smaller pieces, until not one more byte finds room.
        for size in [1 << 16, 1 << 12, 1] {
            while file.write_all(&vec![b'x'; size]).is_ok() {}
        }
        Ok(())
    }

    fn empty(&self) -> Result<(), Box<dyn Error>> {
        Ok(fs::remove_file(self.0.join("ballast"))?)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Also while a process has files there.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// With the datadir on it, and all logs.
fn datadir(env: &Env) -> CaseResult {
    let dir = env.dir()?.join("full-disk");
    let Some(disk) = Disk::mount(&dir.join("weir-data"))? else { return Ok(()) };
    let mut config = WeirConfig::for_cluster(env.cluster()?, env.free_address()?);
    let addr = env.free_address()?;
    // A database, as users have it.
    config.admin(addr).arguments(&[]);
    config.variable("eventslog_filename", "events").variable("eventslog_default_log", 1);
    config.variable("slowlog_filename", "slow").variable("auditlog_filename", "audit");
    config.admin_variable("stats_system_memory", 1);
    let weir = Weir::start(&weir_binary()?, &config, &dir, "weir")?;
    let admin = Admin::at(addr);
    let mut session = Session::open(weir.addr(), "test")?;
    session.value("SELECT 'before'")?;
    logged(&weir, "before")?;
    let history = || admin.run("SELECT COUNT(*) FROM stats_history.system_memory");
    eventually("a row of the history", PATIENCE, || Ok(history()? != ["0"]))?;

    disk.fill()?;
    // More than finds room in the pages that the database has.
    let users = (0..40).map(|number| format!("('user_{number}', 'p', '{}')", "x".repeat(1000)));
    let users: Vec<String> = users.collect();
    admin
        .run(&format!("INSERT INTO mysql_users (username, password, comment) VALUES {}", users.join(", ")))?;
    let refusal = admin.refusal("SAVE MYSQL USERS TO DISK")?;
    ensure!(refusal.contains("weir.db") && refusal.contains("full"), "{refusal}");
    weir.wait_log("statistics can't be saved", PATIENCE)?;
    let text = format!("SELECT '{}'", "x".repeat(10_000));
    for _ in 0..20 {
        session.value(&text)?;
    }
    let dropped =
        "SELECT Variable_Value > 0 FROM stats_mysql_global WHERE Variable_Name = 'Weir_eventslog_dropped'";
    eventually("lines that are left out", PATIENCE, || {
        session.value(&text)?;
        Ok(admin.run(dropped)? == ["1"])
    })?;
    weir.wait_log("a log can't be written", PATIENCE)?;
    // Others come and go, and what is loaded is in force.
    Session::open(weir.addr(), "test")?.value("SELECT 1")?;
    admin.run("LOAD MYSQL USERS TO RUNTIME")?;
    let told = weir.log().matches("statistics can't be saved").count();
    ensure!(told == 1, "the history's trouble is told {told} times");

    disk.empty()?;
    admin.run("SAVE MYSQL USERS TO DISK")?;
    let saved = "SELECT COUNT(*) FROM disk.mysql_users WHERE username LIKE 'user_%'";
    ensure!(admin.run(saved)? == ["40"], "what was saved is not there");
    eventually("the events log is written", PATIENCE, || {
        session.value("SELECT 'after'")?;
        Ok(logged(&weir, "after").is_ok())
    })?;
    ensure!(logged(&weir, "weir_gap").is_ok(), "the log does not tell that lines are missing");
    weir.wait_log("statistics are saved again", PATIENCE)?;
    Ok(())
}

/// Whether a text is in the events log.
fn logged(weir: &Weir, text: &str) -> Result<(), Box<dyn Error>> {
    let has_text = || -> Result<bool, Box<dyn Error>> {
        let mut found = false;
        for entry in fs::read_dir(weir.datadir())? {
            let path = entry?.path();
            let is_events =
                path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("events."));
            found |= is_events && fs::read_to_string(&path)?.contains(text);
        }
        Ok(found)
    };
    eventually(&format!("{text} in the events log"), Duration::from_secs(5), has_text)
}

/// With standard error on it: a line that finds no room is lost, and nothing else is.
fn own_log(env: &Env) -> CaseResult {
    let Some(disk) = Disk::mount(&env.dir()?.join("full-disk-log"))? else { return Ok(()) };
    let config = WeirConfig::for_cluster(env.cluster()?, env.free_address()?);
    let weir = Weir::start(&weir_binary()?, &config, &disk.0, "weir")?;
    let mut session = Session::open(weir.addr(), "test")?;
    session.value("SELECT 1")?;
    disk.fill()?;
    let length = || -> Result<u64, Box<dyn Error>> { Ok(fs::metadata(disk.0.join("weir.log"))?.len()) };
    eventually("the log's last page is full", PATIENCE, || {
        // Each is told in the log.
        weir.sighup()?;
        session.value("SELECT 1")?;
        Ok(length()? % PAGE_BYTES == 0)
    })?;
    let full = length()?;
    for _ in 0..10 {
        weir.sighup()?;
        Session::open(weir.addr(), "test")?.value("SELECT 1")?;
    }
    ensure!(weir.process().exit_status().is_none(), "it has ended: {}", weir.log());
    disk.empty()?;
    eventually("the log goes on", PATIENCE, || {
        weir.sighup()?;
        Ok(length()? > full)
    })?;
    session.value("SELECT 1")?;
    Ok(())
}

/// O_NONBLOCK of Linux: a FIFO that nobody reads can't be opened for writing.
const NONBLOCK: i32 = 0o4000;

/// A file that does not answer is a FIFO here, to which nobody writes.
fn hanging(env: &Env) -> CaseResult {
    let (weir, admin) = admin::start(env, |_| {})?;
    let mut session = Session::open(weir.addr(), "test")?;
    let fifo = weir.datadir().join("ca.pem");
    ensure!(Command::new("mkfifo").arg(&fifo).status()?.success(), "no FIFO");
    let node = env.cluster()?.node(1).addr();
    admin.run(&format!(
        "UPDATE mysql_servers SET use_ssl = 1 WHERE hostname = '{ip}' AND port = {port}; \
         INSERT INTO mysql_servers_ssl_params (hostname, port, username, ssl_ca) VALUES ('{ip}', {port}, '', '{fifo}')",
        ip = node.ip(),
        port = node.port(),
        fifo = fifo.display()
    ))?;
    let is_read = || OpenOptions::new().write(true).custom_flags(NONBLOCK).open(&fifo);
    let (refusal, meanwhile) = thread::scope(|scope| {
        let load =
            scope.spawn(|| admin.refusal("LOAD MYSQL SERVERS TO RUNTIME").map_err(|error| error.to_string()));
        let mut work = || -> CaseResult {
            let mut file = None;
            eventually("the file is opened", PATIENCE, || {
                file = is_read().ok();
                Ok(file.is_some())
            })?;
            // What the main thread does goes on, and so does traffic.
            admin.run("PROXYSQL PAUSE; PROXYSQL RESUME")?;
            session.value("SELECT 1")?;
            ensure!(!load.is_finished(), "the LOAD did not wait for the file");
            // The end of the file ends the wait.
            Ok(file.iter_mut().try_for_each(|file| file.write_all(b"no certificate\n"))?)
        };
        let meanwhile = work().map_err(|error| error.to_string());
        // In any case: nobody may wait for ever.
        drop(is_read());
        (load.join(), meanwhile)
    });
    meanwhile?;
    let refusal = refusal.map_err(|_| "a panic")??;
    ensure!(refusal.contains("ca.pem has no certificate that can be trusted"), "{refusal}");
    session.value("SELECT 1")?;
    Ok(())
}
