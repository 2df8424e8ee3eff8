//! Makes the guide's lists of commands from the commands, and holds its limits against the constants.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::fixed::{MODULES, PROXY, Proxy, WAYS};
use crate::limits::{
    CONNECTIONS_MAX, IDLE_TIMEOUT, LOGINS_MAX, PACKET_BYTES_MAX, PATTERN_BYTES_MAX, PREPARED_MAX,
    RESULTS_BYTES_MAX, SQLITE_BYTES_MAX, STATEMENT_TIMEOUT, VALUE_BYTES_MAX,
};
use crate::login::LOGIN_TIMEOUT;

fn path(page: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide").join(page)
}

/// Compares the text between two marks of the page with the generated one; writes it with WEIR_BLESS.
fn check(name: &str, made: &str) {
    // Both lists are parts of one file: written at once, one of them would be lost.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let path = path("admin-commands.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let begin = format!("<!-- {name}: made by `WEIR_BLESS=1 cargo test -p weir-admin command::guide` -->\n");
    let (before, rest) = page.split_once(&begin).unwrap_or_else(|| panic!("{begin} is not there"));
    let (there, after) = rest.split_once("<!-- end -->").expect("an end");
    if std::env::var_os("WEIR_BLESS").is_some() {
        return std::fs::write(path, format!("{before}{begin}{made}<!-- end -->{after}")).unwrap();
    }
    assert_eq!(there, made, "docs/guide/admin-commands.md: write it with WEIR_BLESS=1");
}

fn effect(proxy: Proxy) -> &'static str {
    match proxy {
        Proxy::Pause => "accepts no new clients; connected clients stay",
        Proxy::Resume => "accepts new clients again",
        Proxy::ReadOnly => "forbids changes of tables",
        Proxy::ReadWrite => "allows changes of tables",
        Proxy::Shutdown => "ends Weir like SIGTERM: transactions end first",
        Proxy::Kill => "ends Weir at once",
        Proxy::Restart => {
            "is refused: [`weir serve --takeover`](upgrade.md) restarts without refusing a connection"
        }
        Proxy::FlushLogs => "starts the next log files",
        Proxy::FlushQueryCache => "does nothing: Weir caches no results",
        Proxy::FlushConfigDb => "compacts the database",
        Proxy::ReloadTls => "reads certificate and key again",
    }
}

/// One after the other: both may write the page.
#[test]
fn the_guide_lists_the_commands() {
    check("load-save", &load_and_save());
    check("proxysql", &of_the_proxy());
}

fn load_and_save() -> String {
    let mut made = "| command | copies |\n| --- | --- |\n".to_owned();
    let mut ways = WAYS.to_vec();
    ways.dedup_by_key(|(words, from, to)| (words.split(' ').next(), *from, *to));
    for (_, from, to) in ways {
        let same = WAYS.iter().filter(|(_, one, other)| (*one, *other) == (from, to));
        let spellings: Vec<String> =
            same.map(|(words, ..)| format!("`{}`", words.replace("{}", "x"))).collect();
        let (from, to) = (format!("{from:?}").to_lowercase(), format!("{to:?}").to_lowercase());
        let _ = writeln!(made, "| {} | {from} to {to} |", spellings.join(", "));
    }
    let modules: Vec<&str> = MODULES.iter().map(|(words, _)| *words).collect();
    let _ = writeln!(made, "\nx is one of {}.", modules.join(", "));
    made
}

fn of_the_proxy() -> String {
    let mut made = "| command | effect |\n| --- | --- |\n".to_owned();
    let mut told: Vec<Proxy> = Vec::new();
    for (_, proxy) in PROXY {
        if told.contains(proxy) {
            continue;
        }
        told.push(*proxy);
        let same = PROXY.iter().filter(|(_, other)| other == proxy);
        let spellings: Vec<String> = same.map(|(words, _)| format!("`{words}`")).collect();
        let _ = writeln!(made, "| {} | {} |", spellings.join(", "), effect(*proxy));
    }
    made
}

#[test]
fn the_guide_tells_the_limits() {
    let page = std::fs::read_to_string(path("admin.md")).unwrap();
    let (_, limits) = page.split_once("\n## Limits\n").expect("a section");
    let limits = limits.split("\n## ").next().unwrap_or_default().replace('\n', " ");
    for told in [
        format!("{CONNECTIONS_MAX} connections"),
        format!("{LOGINS_MAX} that have not logged in, {} s each", LOGIN_TIMEOUT.as_secs()),
        format!("{} MiB for a statement", PACKET_BYTES_MAX >> 20),
        format!("{} s of work for one", STATEMENT_TIMEOUT.as_secs()),
        format!("{} MiB for a value", VALUE_BYTES_MAX >> 20),
        format!("{PATTERN_BYTES_MAX} bytes for a pattern of LIKE"),
        format!("{} MiB for all results together", RESULTS_BYTES_MAX >> 20),
        format!("{} GiB for SQLite in all", SQLITE_BYTES_MAX >> 30),
        format!("{PREPARED_MAX} prepared statements per connection"),
        format!("{} h idle", IDLE_TIMEOUT.as_secs() / 3600),
    ] {
        assert!(limits.contains(&told), "docs/guide/admin.md: {told}");
    }
}
