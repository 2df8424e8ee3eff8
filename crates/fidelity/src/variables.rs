//! Finds every variable of a session, as the server lists them, each with another valid value: found by trying.

use std::collections::BTreeSet;
use std::net::SocketAddrV4;

use weir_lab::Error;
use weir_testkit::Family;

use crate::client::{Client, Heard, Who};
use crate::names::Names;
use crate::state::Setting;

/// What the server has.
#[derive(Debug, Clone, Default)]
pub(crate) struct Variables {
    /// Those that a look reads, in its order.
    pub(crate) read: Vec<String>,
    /// Those that two new connections show differently.
    pub(crate) volatile: BTreeSet<String>,
    /// Those that can be set, each with another value than its own.
    pub(crate) settings: Vec<Setting>,
    /// Those that no value was found for, most of them because they can't be set at all.
    pub(crate) unsettable: Vec<String>,
}

/// They tell what the last statement did, or what the next read of them makes of them: states have looks of their own
/// for them.
const NOT_READ: [&str; 6] =
    ["error_count", "warning_count", "last_insert_id", "identity", "last_gtid", "statement_id"];

/// Values for variables that would take too many guesses, or that must be told from what comes by itself.
const CHOSEN: [(&str, &str); 20] = [
    ("max_session_mem_used", "1000000000"),
    ("insert_id", "900000001"),
    ("last_insert_id", "900004242"),
    ("identity", "900004242"),
    ("timestamp", "1000000000"),
    ("pseudo_thread_id", "4242"),
    ("rand_seed1", "77"),
    ("rand_seed2", "77"),
    ("time_zone", "'+07:00'"),
    ("sql_mode", "'NO_ZERO_DATE'"),
    ("old_mode", "''"),
    ("max_statement_time", "1000"),
    ("gtid_seq_no", "900000"),
    ("use_secondary_engine", "'OFF'"),
    ("sql_warnings", "1"),
    ("block_encryption_mode", "'aes-256-cbc'"),
    ("default_collation_for_utf8mb4", "'utf8mb4_general_ci'"),
    ("myisam_stats_method", "'nulls_equal'"),
    ("rbr_exec_mode", "'IDEMPOTENT'"),
    ("updatable_views_with_limit", "'NO'"),
];
/// Shown as a variable of the session, but all sessions have the same: it is the default master's.
const NOT_OF_SESSION: [&str; 2] = ["max_relay_log_size", "sql_slave_skip_counter"];
/// Their values can't be read back.
const WRITE_ONLY: [&str; 2] = ["rand_seed1", "rand_seed2"];

/// What texts may be good for some variable.
const WORDS: [&str; 40] = [
    "latin1",
    "latin1_bin",
    "utf8mb4_bin",
    "de_DE",
    "+07:00",
    "READ-COMMITTED",
    "MyISAM",
    "MEMORY",
    "InnoDB",
    "TempTable",
    "ON",
    "OFF",
    "1",
    "2",
    "STATEMENT",
    "MIXED",
    "MINIMAL",
    "CHARACTERISTICS",
    "STATE",
    "OWN_GTID",
    "time_zone",
    "time_zone,autocommit",
    "JSON",
    "TREE",
    "CHAIN",
    "FORCE",
    "NONE",
    "FULL",
    "PARTIAL_JSON",
    "BEFORE_8_0_26",
    "BEFORE",
    "AUTOMATIC",
    "index_merge=off",
    "2020-01-01 00:00:00",
    "<s>/stopwords",
    "/tmp",
    "fid",
    "NO_ENGINE_SUBSTITUTION",
    "DDL",
    "utf8mb4",
];

/// A variable as the server describes it; MySQL tells its name only.
#[derive(Debug, Default)]
struct Described {
    name: String,
    is_number: bool,
    value: String,
    min: String,
    max: String,
    block: i128,
    words: Vec<String>,
}

/// Asks the server, as an account that may set everything.
pub(crate) fn discover(
    server: SocketAddrV4,
    family: Family,
    who: &Who,
    names: &Names,
) -> Result<Variables, Error> {
    let schema = names.schema('a');
    let mut client = Client::open(server, who, &schema)?;
    let described = match family {
        Family::Mariadb => described_by_mariadb(&mut client)?,
        Family::Mysql => described_by_mysql(&mut client)?,
    };
    let mut found = Variables {
        read: described.iter().map(|d| d.name.clone()).filter(|n| !NOT_READ.contains(&n.as_str())).collect(),
        ..Variables::default()
    };
    found.volatile = volatile(server, who, &schema, &found.read)?;
    found.read.retain(|name| !NOT_OF_SESSION.contains(&name.as_str()));
    for one in described.into_iter().filter(|one| !NOT_OF_SESSION.contains(&one.name.as_str())) {
        client.quit();
        client = Client::open(server, who, &schema)?;
        match setting(&mut client, &one, names) {
            Some(setting) => found.settings.push(setting),
            None => found.unsettable.push(one.name),
        }
    }
    client.quit();
    Ok(found)
}

fn described_by_mariadb(client: &mut Client) -> Result<Vec<Described>, Error> {
    let sql = "SELECT LOWER(VARIABLE_NAME), VARIABLE_TYPE, SESSION_VALUE, NUMERIC_MIN_VALUE, NUMERIC_MAX_VALUE, \
               NUMERIC_BLOCK_SIZE, ENUM_VALUE_LIST FROM information_schema.SYSTEM_VARIABLES \
               WHERE VARIABLE_SCOPE LIKE 'SESSION%' ORDER BY VARIABLE_NAME";
    let described = |row: Vec<String>| {
        let [name, kind, value, min, max, block, words] = <[String; 7]>::try_from(row).ok()?;
        Some(Described {
            name,
            is_number: kind.contains("INT") || kind == "DOUBLE",
            value,
            min,
            max,
            block: block.parse().unwrap_or(1),
            words: words.split(',').filter(|word| *word != "NULL").map(str::to_owned).collect(),
        })
    };
    Ok(rows(client, sql)?.into_iter().filter_map(described).collect())
}

/// SHOW VARIABLES shows all of them: those of the session are those that can be read as such.
fn described_by_mysql(client: &mut Client) -> Result<Vec<Described>, Error> {
    let mut described = Vec::new();
    for row in rows(client, "SHOW SESSION VARIABLES")? {
        let Some(name) = row.into_iter().next() else { continue };
        if let Some(value) = value(client, &name) {
            let is_number = value.parse::<f64>().is_ok();
            described.push(Described { name, is_number, value, block: 1, ..Described::default() });
        }
    }
    Ok(described)
}

/// Two sessions that were opened one after the other show them differently.
fn volatile(
    server: SocketAddrV4,
    who: &Who,
    schema: &str,
    read: &[String],
) -> Result<BTreeSet<String>, Error> {
    let sql = select(read);
    let mut seen = Vec::new();
    for _ in 0..2 {
        let mut client = Client::open(server, who, schema)?;
        seen.push(rows(&mut client, &sql)?.concat());
        client.quit();
    }
    let differs = |at: &usize| seen.iter().any(|row| row.get(*at) != seen[0].get(*at));
    Ok((0..read.len()).filter(differs).filter_map(|at| read.get(at).cloned()).collect())
}

fn select(read: &[String]) -> String {
    let columns: Vec<String> = read.iter().map(|name| format!("@@session.{name}")).collect();
    format!("SELECT {}", columns.join(", "))
}

/// The first value that is taken and that changes something.
fn setting(client: &mut Client, one: &Described, names: &Names) -> Option<Setting> {
    let before = value(client, &one.name)?;
    for literal in literals(one) {
        let set = client.text(&names.fill(&format!("SET SESSION {} = {literal}", one.name)));
        if set != [Heard::Done] {
            continue;
        }
        let reads = value(client, &one.name)?;
        if reads != before || WRITE_ONLY.contains(&one.name.as_str()) {
            return Some(Setting { variable: one.name.clone(), literal, reads });
        }
    }
    None
}

fn literals(one: &Described) -> Vec<String> {
    if let Some((_, literal)) = CHOSEN.iter().find(|(name, _)| *name == one.name) {
        return vec![(*literal).to_owned()];
    }
    if one.is_number {
        return numbers(one);
    }
    let quoted = |word: &str| format!("'{word}'");
    let mut literals: Vec<String> = one.words.iter().map(|word| quoted(word)).collect();
    // A flag of a set of flags that are on or off.
    if let Some((flag, state)) = one.value.split(',').next().and_then(|first| first.split_once('=')) {
        let other = if state == "on" { "off" } else { "on" };
        literals.insert(0, quoted(&format!("{flag}={other}")));
    }
    literals.extend(WORDS.iter().map(|word| quoted(word)));
    literals
}

/// Near to the value that it has, so that the session goes on working.
fn numbers(one: &Described) -> Vec<String> {
    let block = one.block.max(1);
    let mut numbers: Vec<String> = Vec::new();
    match one.value.parse::<i128>() {
        // Zero often means "no limit", and one would be a tight one.
        Ok(0) => numbers.extend(["1000", "1"].map(str::to_owned)),
        Ok(now) => numbers.extend([now + block, now - block, now * 2, now / 2].map(|n| n.to_string())),
        Err(_) => {
            if let Ok(now) = one.value.parse::<f64>() {
                numbers.extend([now + 1.0, now / 2.0].map(|n| n.to_string()));
            }
        }
    }
    numbers.extend([one.max.clone(), one.min.clone(), "0".to_owned(), "1".to_owned()]);
    numbers.retain(|number| number.parse::<f64>().is_ok());
    numbers
}

fn value(client: &mut Client, variable: &str) -> Option<String> {
    match client.text(&format!("SELECT @@session.{variable}")).pop() {
        Some(Heard::Rows(rows)) => rows.concat().pop(),
        _ => None,
    }
}

/// The rows of a statement that must give some.
pub(crate) fn rows(client: &mut Client, sql: &str) -> Result<Vec<Vec<String>>, Error> {
    match client.text(sql).pop() {
        Some(Heard::Rows(rows)) => Ok(rows),
        other => Err(Error::Answer { what: sql.to_owned(), answer: format!("{other:?}") }),
    }
}
