//! Reads and writes the two tables through which several Weirs agree: see [`weir_topology::EpochRow`].
//!
//! Names come from configurations and other Weirs, and are quoted; what is read back is checked like everything from
//! outside.

use std::sync::Arc;

use weir_client::{Connection, Error, QueryResult};
use weir_sql::literal;
use weir_topology::{
    Announcement, DrainRow, Endpoint, EpochRead, EpochRow, InstanceRow, Millis, NoEndpoint, Proposal,
    Switching,
};

/// Rows about servers that leave beyond these are passed over.
const DRAINS_MAX: usize = 10_000;
/// More rows of Weirs than this are not of Weirs in use, and passed over.
const INSTANCES_MAX: usize = 10_000;
/// ER_NO_SUCH_TABLE, ER_BAD_DB_ERROR.
const MISSING: [u16; 2] = [1146, 1049];
/// ER_TABLEACCESS_DENIED_ERROR, ER_COLUMNACCESS_DENIED_ERROR, ER_DBACCESS_DENIED_ERROR, ER_SPECIFIC_ACCESS_DENIED_ERROR.
const DENIED: [u16; 4] = [1142, 1143, 1044, 1227];

const MAKE: [&str; 3] = [
    "CREATE DATABASE IF NOT EXISTS weir",
    "CREATE TABLE IF NOT EXISTS weir.topology (writer_hostgroup INT UNSIGNED NOT NULL PRIMARY KEY, epoch BIGINT \
     UNSIGNED NOT NULL, version BIGINT UNSIGNED NOT NULL, writer VARCHAR(255) NOT NULL, writer_address VARCHAR(255) \
     NOT NULL, claimed_by VARCHAR(100) NOT NULL, is_open TINYINT UNSIGNED NOT NULL, switching_to VARCHAR(255) NOT \
     NULL, switching_by VARCHAR(100) NOT NULL) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    "CREATE TABLE IF NOT EXISTS weir.instances (writer_hostgroup INT UNSIGNED NOT NULL, instance VARCHAR(100) NOT NULL, \
     beat BIGINT UNSIGNED NOT NULL, epoch BIGINT UNSIGNED NOT NULL, lease_ms BIGINT UNSIGNED NOT NULL, sees_writer \
     TINYINT UNSIGNED NOT NULL, clear_of BIGINT UNSIGNED NOT NULL, PRIMARY KEY (writer_hostgroup, instance)) \
     ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
];

/// The third, which was not there from the beginning: without it the others go on.
const MAKE_DRAINS: &str = "CREATE TABLE IF NOT EXISTS weir.drains (writer_hostgroup INT UNSIGNED NOT NULL, server VARCHAR(255) NOT NULL, \
     instance VARCHAR(100) NOT NULL, wants_out TINYINT UNSIGNED NOT NULL, sessions BIGINT UNSIGNED NOT NULL, PRIMARY KEY \
     (writer_hostgroup, server, instance)) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin";

/// Under what condition a session writes to the tables. It is part of each statement, so that nothing can come between:
/// `SET GLOBAL read_only` waits for statements that are executed, and an account that read_only does not bind (READ ONLY
/// ADMIN) would otherwise write a transaction that no other server ever gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    /// None: Galera's nodes have what one of them has.
    Always,
    /// Only on a server that is not read_only: the writer of servers with replication, which may have ceased to be it.
    Writable,
}

impl Guard {
    /// For a session that has just been opened. Of statements that are replicated as such, each replica would ask itself:
    /// there is no condition then.
    pub(crate) fn of_replication(connection: &mut Connection) -> Self {
        // Servers that have no such variable know rows only.
        let format = connection.query("SELECT @@SESSION.binlog_format");
        let by_statement = format.is_ok_and(|format| format.first() == Some("STATEMENT"));
        if by_statement { Self::Always } else { Self::Writable }
    }

    /// Where rows are chosen.
    fn and(self) -> &'static str {
        match self {
            Self::Always => "",
            Self::Writable => " AND @@GLOBAL.read_only = 0",
        }
    }

    /// The values of a row that is inserted.
    fn values(self, values: &str) -> String {
        match self {
            Self::Always => format!("VALUES ({values})"),
            Self::Writable => format!("SELECT {values} FROM DUAL WHERE @@GLOBAL.read_only = 0"),
        }
    }
}

/// Why the tables could not be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// They are not there.
    #[error("{0}")]
    Missing(Error),
    /// The account may not.
    #[error("{0}")]
    Denied(Error),
    /// Reads can't be known to be fresh.
    #[error("{0} has no effect")]
    Unfit(&'static str),
    /// They hold what no Weir has written.
    #[error(transparent)]
    Malformed(#[from] RowFault),
    /// There is nobody to ask.
    #[error("no server works")]
    NoServer,
    /// It would keep to itself what is written there.
    #[error("the server is read_only")]
    ReadOnly,
    /// The server, the way to it, or another Weir was in the way.
    #[error("{0}")]
    Other(Error),
}

/// Why a row can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RowFault {
    /// A column is NULL, or missing.
    #[error("weir.topology: no text in column {0}")]
    NoText(usize),
    /// A column is no number.
    #[error("weir.topology: '{0}' is no number")]
    NoNumber(String),
    /// A column names no server.
    #[error("weir.topology: {0}")]
    NoEndpoint(#[from] NoEndpoint),
    /// In the row of a Weir.
    #[error("{fault} (instance '{instance}')")]
    OfInstance {
        /// What is wrong.
        fault: Box<RowFault>,
        /// The name in the row.
        instance: String,
    },
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        match error.code() {
            Some(code) if MISSING.contains(&code) => Self::Missing(error),
            Some(code) if DENIED.contains(&code) => Self::Denied(error),
            _ => Self::Other(error),
        }
    }
}

/// Makes what is missing of the tables. To be left alone where they are: it holds up the whole cluster for a moment.
pub(crate) fn make(connection: &mut Connection, guard: Guard) -> Result<(), Fault> {
    if guard == Guard::Writable && connection.query("SELECT @@GLOBAL.read_only")?.first() != Some("0") {
        return Err(Fault::ReadOnly);
    }
    for sql in MAKE {
        connection.query(sql)?;
    }
    Ok(())
}

/// Whether `weir.drains` can be used; `makes` it where it is missing and the account may.
pub(crate) fn has_drains(connection: &mut Connection, makes: bool) -> Result<bool, Fault> {
    let look = |connection: &mut Connection| {
        connection.query("SELECT 1 FROM weir.drains LIMIT 1").map(drop).map_err(Fault::from)
    };
    let seen = match look(connection) {
        Err(Fault::Missing(_)) if makes => match connection.query(MAKE_DRAINS).map(drop).map_err(Fault::from)
        {
            Ok(()) => look(connection),
            fault => fault,
        },
        seen => seen,
    };
    match seen {
        Ok(()) => Ok(true),
        Err(Fault::Denied(_) | Fault::Missing(_)) => Ok(false),
        Err(fault) => Err(fault),
    }
}

/// Writes the rows of this Weir about servers that leave, and removes those about others.
pub(crate) fn write_drains(
    connection: &mut Connection,
    hostgroup: u32,
    instance: &str,
    rows: &[DrainRow],
    guard: Guard,
) -> Result<(), Fault> {
    for DrainRow { server, wants_out, sessions, .. } in rows {
        let values = format!(
            "{hostgroup}, {}, {}, {}, {sessions}",
            literal::text(&server.to_string()),
            literal::text(instance),
            u8::from(*wants_out),
        );
        connection.query(&format!(
            "INSERT INTO weir.drains (writer_hostgroup, server, instance, wants_out, sessions) {} ON DUPLICATE KEY \
             UPDATE wants_out = VALUES(wants_out), sessions = VALUES(sessions)",
            guard.values(&values)
        ))?;
    }
    let kept: Vec<String> = rows.iter().map(|row| literal::text(&row.server.to_string())).collect();
    let others =
        if kept.is_empty() { String::new() } else { format!(" AND server NOT IN ({})", kept.join(", ")) };
    connection.query(&format!(
        "DELETE FROM weir.drains WHERE writer_hostgroup = {hostgroup} AND instance = {}{others}{}",
        literal::text(instance),
        guard.and()
    ))?;
    Ok(())
}

/// Removes what a Weir has said of servers that others want out; with `all` also of those that its own user wants out.
pub(crate) fn forget_drains(
    connection: &mut Connection,
    hostgroup: u32,
    instance: &str,
    all: bool,
    guard: Guard,
) -> Result<(), Fault> {
    let of_others = if all { "" } else { " AND wants_out = 0" };
    let instance = literal::text(instance);
    connection.query(&format!(
        "DELETE FROM weir.drains WHERE writer_hostgroup = {hostgroup} AND instance = {instance}{of_others}{}",
        guard.and()
    ))?;
    Ok(())
}

/// Removes what a Weir has said of one server.
pub(crate) fn release(
    connection: &mut Connection,
    hostgroup: u32,
    server: &Endpoint,
    instance: &str,
    guard: Guard,
) -> Result<(), Fault> {
    let (server, instance) = (literal::text(&server.to_string()), literal::text(instance));
    connection.query(&format!(
        "DELETE FROM weir.drains WHERE writer_hostgroup = {hostgroup} AND server = {server} AND instance = {instance}{}",
        guard.and()
    ))?;
    Ok(())
}

/// Reads a cluster's rows. The session must be one that waits before it reads.
pub(crate) fn read(
    connection: &mut Connection,
    hostgroup: u32,
    with_drains: bool,
    asked_at: Millis,
) -> Result<EpochRead, Fault> {
    understand(&connection.query(&question(hostgroup, with_drains))?, with_drains, asked_at)
}

/// What reads a cluster's rows.
pub(crate) fn question(hostgroup: u32, with_drains: bool) -> String {
    let drains = match with_drains {
        true => format!(
            " UNION ALL SELECT 2, wants_out, sessions, server, instance, '', 0, '', '' FROM weir.drains WHERE \
             writer_hostgroup = {hostgroup}"
        ),
        false => String::new(),
    };
    format!(
        "SELECT 0, epoch, version, writer, writer_address, claimed_by, is_open, switching_to, switching_by FROM \
         weir.topology WHERE writer_hostgroup = {hostgroup} UNION ALL SELECT 1, epoch, beat, instance, '', lease_ms, \
         sees_writer, clear_of, '' FROM weir.instances WHERE writer_hostgroup = {hostgroup}{drains}"
    )
}

/// What the answer to [`question`] says.
pub(crate) fn understand(
    result: &QueryResult,
    with_drains: bool,
    asked_at: Millis,
) -> Result<EpochRead, Fault> {
    let mut read = parse(result, asked_at)?;
    if with_drains {
        read.drains.get_or_insert_default();
    }
    Ok(read)
}

fn parse(result: &QueryResult, asked_at: Millis) -> Result<EpochRead, RowFault> {
    let mut read = EpochRead { asked_at, row: None, instances: Vec::new(), drains: None, malformed: None };
    for row in 0..result.rows.len() {
        let row = Row { result, row };
        match row.number(0)? {
            0 => {
                read.row = Some(row.epoch()?);
                continue;
            }
            2 => {
                let drains = read.drains.get_or_insert_default();
                match row.drain() {
                    Ok(drain) if drains.len() < DRAINS_MAX => drains.push(drain),
                    Ok(_) => read.malformed = Some(format!("weir.drains has more than {DRAINS_MAX} rows")),
                    Err(fault) => read.malformed = Some(fault.to_string()),
                }
                continue;
            }
            _ => {}
        }
        // Whose row can't be understood is no Weir, or one that writes its row anew and writes nothing else until then.
        match row.instance() {
            Ok(instance) if read.instances.len() < INSTANCES_MAX => read.instances.push(instance),
            Ok(_) => {
                read.malformed = Some(format!("there are more than {INSTANCES_MAX} rows of one cluster"))
            }
            Err(fault) => read.malformed = Some(fault.to_string()),
        }
    }
    Ok(read)
}

/// A row of what [`question`] brings.
struct Row<'r> {
    result: &'r QueryResult,
    row: usize,
}

impl Row<'_> {
    fn text(&self, column: usize) -> Result<&str, RowFault> {
        let text = self.result.text(self.row, column);
        text.ok_or(RowFault::NoText(column))
    }

    fn number(&self, column: usize) -> Result<u64, RowFault> {
        let text = self.text(column)?;
        text.parse().map_err(|_| RowFault::NoNumber(text.to_owned()))
    }

    fn endpoint(&self, column: usize) -> Result<Endpoint, RowFault> {
        Ok(self.text(column)?.parse::<Endpoint>()?)
    }

    fn epoch(&self) -> Result<EpochRow, RowFault> {
        let address = self.text(4)?;
        let is_switching = !self.text(7)?.is_empty();
        Ok(EpochRow {
            epoch: self.number(1)?,
            version: self.number(2)?,
            writer: self.endpoint(3)?,
            writer_address: (!address.is_empty()).then(|| address.to_owned()),
            claimed_by: self.text(5)?.into(),
            is_open: self.number(6)? != 0,
            switching: match is_switching {
                true => Some(Switching { to: self.endpoint(7)?, by: self.text(8)?.into() }),
                false => None,
            },
        })
    }

    fn drain(&self) -> Result<DrainRow, RowFault> {
        Ok(DrainRow {
            server: self.endpoint(3)?,
            instance: self.text(4)?.into(),
            wants_out: self.number(1)? != 0,
            sessions: self.number(2)?,
        })
    }

    fn instance(&self) -> Result<InstanceRow, RowFault> {
        let fault = |fault| RowFault::OfInstance {
            fault: Box::new(fault),
            instance: self.text(3).unwrap_or_default().to_owned(),
        };
        let number = |column| self.number(column).map_err(fault);
        let says = Announcement {
            epoch: number(1)?,
            lease_ms: number(5)?,
            sees_writer: number(6)? != 0,
            clear_of: number(7)?,
        };
        Ok(InstanceRow { instance: self.text(3)?.into(), beat: number(2)?, says })
    }
}

/// Writes the row of this Weir.
pub(crate) fn beat(
    connection: &mut Connection,
    hostgroup: u32,
    own: &InstanceRow,
    guard: Guard,
) -> Result<(), Fault> {
    let InstanceRow { instance, beat, says } = own;
    let Announcement { epoch, lease_ms, sees_writer, clear_of } = says;
    let values = format!(
        "{hostgroup}, {}, {beat}, {epoch}, {lease_ms}, {}, {clear_of}",
        literal::text(instance),
        u8::from(*sees_writer)
    );
    connection.query(&format!(
        "INSERT INTO weir.instances (writer_hostgroup, instance, beat, epoch, lease_ms, sees_writer, clear_of) {} ON \
         DUPLICATE KEY UPDATE beat = VALUES(beat), epoch = VALUES(epoch), lease_ms = VALUES(lease_ms), sees_writer = \
         VALUES(sees_writer), clear_of = VALUES(clear_of)",
        guard.values(&values)
    ))?;
    Ok(())
}

/// Removes the row of a Weir; with a beat only if it is still that one.
pub(crate) fn forget(
    connection: &mut Connection,
    hostgroup: u32,
    instance: &str,
    beat: Option<u64>,
    guard: Guard,
) -> Result<(), Fault> {
    let still = beat.map(|beat| format!(" AND beat = {beat}")).unwrap_or_default();
    let instance = literal::text(instance);
    connection.query(&format!(
        "DELETE FROM weir.instances WHERE writer_hostgroup = {hostgroup} AND instance = {instance}{still}{}",
        guard.and()
    ))?;
    Ok(())
}

/// Removes rows in which transactions of long ago have said that they were committed. Nobody asks for them any more, and whose row
/// is gone gets a new one. There may be no such table. Whether there may be more of them.
pub(crate) fn sweep_outcomes(connection: &mut Connection, guard: Guard) -> Result<bool, Fault> {
    const AT_ONCE: u64 = 1000;
    // It is to wait for no transaction, and to lock no row that it leaves.
    connection.query("SET SESSION innodb_lock_wait_timeout = 1")?;
    connection.query("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")?;
    let removed = connection.query(&format!(
        "DELETE FROM weir.outcomes WHERE written_at < NOW() - INTERVAL 1 DAY{} LIMIT {AT_ONCE}",
        guard.and()
    ))?;
    Ok(removed.ok.affected_rows == AT_ONCE)
}

/// Makes a proposed change, if the row is still the one that it was proposed for. Whether it was, shows in the next read.
pub(crate) fn propose(
    connection: &mut Connection,
    hostgroup: u32,
    instance: &Arc<str>,
    proposal: &Proposal,
    guard: Guard,
) -> Result<(), Fault> {
    connection.query(&statement(hostgroup, instance, proposal, guard))?;
    Ok(())
}

fn statement(hostgroup: u32, instance: &str, proposal: &Proposal, guard: Guard) -> String {
    let (from, set) = match proposal {
        Proposal::Claim { from: (0, 0), to, address, is_open } => {
            let values = format!(
                "{hostgroup}, 1, 1, {}, {}, {}, {}, '', ''",
                literal::text(&to.to_string()),
                literal::text(address.as_deref().unwrap_or_default()),
                literal::text(instance),
                u8::from(*is_open)
            );
            return format!(
                "INSERT IGNORE INTO weir.topology (writer_hostgroup, epoch, version, writer, writer_address, \
                 claimed_by, is_open, switching_to, switching_by) {}",
                guard.values(&values)
            );
        }
        Proposal::Claim { from, to, address, is_open } => {
            let (to, address) =
                (literal::text(&to.to_string()), literal::text(address.as_deref().unwrap_or_default()));
            let set = format!(
                "epoch = epoch + 1, writer = {to}, writer_address = {address}, claimed_by = {}, is_open = {}, \
                 switching_to = '', switching_by = ''",
                literal::text(instance),
                u8::from(*is_open)
            );
            (from, set)
        }
        Proposal::Open { from } => (from, "is_open = 1".to_owned()),
        Proposal::Ask { from, to } => {
            let (to, by) = (literal::text(&to.to_string()), literal::text(instance));
            (from, format!("switching_to = {to}, switching_by = {by}"))
        }
        Proposal::Unask { from } => (from, "switching_to = '', switching_by = ''".to_owned()),
    };
    let (epoch, version) = from;
    format!(
        "UPDATE weir.topology SET version = version + 1, {set} WHERE writer_hostgroup = {hostgroup} AND epoch = {epoch} \
         AND version = {version}{}",
        guard.and()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(rows: &[&[&str]]) -> QueryResult {
        let field = |text: &&str| Some(text.as_bytes().to_vec());
        let rows = rows.iter().map(|row| row.iter().map(field).collect()).collect();
        QueryResult { rows, ..QueryResult::default() }
    }

    #[test]
    fn rows_are_read_or_refused() {
        let epoch = ["0", "7", "12", "db1:3306", "10.0.0.1:3306", "weir-a", "1", "db2:3306", "weir-b"];
        let own = ["1", "7", "99", "weir-a", "", "5000", "1", "12", ""];
        let read = parse(&result(&[&epoch, &own]), Millis(5)).unwrap();
        let row = read.row.unwrap();
        assert_eq!((row.epoch, row.version, &*row.claimed_by, row.is_open), (7, 12, "weir-a", true));
        assert_eq!(row.switching.map(|switching| switching.to.to_string()).as_deref(), Some("db2:3306"));
        let says = Announcement { epoch: 7, lease_ms: 5000, sees_writer: true, clear_of: 12 };
        assert_eq!(read.instances, [InstanceRow { instance: "weir-a".into(), beat: 99, says }]);
        for (at, bad) in [(1, "x"), (1, "-1"), (3, "db1"), (7, "db2:"), (0, "")] {
            let mut row = epoch;
            row[at] = bad;
            assert!(parse(&result(&[&row]), Millis(5)).is_err(), "{at} {bad}");
        }
        // Of instances one bad row, or thousands of them, keep nobody from reading the others.
        let bad = ["1", "7", "99", "weir-b", "", "x", "1", "12", ""];
        let read = parse(&result(&[&epoch, &bad, &own]), Millis(5)).unwrap();
        assert_eq!((read.instances.len(), read.row.is_some()), (1, true));
        assert_eq!(read.malformed.as_deref(), Some("weir.topology: 'x' is no number (instance 'weir-b')"));
        let many: Vec<&[&str]> = vec![&own; INSTANCES_MAX + 1];
        let read = parse(&result(&many), Millis(5)).unwrap();
        assert_eq!(read.instances.len(), INSTANCES_MAX);
        assert!(read.malformed.unwrap().contains("more than 10000 rows"));
        assert!(parse(&result(&[&["0", "1"]]), Millis(5)).is_err());
        let drain = ["2", "1", "4", "db3:3306", "weir-b", "", "0", "", ""];
        let bad = ["2", "1", "4", "db3", "weir-b", "", "0", "", ""];
        let read = parse(&result(&[&drain, &bad]), Millis(5)).unwrap();
        let server = Endpoint::new("db3", 3306);
        let row = DrainRow { server, instance: "weir-b".into(), wants_out: true, sessions: 4 };
        assert_eq!((read.drains, read.malformed.is_some()), (Some(vec![row]), true));
        assert_eq!(understand(&result(&[]), true, Millis(5)).unwrap().drains, Some(Vec::new()));
    }

    #[test]
    fn a_change_is_made_to_the_version_that_was_read() {
        let to = Endpoint::new("db'1\\", 3306);
        let claim = |from| Proposal::Claim { from, to: to.clone(), address: None, is_open: false };
        let sql = statement(10, "a", &claim((3, 9)), Guard::Always);
        assert!(sql.ends_with("WHERE writer_hostgroup = 10 AND epoch = 3 AND version = 9"), "{sql}");
        assert!(sql.contains("writer = _utf8mb4 X'646227315C3A33333036'"), "{sql}");
        let first = |guard| statement(10, "a", &claim((0, 0)), guard);
        assert!(first(Guard::Always).starts_with("INSERT IGNORE"));
        // With replication by no server that has become read_only meanwhile.
        let sql = statement(10, "a", &claim((3, 9)), Guard::Writable);
        for sql in [sql, first(Guard::Writable)] {
            assert!(sql.ends_with("@@GLOBAL.read_only = 0"), "{sql}");
        }
    }
}
