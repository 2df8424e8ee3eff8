//! SplitMix sequences of what sessions do.

use std::fmt;

use weir_seeds::SplitMix;
use weir_tests::session::Param;

/// Sessions of a sequence.
pub(super) const SESSIONS: usize = 5;
/// Prepared statements that a session may have at a time.
pub(super) const SLOTS: usize = 2;
/// Sessions that may be tied to a connection at a time.
const TIED_MAX: usize = 1;

/// One thing that one session does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) session: usize,
    pub(super) action: Action,
}

/// What a session can do. Texts name schemas as `{p}a` and `{p}b` and the session's connection id as `{id}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    Query(String),
    InitDb(String),
    Ping,
    Prepare(usize, String),
    Execute(usize, Vec<Param>),
    /// Without the types of the parameters, if they were sent before.
    ExecuteAgain(usize, Vec<Param>),
    Close(usize),
    Reset,
    /// To the other user and back.
    ChangeUser(String),
    /// Leaves and comes back.
    Reconnect,
}

/// What MySQL 9 calls by another name. FOUND_ROWS() it knows, but warns of it, and not of the literal that Weir puts in
/// its place. And the parameter of a SET keeps the type of the first execution, on the connection where that was.
const AT_MYSQL: &[(&str, &str)] = &[
    ("tx_isolation", "transaction_isolation"),
    (" AS INT)", " AS SIGNED)"),
    ("FOUND_ROWS()", "0"),
    ("time_zone = ?", "time_zone = CONCAT(?)"),
];

/// A schema that there is not.
const NOWHERE: &str = "nowhere_at_all";

impl Step {
    /// Writes the text as MySQL understands it, where that is easy: elsewhere both twins get the same error.
    pub(super) fn adapt_to_mysql(&mut self) {
        if let Action::Query(text) | Action::Prepare(_, text) = &mut self.action {
            for (mariadb, mysql) in AT_MYSQL {
                *text = text.replace(mariadb, mysql);
            }
        }
        // MySQL adds the error of a COM_INIT_DB to those of the statement before, which another connection may know.
        if let Action::InitDb(schema) = &mut self.action
            && schema == NOWHERE
        {
            *schema = "{p}b".to_owned();
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.action {
            Action::Query(sql) => write!(f, "session {}: {sql}", self.session),
            other => write!(f, "session {}: -- {other:?}", self.session),
        }
    }
}

/// The numbers of a seed.
pub(super) fn random(seed: u64) -> SplitMix {
    SplitMix::new(seed.wrapping_mul(0x2545_F491_4F6C_DD1D))
}

/// A group of texts: how likely it is, and whether it ties its session to a connection.
struct Group {
    weight: usize,
    ties: bool,
    texts: &'static [&'static str],
}

/// In the texts: `#` is the session's number (its own tables), `%1` and `%2` are small numbers.
const GROUPS: &[Group] = &[
    Group { weight: 20, ties: false, texts: READS },
    Group { weight: 14, ties: false, texts: DIAGNOSTICS },
    Group { weight: 16, ties: false, texts: WRITES },
    Group { weight: 14, ties: false, texts: SETTINGS },
    Group { weight: 5, ties: false, texts: SCHEMAS },
    Group { weight: 5, ties: false, texts: FAILURES },
    Group { weight: 3, ties: false, texts: DEFINITIONS },
    Group { weight: 4, ties: false, texts: SEVERAL },
    Group { weight: 9, ties: true, texts: TRANSACTIONS },
    Group { weight: 4, ties: true, texts: USER_VARIABLES },
    Group { weight: 4, ties: true, texts: TEMPORARY },
    Group { weight: 3, ties: true, texts: LOCKS },
    Group { weight: 3, ties: true, texts: TEXT_PREPARE },
    Group { weight: 4, ties: true, texts: ROUTINES },
    Group { weight: 2, ties: true, texts: UNREADABLE },
];

const READS: &[&str] = &[
    "SELECT id, v FROM t# ORDER BY id",
    "SELECT COUNT(*), SUM(v), 'é' FROM t#",
    "SELECT * FROM {p}b.t# ORDER BY id LIMIT 3",
    "SELECT * FROM t# WHERE id = %1",
    "SELECT SQL_CALC_FOUND_ROWS id FROM t# ORDER BY id LIMIT 1",
    "SELECT 1/3, 'a' || 'b', NOT 1 BETWEEN -5 AND 5",
    "SELECT \"x\"",
    "SELECT DATABASE(), USER(), CURRENT_USER()",
    "SELECT 'a\\'b', 'c\\\\d', 'e\\nf'",
    "SELECT HEX('é'), LENGTH('é'), 'é', 'é' AS é",
    "SELECT GROUP_CONCAT(id ORDER BY id) FROM t#",
    "SELECT DATE_FORMAT('2001-02-03', '%M %W'), WEEK('2008-02-20'), FROM_UNIXTIME(1000)",
    "SELECT 'a' = 'A', COLLATION('a'), CHARSET('a')",
    "SELECT NOW() < '2010-01-01'",
    "SELECT v FROM t# WHERE v = 'x' OR v = '3x' ORDER BY id",
    "SELECT CAST('%1x' AS INT), v FROM t# ORDER BY id",
    "SELECT v FROM t# ORDER BY id LIMIT %1",
    "(SELECT id FROM t# ORDER BY id) UNION (SELECT %1) ORDER BY 1",
    "WITH c AS (SELECT v FROM t#) SELECT COUNT(*) FROM c",
    "SELECT v FROM t# ORDER BY id FOR UPDATE",
    "SELECT id FROM t# WHERE id IS NULL OR id = %2",
    "SHOW TABLES LIKE 't#'",
    "SHOW VARIABLES LIKE 'sql_mode'",
    "SELECT @@sql_mode, @@time_zone, @@autocommit, @@tx_isolation, @@character_set_client, @@collation_connection",
    "SELECT @@character_set_results, @@sql_select_limit, @@lc_time_names, @@div_precision_increment",
    "SELECT 1 WHERE 0",
    "VALUES (%1), (%2)",
    "SELECT REPEAT('y', 20000)",
];

const DIAGNOSTICS: &[&str] = &[
    "SELECT LAST_INSERT_ID()",
    "SELECT LAST_INSERT_ID(), ROW_COUNT(), FOUND_ROWS()",
    "SELECT ROW_COUNT()",
    "SELECT FOUND_ROWS()",
    "SELECT CONNECTION_ID() = {id} AS own",
    "SHOW WARNINGS",
    "SHOW ERRORS",
    "SHOW COUNT(*) WARNINGS",
    "SELECT @@warning_count, @@error_count",
    "SHOW WARNINGS LIMIT 1",
    "SELECT LAST_INSERT_ID(%1%2)",
    "SELECT @@last_insert_id",
    "SELECT ROW_COUNT() + 1, LAST_INSERT_ID() - 1",
    "INSERT INTO t# (v) VALUES (LAST_INSERT_ID())",
    "INSERT INTO t# (v) VALUES (ROW_COUNT())",
    "UPDATE t# SET v = FOUND_ROWS() WHERE id = %1",
];

const WRITES: &[&str] = &[
    "INSERT INTO t# (v) VALUES (%1)",
    "INSERT INTO t# (v) VALUES (%1), (%2)",
    "INSERT INTO t# VALUES (%1, %2)",
    "INSERT INTO {p}b.t# (v) VALUES (%1)",
    "UPDATE t# SET v = v + %1 WHERE id <= %2",
    "UPDATE t# SET v = v",
    "DELETE FROM t# WHERE id = %1",
    "DELETE FROM t# ORDER BY id LIMIT 1",
    "REPLACE INTO t# VALUES (%1, %2)",
    "INSERT INTO t# VALUES (%1, %2) ON DUPLICATE KEY UPDATE v = v + 1",
    "INSERT INTO t# VALUES (%1, %2) ON DUPLICATE KEY UPDATE id = LAST_INSERT_ID(id), v = v + 1",
    "INSERT INTO t# (v) SELECT v FROM t# ORDER BY id LIMIT 2",
    "INSERT INTO t# (v) VALUES ('abc')",
    "INSERT IGNORE INTO t# VALUES (%1, 'x')",
    "INSERT INTO t# (v) VALUES (%1) RETURNING id, v",
    "UPDATE t# SET v = LAST_INSERT_ID(v + %1) WHERE id = %2",
    "DELETE FROM t#",
    "TRUNCATE TABLE t#",
    "INSERT INTO t# (v) VALUES (LENGTH('é'))",
];

const SETTINGS: &[&str] = &[
    "SET sql_mode = ''",
    "SET sql_mode = 'ANSI'",
    "SET sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'",
    "SET sql_mode = 'PIPES_AS_CONCAT,STRICT_ALL_TABLES'",
    "SET sql_mode = DEFAULT",
    "SET SESSION sql_mode = CONCAT(@@sql_mode, ',NO_ZERO_DATE')",
    "SET time_zone = '+0%1:00'",
    "SET @@session.time_zone = DEFAULT",
    "SET @@time_zone = '-0%1:00', @@div_precision_increment = %2",
    "SET @@sql_mode = 'NO_BACKSLASH_ESCAPES'",
    "SET NAMES latin1",
    "SET NAMES utf8mb4",
    "SET NAMES utf8mb4 COLLATE utf8mb4_bin",
    "SET NAMES utf8mb3",
    "SET NAMES cp850 COLLATE cp850_bin",
    "SET CHARACTER SET latin1",
    "SET NAMES DEFAULT",
    "SET character_set_results = NULL",
    "SET character_set_results = latin2",
    "SET collation_connection = utf8mb4_unicode_ci",
    "SET character_set_connection = latin1",
    "SET character_set_client = latin1, character_set_results = utf8mb4",
    "SET div_precision_increment = %1",
    "SET group_concat_max_len = %1",
    "SET lc_time_names = 'de_DE', default_week_format = %1",
    "SET sql_select_limit = %1",
    "SET sql_select_limit = DEFAULT",
    "SET max_error_count = %1",
    "SET sql_notes = 0",
    "SET sql_safe_updates = 1",
    "SET sql_safe_updates = 0",
    "SET foreign_key_checks = 0, unique_checks = 0",
    "SET auto_increment_increment = 7",
    "SET timestamp = 1000000000",
    "SET timestamp = DEFAULT",
    "SET last_insert_id = %1%2",
    "SET @@identity = %1",
    "SET sql_auto_is_null = 1",
    "SET optimizer_switch = 'mrr=on'",
    "SET long_query_time = 0.5, wait_timeout = 1000",
    "SET default_storage_engine = MyISAM",
    "SET default_storage_engine = InnoDB, tx_isolation = 'READ-COMMITTED'",
    "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    "SET SESSION TRANSACTION READ ONLY",
    "SET SESSION TRANSACTION READ WRITE",
    "SET wsrep_sync_wait = 1",
    "SET session_track_schema = 0, sql_mode = ''",
    "SET session_track_state_change = 1",
    "SELECT @@session_track_schema, @@session.session_track_state_change",
    "SET STATEMENT time_zone = '+09:00' FOR SELECT @@time_zone, FROM_UNIXTIME(0)",
    "SET STATEMENT sql_mode = '' FOR INSERT INTO t# (v) VALUES ('%1z')",
    "SET GLOBAL nothing_of_the_kind = 1",
    "SET div_precision_increment = 5, no_such_variable = 1",
    "SET old_mode = ''",
    "SET pseudo_slave_mode = 0",
    "SET check_constraint_checks = 0, system_versioning_asof = DEFAULT",
];

const SCHEMAS: &[&str] = &[
    "USE {p}a",
    "USE {p}b",
    "USE `{p}a`",
    "USE nowhere_at_all",
    // Not one of the session's own: it would wait for whoever has locked a table there.
    "CREATE DATABASE IF NOT EXISTS mysql",
    "SELECT SCHEMA()",
];

const FAILURES: &[&str] = &[
    "SELECT * FROM nowhere",
    "SELECT nothing FROM t#",
    "SELEC 1",
    "INSERT INTO t# VALUES (1, 2, 3)",
    "INSERT INTO t# VALUES (1, 1), (1, 1)",
    "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'enough'",
    "SET time_zone = 'nowhere'",
    "",
    "-- nothing",
    "SELECT 'open",
];

const DEFINITIONS: &[&str] = &[
    "CREATE TABLE x# (a INT)",
    "DROP TABLE IF EXISTS x#",
    "DROP TABLE x#",
    "CREATE TABLE IF NOT EXISTS x# AS SELECT v FROM t#",
    "ALTER TABLE x# ADD COLUMN b INT",
    "SELECT * FROM x#",
];

/// For sessions that may send several statements at once; the others get an error.
const SEVERAL: &[&str] = &[
    "SET time_zone = '+0%1:00'; SELECT 1; SELECT * FROM nowhere; SELECT 2",
    "INSERT INTO t# (v) VALUES (%1); SELECT LAST_INSERT_ID()",
    "SELECT 1; SELECT 2",
    "USE {p}b; SELECT DATABASE(); SIGNAL SQLSTATE '45000'",
    "SELECT 1; SELECT CAST('a' AS INT)",
    "SET NAMES latin1; SELECT * FROM nowhere",
    "DO 0; SET sql_mode = ''; INSERT INTO t# VALUES (1, 1), (1, 1)",
];

const TRANSACTIONS: &[&str] = &[
    "BEGIN",
    "START TRANSACTION READ ONLY",
    "START TRANSACTION WITH CONSISTENT SNAPSHOT",
    "COMMIT",
    "COMMIT",
    "ROLLBACK",
    "ROLLBACK",
    "SAVEPOINT a",
    "ROLLBACK TO a",
    "RELEASE SAVEPOINT a",
    "COMMIT AND CHAIN",
    "SET autocommit = 0",
    "SET @@autocommit = 0",
    "SET autocommit = 1",
    "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET TRANSACTION READ ONLY",
    "BEGIN; INSERT INTO t# (v) VALUES (%1); COMMIT",
];

const USER_VARIABLES: &[&str] = &[
    "SET @x = %1",
    "SELECT @x, @y",
    "SELECT @x := %1",
    "SELECT %1 INTO @y",
    "SET @x = @x + 1",
    "DO @y := 'é'",
];

const TEMPORARY: &[&str] = &[
    "CREATE TEMPORARY TABLE tmp# (a INT)",
    "INSERT INTO tmp# VALUES (%1)",
    "SELECT * FROM tmp#",
    "DROP TEMPORARY TABLE tmp#",
    "DROP TABLE IF EXISTS tmp#",
    "CREATE TEMPORARY TABLE t# (id INT PRIMARY KEY AUTO_INCREMENT, v INT)",
    "DROP TEMPORARY TABLE IF EXISTS t#",
    "CREATE TEMPORARY TABLE IF NOT EXISTS {p}b.tmp# AS SELECT %1 AS a",
    "ALTER TABLE tmp# RENAME TO tmq#",
    "DROP TABLE tmq#",
];

const LOCKS: &[&str] = &[
    "SELECT GET_LOCK('{p}l#', 1)",
    "SELECT RELEASE_LOCK('{p}l#')",
    "SELECT IS_FREE_LOCK('{p}l#')",
    "DO RELEASE_ALL_LOCKS()",
    "LOCK TABLES t# WRITE",
    "UNLOCK TABLES",
    "HANDLER t# OPEN",
    "HANDLER t# READ FIRST",
    "HANDLER t# CLOSE",
];

const TEXT_PREPARE: &[&str] = &[
    "PREPARE ps FROM 'SELECT v FROM t# WHERE id > ? ORDER BY id'",
    "PREPARE ps FROM 'INSERT INTO t# (v) VALUES (?)'",
    "EXECUTE ps USING %1",
    "DEALLOCATE PREPARE ps",
    "EXECUTE IMMEDIATE 'SELECT %1'",
    "EXECUTE IMMEDIATE 'SET @x = %1'",
];

const ROUTINES: &[&str] = &[
    "CALL {p}a.p_set()",
    "CALL {p}a.p_fail(%1)",
    "CALL {p}a.p_temp(%1)",
    "CALL {p}a.p_rows(%1)",
    "CALL p_rows(%1)",
    "SELECT {p}a.f(%1)",
    "SELECT NEXTVAL({p}a.q#)",
    "SELECT LASTVAL({p}a.q#)",
    "BEGIN NOT ATOMIC SET @x = %1; SELECT @x; END",
];

const UNREADABLE: &[&str] =
    &["SET rand_seed1 = %1, rand_seed2 = %2", "SET insert_id = %1%2", "SET profiling = 0"];

/// Texts that are prepared, and how many parameters they have.
const PREPARED: &[(&str, usize)] = &[
    ("SELECT id, v FROM t# WHERE id > ? ORDER BY id", 1),
    ("SELECT v FROM t# ORDER BY id", 0),
    ("INSERT INTO t# (v) VALUES (?)", 1),
    ("INSERT INTO t# VALUES (?, ?)", 2),
    ("UPDATE t# SET v = ? WHERE id <= ?", 2),
    ("SELECT LAST_INSERT_ID()", 0),
    ("SELECT ?, ?, DATABASE(), 1/3", 2),
    ("SELECT \"x\", 'é', HEX('é')", 0),
    ("SELECT CAST('7q' AS INT), v FROM t# ORDER BY id", 0),
    ("SELECT @@sql_mode, @@time_zone", 0),
    ("SELECT * FROM nowhere", 0),
    ("CALL {p}a.p_rows(?)", 1),
    ("SET sql_mode = 'ANSI'", 0),
    ("SET time_zone = ?", 1),
    ("SET @@time_zone = ?", 1),
    ("BEGIN", 0),
    ("COMMIT", 0),
    ("DO 1", 0),
];

/// What the generator remembers of a session.
#[derive(Clone, Default)]
struct Memory {
    ties: bool,
    slots: [Option<usize>; SLOTS],
}

/// A sequence of so many steps.
pub(super) fn sequence(random: &mut SplitMix, steps: usize) -> Vec<Step> {
    let mut memory: Vec<Memory> = vec![Memory::default(); SESSIONS];
    // Sequences differ in what they are mostly about.
    let mut weights: Vec<usize> = GROUPS.iter().map(|group| group.weight).collect();
    for _ in 0..3 {
        let favourite = random.below(weights.len());
        weights[favourite] *= 3;
    }
    (0..steps)
        .map(|_| {
            let session = random.below(SESSIONS);
            Step { session, action: action(random, &weights, session, &mut memory) }
        })
        .collect()
}

fn action(random: &mut SplitMix, weights: &[usize], session: usize, memory: &mut [Memory]) -> Action {
    match random.below(100) {
        0..70 => text(random, weights, session, memory),
        70..90 => prepared(random, session, memory),
        90..93 => Action::InitDb(random.pick(&["{p}a", "{p}b", NOWHERE]).to_owned()),
        93 => Action::Ping,
        94..97 => {
            memory[session] = Memory::default();
            Action::Reset
        }
        97..99 => {
            memory[session] = Memory::default();
            Action::ChangeUser(random.pick(&["{p}a", "{p}b"]).to_owned())
        }
        _ => {
            memory[session] = Memory::default();
            Action::Reconnect
        }
    }
}

fn text(random: &mut SplitMix, weights: &[usize], session: usize, memory: &mut [Memory]) -> Action {
    let mut left = random.below(weights.iter().sum());
    let mut at = 0;
    while left >= weights[at] {
        left -= weights[at];
        at += 1;
    }
    let group = &GROUPS[at];
    let tied = memory.iter().enumerate().filter(|(other, memory)| *other != session && memory.ties).count();
    if group.ties && !memory[session].ties && tied >= TIED_MAX {
        // Otherwise the others would soon find no connection.
        return Action::Ping;
    }
    memory[session].ties |= group.ties;
    let text = random.pick(group.texts);
    Action::Query(fill(random, text, session))
}

fn fill(random: &mut SplitMix, text: &str, session: usize) -> String {
    let (one, two) = (1 + random.below(9), 1 + random.below(9));
    text.replace('#', &session.to_string()).replace("%1", &one.to_string()).replace("%2", &two.to_string())
}

fn prepared(random: &mut SplitMix, session: usize, memory: &mut [Memory]) -> Action {
    let slot = random.below(SLOTS);
    match (memory[session].slots[slot], random.below(10)) {
        (Some(at), 0..8) => {
            let params = (0..PREPARED[at].1).map(|_| param(random)).collect();
            if random.below(2) == 0 {
                Action::Execute(slot, params)
            } else {
                Action::ExecuteAgain(slot, params)
            }
        }
        (Some(_), 8) => {
            memory[session].slots[slot] = None;
            Action::Close(slot)
        }
        _ => {
            let at = random.below(PREPARED.len());
            memory[session].slots[slot] = Some(at);
            Action::Prepare(slot, fill(random, PREPARED[at].0, session))
        }
    }
}

fn param(random: &mut SplitMix) -> Param {
    match random.below(6) {
        0 => Param::Null,
        1 => Param::Text("+03:00".to_owned()),
        2 => Param::Text("é".to_owned()),
        _ => Param::Int(random.below(12) as i64),
    }
}
