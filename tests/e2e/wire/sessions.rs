//! Logins are refused, and sessions kill themselves, as at a server.

use weir_protocol::capability::Capabilities;
use weir_protocol::command::Command;
use weir_protocol::error;
use weir_testkit::Account;
use weir_testkit::wire::{Login, RawClient};
use weir_tests::{Case, CaseResult, Env, ensure};

use super::{Place, mariadb, mysql};

pub(super) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("wire::compression_that_was_not_offered_is_refused", compression),
        Case::parallel("wire::a_login_into_no_schema_is_refused_as_by_mariadb", |env| {
            schemas(&mariadb(env)?)
        }),
        Case::parallel("wire::a_login_into_no_schema_is_refused_as_by_mysql", |env| schemas(&mysql(env)?)),
        Case::parallel("wire::a_session_kills_itself_as_with_mariadb", |env| {
            own_kill(&mariadb(env)?, error::CONNECTION_KILLED.code)
        }),
        Case::parallel("wire::a_session_kills_itself_as_with_mysql", |env| {
            own_kill(&mysql(env)?, error::QUERY_INTERRUPTED.code)
        }),
    ]
}

fn compression(env: &Env) -> CaseResult {
    let weir = env.weir(|_| {})?;
    let mut client = RawClient::connect(weir.addr())?;
    ensure!(!client.greeting().capabilities.contains(Capabilities::COMPRESS), "offered");
    let answer = client.authenticate(&Login::new(Account::APP).with(Capabilities::COMPRESS))?;
    let error = answer.err()?;
    let message = String::from_utf8_lossy(error.message);
    ensure!(error.code == 1043 && message.contains("compress"), "{answer}");
    ensure!(client.packets().is_closed(), "goes on");
    Ok(())
}

fn schemas((weir, server, _): &Place) -> CaseResult {
    let long = "x".repeat(65);
    let names: [&[u8]; 8] = [
        b"no_such",
        long.as_bytes(),
        b"ends in a space ",
        b"te\xC3st",
        b"\xFF\xFE",
        "\u{1F600}".as_bytes(),
        b".",
        b"",
    ];
    for name in names {
        let mut answers = Vec::new();
        for place in [weir.addr(), *server] {
            let mut client = RawClient::connect(place)?;
            // The name is bytes, which need not be text.
            let login = Login::new(Account::APP).schema("@");
            let mut response = login.response(&client.greeting().scramble);
            let at = response.windows(2).rposition(|bytes| bytes == b"@\0").ok_or("no schema")?;
            response.splice(at..at + 1, name.iter().copied());
            client.packets().write_packet(1, &response)?;
            let mut answer = client.packets().read_packet()?;
            if answer.first() == Some(0xFE) {
                let scramble = answer.payload[23..43].try_into()?;
                let proof = weir_protocol::auth::sha2::response(Account::APP.password.as_bytes(), scramble);
                client.packets().write_packet(3, &proof.ok_or("no proof")?)?;
                answer = client.packets().read_packet()?;
            }
            while answer.first() == Some(1) {
                answer = client.packets().read_packet()?;
            }
            answers.push(answer.err().map(|error| (error.code, error.message.to_vec())).ok());
        }
        ensure!(answers[0] == answers[1], "{}: {answers:?}", name.escape_ascii());
    }
    Ok(())
}

/// What MariaDB 10.11 and MySQL 9.7 answer: the first has an error of its own for that.
fn own_kill((weir, _, schema): &Place, killed: u16) -> CaseResult {
    let interrupted = error::QUERY_INTERRUPTED.code;
    for (text, code) in [
        ("KILL CONNECTION_ID()", killed),
        ("KILL {}", killed),
        ("KILL CONNECTION {}", killed),
        ("KILL QUERY CONNECTION_ID()", interrupted),
        ("KILL QUERY {}", interrupted),
    ] {
        let mut client = RawClient::login(weir.addr(), &Login::new(Account::APP).schema(schema))?;
        let text = text.replace("{}", &client.greeting().thread_id.to_string());
        client.send_command(&[&[Command::Query.code()], text.as_bytes()].concat())?;
        let answer = client.packets().read_packet()?;
        ensure!(answer.err()?.code == code, "{text}: {answer}");
        let goes_on = client.query("SELECT 1").is_ok();
        ensure!(goes_on == (code == interrupted && text.contains("QUERY")), "{text}: {goes_on}");
    }
    Ok(())
}
