//! What `weir_topology` says, on a real cluster.

use std::error::Error;
use std::time::Duration;

use toml_edit::Value;
use weir_testkit::{Weir, WeirConfig};
use weir_tests::{Case, CaseResult, Env, ensure, eventually};

use crate::switchover::{run, text, wait_writer, while_written, writer};

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("policies::a_drained_writer_hands_over_without_an_error", drained_writer),
        Case::parallel("policies::the_role_goes_back_without_an_error", failback_drained),
    ]
}

const PATIENCE: Duration = Duration::from_secs(60);
const HOSTGROUP: i64 = 100;

/// A Weir for the cluster with a row of `weir_topology`.
fn weir(env: &Env, keys: &[(&str, Value)], change: impl FnOnce(&mut WeirConfig)) -> Result<Weir, String> {
    env.weir(|config| {
        let mut row: Vec<(&str, Value)> = vec![("writer_hostgroup", HOSTGROUP.into())];
        // The grace of a switchover: transactions are short here, but the machine may be slow.
        row.push(("switchover_pin_grace_ms", 8000.into()));
        row.extend_from_slice(keys);
        config.push("weir_topology", &row);
        change(config);
    })
}

fn drain(weir: &Weir, verb: &str, server: &str) -> Result<String, Box<dyn Error>> {
    let done = run(weir, &[verb, server])?;
    ensure!(done.status.success(), "{}{}", text(&done.stdout), text(&done.stderr));
    Ok(text(&done.stderr))
}

fn drained_writer(env: &Env) -> CaseResult {
    let weir = weir(env, &[], |_| {})?;
    wait_writer(&weir)?;
    while_written(&weir, &env.schema()?, || {
        for _ in 0..4 {
            let server = writer(&weir)?;
            let told = drain(&weir, "drain", &server)?;
            ensure!(told.contains("statements were held for"), "{told}");
            ensure!(writer(&weir)? != server, "{server} still writes");
            drain(&weir, "undrain", &server)?;
        }
        Ok(())
    })
}

fn failback_drained(env: &Env) -> CaseResult {
    let heavy = env.cluster()?.node(2).addr();
    let keys = [("failback", "drained".into()), ("min_uptime_s", 1.into())];
    let weir = weir(env, &keys, |config| {
        let rows = config.document_mut()["mysql_servers"].as_array_of_tables_mut();
        let ip = heavy.ip().to_string();
        for row in rows.into_iter().flat_map(|rows| rows.iter_mut()) {
            if row.get("hostname").and_then(|host| host.as_str()) == Some(ip.as_str()) {
                row.insert("weight", toml_edit::value(1000));
            }
        }
    })?;
    wait_writer(&weir)?;
    let heavy = heavy.to_string();
    ensure!(writer(&weir)? == heavy, "the weight does not decide");
    while_written(&weir, &env.schema()?, || {
        drain(&weir, "drain", &heavy)?;
        ensure!(writer(&weir)? != heavy, "{heavy} still writes");
        drain(&weir, "undrain", &heavy)?;
        eventually("the role goes back", PATIENCE, || Ok(writer(&weir)? == heavy))
    })?;
    ensure!(weir.log().contains("failback: the writer role is to go"), "{}", weir.log());
    // All of this is in the topology log, also when Weir has ended.
    weir.sigterm()?;
    weir.wait_exit(PATIENCE)?;
    let json = text(&run(&weir, &["status", "--log", "1000", "--json"])?.stdout);
    let entries: Vec<serde_json::Value> = json.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let moves: Vec<&str> = entries
        .iter()
        .filter(|entry| entry["change"] == "switchover" && entry["cluster"] == HOSTGROUP)
        .filter_map(|entry| entry["reason"].as_str())
        .collect();
    ensure!(moves.len() == 2 && moves[1].contains(&format!("-> {heavy}")), "{json}");
    let is_writer =
        |entry: &&serde_json::Value| entry["change"] == "writer" && entry["server"] == heavy.as_str();
    ensure!(entries.iter().filter(is_writer).all(|entry| entry["view"].is_u64()), "{json}");
    ensure!(entries.iter().filter(is_writer).count() >= 2, "{json}");
    let words = text(&run(&weir, &["status", "--log"])?.stdout);
    ensure!(words.lines().count() <= 21 && words.starts_with("time "), "{words}");
    Ok(())
}
