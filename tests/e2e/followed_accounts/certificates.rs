//! Accounts that require a certificate let in whoever shows one.

use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::{fs, str};

use weir_testkit::{Family, cache_dir};
use weir_tests::{CaseResult, Env, ensure};

use super::{IN_FORCE, Stage};

const ACCOUNTS: &str = "CREATE USER certified@'%' IDENTIFIED BY 'secret' REQUIRE X509; \
    CREATE USER named@'%' IDENTIFIED BY 'secret' REQUIRE SUBJECT '/O=Weir/CN=somebody else'; \
    CREATE USER plain@'%' IDENTIFIED BY 'secret';";

pub(super) fn required(env: &Env) -> CaseResult {
    let dir = env.dir()?.join("certificates");
    fs::create_dir_all(&dir)?;
    let (ours, others) = (dir.join("ours"), dir.join("others"));
    make(&ours)?;
    make(&others)?;
    let stage = Stage::new(env, Family::Mysql, ACCOUNTS, |config, servers| {
        config.server_column("use_ssl", 1);
        config.variable("tls_client_ca_file", ours.join("ca.pem").display().to_string());
        // The server asks Weir for a certificate, too: one that it has made for its clients.
        let of_server = |name: &str| servers.source().ca_path().with_file_name(name).display().to_string();
        config.variable("ssl_p2s_cert", of_server("client-cert.pem"));
        config.variable("ssl_p2s_key", of_server("client-key.pem"));
    })?;
    let login = |user: &str, certificate: Option<&Path>| -> Result<String, Box<dyn Error>> {
        let mut command = Command::new(cache_dir()?.join("mysql/bin/mysql"));
        let at = stage.weir.addr();
        command.args([format!("-h{}", at.ip()), format!("-P{}", at.port()), format!("-u{user}")]);
        command.args(["-psecret", "--ssl-mode=REQUIRED", "-N", "-B", "-e", "SELECT CURRENT_USER()"]);
        if let Some(dir) = certificate {
            command.arg(format!("--ssl-cert={}", dir.join("cert.pem").display()));
            command.arg(format!("--ssl-key={}", dir.join("key.pem").display()));
        }
        let output = command.output()?;
        let told = [output.stdout, output.stderr].concat();
        Ok(str::from_utf8(&told)?.lines().filter(|line| !line.contains("[Warning]")).collect())
    };
    let with_ours = login("certified", Some(&ours))?;
    ensure!(with_ours == "certified@%", "{with_ours}");
    let without = login("certified", None)?;
    ensure!(without.starts_with("ERROR 1045"), "{without}");
    stage.weir.wait_log("the account requires a client certificate", IN_FORCE)?;
    let with_others = login("certified", Some(&others))?;
    ensure!(with_others.starts_with("ERROR 2"), "a certificate of nobody known: {with_others}");
    let named = login("named", Some(&ours))?;
    ensure!(named.starts_with("ERROR 1045"), "{named}");
    stage.weir.wait_log("the client's certificate has another subject or issuer", IN_FORCE)?;
    // Who need not show one may, or may not.
    for certificate in [None, Some(&*ours)] {
        let plain = login("plain", certificate)?;
        ensure!(plain == "plain@%", "{plain}");
    }
    Ok(())
}

/// An authority, and a certificate that it has signed.
fn make(dir: &Path) -> CaseResult {
    fs::create_dir_all(dir)?;
    let authority_key = rcgen::KeyPair::generate()?;
    let mut params = rcgen::CertificateParams::new(Vec::new())?;
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    fs::write(dir.join("ca.pem"), params.self_signed(&authority_key)?.pem())?;
    let authority = rcgen::Issuer::new(params, authority_key);
    let key = rcgen::KeyPair::generate()?;
    let mut params = rcgen::CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(rcgen::DnType::CommonName, "app");
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    fs::write(dir.join("cert.pem"), params.signed_by(&key, &authority)?.pem())?;
    fs::write(dir.join("key.pem"), key.serialize_pem())?;
    Ok(())
}
