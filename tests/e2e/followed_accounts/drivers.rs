//! Each driver's login as each kind of account ends through Weir as it does straight at the server, with TLS and without.

use std::error::Error;
use std::fs;
use std::net::SocketAddrV4;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use weir_testkit::{Family, cache_dir};
use weir_tests::{CaseResult, Env, ensure, eventually};

use super::{Stage, caller, outcome};
use crate::drivers::{drivers_dir, run_with};

/// Plugin by plugin; MySQL 9 has no mysql_native_password.
const ACCOUNTS: &str = "CREATE USER plain@'%' IDENTIFIED BY 'secret'; CREATE USER blank@'%' IDENTIFIED BY ''; \
    CREATE USER locked@'%' IDENTIFIED BY 'secret' ACCOUNT LOCK; CREATE USER far@'10.9.8.%' IDENTIFIED BY 'secret'; \
    CREATE USER certified@'%' IDENTIFIED BY 'secret' REQUIRE X509; \
    CREATE USER expired@'%' IDENTIFIED BY 'secret' PASSWORD EXPIRE;";
/// As logins.py reads them: right, wrong and no passwords, and somebody who is not there.
const LOGINS: &str = "plain secret\nplain wrong\nplain -\nblank -\nblank secret\nlocked secret\nlocked wrong\n\
    far secret\ncertified secret\nnobody secret\nplain secret\n";

pub(super) fn same_answers(env: &Env, family: Family) -> CaseResult {
    let stage = Stage::new(env, family, ACCOUNTS, |config, _| {
        if family == Family::Mysql {
            config.server_column("use_ssl", 1);
        }
    })?;
    eventually("the accounts are there", Duration::from_secs(10), || {
        Ok(outcome(stage.weir.addr(), &caller("blank", ""))?.starts_with("OK"))
    })?;
    let server = stage.servers.source();
    let own = stage.weir.datadir().join("weir-cert.pem");
    let through = logins(env, family, stage.weir.addr(), &own)?;
    let straight = logins(env, family, server.addr(), &server.ca_path())?;
    ensure!(through.len() == straight.len() && through.len() > 80, "{through:#?}");
    let mut differences = Vec::new();
    for (through, straight) in through.iter().zip(&straight) {
        // MariaDB 10.11 has no TLS before it gets a certificate: with it a login ends as without.
        let has_tls = family == Family::Mysql || !straight.contains(" tls ");
        // Who is not there is asked for any plugin, which a driver may lack: then it tells its own error.
        let is_refused = |line: &str| line.ends_with(" 1045") || is_drivers_own(line);
        let is_same = through == straight || (is_refused(through) && is_refused(straight));
        if has_tls && !is_same {
            differences.push(format!("{through} instead of {straight}"));
        }
    }
    ensure!(differences.is_empty(), "{}", differences.join("\n"));
    let is_in = through.iter().filter(|line| line.ends_with("plain@%") && line.contains(" tls ")).count();
    ensure!(is_in == 8, "every driver logs in twice over TLS: {through:#?}");
    Ok(())
}

/// Whether the driver has given up by itself: with the name of an exception, or a number that no server uses.
fn is_drivers_own(line: &str) -> bool {
    let told = line.rsplit(' ').next().unwrap_or_default();
    told.ends_with("Error") || told.parse().is_ok_and(|number: u32| (2000..3000).contains(&number))
}

/// What logins.py prints, a line each.
fn logins(env: &Env, family: Family, at: SocketAddrV4, ca: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let dir = env.dir()?;
    let (input, output) = (dir.join("logins.txt"), dir.join(format!("logins-{}.log", at.port())));
    fs::write(&input, LOGINS)?;
    let mut command = Command::new(cache_dir()?.join("python-drivers/bin/python"));
    command.arg("-B").arg(drivers_dir().join("python/logins.py"));
    command
        .env("WEIR_HOST", at.ip().to_string())
        .env("WEIR_PORT", at.port().to_string())
        .env("WEIR_CA", ca)
        .env("WEIR_SERVER", if family == Family::Mysql { "mysql" } else { "mariadb" });
    run_with(command, Stdio::from(fs::File::open(&input)?), &output)?;
    Ok(fs::read_to_string(&output)?.lines().map(str::to_owned).collect())
}
