//! Assisted eviction: a killed node leaves the cluster at once, nobody else does, and no evict list stays behind, even
//! if Weir dies in the middle.

use std::process::Command;
use std::time::Duration;

use weir_testkit::{Account, Node, Signal, TestkitError, Weir, weir_binary};
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::serial("eviction::killed_nodes_leave_at_once_and_come_back", killed_nodes),
        Case::serial("eviction::a_writer_is_no_donor", no_donor),
        Case::serial("eviction::two_weirs_evict_as_one", two_weirs),
        Case::serial("eviction::weir_dies_at_each_step", weir_dies),
        Case::serial("eviction::what_was_left_behind_is_cleared", left_behind),
        Case::serial("eviction::nobody_is_evicted_who_lives", who_lives),
        Case::serial("eviction::a_hung_node_is_kept_out_where_that_is_wanted", hung),
        Case::serial("eviction::it_is_off_where_it_can_not_work", off),
    ]
}

const PATIENCE: Duration = Duration::from_secs(60);
const ON: &str = "assisted eviction is on";
const EVICTING: &str = "evicting ";
const EVICTED: &str = "evicted: waiting for the new view";
const NEW_VIEW: &str = "the cluster has a view without the evicted node";
const CLEAN: &str = "all evict lists are empty";

/// A Weir that evicts, or not.
fn weir(env: &Env, assist: &str, account: Option<Account>) -> Result<Weir, Box<dyn std::error::Error>> {
    let weir = env.weir(|config| {
        let mut row = vec![("writer_hostgroup", 100.into()), ("assist", assist.into())];
        if let Some(Account { user, password }) = account {
            row.push(("assist_username", user.into()));
            row.push(("assist_password", password.into()));
        }
        config.push("weir_topology", &row).variable("connect_timeout_server_max", 30_000);
    })?;
    if account.is_some() {
        weir.wait_log(ON, PATIENCE)?;
    }
    Ok(weir)
}

fn assisted(env: &Env) -> Result<Weir, Box<dyn std::error::Error>> {
    weir(env, "dead", Some(Account::ASSIST))
}

/// How often a line is in the log.
fn count(weir: &Weir, line: &str) -> usize {
    weir.log().matches(line).count()
}

fn wait_count(weir: &Weir, line: &str, wanted: usize) -> CaseResult {
    eventually(
        &format!("{wanted} times {line:?} in Weir's log"),
        PATIENCE,
        || Ok(count(weir, line) >= wanted),
    )
}

/// Every running node says that its evict list is empty and that it is one of `size` Primary members.
fn wait_clean(env: &Env, size: usize) -> CaseResult {
    let cluster = env.cluster()?;
    let wanted = ["", "Primary", &size.to_string()].map(str::to_owned);
    eventually(&format!("{size} Primary members with empty lists"), PATIENCE, || {
        let running = cluster.nodes().iter().filter(|node| node.is_running() && !node.is_paused());
        let states: Vec<[String; 3]> = running.map(state).collect::<Result<_, _>>()?;
        Ok(states.len() == size && states.iter().all(|state| *state == wanted))
    })
}

/// Evict list, component and size of the view.
fn state(node: &Node) -> Result<[String; 3], Box<dyn std::error::Error>> {
    let rows = node.root_query(
        "SHOW GLOBAL STATUS WHERE Variable_name IN ('wsrep_evs_evict_list', 'wsrep_cluster_status', \
         'wsrep_cluster_size')",
    )?;
    let value = |name: &str| {
        let row = rows.iter().find(|row| row.first().is_some_and(|first| first == name));
        row.and_then(|row| row.get(1)).cloned().unwrap_or_default()
    };
    Ok([value("wsrep_evs_evict_list"), value("wsrep_cluster_status"), value("wsrep_cluster_size")])
}

fn writes(env: &Env, weir: &Weir, schema: &str) -> CaseResult {
    let mut session = Session::open(weir.addr(), schema)?;
    session.value("SELECT @@wsrep_node_name FOR UPDATE")?;
    let _ = session.query("CREATE TABLE IF NOT EXISTS t (id INT AUTO_INCREMENT PRIMARY KEY)")?;
    let answer = session.query("INSERT INTO t VALUES ()")?;
    ensure!(format!("{answer:?}").contains("Ok("), "{answer:?} with {} nodes", env.cluster()?.nodes().len());
    Ok(())
}

fn killed_nodes(env: &Env) -> CaseResult {
    let (cluster, schema, weir) = (env.cluster()?, env.schema()?, assisted(env)?);
    for round in 1..=4 {
        let node = cluster.node((round - 1) % 3 + 1);
        node.kill()?;
        wait_count(&weir, NEW_VIEW, round)?;
        wait_count(&weir, CLEAN, round)?;
        wait_clean(env, 2)?;
        writes(env, &weir, &schema)?;
        cluster.start_node(node.index())?;
        wait_clean(env, 3)?;
        // Known again: only then it may be the next survivor.
        eventually("the node has a role again", PATIENCE, || {
            let log = weir.log();
            let addr = node.addr().to_string();
            let back =
                log.rfind(&format!("{addr}: backup writer")).max(log.rfind(&format!("{addr}: writer")));
            Ok(back > log.rfind(&format!("{addr}: offline")))
        })?;
    }
    ensure!(count(&weir, EVICTED) == 4, "{} evictions in four rounds", count(&weir, EVICTED));
    Ok(())
}

/// The last node of the view sends a joining one what it has missed; so it is not the writer any more by then.
fn no_donor(env: &Env) -> CaseResult {
    let (cluster, schema, weir) = (env.cluster()?, env.schema()?, assisted(env)?);
    let mut nodes: Vec<(String, &Node)> = cluster
        .nodes()
        .iter()
        .map(|node| Ok((node.status("wsrep_local_index")?, node)))
        .collect::<Result<_, TestkitError>>()?;
    nodes.sort_by(|a, b| a.0.cmp(&b.0));
    let [(_, first), _, (_, last)] = nodes.as_slice() else { return Err("no three nodes".into()) };
    let to = last.addr().to_string();
    let mut command = Command::new(weir_binary()?);
    command.args(["switchover", "100", "--to", &to, "-c"]).arg(weir.config_path());
    let moved = command.output()?;
    let is_there = String::from_utf8_lossy(&moved.stderr).contains("is the writer already");
    ensure!(moved.status.success() || is_there, "{moved:?}");
    first.kill()?;
    weir.wait_log(CLEAN, PATIENCE)?;
    wait_clean(env, 2)?;
    cluster.start_node(first.index())?;
    weir.wait_log("a node joins: the writer role leaves the server that will be its donor", PATIENCE)?;
    let mut session = Session::open(weir.addr(), &schema)?;
    let writer = session.value("SELECT @@wsrep_node_name FOR UPDATE")?;
    ensure!(writer != last.name(), "{writer} is the donor and still the writer");
    Ok(())
}

/// Both know the same, decide the same and clean up after both.
fn two_weirs(env: &Env) -> CaseResult {
    let (cluster, schema) = (env.cluster()?, env.schema()?);
    let weirs = [assisted(env)?, assisted(env)?];
    for index in [1, 3] {
        cluster.node(index).kill()?;
        wait_clean(env, 2)?;
        for weir in &weirs {
            writes(env, weir, &schema)?;
        }
        cluster.start_node(index)?;
        wait_clean(env, 3)?;
    }
    let evictions: usize = weirs.iter().map(|weir| count(weir, EVICTED)).sum();
    ensure!(evictions >= 2, "{evictions} evictions");
    Ok(())
}

/// It is killed as soon as it says that it has come to a step; the next one leaves nothing behind.
fn weir_dies(env: &Env) -> CaseResult {
    let (cluster, schema) = (env.cluster()?, env.schema()?);
    for (round, step) in ["is dead", EVICTING, EVICTED, NEW_VIEW].into_iter().enumerate() {
        let weir = assisted(env)?;
        let node = cluster.node(round % 3 + 1);
        node.kill()?;
        // Looks as often as it can: some steps take a millisecond.
        while !weir.log().contains(step) {
            ensure!(weir.process().exit_status().is_none(), "Weir has ended before {step:?}");
            std::thread::yield_now();
        }
        weir.process().signal(Signal::KILL)?;
        weir.wait_exit(PATIENCE)?;
        let next = assisted_without_one(env)?;
        wait_clean(env, 2)?;
        writes(env, &next, &schema)?;
        cluster.start_node(node.index())?;
        wait_clean(env, 3)?;
    }
    Ok(())
}

/// A Weir that starts while a node is down, so that it can't say at once that all is well.
fn assisted_without_one(env: &Env) -> Result<Weir, Box<dyn std::error::Error>> {
    let Account { user, password } = Account::ASSIST;
    let row = [
        ("writer_hostgroup", 100.into()),
        ("assist_username", user.into()),
        ("assist_password", password.into()),
    ];
    Ok(env.weir(|config| {
        config.push("weir_topology", &row).variable("connect_timeout_server_max", 30_000);
    })?)
}

/// The states in which a Weir that dies can leave a cluster, made by hand.
fn left_behind(env: &Env) -> CaseResult {
    let cluster = env.cluster()?;
    for waits_for_view in [false, true] {
        let uuid = |node: &Node| node.status("wsrep_gcomm_uuid");
        let victim = cluster.node(2);
        let (gone, one, other) = (uuid(victim)?, uuid(cluster.node(1))?, uuid(cluster.node(3))?);
        let evictor = cluster.node(if one < other { 1 } else { 3 });
        victim.kill()?;
        evictor.root_query(&format!("SET GLOBAL wsrep_provider_options = 'evs.evict={gone}'"))?;
        if waits_for_view {
            eventually("a view without the victim", PATIENCE, || Ok(state(evictor)?[2] == "2"))?;
            ensure!(!state(evictor)?[0].is_empty(), "nothing was left behind");
        }
        let weir = assisted_without_one(env)?;
        weir.wait_log(
            "clearing evict lists that another Weir or an administrator has left behind",
            PATIENCE,
        )?;
        weir.wait_log(CLEAN, PATIENCE)?;
        wait_clean(env, 2)?;
        cluster.start_node(victim.index())?;
        wait_clean(env, 3)?;
        ensure!(count(&weir, EVICTING) == 0, "the new Weir has evicted somebody");
    }
    Ok(())
}

fn who_lives(env: &Env) -> CaseResult {
    let (cluster, weir) = (env.cluster()?, assisted(env)?);
    // Somebody kills Weir's connections: no more than that.
    for node in cluster.nodes() {
        node.root_query("KILL CONNECTION USER assist")?;
    }
    eventually("Weir is connected again", PATIENCE, || {
        let count = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = 'assist'";
        let counts: Vec<_> =
            cluster.nodes().iter().map(|node| node.root_query(count)).collect::<Result<_, _>>()?;
        Ok(counts.iter().all(|rows| rows.concat() == ["1"]))
    })?;
    // A node stops in good order, and comes back.
    cluster.node(3).stop()?;
    weir.wait_log("is dead", PATIENCE)?;
    cluster.start_node(3)?;
    // A node hangs for a while, which is no proof of death.
    cluster.node(2).pause()?;
    eventually("the cluster has given it up", PATIENCE, || Ok(state(cluster.node(1))?[2] == "2"))?;
    cluster.node(2).resume()?;
    wait_clean(env, 3)?;
    ensure!(count(&weir, EVICTING) == 0, "somebody was evicted:\n{}", weir.log());
    Ok(())
}

fn hung(env: &Env) -> CaseResult {
    let (cluster, schema) = (env.cluster()?, env.schema()?);
    let weir = weir(env, "hung", Some(Account::ASSIST))?;
    let node = cluster.node(2);
    node.pause()?;
    weir.wait_log(NEW_VIEW, PATIENCE)?;
    writes(env, &weir, &schema)?;
    let [listed, ..] = state(cluster.node(1))?;
    ensure!(!listed.is_empty() && count(&weir, CLEAN) == 0, "it was let in again while it hung");
    node.resume()?;
    weir.wait_log("restart it, it can't come back by itself", PATIENCE)?;
    weir.wait_log(CLEAN, PATIENCE)?;
    node.kill()?;
    wait_clean(env, 2)?;
    cluster.start_node(2)?;
    wait_clean(env, 3)
}

/// `weir check --cluster` with a Weir's configuration: exit status and what it prints.
fn check(weir: &Weir) -> Result<(Option<i32>, String), Box<dyn std::error::Error>> {
    let mut command = Command::new(weir_binary()?);
    let output = command.arg("check").arg("--cluster").arg("-c").arg(weir.config_path()).output()?;
    Ok((output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned()))
}

fn status(weir: &Weir) -> Result<String, Box<dyn std::error::Error>> {
    let output = Command::new(weir_binary()?).arg("status").arg("-c").arg(weir.config_path()).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn off(env: &Env) -> CaseResult {
    let cluster = env.cluster()?;
    let off = weir(env, "off", None)?;
    // The monitor's account of the tests may do nothing.
    let forbidden = weir(env, "dead", None)?;
    let missing = "assisted eviction is off: ";
    forbidden.wait_log(missing, PATIENCE)?;
    ensure!(
        forbidden.log().contains("the account monitor may not set wsrep_provider_options (it needs SUPER)"),
        "{}",
        forbidden.log()
    );
    let standing = "the account monitor may not set wsrep_provider_options (it needs SUPER), and 2 more";
    eventually("the status says so, too", PATIENCE, || Ok(status(&forbidden)?.contains(standing)))?;
    ensure!(!status(&off)?.contains("eviction"), "nobody wants it there");
    let (code, text) = check(&forbidden)?;
    ensure!(code == Some(3) && text.contains("GRANT SUPER ON *.* TO 'monitor'"), "{text}");
    // An option that does not fit is named when it is seen.
    let unfit = weir(env, "dead", Some(Account::ASSIST))?;
    cluster.node(2).root_query("SET GLOBAL wsrep_provider_options = 'evs.keepalive_period=PT1S'")?;
    let words = "evs.keepalive_period is PT1S, more than PT0.1S";
    let told = unfit.wait_log(words, PATIENCE);
    let checked = check(&unfit);
    cluster.node(2).root_query("SET GLOBAL wsrep_provider_options = 'evs.keepalive_period=PT0.1S'")?;
    told?;
    let (code, text) = checked?;
    let advice = format!("in my.cnf of {}", cluster.node(2).addr());
    ensure!(code == Some(3) && text.contains(words) && text.contains(&advice), "{text}");
    wait_count(&unfit, ON, 2)?;
    eventually("the status follows", PATIENCE, || {
        Ok(status(&unfit)?.contains("eviction of dead nodes is on"))
    })?;
    let (code, text) = check(&unfit)?;
    ensure!(code == Some(0) && text.matches("nothing is missing").count() == 3, "{text}");
    drop(unfit);
    cluster.node(3).kill()?;
    wait_clean(env, 2)?;
    for weir in [off, forbidden] {
        ensure!(count(&weir, EVICTING) == 0, "somebody was evicted:\n{}", weir.log());
    }
    Ok(())
}
