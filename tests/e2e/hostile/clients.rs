//! Clients. While each of them does its worst, other sessions of the same worker see not one wrong byte.

use std::error::Error;
use std::net::{SocketAddrV4, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use weir_protocol::auth::crypt::Sha2Crypt;
use weir_protocol::auth::rsa;
use weir_protocol::frame;
use weir_protocol::handshake::{CACHING_SHA2_PASSWORD, Greeting};
use weir_seeds::SplitMix;
use weir_testkit::wire::{Login, PacketStream, RawClient};
use weir_testkit::{Account, Weir};
use weir_tests::session::Prepared;
use weir_tests::{Bystanders, Case, CaseResult, Env, Session, ensure, eventually};

use crate::streaming::growth_kib;

pub(super) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("hostile::garbage_instead_of_a_login", garbage_instead_of_login),
        Case::parallel("hostile::damaged_logins", damaged_logins),
        Case::parallel("hostile::wrong_sequence_ids", wrong_sequence_ids),
        Case::parallel("hostile::every_command_with_random_content", random_commands),
        Case::parallel("hostile::truncated_executions", truncated_executions),
        Case::parallel("hostile::commands_that_never_end", endless_commands),
        Case::parallel("hostile::clients_that_send_and_never_read", never_read),
        Case::parallel("hostile::a_flood_of_half_open_logins", flood),
        Case::parallel("hostile::tls_that_is_none", broken_tls),
        Case::parallel("hostile::a_client_that_talks_while_its_password_is_checked", talks_while_checked),
        Case::parallel("hostile::odd_texts", odd_texts),
    ]
}

/// Runs `hostile` against a Weir of one worker, with bystanders in it.
fn beside_bystanders(env: &Env, hostile: impl FnOnce(&Weir, &str) -> CaseResult) -> CaseResult {
    let schema = env.schema()?;
    Bystanders::make_table(env, &schema)?;
    let weir = env.weir(|config| {
        config.variable("threads", 1).variable("connect_timeout_client", 1500);
    })?;
    let login = Login::new(Account::APP).schema(&schema);
    let bystanders = Bystanders::start(weir.addr(), &login, 3)?;
    let result = hostile(&weir, &schema);
    let seen = bystanders.finish();
    result?;
    let seen = seen?;
    ensure!(seen.slowest < Duration::from_secs(10), "a bystander waited {:?}", seen.slowest);
    ensure!(weir.process().exit_status().is_none(), "Weir has ended");
    let log = weir.log();
    ensure!(!log.contains("panicked"), "Weir's log: {log}");
    Session::with(weir.addr(), &login)?.value("SELECT 'still here'")?;
    Ok(())
}

/// A fresh socket, behind the greeting.
fn greeted(server: SocketAddrV4) -> Result<PacketStream, Box<dyn Error>> {
    let mut packets = PacketStream::new(TcpStream::connect(server)?)?;
    packets.set_read_timeout(Duration::from_secs(20))?;
    packets.read_packet()?;
    Ok(packets)
}

/// Reads until the peer closes; fails if it does not within the time-out.
fn ends(packets: &mut PacketStream, what: &str) -> CaseResult {
    let started = Instant::now();
    while let Ok(packet) = packets.read_packet() {
        ensure!(started.elapsed() < Duration::from_secs(5), "{what}: goes on and on: {packet}");
    }
    ensure!(packets.is_closed(), "{what}: neither answered nor closed after {:?}", started.elapsed());
    Ok(())
}

fn garbage_instead_of_login(env: &Env) -> CaseResult {
    beside_bystanders(env, |weir, _| {
        let mut random = SplitMix::new(11);
        for round in 0..60 {
            let mut packets = greeted(weir.addr())?;
            let len = 1 + random.below(300);
            let garbage = random.bytes(len);
            // The peer may have closed before all is written.
            let _ = packets.write_bytes(&garbage);
            if round % 3 == 0 {
                let _ = packets.finish_writing();
            }
            ends(&mut packets, &format!("garbage {round}: {}", garbage.escape_ascii()))?;
        }
        // What other protocols begin with.
        for text in [
            "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            "\x16\x03\x01\x02\0\x01\0\x01\x7c",
            "SSH-2.0-x\r\n",
            "\0\0\0\0",
        ] {
            let mut packets = greeted(weir.addr())?;
            let _ = packets.write_bytes(text.as_bytes());
            ends(&mut packets, text)?;
        }
        Ok(())
    })
}

fn damaged_logins(env: &Env) -> CaseResult {
    beside_bystanders(env, |weir, schema| {
        let mut random = SplitMix::new(12);
        for round in 0..200 {
            let client = RawClient::connect(weir.addr())?;
            let mut payload = Login::new(Account::APP).schema(schema).response(&client.greeting().scramble);
            match round % 4 {
                0 => payload.truncate(random.below(payload.len())),
                1 => {
                    let at = random.below(payload.len());
                    payload[at] = (random.number() >> 24) as u8;
                }
                2 => {
                    let at = random.below(payload.len());
                    let len = random.below(200);
                    let more = random.bytes(len);
                    payload.splice(at..at, more);
                }
                _ => {
                    // Lengths inside that reach beyond the end.
                    let at = random.below(payload.len());
                    for byte in payload.iter_mut().skip(at) {
                        *byte = 0xFE;
                    }
                }
            }
            let mut client = client;
            let packets = client.packets();
            packets.set_read_timeout(Duration::from_secs(20))?;
            packets.write_packet(1, &payload)?;
            // Damage may leave a valid login; otherwise an error or a question, and the end.
            match packets.read_packet() {
                Ok(packet) if packet.first() == Some(0) => {}
                Ok(packet) if packet.first() == Some(0xFE) => {
                    packets.write_packet(packet.seq.wrapping_add(1), &payload)?;
                    ends(packets, &format!("login {round} after a switch"))?;
                }
                Ok(packet) => {
                    packet.err()?;
                    ends(packets, &format!("login {round} after {packet}"))?;
                }
                Err(_) => ends(packets, &format!("login {round}"))?,
            }
        }
        // An announced size beyond all reason, and the wrong sequence id.
        for header in [[0xFF, 0xFF, 0xFF, 1], [0, 0, 2, 1], [40, 0, 0, 0], [40, 0, 0, 2], [0, 0, 0, 1]] {
            let mut packets = greeted(weir.addr())?;
            let _ = packets.write_bytes(&[header.as_slice(), &[b'x'; 40]].concat());
            ends(&mut packets, &format!("header {header:?}"))?;
        }
        Ok(())
    })
}

fn wrong_sequence_ids(env: &Env) -> CaseResult {
    beside_bystanders(env, |weir, schema| {
        let login = Login::new(Account::APP).schema(schema);
        for sequence in [1, 2, 3, 127, 255] {
            let mut client = RawClient::login(weir.addr(), &login)?;
            client.packets().write_packet(sequence, b"\x03SELECT 1")?;
            let answer = client.packets().read_packet()?;
            ensure!(answer.err()?.code == 1156, "sequence id {sequence}: {answer}");
            ends(client.packets(), &format!("sequence id {sequence}"))?;
        }
        // In the middle of a long command.
        let mut client = RawClient::login(weir.addr(), &login)?;
        let mut bytes = Vec::new();
        let text =
            [b"\x03SELECT LENGTH('".as_slice(), &vec![b'x'; frame::PAYLOAD_MAX + 1000], b"')"].concat();
        frame::write_packet(&mut bytes, &mut 0, &text);
        bytes[frame::HEADER_LEN + frame::PAYLOAD_MAX + 3] = 7;
        // It may be noticed before all is written.
        let _ = client.packets().write_bytes(&bytes);
        ends(client.packets(), "sequence id 7 where 1 belongs")
    })
}

fn random_commands(env: &Env) -> CaseResult {
    beside_bystanders(env, |weir, schema| {
        let mut random = SplitMix::new(13);
        let login = Login::new(Account::APP).schema(schema);
        let mut client = RawClient::login(weir.addr(), &login)?;
        for round in 0..600_usize {
            let code = (round % 256) as u8;
            let len = random.below(60);
            let mut payload = vec![code];
            payload.extend(random.bytes(len));
            if round % 7 == 0 {
                payload.clear();
            }
            // Ends with a ping, whose answer shows that the session is in step; or the session has ended.
            let _ = client.send_command(&payload);
            let _ = client.send_command(&[0x0E]);
            client.packets().set_read_timeout(Duration::from_secs(20))?;
            let mut answers = Vec::new();
            let in_step = loop {
                match client.packets().read_packet() {
                    Ok(packet) => {
                        let is_ok = packet.first() == Some(0) && packet.payload.len() == 7 && packet.seq == 1;
                        answers.push(packet.to_string());
                        if is_ok {
                            break true;
                        }
                    }
                    Err(_) => break false,
                }
            };
            if in_step {
                continue;
            }
            // A change of user waits for a proof, and takes the ping for it: that ends the session, too.
            ends(client.packets(), &format!("command {code:#x} {}: {answers:?}", payload.escape_ascii()))?;
            client = RawClient::login(weir.addr(), &login)?;
        }
        Ok(())
    })
}

fn truncated_executions(env: &Env) -> CaseResult {
    beside_bystanders(env, |weir, schema| {
        let login = Login::new(Account::APP).schema(schema);
        let mut session = Session::with(weir.addr(), &login)?;
        let mut statement: Prepared = session.prepare("SELECT ?, ?, ?")?;
        let mut whole = vec![0x17];
        whole.extend_from_slice(&statement.id.to_le_bytes());
        // Flags, iteration count, NULL bitmap, new types, three strings.
        whole.extend_from_slice(&[0, 1, 0, 0, 0, 0, 1, 0xFD, 0, 0xFD, 0, 0xFD, 0]);
        whole.extend_from_slice(b"\x03one\x03two\x05three");
        for len in 1..=whole.len() {
            for fill in [None, Some(0xFF), Some(0xFE)] {
                let mut payload = whole[..len].to_vec();
                payload[1..5.min(len)].copy_from_slice(&statement.id.to_le_bytes()[..4.min(len - 1)]);
                if let Some(byte) = fill.filter(|_| len < whole.len()) {
                    payload.resize(whole.len(), byte);
                }
                session.raw().send_command(&payload)?;
                let Ok(answer) = session.results() else {
                    // The server ends the session, or Weir does; never is nothing said.
                    ensure!(session.raw().packets().is_closed(), "{len} bytes, {fill:?}: no answer");
                    session = Session::with(weir.addr(), &login)?;
                    statement = session.prepare("SELECT ?, ?, ?")?;
                    continue;
                };
                if len == whole.len() {
                    let rows = answer.binary_rows()?;
                    ensure!(rows == [["one", "two", "three"]], "the whole: {rows:?}");
                }
            }
        }
        Ok(())
    })
}

fn endless_commands(env: &Env) -> CaseResult {
    beside_bystanders(env, |weir, schema| {
        let login = Login::new(Account::APP).schema(schema);
        let growth = growth_kib(weir.process(), || {
            let mut clients = Vec::new();
            for announced in [100_usize, 70_000, 1 << 20, (1 << 20) + 1, 0xFF_FFFE, 0xFF_FFFF] {
                for code in [0x03, 0x16, 0x17, 0x18, 0x11, 0x02, 0x0E, 0xFA] {
                    let mut client = RawClient::login(weir.addr(), &login)?;
                    let header = frame::Header { len: announced, seq: 0 }.encode();
                    let mut bytes = [header.as_slice(), &[code]].concat();
                    bytes.extend(std::iter::repeat_n(b' ', 60_000.min(announced - 2)));
                    // Too long for its command: may be refused before all is written.
                    let _ = client.packets().write_bytes(&bytes);
                    clients.push(client);
                }
            }
            thread::sleep(Duration::from_millis(500));
            for (at, client) in clients.into_iter().enumerate() {
                if at % 2 == 0 {
                    let mut client = client;
                    let socket = client.packets().socket().try_clone()?;
                    drop(client);
                    PacketStream::new(socket)?.reset()?;
                }
            }
            Ok(())
        })?;
        ensure!(growth < 32 << 10, "48 commands that never end cost {growth} KiB");
        Ok(())
    })
}

fn never_read(env: &Env) -> CaseResult {
    beside_bystanders(env, |weir, schema| {
        let login = Login::new(Account::APP).schema(schema);
        let mut clients = Vec::new();
        let growth = growth_kib(weir.process(), || {
            for _ in 0..8 {
                let mut client = RawClient::login(weir.addr(), &login)?;
                client.packets().socket().set_write_timeout(Some(Duration::from_millis(200)))?;
                let mut batch = Vec::new();
                for _ in 0..1000 {
                    frame::write_packet(&mut batch, &mut 0, b"\x03SELECT REPEAT('x', 20000)");
                }
                // Until neither side takes any more.
                for _ in 0..30 {
                    if client.packets().write_bytes(&batch).is_err() {
                        break;
                    }
                }
                clients.push(client);
            }
            thread::sleep(Duration::from_millis(1500));
            Ok(())
        })?;
        // A client may have 256 KiB of replies waiting and send 64 KiB ahead, with the slack of buffers that double.
        ensure!(growth < 24 << 10, "8 clients that never read cost {growth} KiB");
        Ok(())
    })
}

fn flood(env: &Env) -> CaseResult {
    beside_bystanders(env, |weir, schema| {
        let mut open = Vec::new();
        let started = Instant::now();
        for number in 0..600 {
            let mut packets = PacketStream::new(TcpStream::connect(weir.addr())?)?;
            if number % 3 == 1 {
                let _ = packets.write_bytes(&[60, 0, 0, 1, b'x']);
            }
            if number % 3 == 2 {
                drop(packets);
            } else {
                open.push(packets);
            }
        }
        // Others still get in at once.
        let login = Login::new(Account::APP).schema(schema);
        let began = Instant::now();
        Session::with(weir.addr(), &login)?.value("SELECT 1")?;
        ensure!(began.elapsed() < Duration::from_secs(10), "a login took {:?} in the flood", began.elapsed());
        // And all of them are cut off in time.
        eventually("the flood is over", Duration::from_secs(10), || {
            open.retain_mut(|packets| {
                let _ = packets.set_read_timeout(Duration::from_millis(1));
                while packets.read_packet().is_ok() {}
                !packets.is_closed()
            });
            Ok(open.is_empty())
        })?;
        ensure!(started.elapsed() > Duration::from_millis(1400), "cut off after {:?}", started.elapsed());
        Ok(())
    })
}

fn broken_tls(env: &Env) -> CaseResult {
    beside_bystanders(env, |weir, _| {
        let mut random = SplitMix::new(14);
        // Capabilities with SSL, largest packet, collation, filler.
        let mut request = vec![0; 32];
        request[..4].copy_from_slice(&0x000F_AA85_u32.to_le_bytes());
        request[8] = 45;
        for round in 0..40 {
            let mut packets = greeted(weir.addr())?;
            packets.write_packet(1, &request)?;
            let len = 1 + random.below(2000);
            let mut garbage = random.bytes(len);
            if round % 2 == 0 {
                // A handshake record of TLS, at least by its header.
                garbage.splice(0..0, [0x16, 3, 1, 1, 0]);
            }
            let _ = packets.write_bytes(&garbage);
            if round % 4 == 3 {
                let _ = packets.finish_writing();
            }
            let started = Instant::now();
            let mut sink = [0; 4096];
            let mut socket = packets.socket();
            while matches!(std::io::Read::read(&mut socket, &mut sink), Ok(1..)) {}
            ensure!(packets.is_closed(), "round {round}: still open after {:?}", started.elapsed());
        }
        // The request, and plain text behind it.
        let mut packets = greeted(weir.addr())?;
        packets.write_packet(1, &request)?;
        packets.write_packet(2, b"\x03SELECT 1")?;
        let mut sink = [0; 4096];
        let mut socket = packets.socket();
        while matches!(std::io::Read::read(&mut socket, &mut sink), Ok(1..)) {}
        ensure!(packets.is_closed(), "plain text in TLS: still open");
        Ok(())
    })
}

fn odd_texts(env: &Env) -> CaseResult {
    beside_bystanders(env, |weir, schema| {
        let mut random = SplitMix::new(15);
        let login = Login::new(Account::APP).schema(schema);
        let mut through = RawClient::login(weir.addr(), &login)?;
        let node = env.cluster()?.node(1).addr();
        let mut direct = RawClient::login(node, &login)?;
        let mut texts: Vec<Vec<u8>> = vec![
            b"".to_vec(),
            b"\0".to_vec(),
            b"SELECT 1\0".to_vec(),
            b"SELECT 'a\0b'".to_vec(),
            b"SELECT '\xFF\xFE'".to_vec(),
            b"SELECT 'not closed".to_vec(),
            b"/* not closed".to_vec(),
            b"SELECT 1 /*! + 1".to_vec(),
            b"SELECT `not closed".to_vec(),
            b";".to_vec(),
            b"; ;".to_vec(),
            b"-- nothing".to_vec(),
            b"SELECT /*!99999 nonsense */ 1".to_vec(),
            [b"SELECT ".as_slice(), &b"(".repeat(300), b"1", &b")".repeat(300)].concat(),
            [b"SELECT 1 ".as_slice(), &b"/*x*/".repeat(5000)].concat(),
        ];
        for _ in 0..200 {
            let len = random.below(80);
            texts.push(random.bytes(len));
        }
        for text in &texts {
            let command = [b"\x03".as_slice(), text].concat();
            let mut answers = Vec::new();
            for client in [&mut through, &mut direct] {
                client.send_command(&command)?;
                let reply =
                    client.read_reply().map_err(|error| format!("{}: {error}", text.escape_ascii()))?;
                let last = reply.last()?;
                let code = if last.first() == Some(0xFF) { last.err()?.code } else { 0 };
                answers.push((code, reply.results));
            }
            ensure!(
                answers[0] == answers[1],
                "{}: {:?} instead of {:?}",
                text.escape_ascii(),
                answers[0],
                answers[1]
            );
        }
        Ok(())
    })
}

/// The check takes the better part of a second, on a thread of its own; what comes meanwhile has to wait outside.
fn talks_while_checked(env: &Env) -> CaseResult {
    let stored = Sha2Crypt::of(b"slow", *b"salt of twenty bytes", 0x200).ok_or("no hash")?;
    let stored: &'static str = String::from_utf8(stored.to_bytes())?.leak();
    let weir = env.weir(|config| {
        config.variable("threads", 1);
        config.user(Account { user: "slow", password: stored }, 100, &[]);
    })?;
    let slow = Login {
        plugin: Some(CACHING_SHA2_PASSWORD.to_vec()),
        ..Login::new(Account { user: "slow", password: "wrong" })
    };
    let talk = || {
        let mut packets = PacketStream::new(TcpStream::connect(weir.addr())?)?;
        let greeting = packets.read_packet()?;
        let scramble = Greeting::parse(&greeting.payload).map_err(|error| error.to_string())?.scramble;
        packets.write_packet(1, &slow.response(&scramble))?;
        ensure!(packets.read_packet()?.payload == [1, 4], "the password is not asked for");
        packets.write_packet(3, &[2])?;
        let pem = packets.read_packet()?;
        let sealed = rsa::seal(pem.payload.get(1..).unwrap_or_default(), b"wrong", &scramble);
        packets.write_packet(5, &sealed.ok_or("no key")?)?;
        // Far more than sockets hold; the writes fail when Weir has closed.
        let written = (0..200).take_while(|_| packets.write_bytes(&[0; 256 << 10]).is_ok()).count();
        ensure!(written < 200, "Weir takes whatever comes");
        Ok(())
    };
    // The first one may cost what is needed only once.
    talk()?;
    let grown = growth_kib(weir.process(), || (0..3).try_for_each(|_| talk()))?;
    ensure!(grown < 8 << 10, "Weir grew by {grown} KiB");
    Session::open(weir.addr(), "test")?.value("SELECT 'still here'")?;
    Ok(())
}
