//! Lists commands that are a fixed sequence of words: one table of all spellings.

use std::collections::HashMap;
use std::sync::LazyLock;

use weir_store::Module;

use super::{Move, Place};
use crate::tokens::{Kind, Token};

/// A command without arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fixed {
    /// LOAD and SAVE.
    Move(Move),
    Proxy(Proxy),
    Checksum(Checksum),
    /// SELECT CONFIG FILE
    ConfigFile,
}

/// `PROXYSQL ...`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Proxy {
    Pause,
    Resume,
    ReadOnly,
    ReadWrite,
    Shutdown,
    Kill,
    Restart,
    FlushLogs,
    FlushQueryCache,
    FlushConfigDb,
    ReloadTls,
}

/// `CHECKSUM ...`: of which table, where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Checksum {
    pub table: &'static str,
    /// Else in memory.
    pub on_disk: bool,
}

pub(super) const MODULES: &[(&str, Module)] = &[
    ("MYSQL SERVERS", Module::MysqlServers),
    ("MYSQL USERS", Module::MysqlUsers),
    ("MYSQL QUERY RULES", Module::MysqlQueryRules),
    ("MYSQL VARIABLES", Module::MysqlVariables),
    ("MYSQL FIREWALL", Module::MysqlFirewall),
    ("ADMIN VARIABLES", Module::AdminVariables),
    ("SCHEDULER", Module::Scheduler),
    ("PROXYSQL SERVERS", Module::ProxysqlServers),
    ("RESTAPI", Module::Restapi),
];

/// Which way LOAD and SAVE go, by the place that is named.
pub(super) const WAYS: &[(&str, Place, Place)] = &[
    ("LOAD {} TO RUNTIME", Place::Memory, Place::Runtime),
    ("LOAD {} TO RUN", Place::Memory, Place::Runtime),
    ("LOAD {} FROM MEMORY", Place::Memory, Place::Runtime),
    ("LOAD {} FROM MEM", Place::Memory, Place::Runtime),
    ("LOAD {} TO MEMORY", Place::Disk, Place::Memory),
    ("LOAD {} TO MEM", Place::Disk, Place::Memory),
    ("LOAD {} FROM DISK", Place::Disk, Place::Memory),
    ("LOAD {} FROM CONFIG", Place::File, Place::Memory),
    ("SAVE {} TO MEMORY", Place::Runtime, Place::Memory),
    ("SAVE {} TO MEM", Place::Runtime, Place::Memory),
    ("SAVE {} FROM RUNTIME", Place::Runtime, Place::Memory),
    ("SAVE {} FROM RUN", Place::Runtime, Place::Memory),
    ("SAVE {} TO DISK", Place::Memory, Place::Disk),
    ("SAVE {} FROM MEMORY", Place::Memory, Place::Disk),
    ("SAVE {} FROM MEM", Place::Memory, Place::Disk),
];

pub(super) const PROXY: &[(&str, Proxy)] = &[
    ("PROXYSQL PAUSE", Proxy::Pause),
    ("PROXYSQL RESUME", Proxy::Resume),
    // In Weir the data port stops and starts without its sessions: that is what PAUSE and RESUME are.
    ("PROXYSQL STOP", Proxy::Pause),
    ("PROXYSQL START", Proxy::Resume),
    ("PROXYSQL READONLY", Proxy::ReadOnly),
    ("PROXYSQL READWRITE", Proxy::ReadWrite),
    ("PROXYSQL SHUTDOWN", Proxy::Shutdown),
    ("PROXYSQL SHUTDOWN SLOW", Proxy::Shutdown),
    ("PROXYSQL KILL", Proxy::Kill),
    ("PROXYSQL RESTART", Proxy::Restart),
    ("PROXYSQL FLUSH LOGS", Proxy::FlushLogs),
    ("PROXYSQL FLUSH QUERY CACHE", Proxy::FlushQueryCache),
    ("PROXYSQL FLUSH CONFIGDB", Proxy::FlushConfigDb),
    ("PROXYSQL RELOAD TLS", Proxy::ReloadTls),
];

const CHECKSUMS: &[(&str, &str)] = &[
    ("MYSQL SERVERS", "mysql_servers"),
    ("MYSQL USERS", "mysql_users"),
    ("MYSQL QUERY RULES", "mysql_query_rules"),
    ("MYSQL VARIABLES", "global_variables"),
    ("MYSQL REPLICATION HOSTGROUPS", "mysql_replication_hostgroups"),
    ("MYSQL GROUP REPLICATION HOSTGROUPS", "mysql_group_replication_hostgroups"),
    ("MYSQL GALERA HOSTGROUPS", "mysql_galera_hostgroups"),
    ("MYSQL AURORA HOSTGROUPS", "mysql_aws_aurora_hostgroups"),
];

static TABLE: LazyLock<HashMap<String, Fixed>> = LazyLock::new(|| {
    let mut table = HashMap::new();
    for (name, module) in MODULES {
        for (way, from, to) in WAYS {
            let fixed = Fixed::Move(Move { module: *module, from: *from, to: *to });
            table.insert(way.replace("{}", name), fixed);
        }
    }
    for (words, proxy) in PROXY {
        table.insert((*words).to_owned(), Fixed::Proxy(*proxy));
    }
    for (words, name) in CHECKSUMS {
        for (layer, on_disk) in [("", false), ("MEMORY ", false), ("MEM ", false), ("DISK ", true)] {
            let fixed = Fixed::Checksum(Checksum { table: name, on_disk });
            table.insert(format!("CHECKSUM {layer}{words}"), fixed);
        }
    }
    table.insert("SELECT CONFIG FILE".to_owned(), Fixed::ConfigFile);
    table
});

/// Words of the longest spelling.
const WORDS_MAX: usize = 7;

/// The command that exactly these words are.
pub(super) fn find(tokens: &[Token<'_>]) -> Option<Fixed> {
    if tokens.len() > WORDS_MAX || tokens.iter().any(|token| token.kind != Kind::Word) {
        return None;
    }
    let words: Vec<_> = tokens.iter().map(|token| token.source.to_ascii_uppercase()).collect();
    TABLE.get(&words.join(" ")).copied()
}

/// All spellings, in an order that does not change.
pub(super) fn spellings() -> impl Iterator<Item = &'static str> {
    let mut all: Vec<&'static str> = TABLE.keys().map(String::as_str).collect();
    all.sort_unstable();
    all.into_iter()
}
