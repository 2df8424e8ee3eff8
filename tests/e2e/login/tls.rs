//! Logins over TLS, and those that must be.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use weir_protocol::auth::crypt::Sha2Crypt;
use weir_testkit::{Account, Weir, WeirConfig, hostgroup, weir_binary};
use weir_tests::dialogue::{Caller, Dialogue, Plugin, Said, TlsVersion};
use weir_tests::{Case, CaseResult, Env, Session, ensure};

use super::weir_for_users;

pub(super) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("login::tls_1_2_and_1_3", both_versions),
        Case::parallel("login::the_self_signed_certificate_is_made_once_and_kept", certificate_is_kept),
        Case::parallel("login::a_certificate_of_the_users_own", own_certificate),
        Case::parallel("login::without_have_ssl_no_tls_is_offered", no_tls),
        Case::parallel("login::a_user_with_use_ssl_gets_in_over_tls_only", use_ssl),
        Case::parallel("login::a_user_known_by_its_sha2_hash", known_by_sha2_hash),
        Case::parallel("login::a_user_known_by_its_sha2_hash_without_tls", sealed_password),
        Case::parallel("login::a_flood_of_passwords_to_check_holds_nobody_up", flood),
    ]
}

const APP: Caller<'static> = Caller { user: "app", password: "app", plugin: Plugin::Native, tls: None };

fn both_versions(env: &Env) -> CaseResult {
    let weir = env.weir(|_| {})?;
    for version in [TlsVersion::V12, TlsVersion::V13] {
        for plugin in [Plugin::Native, Plugin::Sha2, Plugin::Unheard] {
            let caller = Caller { plugin, tls: Some(version), ..APP };
            let mut client = Dialogue::start(weir.addr(), &caller)?;
            ensure!(client.said.last() == Some(&Said::Ok), "{caller:?}: {:?}", client.said);
            ensure!(client.tls_version() == Some(version), "{caller:?}: {:?}", client.tls_version());
            // More than one TLS record in each direction.
            for bytes in [1, 16_000, 16_384, 16_385, 500_000] {
                let text = "x".repeat(bytes);
                let length = client.value(&format!("SELECT LENGTH('{text}')"))?;
                ensure!(length == bytes.to_string(), "{caller:?}: {length} of {bytes} bytes arrived");
                let back = client.value(&format!("SELECT REPEAT('x', {bytes})"))?;
                ensure!(back == text, "{caller:?}: {} of {bytes} bytes came back", back.len());
            }
            let refused = Dialogue::start(weir.addr(), &Caller { password: "wrong", ..caller })?;
            ensure!(refused.refusal().is_some_and(|(code, _)| code == 1045), "{:?}", refused.said);
        }
    }
    Ok(())
}

fn certificate_of(weir: &Weir) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let client = Dialogue::start(weir.addr(), &Caller { tls: Some(TlsVersion::V13), ..APP })?;
    Ok(client.certificate().ok_or("no certificate was shown")?)
}

fn certificate_is_kept(env: &Env) -> CaseResult {
    let config = WeirConfig::for_cluster(env.cluster()?, env.free_address()?);
    let dir = env.dir()?.join("certificate");
    fs::create_dir_all(&dir)?;
    let binary = weir_binary()?;
    let first = Weir::start(&binary, &config, &dir, "weir")?;
    let certificate = certificate_of(&first)?;
    for path in files_below(&dir.join("weir-data"))? {
        let text = fs::read(&path)?;
        if text.windows(11).any(|window| window == b"PRIVATE KEY") {
            let mode = fs::metadata(&path)?.permissions().mode() & 0o777;
            ensure!(mode == 0o600, "{} may be read by others: {mode:o}", path.display());
        }
    }
    drop(first);
    let second = Weir::start(&binary, &config, &dir, "weir")?;
    ensure!(certificate_of(&second)? == certificate, "another certificate after a restart");
    Ok(())
}

fn files_below(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(files_below(&path)?);
        } else if path.is_file() {
            files.push(path); // not a socket
        }
    }
    Ok(files)
}

fn own_certificate(env: &Env) -> CaseResult {
    let own = rcgen::generate_simple_self_signed(vec!["db.example".to_owned()])?;
    let (cert_file, key_file) = (env.dir()?.join("own.pem"), env.dir()?.join("own.key"));
    fs::write(&cert_file, own.cert.pem())?;
    fs::write(&key_file, own.signing_key.serialize_pem())?;
    let weir = env.weir(|config| {
        config.variable("tls_cert_file", cert_file.display().to_string());
        config.variable("tls_key_file", key_file.display().to_string());
    })?;
    ensure!(certificate_of(&weir)? == own.cert.der().to_vec(), "another certificate is shown");
    Ok(())
}

fn no_tls(env: &Env) -> CaseResult {
    let weir = env.weir(|config| {
        config.variable("have_ssl", false);
    })?;
    let tls = Dialogue::start(weir.addr(), &Caller { tls: Some(TlsVersion::V13), ..APP });
    let refused = tls.err().map(|error| error.to_string()).unwrap_or_default();
    ensure!(refused.contains("offers no TLS"), "{refused}");
    let mut plain = Dialogue::start(weir.addr(), &APP)?;
    ensure!(plain.value("SELECT 1")? == "1", "{:?}", plain.said);
    Ok(())
}

fn use_ssl(env: &Env) -> CaseResult {
    let weir = env.weir(|config| {
        config.document_mut().remove("mysql_users");
        config.user(Account::APP, hostgroup::WRITER, &[("use_ssl", 1.into())]);
        config.user(Account::APP2, hostgroup::WRITER, &[]);
    })?;
    for plugin in [Plugin::Native, Plugin::Sha2, Plugin::Unheard] {
        let plain = Dialogue::start(weir.addr(), &Caller { plugin, ..APP })?;
        ensure!(plain.refusal().is_some_and(|(code, _)| code == 1045), "{plugin:?}: {:?}", plain.said);
        let mut tls = Dialogue::start(weir.addr(), &Caller { plugin, tls: Some(TlsVersion::V13), ..APP })?;
        ensure!(tls.said.last() == Some(&Said::Ok), "{plugin:?}: {:?}", tls.said);
        tls.value("SELECT 1")?;
    }
    // There is no way around it through another user's session.
    let mut session = Session::with(weir.addr(), &weir_testkit::wire::Login::new(Account::APP2))?;
    let answer = session.change_user(Account::APP, "test")?;
    ensure!(answer.error() == Some(1045), "COM_CHANGE_USER without TLS: {answer:?}");
    Ok(())
}

/// 'app' as caching_sha2_password stores it, with so many thousand rounds.
fn stored(thousands: u32) -> Result<String, Box<dyn std::error::Error>> {
    let stored = Sha2Crypt::of(b"app", *b"salt of twenty bytes", thousands).ok_or("no hash")?;
    Ok(String::from_utf8(stored.to_bytes())?)
}

fn known_by_sha2_hash(env: &Env) -> CaseResult {
    let stored = stored(5)?;
    let weir = weir_for_users(env, &[("app", stored.as_str())], |_| {})?;
    let sha2 = Caller { plugin: Plugin::Sha2, ..APP };
    let over_tls = Caller { tls: Some(TlsVersion::V13), ..sha2 };
    let refused = Dialogue::start(weir.addr(), &Caller { password: "wrong", ..over_tls })?;
    ensure!(refused.said.contains(&Said::Full), "{:?}", refused.said);
    ensure!(refused.refusal().is_some_and(|(code, _)| code == 1045), "{:?}", refused.said);
    let mut first = Dialogue::start(weir.addr(), &over_tls)?;
    ensure!(first.said == [Said::Full, Said::Ok], "{:?}", first.said);
    let user = first.value("SELECT CURRENT_USER()")?;
    ensure!(user == "app@%", "the server knows the session as {user}");
    // From then on the proof is enough, as with MySQL's cache.
    for caller in [over_tls, sha2] {
        let mut next = Dialogue::start(weir.addr(), &caller)?;
        ensure!(next.said == [Said::Fast, Said::Ok], "{caller:?}: {:?}", next.said);
        ensure!(next.value("SELECT 1")? == "1", "no answer");
        let refused = Dialogue::start(weir.addr(), &Caller { password: "wrong", ..caller })?;
        ensure!(refused.refusal().is_some_and(|(code, _)| code == 1045), "{:?}", refused.said);
    }
    Ok(())
}

fn sealed_password(env: &Env) -> CaseResult {
    let path = env.dir()?.join("sealed.sock");
    let start = |stored: &str| {
        weir_for_users(env, &[("app", stored)], |config| {
            let listen = config.listen();
            config.variable("interfaces", format!("{listen};{}", path.display()));
        })
    };
    let sha2 = Caller { plugin: Plugin::Sha2, ..APP };
    let weir = start(&stored(5)?)?;
    let refused = Dialogue::start(weir.addr(), &Caller { password: "wrong", ..sha2 })?;
    ensure!(refused.said.starts_with(&[Said::Full, Said::Key]), "{:?}", refused.said);
    ensure!(refused.refusal().is_some_and(|(code, _)| code == 1045), "{:?}", refused.said);
    let mut first = Dialogue::start(weir.addr(), &sha2)?;
    ensure!(first.said == [Said::Full, Said::Key, Said::Ok], "{:?}", first.said);
    let user = first.value("SELECT CURRENT_USER()")?;
    ensure!(user == "app@%", "the server knows the session as {user}");
    let next = Dialogue::start(weir.addr(), &sha2)?;
    ensure!(next.said == [Said::Fast, Said::Ok], "{:?}", next.said);
    drop(weir);

    // A real client, each time with a Weir that knows the hash only: sealed, through a Unix socket, over TLS.
    let through = format!("--socket={}", path.display());
    for more in [["--skip-ssl", "--host=127.0.0.1"], ["--ssl", "--host=127.0.0.1"], ["--skip-ssl", &through]]
    {
        let weir = start(&stored(5)?)?;
        let output = Command::new("mariadb")
            .args(["--no-defaults", "-uapp", "-papp", "-N", "-B", "-e", "SELECT CURRENT_USER()"])
            .arg(format!("--port={}", weir.addr().port()))
            .args(more)
            .output()?;
        let (text, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.success() && text == "app@%\n", "{more:?}: {text}{errors}");
    }
    Ok(())
}

fn flood(env: &Env) -> CaseResult {
    // A check takes the better part of a second: seconds for all, one after the other.
    let weir = weir_for_users(env, &[("app", &stored(0x200)?), ("app2", "app2")], |config| {
        config.variable("threads", 1);
    })?;
    let addr = weir.addr();
    let wrong = move || Dialogue::start(addr, &Caller { password: "wrong", plugin: Plugin::Sha2, ..APP });
    let flood: Vec<_> = (0..8).map(|_| thread::spawn(move || wrong().map(|it| it.said))).collect();
    let mut session = Session::with(addr, &weir_testkit::wire::Login::new(Account::APP2))?;
    for _ in 0..100 {
        session.value("SELECT 1")?;
    }
    let pending = flood.iter().filter(|login| !login.is_finished()).count();
    ensure!(pending > 0, "the statements have waited for the passwords");
    for login in flood {
        let said = login.join().map_err(|_| "a login panicked")??;
        ensure!(matches!(said.last(), Some(Said::Err { code: 1045, .. })), "{said:?}");
    }
    Ok(())
}
