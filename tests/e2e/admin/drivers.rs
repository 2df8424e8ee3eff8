//! Real drivers at the admin port: `tests/drivers/admin/content.py` with each of them.

use std::process::Command;

use weir_testkit::cache_dir;
use weir_tests::{CaseResult, Env, ensure};

/// Every Python driver connects, asks what it asks a server, and works with tables, text and prepared statements.
pub(super) fn content(env: &Env) -> CaseResult {
    let interpreter = cache_dir()?.join("python-drivers/bin/python");
    let script = "scripts/get-python-drivers";
    ensure!(interpreter.is_file(), "there is no {}: run {script}", interpreter.display());
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/drivers/admin/content.py");
    let (_weir, admin) = super::start(env, |_| {})?;
    for driver in ["pymysql", "mysql-connector-pure", "mysql-connector-c", "mysqlclient"] {
        let mut command = Command::new(&interpreter);
        command.args(["-B", program, driver]);
        command.arg(admin.addr.ip().to_string()).arg(admin.addr.port().to_string());
        let output = command.output()?;
        ensure!(
            output.status.success(),
            "{driver}: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}
