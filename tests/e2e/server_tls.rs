//! TLS and authentication towards servers: Oracle MySQL, which makes its certificates itself and wants passwords
//! that it does not have in its cache, and MariaDB's ed25519.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use weir_testkit::{Account, Mysql, OwnResolver, Weir, WeirConfig, hostgroup, weir_binary};
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("server_tls::encrypted_without_an_authority", unverified),
        Case::parallel("server_tls::the_authority_is_verified", verified),
        Case::parallel("server_tls::authorities_of_a_directory_and_chosen_ciphers", directory_and_ciphers),
        Case::parallel("server_tls::a_client_certificate_is_shown", client_certificate),
        Case::parallel("server_tls::a_reload_encrypts_what_was_in_clear", reload),
        Case::parallel("server_tls::a_server_without_tls_is_not_spoken_to", no_tls),
        Case::parallel("server_tls::a_password_that_the_server_wants_to_see", full_authentication),
        Case::parallel("server_tls::a_user_of_mariadbs_ed25519", ed25519),
        Case::serial("server_tls::a_certificate_of_x509_version_1", version_1),
        Case::serial("server_tls::the_name_in_the_configuration_is_verified", identity),
    ]
}

const PATIENCE: Duration = Duration::from_secs(10);
const V1_CERT: &str = include_str!("server_tls/v1-cert.pem");
const V1_KEY: &str = include_str!("server_tls/v1-key.pem");
const SSL_VERSION: &str = "SHOW STATUS LIKE 'Ssl_version'";

/// A configuration for the source alone.
fn config(env: &Env, mysql: &Mysql, use_ssl: i64) -> Result<WeirConfig, String> {
    let mut config = WeirConfig::new(env.free_address()?);
    config.server(mysql.source().addr(), hostgroup::WRITER, &[("use_ssl", use_ssl.into())]);
    config.user(Account::APP, hostgroup::WRITER, &[]);
    config.monitor(Account::MONITOR);
    Ok(config)
}

/// The row for the source in mysql_servers_ssl_params.
fn params(config: &mut WeirConfig, mysql: &Mysql, more: &[(&str, &str)]) {
    let addr = mysql.source().addr();
    let mut row = vec![("hostname", addr.ip().to_string().into()), ("port", i64::from(addr.port()).into())];
    row.extend(more.iter().map(|(name, value)| (*name, (*value).into())));
    config.push("mysql_servers_ssl_params", &row);
}

fn ssl_version(weir: &Weir) -> Result<String, Box<dyn std::error::Error>> {
    let rows = Session::open(weir.addr(), "test")?.rows(SSL_VERSION)?;
    Ok(rows.first().and_then(|row| row.get(1)).cloned().unwrap_or_default())
}

/// What a statement is refused with: no server could be had.
fn refusal(weir: &Weir) -> Result<String, Box<dyn std::error::Error>> {
    Ok(Session::open(weir.addr(), "")?.refused("SELECT 1", 9001)?)
}

fn unverified(env: &Env) -> CaseResult {
    let mysql = env.mysql()?;
    for (versions, wanted) in [("", "TLSv1.3"), ("TLSv1.2", "TLSv1.2"), ("TLSv1.2,TLSv1.3", "TLSv1.3")] {
        let mut config = config(env, mysql, 1)?;
        params(&mut config, mysql, &[("tls_version", versions)]);
        let weir = env.weir_with(&config)?;
        let version = ssl_version(&weir)?;
        ensure!(version == wanted, "{versions:?}: {version}");
        let mut session = Session::open(weir.addr(), "test")?;
        for bytes in [1, 16_384, 16_385, 3_000_000] {
            let back = session.value(&format!("SELECT REPEAT('x', {bytes})"))?;
            ensure!(back.len() == bytes, "{} of {bytes} bytes came back", back.len());
            let length = session.value(&format!("SELECT LENGTH('{back}')"))?;
            ensure!(length == bytes.to_string(), "{length} of {bytes} bytes arrived");
        }
    }
    let plain = env.weir_with(&config(env, mysql, 0)?)?;
    ensure!(ssl_version(&plain)?.is_empty(), "encrypted although use_ssl is 0");
    Ok(())
}

fn verified(env: &Env) -> CaseResult {
    let mysql = env.mysql()?;
    let mut right = config(env, mysql, 1)?;
    params(&mut right, mysql, &[("ssl_ca", &mysql.source().ca_path().display().to_string())]);
    let weir = env.weir_with(&right)?;
    ensure!(ssl_version(&weir)? == "TLSv1.3", "{}", ssl_version(&weir)?);
    drop(weir);
    // Somebody else's authority, for all servers.
    let other = rcgen::generate_simple_self_signed(vec!["somebody.example".to_owned()])?;
    let path = env.dir()?.join("other-ca.pem");
    std::fs::write(&path, other.cert.pem())?;
    let mut wrong = config(env, mysql, 1)?;
    wrong.variable("ssl_p2s_ca", path.display().to_string());
    wrong.variable("connect_timeout_server_max", 1500);
    let weir = env.weir_with(&wrong)?;
    let message = refusal(&weir)?;
    ensure!(message.contains("certificate"), "{message}");
    Ok(())
}

fn directory_and_ciphers(env: &Env) -> CaseResult {
    let mysql = env.mysql()?;
    let (right, wrong) = (env.dir()?.join("authorities"), env.dir()?.join("authorities-of-others"));
    let other = rcgen::generate_simple_self_signed(vec!["somebody.example".to_owned()])?;
    for dir in [&right, &wrong] {
        std::fs::create_dir_all(dir)?;
        std::fs::write(dir.join("other.pem"), other.cert.pem())?;
    }
    std::fs::copy(mysql.source().ca_path(), right.join("mysql.pem"))?;
    let (cipher, iana) = ("ECDHE-RSA-AES128-GCM-SHA256", "TLS_CHACHA20_POLY1305_SHA256");
    for (ciphers, versions, wanted) in [(cipher, "TLSv1.2", cipher), (iana, "", iana)] {
        let mut config = config(env, mysql, 1)?;
        let capath = right.display().to_string();
        params(
            &mut config,
            mysql,
            &[("ssl_capath", &capath), ("ssl_cipher", ciphers), ("tls_version", versions)],
        );
        let weir = env.weir_with(&config)?;
        let rows = Session::open(weir.addr(), "test")?.rows("SHOW STATUS LIKE 'Ssl_cipher'")?;
        ensure!(rows == [["Ssl_cipher", wanted]], "{ciphers}: {rows:?}");
    }
    let mut config = config(env, mysql, 1)?;
    params(&mut config, mysql, &[("ssl_capath", &wrong.display().to_string())]);
    config.variable("connect_timeout_server_max", 1500);
    let message = refusal(&env.weir_with(&config)?)?;
    ensure!(message.contains("certificate"), "{message}");
    Ok(())
}

fn client_certificate(env: &Env) -> CaseResult {
    let mysql = env.mysql()?;
    let user = Account { user: "with_certificate", password: "with_certificate" };
    let sql = format!(
        "CREATE USER {0}@'%' IDENTIFIED BY '{0}' REQUIRE X509; GRANT ALL ON test.* TO {0}@'%'",
        user.user
    );
    mysql.source().root_query(&sql)?;
    let open = |weir: &Weir| Session::with(weir.addr(), &weir_testkit::wire::Login::new(user));
    let mut without = config(env, mysql, 1)?;
    without.user(user, hostgroup::WRITER, &[]);
    let mut with = without.clone();
    let refused = open(&env.weir_with(&without)?)?.refused("SELECT 1", 1045)?;
    ensure!(refused.contains("Access denied"), "{refused}");
    // The server has made one for clients, too.
    let ca = mysql.source().ca_path();
    let dir = ca.parent().unwrap_or(Path::new("/"));
    let [cert, key] = ["client-cert.pem", "client-key.pem"].map(|name| dir.join(name).display().to_string());
    params(&mut with, mysql, &[("ssl_cert", &cert), ("ssl_key", &key)]);
    let name = open(&env.weir_with(&with)?)?.value("SELECT CURRENT_USER()")?;
    ensure!(name == "with_certificate@%", "{name}");
    Ok(())
}

fn reload(env: &Env) -> CaseResult {
    let mysql = env.mysql()?;
    let plain = config(env, mysql, 0)?;
    let weir = env.weir_with(&plain)?;
    let mut session = Session::open(weir.addr(), "test")?;
    session.run("SET @mine = 7")?;
    ensure!(ssl_version(&weir)?.is_empty(), "encrypted although use_ssl is 0");
    let mut encrypted = plain.clone();
    encrypted.document_mut().remove("mysql_servers");
    encrypted.server(mysql.source().addr(), hostgroup::WRITER, &[("use_ssl", 1.into())]);
    weir.reload(&encrypted)?;
    weir.wait_log("configuration applied", PATIENCE)?;
    // What was idle is not used any more; who has state on a connection keeps it.
    eventually("connections are encrypted", PATIENCE, || Ok(ssl_version(&weir)? == "TLSv1.3"))?;
    ensure!(session.value("SELECT @mine")? == "7", "the session has lost its state");
    // A file that is not there: nothing changes.
    encrypted.variable("ssl_p2s_ca", "/nonexistent/ca.pem");
    weir.reload(&encrypted)?;
    weir.wait_log("configuration rejected", PATIENCE)?;
    ensure!(weir.log().contains("/nonexistent/ca.pem: No such file"), "{}", weir.log());
    ensure!(ssl_version(&weir)? == "TLSv1.3", "it did change something");
    Ok(())
}

fn no_tls(env: &Env) -> CaseResult {
    let cluster = env.cluster()?;
    let mut config = WeirConfig::new(env.free_address()?);
    config.server(cluster.node(1).addr(), hostgroup::WRITER, &[("use_ssl", 1.into())]);
    config.user(Account::APP, hostgroup::WRITER, &[]);
    config.variable("connect_timeout_server_max", 1500);
    let message = refusal(&env.weir_with(&config)?)?;
    ensure!(message.contains("offers no TLS"), "{message}");
    Ok(())
}

fn full_authentication(env: &Env) -> CaseResult {
    let mysql = env.mysql()?;
    for (use_ssl, name) in [(0, "never_seen_before"), (1, "never_seen_before_either")] {
        let sql = format!("CREATE USER {name}@'%' IDENTIFIED BY '{name}'; GRANT ALL ON test.* TO {name}@'%'");
        mysql.source().root_query(&sql)?;
        let user = Account { user: name, password: name };
        let mut config = config(env, mysql, use_ssl)?;
        config.user(user, hostgroup::WRITER, &[]);
        let weir = env.weir_with(&config)?;
        let mut session = Session::with(weir.addr(), &weir_testkit::wire::Login::new(user))?;
        let who = session.value("SELECT CURRENT_USER()")?;
        ensure!(who == format!("{name}@%"), "{who}");
    }
    // The monitor's account, too.
    let sql = "CREATE USER fresh_monitor@'%' IDENTIFIED BY 'fresh_monitor'";
    mysql.source().root_query(sql)?;
    let mut config = config(env, mysql, 0)?;
    config.variable("monitor_username", "fresh_monitor").variable("monitor_password", "fresh_monitor");
    let weir = env.weir_with(&config)?;
    Session::open(weir.addr(), "test")?.value("SELECT 1")?;
    ensure!(!weir.log().contains("can't log in"), "{}", weir.log());
    Ok(())
}

fn ed25519(env: &Env) -> CaseResult {
    let cluster = env.cluster()?;
    for node in cluster.nodes() {
        node.root_query("INSTALL SONAME 'auth_ed25519'")?;
    }
    let sql = "CREATE USER signer@'%' IDENTIFIED VIA ed25519 USING PASSWORD('signer'); \
               GRANT ALL ON test.* TO signer@'%'; CREATE USER watcher@'%' IDENTIFIED VIA ed25519 USING PASSWORD('watcher')";
    cluster.node(1).root_query(sql)?;
    for node in cluster.nodes() {
        node.root_query("SET wsrep_sync_wait = 1; SELECT COUNT(*) FROM mysql.global_priv")?;
    }
    let signer = Account { user: "signer", password: "signer" };
    let weir = env.weir(|config| {
        config.user(signer, hostgroup::WRITER, &[]);
        config.variable("monitor_username", "watcher").variable("monitor_password", "watcher");
    })?;
    let login = weir_testkit::wire::Login::new(signer);
    let mut sessions: Vec<Session> =
        (0..4).map(|_| Session::with(weir.addr(), &login)).collect::<Result<_, _>>()?;
    for session in &mut sessions {
        session.run("SET @pinned = 1")?;
        let who = session.value("SELECT CURRENT_USER()")?;
        ensure!(who == "signer@%", "{who}");
    }
    // A connection of another user's is handed over to it, and back.
    for _ in 0..4 {
        Session::open(weir.addr(), "test")?.value("SELECT 1")?;
        Session::with(weir.addr(), &login)?.value("SELECT 1")?;
    }
    Ok(())
}

fn version_1(env: &Env) -> CaseResult {
    let mysql = env.mysql()?;
    let dir = mysql.dir().join("version-1");
    std::fs::create_dir_all(&dir)?;
    let (cert, key) = (dir.join("cert.pem"), dir.join("key.pem"));
    std::fs::write(&cert, V1_CERT)?;
    std::fs::write(&key, V1_KEY)?;
    let before = mysql.source().root_query("SELECT @@ssl_cert, @@ssl_key")?;
    let set = |cert: &str, key: &str| {
        format!("SET GLOBAL ssl_cert = '{cert}', ssl_key = '{key}'; ALTER INSTANCE RELOAD TLS")
    };
    mysql.source().root_query(&set(&cert.display().to_string(), &key.display().to_string()))?;
    let result = encrypted_with_v1(env, mysql, &cert);
    if let Some([cert, key]) = before.first().map(Vec::as_slice) {
        mysql.source().root_query(&set(cert, key))?;
    }
    result
}

/// What is verified is the name in the configuration, whatever address it means; by sessions and by the monitor.
fn identity(env: &Env) -> CaseResult {
    let mysql = env.mysql()?;
    let Some(resolver) = OwnResolver::new(env.dir()?, "identity")? else { return Ok(()) };
    let addr = mysql.source().addr();
    resolver.set(&[("db.weir.test", IpAddr::V4(*addr.ip())), ("other.weir.test", IpAddr::V4(*addr.ip()))])?;
    let dir = mysql.dir().join("identity");
    std::fs::create_dir_all(&dir)?;
    let path = |name: &str| dir.join(name).display().to_string();
    let authority_key = rcgen::KeyPair::generate()?;
    let mut params = rcgen::CertificateParams::new(Vec::new())?;
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    std::fs::write(path("ca.pem"), params.self_signed(&authority_key)?.pem())?;
    let authority = rcgen::Issuer::new(params, authority_key);
    let key = rcgen::KeyPair::generate()?;
    let cert = rcgen::CertificateParams::new(vec!["db.weir.test".to_owned()])?.signed_by(&key, &authority)?;
    std::fs::write(path("cert.pem"), cert.pem())?;
    std::fs::write(path("key.pem"), key.serialize_pem())?;
    let before = mysql.source().root_query("SELECT @@ssl_cert, @@ssl_key")?;
    let set = |cert: &str, key: &str| {
        format!("SET GLOBAL ssl_cert = '{cert}', ssl_key = '{key}'; ALTER INSTANCE RELOAD TLS")
    };
    mysql.source().root_query(&set(&path("cert.pem"), &path("key.pem")))?;
    let result = identity_verified(env, &resolver, addr.port(), &path("ca.pem"));
    if let Some([cert, key]) = before.first().map(Vec::as_slice) {
        mysql.source().root_query(&set(cert, key))?;
    }
    result
}

fn identity_verified(env: &Env, resolver: &OwnResolver, port: u16, ca: &str) -> CaseResult {
    for (host, is_right) in [("db.weir.test", true), ("other.weir.test", false)] {
        let mut config = WeirConfig::new(env.free_address()?);
        let server = [
            ("hostgroup_id", hostgroup::WRITER.into()),
            ("hostname", host.into()),
            ("port", i64::from(port).into()),
            ("use_ssl", 1.into()),
        ];
        config.push("mysql_servers", &server);
        config.user(Account::APP, hostgroup::WRITER, &[]);
        config.monitor(Account::MONITOR);
        config.variable("ssl_p2s_ca", ca).variable("ssl_p2s_verify_identity", true);
        config.variable("connect_timeout_server_max", 1500);
        let weir = Weir::start_with_resolver(resolver, &weir_binary()?, &config, env.dir()?, host)?;
        if is_right {
            ensure!(ssl_version(&weir)? == "TLSv1.3", "{}", weir.log());
            continue;
        }
        let message = refusal(&weir)?;
        ensure!(message.contains("not valid for name \"other.weir.test\""), "{message}");
        eventually("the monitor refuses it, too", PATIENCE, || {
            let log = weir.log();
            let mut lines = log.lines().filter(|line| line.contains("weir_monitor::topology_thread"));
            Ok(lines.any(|line| line.contains("not valid for name") && line.contains("SHUNNED")))
        })?;
    }
    Ok(())
}

fn encrypted_with_v1(env: &Env, mysql: &Mysql, cert: &Path) -> CaseResult {
    let unverified = env.weir_with(&config(env, mysql, 1)?)?;
    ensure!(ssl_version(&unverified)? == "TLSv1.3", "{}", unverified.log());
    // Such a certificate can't be verified, not even with itself as the authority.
    let mut config = config(env, mysql, 1)?;
    params(&mut config, mysql, &[("ssl_ca", &cert.display().to_string())]);
    config.variable("connect_timeout_server_max", 1500);
    let message = refusal(&env.weir_with(&config)?)?;
    ensure!(message.contains("certificate"), "{message}");
    Ok(())
}
