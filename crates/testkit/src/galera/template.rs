//! A data directory made once per machine and copied to every node of every cluster.
//!
//! It is the directory of a one-node cluster that was shut down cleanly. Copies of it all have the same position of
//! the same history, so that nodes which start from them join without a state transfer.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::node::Node;
use super::{Account, SYNC_TIMEOUT};
use crate::TestkitError;
use crate::process::{run_checked, start_time_ticks};
use crate::run_dir::{ROOT, ServerUser};

const INSTALL_TIMEOUT: Duration = Duration::from_secs(120);
/// A copy under way is called so, with the id of the process that makes it.
const PARTIAL: &str = "partial-";
/// Files of a data directory that a copy must not have, or need not.
const LEFT_OUT: [&str; 3] = ["galera.cache", "gvwstate.dat", "ib_buffer_pool"];

/// The template's directory; makes it with the help of the first node if this machine has none yet.
pub(super) fn find_or_make(
    nodes: &[Node],
    cancel: &AtomicBool,
    progress: fn(&str),
) -> Result<PathBuf, TestkitError> {
    let Some(node) = nodes.first() else {
        return Err(TestkitError::Options("a cluster needs a node".to_owned()));
    };
    let cache = cache_dir()?;
    let template = cache.join(template_name(node)?);
    if template.is_dir() {
        return Ok(template);
    }
    progress("first start on this machine: initialising a data directory (a few seconds, once)");
    make(node, cancel)?;
    // Complete or absent: the copy gets its name when it is whole. Another run may have been faster.
    remove_dead_partials(&cache);
    let partial = cache.join(format!("{PARTIAL}{}", std::process::id()));
    copy(&node.data_dir(), &partial)?;
    if fs::rename(&partial, &template).is_err() {
        let _ = fs::remove_dir_all(&partial);
    }
    fs::remove_dir_all(node.data_dir())
        .map_err(TestkitError::io(format!("remove {}", node.data_dir().display())))?;
    Ok(template)
}

/// Copies that nobody will finish any more.
fn remove_dead_partials(cache: &Path) {
    let Ok(entries) = fs::read_dir(cache) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PARTIAL)?.parse().ok());
        if pid.is_some_and(|pid| start_time_ticks(pid).is_none()) {
            // The worst that can happen is that it stays.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Makes `data_dir`, owned by the servers' user, from the template.
pub(super) fn copy_to(template: &Path, data_dir: &Path) -> Result<(), TestkitError> {
    copy(template, data_dir)
}

fn make(node: &Node, cancel: &AtomicBool) -> Result<(), TestkitError> {
    let programs = node.programs();
    let mut install = Command::new(&programs.install_db);
    install.arg("--no-defaults").arg(format!("--datadir={}", node.data_dir().display()));
    install.args([
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
        "--innodb-log-file-size=48M",
    ]);
    if programs.user.switched {
        install.arg("--user=mysql");
    }
    run_checked("mariadb-install-db", &mut install, INSTALL_TIMEOUT)?;
    node.spawn(true)?;
    node.wait_synced(1, Instant::now() + SYNC_TIMEOUT, cancel)?;
    node.root_query(&accounts_sql())?;
    node.stop()
}

/// Schemas and accounts. Names are fixed words, so nothing needs quoting.
fn accounts_sql() -> String {
    let create = |account: Account, grants: &str| {
        let Account { user, password } = account;
        format!("CREATE USER {user}@'%' IDENTIFIED BY '{password}'; GRANT {grants} TO {user}@'%';")
    };
    [
        // Anonymous accounts for this host would win over named ones for '%'.
        "DELETE FROM mysql.global_priv WHERE User = ''; FLUSH PRIVILEGES;".to_owned(),
        "CREATE DATABASE sbtest; CREATE DATABASE test; CREATE DATABASE limited;".to_owned(),
        create(Account::APP, "ALL ON *.*"),
        create(Account::APP2, "ALL ON *.*"),
        create(Account::LIMITED, "ALL ON limited.*"),
        create(Account::MONITOR, "USAGE ON *.*"),
    ]
    .concat()
}

/// A name that changes with everything the content depends on.
fn template_name(node: &Node) -> Result<String, TestkitError> {
    let mut command = Command::new(&node.programs().server);
    let version = run_checked("mariadbd --version", command.arg("--version"), INSTALL_TIMEOUT)?;
    let mut hasher = DefaultHasher::new();
    (version, accounts_sql(), include_str!("config.rs"), include_str!("template.rs")).hash(&mut hasher);
    Ok(format!("galera-{:016x}", hasher.finish()))
}

/// One cache per user: what another one made could not be read, or not be trusted.
fn cache_dir() -> Result<PathBuf, TestkitError> {
    let uid = rustix::process::geteuid().as_raw();
    let name = if uid == 0 { "weir-cache".to_owned() } else { format!("weir-cache-{uid}") };
    let path = Path::new(ROOT).join(name);
    let doing = || TestkitError::io(format!("make {}", path.display()));
    match fs::create_dir(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(doing()(error)),
        _ => {}
    }
    let meta = fs::symlink_metadata(&path).map_err(doing())?;
    if !meta.is_dir() || meta.uid() != uid {
        return Err(TestkitError::Options(format!("{} belongs to another user: remove it", path.display())));
    }
    Ok(path)
}

fn copy(from: &Path, to: &Path) -> Result<(), TestkitError> {
    let user = ServerUser::current()?;
    let doing = || TestkitError::io(format!("copy {} to {}", from.display(), to.display()));
    fs::create_dir(to).map_err(doing())?;
    user.own(to)?;
    for entry in fs::read_dir(from).map_err(doing())? {
        let entry = entry.map_err(doing())?;
        if LEFT_OUT.iter().any(|name| entry.file_name() == *name) {
            continue;
        }
        let target = to.join(entry.file_name());
        if entry.file_type().map_err(doing())?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target).map_err(doing())?;
            user.own(&target)?;
        }
    }
    Ok(())
}
