//! Rules decide where statements go.

use weir_testkit::hostgroup;
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

use super::{WHERE, add_rules, weir, weir_with};

pub(super) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("query_rules::the_classic_split_goes_where_its_rules_say", classic_split),
        Case::parallel(
            "query_rules::a_read_that_a_rule_sends_to_the_writer_stays_there",
            reads_on_the_writer,
        ),
        Case::parallel("query_rules::what_a_rule_sends_to_readers_goes_there_read_or_not", any_to_readers),
        Case::parallel("query_rules::a_transaction_stays_whatever_the_rules_say", transactions),
        Case::parallel("query_rules::predicates_of_the_session", session_predicates),
        Case::parallel("query_rules::chains_and_the_next_statement", chains),
        Case::parallel("query_rules::fast_routes", fast_routes),
        Case::parallel("query_rules::hints_in_the_first_comment", hints),
        Case::parallel("query_rules::executions_go_by_the_text_prepared", prepared),
        Case::parallel("query_rules::a_session_sees_its_writes_where_rules_send_its_reads", freshness),
        Case::parallel("query_rules::a_hostgroup_without_servers_is_named", nowhere),
        Case::parallel("query_rules::a_reload_changes_them", reload),
    ]
}

fn is_reader(node: &str) -> bool {
    matches!(node, "n2" | "n3")
}

fn to(hostgroup: i64) -> String {
    format!("destination_hostgroup = {hostgroup}, apply = 1")
}

fn classic_split(env: &Env) -> CaseResult {
    let locking = format!("match_digest = '^SELECT.*FOR UPDATE$', {}", to(hostgroup::WRITER));
    let reads = format!("match_digest = '^SELECT', {}", to(hostgroup::READER));
    let weir = weir(env, &[&locking, &reads])?;
    let mut session = Session::open(weir.addr(), "test")?;
    for _ in 0..20 {
        let node = session.value(WHERE)?;
        ensure!(is_reader(&node), "a read ran on {node}");
        let node = session.value(&format!("{WHERE} FOR UPDATE"))?;
        ensure!(node == "n1", "a locking read ran on {node}");
    }
    Ok(())
}

fn reads_on_the_writer(env: &Env) -> CaseResult {
    let weir = weir(env, &[&format!("match_digest = 'GLOBAL_VARIABLES', {}", to(hostgroup::WRITER))])?;
    let mut session = Session::open(weir.addr(), "test")?;
    for _ in 0..10 {
        let node = session.value(WHERE)?;
        ensure!(node == "n1", "ran on {node}");
    }
    Ok(())
}

fn any_to_readers(env: &Env) -> CaseResult {
    let weir = weir(env, &[&format!("match_pattern = '(?<=FOR )UPDATE', {}", to(hostgroup::READER))])?;
    ensure!(weir.log().contains("look-behind"), "{}", weir.log());
    let mut session = Session::open(weir.addr(), "test")?;
    for _ in 0..10 {
        let node = session.value(&format!("{WHERE} FOR UPDATE"))?;
        ensure!(is_reader(&node), "ran on {node}");
        let node = session.value(&format!("{WHERE} LOCK IN SHARE MODE"))?;
        ensure!(node == "n1", "what no rule names ran on {node}");
    }
    Ok(())
}

fn transactions(env: &Env) -> CaseResult {
    let weir = weir(env, &[&format!("match_digest = '^SELECT', {}", to(hostgroup::READER))])?;
    let mut session = Session::open(weir.addr(), "test")?;
    for _ in 0..5 {
        session.run("BEGIN")?;
        let node = session.value(WHERE)?;
        ensure!(node == "n1", "in the transaction a read ran on {node}");
        session.run("COMMIT")?;
        let node = session.value(WHERE)?;
        ensure!(is_reader(&node), "after it a read ran on {node}");
    }
    Ok(())
}

fn session_predicates(env: &Env) -> CaseResult {
    let schema = env.schema()?;
    let writer = to(hostgroup::WRITER);
    let rules = [
        format!("schemaname = '{schema}', {writer}"),
        format!("username = 'app2', {writer}"),
        format!("client_addr = '127.0.0.%', match_digest = 'alpha', {writer}"),
        format!("client_addr = '10.%', {writer}"),
        format!("proxy_addr = '10.0.0.1', {writer}"),
        format!("proxy_addr = '127.0.0.1', match_digest = 'beta', {writer}"),
    ];
    let weir = weir(env, &rules.each_ref().map(String::as_str))?;
    let mut session = Session::open(weir.addr(), "test")?;
    // Else what it reads on the writer may keep it there for a moment.
    session.run("SET weir_consistency = eventual")?;
    ensure!(is_reader(&session.value(WHERE)?), "no rule names this session");
    session.use_schema(&schema)?;
    ensure!(session.value(WHERE)? == "n1", "the rule of the schema");
    session.use_schema("test")?;
    ensure!(is_reader(&session.value(WHERE)?), "the schema is another one again");
    for word in ["alpha", "beta"] {
        let node = session.value(&WHERE.replace("VARIABLE_VALUE", &format!("VARIABLE_VALUE AS {word}")))?;
        ensure!(node == "n1", "the rule of the address, {word}");
    }
    session.change_user(weir_testkit::Account::APP2, "test")?;
    ensure!(session.value(WHERE)? == "n1", "the rule of the user");
    Ok(())
}

fn chains(env: &Env) -> CaseResult {
    let writer = to(hostgroup::WRITER);
    let rules = [
        "match_digest = 'VARIABLE_VALUE AS a', flagOUT = 5".to_owned(),
        "match_digest = 'VARIABLE_VALUE AS b', attributes = '{\"flagOUTs\":[{\"id\":5,\"weight\":1}]}'"
            .to_owned(),
        "match_digest = 'VARIABLE_VALUE AS c', next_query_flagIN = 5".to_owned(),
        format!("flagIN = 5, {writer}"),
    ];
    let weir = weir(env, &rules.each_ref().map(String::as_str))?;
    let mut session = Session::open(weir.addr(), "test")?;
    session.run("SET weir_consistency = eventual")?;
    let named = |name: &str| WHERE.replace("VARIABLE_VALUE", &format!("VARIABLE_VALUE AS {name}"));
    ensure!(session.value(&named("a"))? == "n1", "flagOUT");
    ensure!(session.value(&named("b"))? == "n1", "flagOUTs");
    ensure!(is_reader(&session.value(&named("c"))?), "next_query_flagIN is not for the statement itself");
    ensure!(session.value(&named("d"))? == "n1", "but for the next one");
    ensure!(is_reader(&session.value(&named("d"))?), "and only for that");
    Ok(())
}

fn fast_routes(env: &Env) -> CaseResult {
    let weir = weir_with(env, &[], |config| {
        for (user, hostgroup) in [("", hostgroup::READER), ("app", hostgroup::WRITER)] {
            let row = [
                ("username", user.into()),
                ("schemaname", "test".into()),
                ("flagIN", 0.into()),
                ("destination_hostgroup", hostgroup.into()),
            ];
            config.push("mysql_query_rules_fast_routing", &row);
        }
    })?;
    let mut session = Session::open(weir.addr(), "test")?;
    ensure!(session.value(WHERE)? == "n1", "the user's own route");
    session.use_schema("")?;
    let mut other = Session::open(weir.addr(), "mysql")?;
    ensure!(is_reader(&other.value(WHERE)?), "no route for this schema");
    other.change_user(weir_testkit::Account::APP2, "test")?;
    let node = other.value(&format!("{WHERE} FOR UPDATE"))?;
    ensure!(is_reader(&node), "anybody's route");
    Ok(())
}

fn hints(env: &Env) -> CaseResult {
    let weir = weir(env, &[&format!("match_digest = 'FOR UPDATE$', {}", to(hostgroup::WRITER))])?;
    let mut session = Session::open(weir.addr(), "test")?;
    let (writer, reader) = (hostgroup::WRITER, hostgroup::READER);
    for _ in 0..5 {
        ensure!(session.value(&format!("/* hostgroup={writer} */ {WHERE}"))? == "n1", "hostgroup");
        ensure!(session.value(&format!("/*+ ;hostgroup={writer}; */ {WHERE}"))? == "n1", "after a semicolon");
        let node = session.value(&format!("/* hostgroup={reader} */ {WHERE} FOR UPDATE"))?;
        ensure!(is_reader(&node), "a hint has the last word");
        ensure!(is_reader(&session.value(&format!("/* hostgroups={writer} */ {WHERE}"))?), "a comment");
        let text = format!("{WHERE} AND '/* hostgroup={writer} */' <> ''");
        ensure!(is_reader(&session.value(&text)?), "a string is no comment");
    }
    Ok(())
}

fn prepared(env: &Env) -> CaseResult {
    let rules = [
        format!("match_digest = 'VARIABLE_VALUE AS w', {}", to(hostgroup::WRITER)),
        format!("match_pattern = 'FOR UPDATE', {}", to(hostgroup::READER)),
    ];
    let weir = weir(env, &rules.each_ref().map(String::as_str))?;
    let mut session = Session::open(weir.addr(), "test")?;
    let on_writer = session.prepare(&WHERE.replace("VARIABLE_VALUE", "VARIABLE_VALUE AS w"))?;
    let on_reader = session.prepare(&format!("{WHERE} FOR UPDATE"))?;
    for _ in 0..10 {
        let node = session.execute(&on_writer, &[])?.binary_rows()?;
        ensure!(node == [["n1"]], "the first ran on {node:?}");
        let node = session.execute(&on_reader, &[])?.binary_rows()?;
        ensure!(is_reader(&node[0][0]), "the second ran on {node:?}");
    }
    Ok(())
}

fn freshness(env: &Env) -> CaseResult {
    let schema = env.schema()?;
    let weir = weir(env, &[&format!("match_digest = '^SELECT', {}", to(hostgroup::READER))])?;
    let mut session = Session::open(weir.addr(), &schema)?;
    session.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)")?;
    session.run("INSERT INTO t VALUES (1, 0)")?;
    for value in 1..=200 {
        session.run(&format!("UPDATE t SET v = {value} WHERE id = 1"))?;
        let seen = session.value("SELECT v FROM t WHERE id = 1")?;
        ensure!(seen == value.to_string(), "wrote {value}, read {seen}");
    }
    Ok(())
}

fn nowhere(env: &Env) -> CaseResult {
    // Nobody could wait for that long here.
    let weir = weir_with(env, &[], |config| {
        config.variable("connect_timeout_server_max", 3_600_000);
    })?;
    let mut session = Session::open(weir.addr(), "test")?;
    let missing =
        "asks for hostgroup 4711, which does not exist: no row of mysql_servers and no cluster names it";
    let message = session.refused("/* hostgroup=4711 */ SELECT 1", 9001)?;
    ensure!(message.contains(missing), "{message}");
    let message = session.refused("INSERT /* hostgroup=4711 */ INTO nowhere VALUES (1)", 9001)?;
    ensure!(message.contains(missing), "{message}");
    session.value("SELECT 1")?;
    // In a transaction everything stays where that began.
    session.run("BEGIN")?;
    session.value("/* hostgroup=4711 */ SELECT 1")?;
    session.run("COMMIT")?;
    Ok(())
}

fn reload(env: &Env) -> CaseResult {
    let cluster = env.cluster()?;
    let mut config = weir_testkit::WeirConfig::for_cluster(cluster, env.free_address()?);
    let weir = env.weir_with(&config)?;
    let mut session = Session::open(weir.addr(), "test")?;
    eventually("reads go to readers", std::time::Duration::from_secs(10), || {
        Ok(is_reader(&session.value(WHERE)?))
    })?;
    add_rules(&mut config, &[&format!("match_digest = 'GLOBAL_VARIABLES', {}", to(hostgroup::WRITER))]);
    weir.reload(&config)?;
    eventually("the rule is in force", std::time::Duration::from_secs(10), || {
        Ok(session.value(WHERE)? == "n1")
    })
}
