//! `weir serve --cluster`: one command in front of a cluster, without a file and without new accounts.

use std::fs;
use std::process::Command;

use weir_testkit::wire::Login;
use weir_testkit::{Account, Process, weir_binary};
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

use super::{Init, NODE, PATIENCE, read_at, succeeded, write_and_read};
use crate::replication::WHO;

pub(super) fn trials() -> Vec<Case> {
    vec![
        Case::serial("init::serve_stands_in_front_of_a_cluster_without_a_file", trial),
        Case::serial(
            "init::serve_stands_in_front_of_replicas_with_the_account_that_it_is_given",
            own_account,
        ),
        Case::parallel("init::serve_says_why_it_can_not_stand_in_front_of_a_cluster", refused),
    ]
}

fn trial(env: &Env) -> CaseResult {
    let init = Init::new(env, "trial")?;
    let cluster = env.cluster()?;
    // The writer would stay what Weirs of earlier cases have agreed on.
    env.forget_epochs()?;
    cluster.node(1).root_query(&init.admin_sql("ALL"))?;
    env.wait_applied()?;
    let before = cluster.node(1).root_query("SELECT COUNT(*) FROM mysql.global_priv")?;
    let log = init.dir.join("weir.log");
    let temporary = init.dir.join("tmp");
    fs::create_dir_all(&temporary)?;
    let mut command = Command::new(weir_binary()?);
    command.args(["serve", "--cluster", &init.address(cluster.node(3).addr()), "--user", "app:app"]);
    command.args(["--listen", &init.listen.to_string(), "--admin-listen", ""]);
    command.env("MYSQL_PWD", init.admin()).env("TMPDIR", &temporary);
    let process = Process::serve("weir-trial", &mut command, init.listen, &log, PATIENCE)?;
    eventually("a writer", PATIENCE, || {
        let session = Session::open(init.listen, "test");
        Ok(session.is_ok_and(|mut session| session.value("SELECT @@read_only").is_ok()))
    })?;
    write_and_read(init.listen, "trial")?;
    let writer = Session::open(init.listen, "test")?.value("SELECT @@wsrep_node_name")?;
    ensure!(writer == "n3", "the node that was named writes, not {writer}");
    read_at(init.listen, NODE, &["n1".to_owned(), "n2".to_owned()])?;
    ensure!(fs::read_dir(&temporary)?.count() == 1, "it has a datadir");
    process.terminate(PATIENCE)?;
    ensure!(fs::read_dir(&temporary)?.count() == 0, "it leaves nothing behind");
    let text = fs::read_to_string(&log)?;
    ensure!(text.contains("Galera cluster \"weir-tests\", 3 nodes"), "{text}");
    let after = cluster.node(1).root_query("SELECT COUNT(*) FROM mysql.global_priv")?;
    ensure!(before == after, "it has made accounts");
    env.forget_epochs().map_err(Into::into)
}

/// Nobody else is named: that account is the monitor's, and the applications'.
fn own_account(env: &Env) -> CaseResult {
    let init = Init::new(env, "own")?;
    let mysql = env.own_mysql(2, false)?;
    mysql.source().root_query(&init.admin_sql("ALL"))?;
    mysql.wait_replicated()?;
    let datadir = init.dir.join("data");
    let mut command = Command::new(weir_binary()?);
    command.args(["serve", "--cluster", &init.address(mysql.server(2).addr()), "--trust-peers", "--datadir"]);
    command.arg(&datadir);
    command.args(["--listen", &init.listen.to_string(), "--admin-listen", ""]);
    command.env("MYSQL_PWD", init.admin());
    let process =
        Process::serve("weir-own", &mut command, init.listen, &init.dir.join("weir.log"), PATIENCE)?;
    let name: &'static str = init.admin().leak();
    let login = Login::new(Account { user: name, password: name }).schema("test");
    let mut session = None;
    eventually("a writer", PATIENCE, || {
        session = Session::with(init.listen, &login).ok();
        Ok(session.as_mut().is_some_and(|session| session.run("CREATE TABLE init_own (id INT)").is_ok()))
    })?;
    let mut session = session.ok_or("no session")?;
    let (writer, source) = (session.value(WHO)?, mysql.source().root_query(WHO)?.concat().concat());
    ensure!(writer == source, "{writer} writes, not {source}");
    let status = Command::new(weir_binary()?).args(["status", "--datadir"]).arg(&datadir).output()?;
    let shown = succeeded(&status)?;
    ensure!(shown.contains(&mysql.server(2).addr().to_string()), "{shown}");
    process.terminate(PATIENCE)?;
    ensure!(datadir.exists(), "a directory that was named stays");
    Ok(())
}

fn refused(_: &Env) -> CaseResult {
    let mut command = Command::new(weir_binary()?);
    command.args(["serve", "--cluster", "mysql://root:s3cret@127.0.0.1:1"]);
    let output = command.output()?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1) && error.contains("127.0.0.1:1: connecting"), "{error}");
    ensure!(!error.contains("s3cret"), "{error}");
    Ok(())
}
