//! Checks programs that are run, and other proxies.

use std::time::Duration;

use super::*;

#[test]
fn faults_of_jobs_and_proxies() {
    let start = "[[scheduler]]\nfilename = \"/bin/true\"\ninterval_ms = 1000\n";
    for (line, message) in [
        ("id = -1", "id: -1 is out of range (0..2147483647)"),
        ("active = 2", "active: 2 is neither true nor false"),
        ("arg1 = 5", "arg1: 5 is not a string"),
        ("arg3 = \"x\"", "arg3: is not passed on: arg1 is missing"),
        ("arg6 = \"x\"", "arg6: unknown key, did you mean \"arg1\"?"),
    ] {
        assert_fault(start, line, &format!("scheduler[0].{message}"));
    }
    assert_fault(
        "[[scheduler]]\ninterval_ms = 1000\n",
        "filename = \"check.sh\"",
        "scheduler[0].filename: is not an absolute path",
    );
    assert_fault(
        "[[scheduler]]\nfilename = \"/bin/true\"\n",
        "interval_ms = 99",
        "scheduler[0].interval_ms: 99 is out of range (100..100000000)",
    );
    assert_eq!(
        messages(&format!("{start}id = 3\n{start}id = 3\n")),
        ["weir.toml:5: scheduler[1].id: 3 is already there (line 1)"]
    );
    assert_eq!(
        messages("[[proxysql_servers]]\nhostname = \"p1\"\nport = 0\n"),
        ["weir.toml:3: proxysql_servers[0].port: 0 is not a port (1..65535)"]
    );
    let proxy = "[[proxysql_servers]]\nhostname = \"p1\"\n";
    assert_eq!(
        messages(&format!("{proxy}{proxy}")),
        ["weir.toml:3: proxysql_servers[1]: p1:6032 is already there (line 1)"]
    );
}

#[test]
fn jobs_and_proxies() {
    let text = "[[scheduler]]\nfilename = \"/bin/check\"\ninterval_ms = 2500\narg1 = \"-x\"\narg2 = \"\"\n\
                [[proxysql_servers]]\nhostname = \"p1\"\nweight = 5\n";
    let config = parse(text, "weir.toml").unwrap();
    assert_eq!(config.admin.scheduler_timeout_ms, Duration::from_secs(60));
    let [job] = config.scheduler.as_slice() else { panic!("one job") };
    assert_eq!((job.id, job.active, job.interval), (1, true, Duration::from_millis(2500)));
    assert_eq!(
        (job.filename.to_str(), job.arguments.as_slice()),
        (Some("/bin/check"), ["-x", ""].map(String::from).as_slice())
    );
    let [proxy] = config.proxysql_servers.as_slice() else { panic!("one proxy") };
    assert_eq!((proxy.endpoint.to_string().as_str(), proxy.weight), ("p1:6032", 5));
}

#[test]
fn accounts_of_the_admin_interface() {
    let text = "[admin_variables]\nadmin_credentials = \"admin:admin; radmin:a:b\"\nmysql_ifaces = \"\"\n";
    let admin = parse(text, "weir.toml").unwrap().admin;
    let [default, own] = admin.admin_credentials.as_slice() else { panic!("two accounts") };
    assert!(default.is_default() && !own.is_default());
    assert_eq!((own.username.as_str(), own.password.expose()), ("radmin", "a:b"));
    assert!(admin.mysql_ifaces.is_empty());
    assert!(!format!("{admin:?}").contains("a:b"));
}
