//! mysqld_exporter at the admin port, as those have it who scrape ProxySQL with what scrapes their servers.

use std::io::{Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use weir_testkit::Process;
use weir_tests::{CaseResult, Env, Session, ensure, eventually};

use super::PATIENCE;

/// With the collectors that it has by default.
pub(super) fn scraped(env: &Env) -> CaseResult {
    let (weir, admin) = super::start(env, |_| {})?;
    let mut session = Session::open(weir.addr(), "test")?;
    session.value("SELECT 1")?;
    let options = weir.datadir().join("exporter.cnf");
    let (ip, port) = (admin.addr.ip(), admin.addr.port());
    std::fs::write(&options, format!("[client]\nuser=stats\npassword=stats\nhost={ip}\nport={port}\n"))?;
    let at = env.free_address()?;
    let mut command = Command::new("prometheus-mysqld-exporter");
    command.arg(format!("--config.my-cnf={}", options.display())).arg(format!("--web.listen-address={at}"));
    command.stderr(Stdio::null());
    let _exporter = Process::spawn("mysqld_exporter", &mut command)?;
    eventually("the exporter answers", PATIENCE, || Ok(TcpStream::connect(at).is_ok()))?;
    let text = get(at)?;
    let number = |name: &str| -> Option<f64> {
        let line =
            text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')))?;
        line.rsplit(' ').next()?.parse().ok()
    };
    ensure!(number("mysql_up") == Some(1.0), "{text}");
    ensure!(number("mysql_exporter_last_scrape_error") == Some(0.0), "{text}");
    // By the version, which is ProxySQL's, it takes this for a server too old for its collectors. What they would ask:
    let status = admin.run("SHOW GLOBAL STATUS")?;
    ensure!(status.iter().any(|row| row == "Client_Connections_connected\t1"), "{status:?}");
    ensure!(
        admin.run("SHOW GLOBAL VARIABLES")?.iter().any(|row| row.starts_with("mysql-threads\t")),
        "variables"
    );
    ensure!(admin.run("SHOW SLAVE STATUS")?.is_empty(), "it replicates from nobody");
    Ok(())
}

fn get(at: SocketAddrV4) -> Result<String, Box<dyn std::error::Error>> {
    let mut stream = TcpStream::connect(at)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    write!(stream, "GET /metrics HTTP/1.0\r\nHost: exporter\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
