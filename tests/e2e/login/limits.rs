//! Limits of connections and of patience.

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use weir_testkit::Account;
use weir_testkit::wire::{Login, RawClient};
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

pub(super) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("login::too_many_connections", too_many_connections),
        Case::parallel("login::too_many_connections_of_one_user", too_many_of_one_user),
        Case::parallel("login::a_slow_handshake_is_cut_off", slow_handshake),
        Case::parallel("login::a_silent_session_is_closed_after_wait_timeout", wait_timeout),
    ]
}

fn too_many_connections(env: &Env) -> CaseResult {
    let weir = env.weir(|config| {
        config.variable("max_connections", 2).variable("threads", 2);
    })?;
    // Who looked whether the port is open yet may still be counted for a moment.
    let mut let_in = Vec::new();
    eventually("two are let in", Duration::from_secs(20), || {
        let_in.extend(Session::open(weir.addr(), "test"));
        Ok(let_in.len() == 2)
    })?;
    let (Some(mut second), Some(first)) = (let_in.pop(), let_in.pop()) else { return Err("nobody".into()) };
    let refused = first_packet(&weir)?;
    let err = refused.err()?;
    ensure!(err.code == 1040, "the third: {refused}");
    ensure!(err.message.starts_with(b"Too many connections"), "the third: {refused}");
    let answer = second.value("SELECT 'still here'")?;
    ensure!(answer == "still here", "{answer}");
    drop(first);
    eventually("a place is free again", Duration::from_secs(20), || {
        Ok(Session::open(weir.addr(), "test").is_ok())
    })
}

/// The first packet, which is no greeting when there are too many.
fn first_packet(weir: &weir_testkit::Weir) -> Result<weir_testkit::wire::Packet, Box<dyn std::error::Error>> {
    let stream = std::net::TcpStream::connect(weir.addr())?;
    let mut packets = weir_testkit::wire::PacketStream::new(stream)?;
    let first = packets.read_packet()?;
    if first.first() == Some(0xFF) {
        return Ok(first);
    }
    // Greeted first, refused then.
    Ok(RawClient::connect(weir.addr())?.authenticate(&Login::new(Account::APP))?)
}

fn too_many_of_one_user(env: &Env) -> CaseResult {
    let weir = env.weir(|config| {
        config.document_mut().remove("mysql_users");
        config.user(Account::APP, 100, &[("max_connections", 2.into())]);
        config.user(Account::APP2, 100, &[]);
    })?;
    let _first = Session::open(weir.addr(), "test")?;
    let second = Session::open(weir.addr(), "test")?;
    let refused = RawClient::connect(weir.addr())?.authenticate(&Login::new(Account::APP))?;
    let (err, wanted) =
        (refused.err()?, "User 'app' has exceeded the 'max_user_connections' resource (current value: 2)");
    ensure!(err.code == 1226 && err.message == wanted.as_bytes(), "the third session of app: {refused}");
    Session::with(weir.addr(), &Login::new(Account::APP2))?.value("SELECT 1")?;
    drop(second);
    eventually("a place is free again", Duration::from_secs(20), || {
        Ok(Session::open(weir.addr(), "test").is_ok())
    })
}

fn slow_handshake(env: &Env) -> CaseResult {
    let weir = env.weir(|config| {
        config.variable("connect_timeout_client", 1000);
    })?;
    // Without the setting it would be 10 s.
    let within = Duration::from_millis(500)..Duration::from_secs(9);
    // Says nothing at all.
    let started = Instant::now();
    let mut silent = RawClient::connect(weir.addr())?;
    while silent.packets().read_packet().is_ok() {}
    ensure!(silent.packets().is_closed(), "a silent client is still connected");
    ensure!(within.contains(&started.elapsed()), "a silent client was closed after {:?}", started.elapsed());

    // Says a little now and then.
    let started = Instant::now();
    let mut slow = RawClient::connect(weir.addr())?;
    let response = Login::new(Account::APP).response(&slow.greeting().scramble);
    let header = [&[u8::try_from(response.len())?, 0, 0, 1], response.as_slice()].concat();
    let mut socket = slow.packets().socket().try_clone()?;
    for byte in header.chunks(1) {
        if socket.write_all(byte).is_err() || started.elapsed() > within.end {
            break;
        }
        thread::sleep(Duration::from_millis(200));
    }
    ensure!(within.contains(&started.elapsed()), "a slow client was closed after {:?}", started.elapsed());

    // Whoever is in stays in.
    let mut session = Session::open(weir.addr(), "test")?;
    thread::sleep(Duration::from_millis(1500));
    session.value("SELECT 1")?;
    Ok(())
}

fn wait_timeout(env: &Env) -> CaseResult {
    let weir = env.weir(|config| {
        config.variable("wait_timeout", 4000);
    })?;
    let attributes = vec![("program_name".to_owned(), "nightly report".to_owned())];
    let login = Login { attributes, ..Login::new(Account::APP).schema("test") };
    let mut silent = Session::with(weir.addr(), &login)?;
    let mut busy = Session::open(weir.addr(), "test")?;
    silent.value("SELECT 1")?;
    let started = Instant::now();
    silent.raw().packets().set_read_timeout(Duration::from_millis(10))?;
    while !silent.raw().packets().is_closed() {
        busy.value("SELECT 1")?;
        ensure!(started.elapsed() < Duration::from_secs(40), "still open after {:?}", started.elapsed());
        thread::sleep(Duration::from_millis(200));
    }
    ensure!(started.elapsed() > Duration::from_millis(3500), "closed after {:?}", started.elapsed());
    let log = weir.log();
    let line = log.lines().find(|line| line.contains("wait_timeout")).unwrap_or_default();
    ensure!(line.contains("nightly report"), "the log does not name the program: {log}");
    Ok(())
}
