//! Proves that unseen code has left nothing on a connection that Weir can't read: by the connection's server, or not
//! at all.
//!
//! | what | proof |
//! | --- | --- |
//! | locks, open HANDLERs, LOCK TABLES | no lock of the connection's: MariaDB's plugin METADATA_LOCK_INFO, MySQL's `performance_schema.metadata_locks` |
//! | temporary tables and sequences, handles of PREPARE, XA | no statement that makes one since the connection was reset: counters of its own, also for what runs in routines |
//! | a role | MariaDB: it is the login's; MySQL: no SET ROLE |
//! | session variables that were not reported (`SET @@x`) | all are as the connection's reports say |
//! | user variables | see [`crate::user_variables`] |
//!
//! COM_RESET_CONNECTION sets the counters back (seen on MariaDB 10.11 and MySQL 9.7). LASTVAL() of a
//! sequence is told by nobody.

use thiserror::Error;
use weir_protocol::wire::Reader;

use crate::defaults::Defaults;
use crate::state::State;
use crate::user_variables::packets;

/// Asks a MariaDB for locks and for the role.
pub const LOCKS_ON_MARIADB: &str = "SELECT CAST(CONVERT(CONCAT_WS(',', \
     (SELECT COUNT(*) FROM information_schema.METADATA_LOCK_INFO WHERE THREAD_ID=CONNECTION_ID()), \
     IF(CURRENT_ROLE() <=> (SELECT ROLE_NAME FROM information_schema.APPLICABLE_ROLES \
     WHERE IS_DEFAULT='YES' LIMIT 1),0,1)) USING latin1) AS BINARY)";

/// Asks a MySQL for locks. Those that the question itself takes show that locks are listed at all.
pub const LOCKS_ON_MYSQL: &str = "SELECT CAST(CONVERT(CONCAT(SUM(COALESCE(OBJECT_SCHEMA,'')<>'performance_schema'),',',\
     IF(COUNT(*)>0,0,1)) USING latin1) AS BINARY) \
     FROM performance_schema.metadata_locks WHERE OWNER_THREAD_ID=PS_CURRENT_THREAD_ID()";

/// Asks for the counters. (MySQL's `performance_schema.session_status` does not have them.)
pub const MADE_ON_MARIADB: &str = "SHOW SESSION STATUS WHERE Variable_name IN ('Com_create_temporary_table',\
     'Com_create_sequence','Com_prepare_sql','Com_ha_open','Com_xa_start','Com_flush')";
/// The same on MySQL.
pub const MADE_ON_MYSQL: &str = "SHOW SESSION STATUS WHERE Variable_name IN ('Com_create_table',\
     'Com_set_role','Com_prepare_sql','Com_ha_open','Com_xa_start','Com_flush')";
/// Counters in either question.
const COUNTERS: usize = 6;

/// What is there, or may be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Remains {
    /// Locks of any kind.
    #[error("a routine has left a lock or an open HANDLER")]
    Locks,
    /// MariaDB: another role. MySQL: it does not list its locks.
    #[error("a routine may have left a role, or locks that the server does not list")]
    RoleOrUnlisted,
    /// By the counters.
    #[error("temporary tables, sequences or handles of PREPARE were made on its connection")]
    Made,
    /// A session variable with a value that was not reported.
    #[error("a routine has set {0} unreported")]
    Variable(Box<str>),
    /// No such answer.
    #[error("the server's answer about what a routine has left can't be read")]
    Answer,
}

/// Reads the answer to the question for locks: the data packets of the reply.
///
/// # Errors
/// What is left.
pub fn check_locks(reply: &[u8]) -> Result<(), Remains> {
    let answer = only_value(reply).ok_or(Remains::Answer)?;
    match answer.split(|byte| *byte == b',').collect::<Vec<_>>().as_slice() {
        [b"0", b"0"] => Ok(()),
        [b"0", _] => Err(Remains::RoleOrUnlisted),
        [_, _] => Err(Remains::Locks),
        _ => Err(Remains::Answer),
    }
}

/// Reads the answer to the question for counters: all are there, and 0.
///
/// # Errors
/// If one is not.
pub fn check_made(reply: &[u8]) -> Result<(), Remains> {
    // The first packets are the definitions of the two columns.
    let rows: Vec<&[u8]> = packets(reply).map_err(|_| Remains::Answer)?.skip(2).collect();
    if rows.len() != COUNTERS {
        return Err(Remains::Answer);
    }
    for row in rows {
        let mut reader = Reader::new(row);
        let value = reader.lenenc_bytes().and_then(|_| reader.lenenc_bytes()).map_err(|_| Remains::Answer)?;
        match value {
            b"0" => {}
            digits if !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) => {
                return Err(Remains::Made);
            }
            _ => return Err(Remains::Answer),
        }
    }
    Ok(())
}

/// Whether a connection's variables (`names`, as its server tells them now) are what it has begun with and reported
/// since.
///
/// # Errors
/// The first one that is not.
pub fn check_variables(
    names: &[Box<str>],
    reply: &[u8],
    (separator, null): (u8, u8),
    begun_with: &Defaults,
    reported: &State,
) -> Result<(), Remains> {
    let answer = only_value(reply).ok_or(Remains::Answer)?;
    let now = Defaults::parse(names, answer, separator, null).ok_or(Remains::Answer)?;
    if !begun_with.is_known() {
        return Err(Remains::Answer);
    }
    for name in names {
        let told = reported.variable(name).or_else(|| begun_with.variables().variable(name));
        let is = now.variables().variable(name);
        if !is_same(told.unwrap_or_default(), is.unwrap_or_default()) {
            return Err(Remains::Variable(name.clone()));
        }
    }
    Ok(())
}

/// The same value, as reports and questions write it.
fn is_same(told: &str, is: &str) -> bool {
    let number = |text: &str| match text {
        "ON" => Some(1.0),
        "OFF" => Some(0.0),
        _ => text.parse::<f64>().ok(),
    };
    told == is || matches!((number(told), number(is)), (Some(told), Some(is)) if told == is)
}

/// The only field of the only row.
fn only_value(reply: &[u8]) -> Option<&[u8]> {
    let packets = packets(reply).ok()?;
    // The first one is the definition of the column.
    let [row] = *packets.skip(1).collect::<Vec<_>>().as_slice() else { return None };
    let mut reader = Reader::new(row);
    let value = reader.lenenc_bytes().ok()?;
    reader.is_empty().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(value: &str) -> Vec<u8> {
        let length = u8::try_from(value.len()).unwrap();
        [&[1, 0, 0, 1, b'd', length + 1, 0, 0, 2, length], value.as_bytes()].concat()
    }

    fn counters(values: &[&str]) -> Vec<u8> {
        let row = |value: &&str| {
            let length = u8::try_from(value.len()).unwrap();
            [&[length + 3, 0, 0, 3, 1, b'n', length], value.as_bytes()].concat()
        };
        let rows: Vec<Vec<u8>> = values.iter().map(row).collect();
        [b"\x01\0\0\x01d\x01\0\0\x02d".to_vec(), rows.concat()].concat()
    }

    #[test]
    fn nothing_is_left_only_if_all_is_known() {
        assert_eq!(check_locks(&reply("0,0")), Ok(()));
        assert_eq!(check_locks(&reply("1,0")), Err(Remains::Locks));
        assert_eq!(check_locks(&reply("0,1")), Err(Remains::RoleOrUnlisted));
        for answer in ["", "0", "0,0,0"] {
            assert_eq!(check_locks(&reply(answer)), Err(Remains::Answer), "{answer}");
        }
        assert_eq!(check_locks(b""), Err(Remains::Answer));
        assert_eq!(check_locks(&[reply("0,0"), reply("0,0")].concat()), Err(Remains::Answer));
        assert_eq!(check_made(&counters(&["0"; 6])), Ok(()));
        assert_eq!(check_made(&counters(&["0", "0", "0", "0", "0", "1"])), Err(Remains::Made));
        assert_eq!(check_made(&counters(&["0", "0", "0", "0", "0", ""])), Err(Remains::Answer));
        assert_eq!(check_made(&counters(&["0"; 5])), Err(Remains::Answer));
        assert_eq!(check_made(b""), Err(Remains::Answer));
    }

    #[test]
    fn variables_are_what_was_reported_of_them() {
        let names = ["autocommit", "lock_wait_timeout", "time_zone"].map(Box::<str>::from);
        let begun_with = Defaults::parse(&names, b"0\x1f1\x1f5.0\x1fSYSTEM", 0x1f, 0).unwrap();
        let reported = State::fresh().with_variable("time_zone", "+01:00");
        let check = |values: &str| {
            let answer = format!("0\x1f{}", values.replace(' ', "\x1f"));
            check_variables(&names, &reply(&answer), (0x1f, 0), &begun_with, &reported)
        };
        assert_eq!(check("ON 5.000000 +01:00"), Ok(()));
        assert_eq!(check("1 5 SYSTEM"), Err(Remains::Variable("time_zone".into())));
        assert_eq!(check("0 5 +01:00"), Err(Remains::Variable("autocommit".into())));
        assert_eq!(check("1 6 +01:00"), Err(Remains::Variable("lock_wait_timeout".into())));
        assert_eq!(check("1 5"), Err(Remains::Answer));
        let unknown = Defaults::default();
        let told = check_variables(&names, &reply("0\x1f1\x1f5\x1f+01:00"), (0x1f, 0), &unknown, &reported);
        assert_eq!(told, Err(Remains::Answer));
    }
}
