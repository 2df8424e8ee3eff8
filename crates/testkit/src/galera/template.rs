//! Makes the data directory that every node of every cluster starts with.
//!
//! It is the directory of a one-node cluster that was shut down cleanly. Copies of it all have the same position of
//! the same history, so that nodes which start from them join without a state transfer.

use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::SYNC_TIMEOUT;
use super::node::Node;
use crate::process::run_checked;
use crate::template::Template;
use crate::{Account, TestkitError};

const INSTALL_TIMEOUT: Duration = Duration::from_secs(120);
const LEFT_OUT: [&str; 3] = ["galera.cache", "gvwstate.dat", "ib_buffer_pool"];

/// The template; makes it with the help of the first node if this machine has none yet.
pub(super) fn find_or_make(
    nodes: &[Node],
    cancel: &AtomicBool,
    progress: fn(&str),
) -> Result<Template, TestkitError> {
    let Some(node) = nodes.first() else {
        return Err(TestkitError::Options("a cluster needs a node".to_owned()));
    };
    let mut command = Command::new(&node.programs().server);
    let version = run_checked("mariadbd --version", command.arg("--version"), INSTALL_TIMEOUT)?;
    let content = (version, accounts_sql(), include_str!("config.rs"), include_str!("template.rs"));
    let template = Template::new("galera", content, &LEFT_OUT)?;
    if !template.exists() {
        progress("first start on this machine: initialising a data directory (a few seconds, once)");
        make(node, cancel)?;
        template.take(&node.data_dir())?;
    }
    Ok(template)
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
        create(Account::ASSIST, "SUPER ON *.*"),
    ]
    .concat()
}
