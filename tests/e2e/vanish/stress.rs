//! Kills all the time, over few connections: they never hit anybody else.

use std::error::Error;
use std::net::SocketAddrV4;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use weir_testkit::Account;
use weir_testkit::wire::Login;
use weir_testkit::{WeirConfig, hostgroup};
use weir_tests::{Bystanders, Case, CaseResult, Env, Session, ensure};

pub(super) fn trials() -> Vec<Case> {
    vec![Case::parallel("vanish::kills_never_hit_another_sessions_statement", kills_hit_nobody_else)]
}

const TIME: Duration = Duration::from_secs(12);

fn kills_hit_nobody_else(env: &Env) -> CaseResult {
    let schema = env.schema()?;
    Bystanders::make_table(env, &schema)?;
    let mut config = WeirConfig::new(env.free_address()?);
    config.server(env.cluster()?.node(2).addr(), hostgroup::WRITER, &[("max_connections", 2.into())]);
    config.user(Account::APP, hostgroup::WRITER, &[]);
    config.variable("threads", 1).variable("default_query_timeout", 2000);
    config.variable("connect_timeout_server_max", 30_000);
    let weir = env.weir_with(&config)?;
    let login = Login::new(Account::APP).schema(&schema);
    let bystanders = Bystanders::start(weir.addr(), &login, 3)?;
    let until = Instant::now() + TIME;
    let troublemakers: Vec<JoinHandle<Result<Trouble, String>>> = (0..4_u64)
        .map(|number| {
            let (server, login) = (weir.addr(), login.clone());
            thread::spawn(move || {
                trouble(server, &login, number, until)
                    .map_err(|error| format!("troublemaker {number}: {error}"))
            })
        })
        .collect();
    let mut rounds = 0;
    for thread in troublemakers {
        let trouble = thread.join().map_err(|_| "panicked")??;
        rounds += trouble.rounds;
        for id in trouble.interrupted {
            // On a machine that stands still for a while, a short statement runs into the limit, too.
            let ran_too_long = weir.log().contains(&format!("killing it session={id} "));
            ensure!(
                ran_too_long,
                "session {id}: the statement after a KILL QUERY was interrupted; Weir said:\n{}",
                weir.log()
            );
        }
    }
    let seen = bystanders.finish()?;
    ensure!(rounds > 60, "only {rounds} sessions vanished or were killed");
    ensure!(seen.statements > 200, "only {} statements beside", seen.statements);
    Ok(())
}

/// What a troublemaker has done.
#[derive(Default)]
struct Trouble {
    rounds: u64,
    /// The sessions in which a statement was interrupted that nobody meant.
    interrupted: Vec<u32>,
}

/// Sessions that vanish, are killed or run too long, one after the other.
fn trouble(
    server: SocketAddrV4,
    login: &Login,
    number: u64,
    until: Instant,
) -> Result<Trouble, Box<dyn Error>> {
    let mut random = number * 7919 + 17;
    let mut trouble = Trouble::default();
    while Instant::now() < until {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let pause = Duration::from_millis((random >> 33) % 30);
        let mut session = Session::with(server, login)?;
        match (random >> 50) % 5 {
            // Gone at about the moment when the statement ends by itself.
            0 => {
                session.send_query("SELECT SLEEP(0.015)")?;
                thread::sleep(pause);
                session.vanish();
            }
            1 => {
                session.run("BEGIN")?;
                session.send_query("UPDATE bystander SET n = 77 WHERE id = 150")?;
                thread::sleep(pause / 10);
                session.vanish();
            }
            // Killed at about that moment.
            2 | 3 => {
                let mut killer = Session::with(server, login)?;
                session.send_query("SELECT SLEEP(0.015)")?;
                thread::sleep(pause);
                killer.run(&format!("KILL QUERY {}", session.id()))?;
                let answer = session.results()?;
                ensure!(
                    matches!(answer.error(), None | Some(1317)),
                    "a session that was told KILL QUERY got {answer:?}"
                );
                // The KILL is over: this statement is not meant.
                let answer = session.query("SELECT SLEEP(0.002)")?;
                if super::is_interrupted(&answer) {
                    trouble.interrupted.push(session.id());
                } else {
                    let value = answer.value()?;
                    ensure!(value == "0", "the statement after a KILL QUERY got {value}");
                }
            }
            // Too long for default_query_timeout: now and then.
            _ if random >> 40 & 15 == 0 => {
                let answer = session.query("SELECT SLEEP(3)")?;
                ensure!(
                    matches!(answer.error(), None | Some(1317)),
                    "a statement that ran too long got {answer:?}"
                );
                session.value("SELECT 1")?;
            }
            _ => {}
        }
        trouble.rounds += 1;
    }
    Ok(trouble)
}
